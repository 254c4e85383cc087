//! Keeps what a guest writes to files within its limit.
//!
//! WASI itself does not count. So the few functions that make a file longer, or make a new one, are put
//! in front of WASI's own: they pay from the guest's quota first, and say «no space» when it is used up.

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

/// The interface as `wasmtime-wasi` names it. If a new version names it otherwise, the tests of the limit fail.
const INTERFACE: &str = "wasi:filesystem/types@0.2.12";

/// What a guest may still write.
#[derive(Debug)]
pub(crate) struct Quota {
    /// Shared with the streams that the guest has opened.
    bytes: Arc<AtomicU64>,
    entries: u32,
}

impl Quota {
    pub fn new(bytes: u64) -> Self {
        Self { bytes: Arc::new(AtomicU64::new(bytes)), entries: ENTRIES_MAX }
    }

    fn pay_entry(&mut self) -> FsResult<()> {
        self.entries = self.entries.checked_sub(1).ok_or(FsErrorCode::InsufficientSpace)?;
        Ok(())
    }
}

/// All or nothing; whether there was enough.
fn pay(quota: &AtomicU64, bytes: u64) -> bool {
    quota.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
}

impl Guest {
    /// Pays for `bytes` at this place of a file, and for the gap that this leaves behind the file's end.
    fn pay_bytes(&mut self, file: &File, at: u64, bytes: u64) -> FsResult<()> {
        let size = match at {
            0 => 0,
            _ => self.filesystem().stat(Resource::new_borrow(file.rep()))?.size,
        };
        let price = at.saturating_sub(size).saturating_add(bytes);
        if pay(&self.quota.bytes, price) { Ok(()) } else { Err(FsErrorCode::InsufficientSpace.into()) }
    }

    /// Makes a stream pay for what is written to it.
    fn count(&mut self, stream: Resource<DynOutputStream>) -> FsResult<Resource<DynOutputStream>> {
        let quota = self.quota.bytes.clone();
        let slot = self.table.get_mut(&stream)?;
        let inner = std::mem::replace(slot, Box::new(ClosedOutputStream));
        *slot = Box::new(Counted { inner, quota });
        Ok(stream)
    }
}

type File = Resource<Descriptor>;
type Store<'a> = StoreContextMut<'a, Guest>;
type Answer<T> = wasmtime::Result<(Result<T, ErrorCode>,)>;

/// Calls into WASI and puts its errors into the guest's terms.
fn answer<T>(mut store: Store<'_>, call: impl FnOnce(&mut Guest) -> FsResult<T>) -> Answer<T> {
    let guest = store.data_mut();
    let outcome = match call(guest) {
        Ok(value) => Ok(value),
        Err(error) => Err(guest.filesystem().convert_error_code(error)?),
    };
    Ok((outcome,))
}

/// Puts the counting functions in front of WASI's own.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    let mut types = linker.instance(INTERFACE)?;
    link_bytes(&mut types)?;
    link_entries(&mut types)
}

fn link_bytes(types: &mut LinkerInstance<'_, Guest>) -> wasmtime::Result<()> {
    types.func_wrap("[method]descriptor.write", |store: Store<'_>, (file, bytes, at): (File, Vec<u8>, u64)| {
        answer(store, |guest| {
            guest.pay_bytes(&file, at, bytes.len() as u64)?;
            guest.filesystem().write(file, bytes, at)
        })
    })?;
    types.func_wrap("[method]descriptor.set-size", |store: Store<'_>, (file, size): (File, u64)| {
        answer(store, |guest| {
            guest.pay_bytes(&file, size, 0)?;
            guest.filesystem().set_size(file, size)
        })
    })?;
    types.func_wrap("[method]descriptor.write-via-stream", |store: Store<'_>, (file, at): (File, u64)| {
        answer(store, |guest| {
            guest.pay_bytes(&file, at, 0)?;
            let stream = guest.filesystem().write_via_stream(file, at)?;
            guest.count(stream)
        })
    })?;
    types.func_wrap("[method]descriptor.append-via-stream", |store: Store<'_>, (file,): (File,)| {
        answer(store, |guest| {
            let stream = guest.filesystem().append_via_stream(file)?;
            guest.count(stream)
        })
    })
}

fn link_entries(types: &mut LinkerInstance<'_, Guest>) -> wasmtime::Result<()> {
    type Open = (File, PathFlags, String, OpenFlags, DescriptorFlags);
    types.func_wrap("[method]descriptor.open-at", |store: Store<'_>, (dir, follow, path, how, flags): Open| {
        answer(store, |guest| {
            if how.contains(OpenFlags::CREATE) {
                guest.quota.pay_entry()?;
            }
            guest.filesystem().open_at(dir, follow, path, how, flags)
        })
    })?;
    types.func_wrap("[method]descriptor.create-directory-at", |store: Store<'_>, (dir, path): (File, String)| {
        answer(store, |guest| {
            guest.quota.pay_entry()?;
            guest.filesystem().create_directory_at(dir, path)
        })
    })?;
    type Symlink = (File, String, String);
    types.func_wrap("[method]descriptor.symlink-at", |store: Store<'_>, (dir, to, name): Symlink| {
        answer(store, |guest| {
            guest.quota.pay_entry()?;
            guest.filesystem().symlink_at(dir, to, name)
        })
    })?;
    type Link = (File, PathFlags, String, File, String);
    types.func_wrap("[method]descriptor.link-at", |store: Store<'_>, (dir, follow, old, to, new): Link| {
        answer(store, |guest| {
            guest.quota.pay_entry()?;
            guest.filesystem().link_at(dir, follow, old, to, new)
        })
    })
}

/// A stream to a file that pays for what goes through it.
///
/// It writes at once, on the guest's thread: WASI's own would leave the work to another thread, and a guest
/// that ends without asking would leave its files unfinished.
struct Counted {
    inner: DynOutputStream,
    quota: Arc<AtomicU64>,
}

impl Counted {
    fn pay(&self, bytes: &Bytes) -> StreamResult<()> {
        if pay(&self.quota, bytes.len() as u64) {
            return Ok(());
        }
        Err(StreamError::LastOperationFailed(io::Error::from(Errno::NOSPC).into()))
    }
}

#[async_trait]
impl OutputStream for Counted {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.pay(&bytes)?;
        in_tokio(self.inner.blocking_write_and_flush(bytes))
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.pay(&bytes)?;
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
impl Pollable for Counted {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_used_up_to_the_last_byte_and_not_beyond() {
        let quota = Quota::new(10);
        assert!(pay(&quota.bytes, 4));
        assert!(!pay(&quota.bytes, 7));
        assert!(pay(&quota.bytes, 6));
        assert!(!pay(&quota.bytes, 1));
    }

    #[test]
    fn so_many_entries_and_no_more() {
        let mut quota = Quota::new(0);
        for _ in 0..ENTRIES_MAX {
            quota.pay_entry().unwrap();
        }
        assert!(quota.pay_entry().is_err());
    }
}
