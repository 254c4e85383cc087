//! Quota for a guest's file writes.
//!
//! WASI has no quota. The few functions that extend or create files are wrapped: they charge the guest's quota first
//! and return `insufficient-space` when it is exhausted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rustix::io::Errno;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, LinkerInstance, Resource};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::filesystem::WasiFilesystemView as _;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode as FsErrorCode;
use wasmtime_wasi::p2::bindings::sync::filesystem::types::{
    Descriptor, DescriptorFlags, ErrorCode, Host as _, HostDescriptor as _, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::pipe::ClosedOutputStream;
use wasmtime_wasi::p2::{DynOutputStream, FsResult, OutputStream, Pollable, StreamError, StreamResult};
use wasmtime_wasi::runtime::in_tokio;

use crate::ENTRIES_MAX;
use crate::guest::Guest;

/// Interface name used by `wasmtime-wasi`. If a new version changes it, the tests of the limit fail.
const INTERFACE: &str = "wasi:filesystem/types@0.2.12";

/// Remaining quota of a guest.
#[derive(Debug)]
pub(crate) struct Quota {
    /// Shared with the guest's open streams.
    bytes: Arc<AtomicU64>,
    entries: u32,
}

impl Quota {
    pub fn new(bytes: u64) -> Self {
        Self { bytes: Arc::new(AtomicU64::new(bytes)), entries: ENTRIES_MAX }
    }

    fn charge_entry(&mut self) -> FsResult<()> {
        self.entries = self.entries.checked_sub(1).ok_or(FsErrorCode::InsufficientSpace)?;
        Ok(())
    }
}

/// Charges all bytes or none. Returns whether the quota sufficed.
fn charge(quota: &AtomicU64, bytes: u64) -> bool {
    quota.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
}

impl Guest {
    /// Charges a write of `bytes` at offset `at`, including the gap between the file's end and `at`.
    fn charge_bytes(&mut self, file: &File, at: u64, bytes: u64) -> FsResult<()> {
        let size = match at {
            0 => 0,
            _ => self.filesystem().stat(Resource::new_borrow(file.rep()))?.size,
        };
        let charged = at.saturating_sub(size).saturating_add(bytes);
        if charge(&self.quota.bytes, charged) { Ok(()) } else { Err(FsErrorCode::InsufficientSpace.into()) }
    }

    /// Charges all writes to the stream.
    fn apply_quota(&mut self, stream: Resource<DynOutputStream>) -> FsResult<Resource<DynOutputStream>> {
        let quota = self.quota.bytes.clone();
        let slot = self.table.get_mut(&stream)?;
        let inner = std::mem::replace(slot, Box::new(ClosedOutputStream));
        *slot = Box::new(QuotaStream { inner, quota });
        Ok(stream)
    }
}

type File = Resource<Descriptor>;
type Store<'a> = StoreContextMut<'a, Guest>;
type HostResult<T> = wasmtime::Result<(Result<T, ErrorCode>,)>;

/// Calls WASI and converts its errors to guest error codes.
fn call_wasi<T>(mut store: Store<'_>, call: impl FnOnce(&mut Guest) -> FsResult<T>) -> HostResult<T> {
    let guest = store.data_mut();
    let outcome = match call(guest) {
        Ok(value) => Ok(value),
        Err(error) => Err(guest.filesystem().convert_error_code(error)?),
    };
    Ok((outcome,))
}

/// Replaces WASI's functions by the charging ones.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    let mut types = linker.instance(INTERFACE)?;
    link_bytes(&mut types)?;
    link_entries(&mut types)
}

fn link_bytes(types: &mut LinkerInstance<'_, Guest>) -> wasmtime::Result<()> {
    types.func_wrap("[method]descriptor.write", |store: Store<'_>, (file, bytes, at): (File, Vec<u8>, u64)| {
        call_wasi(store, |guest| {
            guest.charge_bytes(&file, at, bytes.len() as u64)?;
            guest.filesystem().write(file, bytes, at)
        })
    })?;
    types.func_wrap("[method]descriptor.set-size", |store: Store<'_>, (file, size): (File, u64)| {
        call_wasi(store, |guest| {
            guest.charge_bytes(&file, size, 0)?;
            guest.filesystem().set_size(file, size)
        })
    })?;
    types.func_wrap("[method]descriptor.write-via-stream", |store: Store<'_>, (file, at): (File, u64)| {
        call_wasi(store, |guest| {
            guest.charge_bytes(&file, at, 0)?;
            let stream = guest.filesystem().write_via_stream(file, at)?;
            guest.apply_quota(stream)
        })
    })?;
    types.func_wrap("[method]descriptor.append-via-stream", |store: Store<'_>, (file,): (File,)| {
        call_wasi(store, |guest| {
            let stream = guest.filesystem().append_via_stream(file)?;
            guest.apply_quota(stream)
        })
    })
}

fn link_entries(types: &mut LinkerInstance<'_, Guest>) -> wasmtime::Result<()> {
    type Open = (File, PathFlags, String, OpenFlags, DescriptorFlags);
    types.func_wrap("[method]descriptor.open-at", |store: Store<'_>, (dir, follow, path, how, flags): Open| {
        call_wasi(store, |guest| {
            if how.contains(OpenFlags::CREATE) {
                guest.quota.charge_entry()?;
            }
            guest.filesystem().open_at(dir, follow, path, how, flags)
        })
    })?;
    types.func_wrap("[method]descriptor.create-directory-at", |store: Store<'_>, (dir, path): (File, String)| {
        call_wasi(store, |guest| {
            guest.quota.charge_entry()?;
            guest.filesystem().create_directory_at(dir, path)
        })
    })?;
    type Symlink = (File, String, String);
    types.func_wrap("[method]descriptor.symlink-at", |store: Store<'_>, (dir, to, name): Symlink| {
        call_wasi(store, |guest| {
            guest.quota.charge_entry()?;
            guest.filesystem().symlink_at(dir, to, name)
        })
    })?;
    type Link = (File, PathFlags, String, File, String);
    types.func_wrap("[method]descriptor.link-at", |store: Store<'_>, (dir, follow, old, to, new): Link| {
        call_wasi(store, |guest| {
            guest.quota.charge_entry()?;
            guest.filesystem().link_at(dir, follow, old, to, new)
        })
    })
}

/// File stream that charges its writes to the quota.
///
/// It writes synchronously on the guest's thread. WASI's own stream writes on another thread, so the files of a guest
/// that ends without a flush would be incomplete.
struct QuotaStream {
    inner: DynOutputStream,
    quota: Arc<AtomicU64>,
}

impl QuotaStream {
    fn charge(&self, bytes: &Bytes) -> StreamResult<()> {
        if charge(&self.quota, bytes.len() as u64) {
            return Ok(());
        }
        Err(StreamError::LastOperationFailed(io::Error::from(Errno::NOSPC).into()))
    }
}

#[async_trait]
impl OutputStream for QuotaStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.charge(&bytes)?;
        in_tokio(self.inner.blocking_write_and_flush(bytes))
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.charge(&bytes)?;
        self.inner.blocking_write_and_flush(bytes).await
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.inner.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.inner.check_write()
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }
}

#[async_trait]
impl Pollable for QuotaStream {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_can_be_used_up_to_the_last_byte() {
        let quota = Quota::new(10);
        assert!(charge(&quota.bytes, 4));
        assert!(!charge(&quota.bytes, 7));
        assert!(charge(&quota.bytes, 6));
        assert!(!charge(&quota.bytes, 1));
    }

    #[test]
    fn created_entries_are_limited() {
        let mut quota = Quota::new(0);
        for _ in 0..ENTRIES_MAX {
            quota.charge_entry().unwrap();
        }
        assert!(quota.charge_entry().is_err());
    }
}
