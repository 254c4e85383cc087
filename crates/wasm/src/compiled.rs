//! Compilation of components, and loading of compiled ones from the disk cache.

use std::io;

use model::blob::BlobId;
use rustix::io::Errno;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::code_cache::{CodeCache, CodeKey};
use crate::engine::EngineFingerprint;
use crate::error::PrepareError;
use crate::truncate::truncate;

/// A compiled component with its code.
pub struct Compiled {
    component: Component,
    code: Vec<u8>,
}

impl Compiled {
    /// Compiles a component. May take seconds.
    pub fn new(engine: &Engine, id: BlobId, content: &[u8]) -> Result<Self, PrepareError> {
        if BlobId::of(content) != id {
            return Err(PrepareError::Unavailable { why: format!("the content read does not match {id}") });
        }
        if Engine::detect_precompiled(content).is_some() {
            return Err(PrepareError::NotAComponent {
                why: "it is already compiled code; upload the component itself".into(),
            });
        }
        let code = engine.precompile_component(content);
        let code = code.map_err(|error| PrepareError::NotAComponent { why: explain(content, &error) })?;
        Self::deserialize(engine, code)
    }

    /// Loads a component from the disk cache, if it is there.
    pub fn load(
        cache: &CodeCache,
        engine: &Engine,
        fingerprint: &EngineFingerprint,
        id: BlobId,
    ) -> Result<Option<Self>, PrepareError> {
        let code = cache.load(CodeKey::new(id, fingerprint));
        code.map(|code| Self::deserialize(engine, code)).transpose()
    }

    /// Stores the code in the disk cache. Only for components that can run.
    pub fn store(&self, cache: &CodeCache, fingerprint: &EngineFingerprint, id: BlobId) {
        cache.store(CodeKey::new(id, fingerprint), &self.code);
    }

    /// The code must be the unmodified result of a compilation; see the safety note.
    fn deserialize(engine: &Engine, code: Vec<u8>) -> Result<Self, PrepareError> {
        #[expect(unsafe_code, reason = "the engine has no safe function to load compiled code")]
        // SAFETY: the bytes were made by this engine's compiler, either just now or before they went through the disk
        // cache, which returns only code whose checksum matches the stored one.
        let component = unsafe { Component::deserialize(engine, &code) };
        let component = component.map_err(|error| load_error(&error))?;
        Ok(Self { component, code })
    }

    pub fn component(&self) -> &Component {
        &self.component
    }

    pub fn code_bytes(&self) -> usize {
        self.code.len()
    }
}

/// Reason for a compile error. Replaces the engine's message for a core module, which is hard to understand.
fn explain(content: &[u8], error: &wasmtime::Error) -> String {
    const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";
    if content.starts_with(CORE_MODULE) {
        return "it is a core module. Build it for WASI 0.2 (such as `wasm32-wasip2`), or convert it to a component"
            .into();
    }
    // Some messages of the engine have several lines; a reason has one.
    truncate(format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Loading fails either because of the component's requirements or because of the system's resources.
fn load_error(error: &wasmtime::Error) -> PrepareError {
    let why = truncate(format!("{error:#}"));
    let is_system_error = |cause: &(dyn std::error::Error + 'static)| cause.is::<io::Error>() || cause.is::<Errno>();
    if error.chain().any(is_system_error) { PrepareError::Host { why } } else { PrepareError::Unfit { why } }
}
