//! Allowed imports of a component.

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker};

use crate::error::PrepareError;
use crate::guest::Guest;
use crate::interrupt::PollHost;
use crate::truncate::{truncate, truncate_names};
use crate::{file_quota, interrupt};

/// WASI 0.2 interfaces available to jobs. The socket interfaces are included because many toolchains import them
/// whether or not they are used; they deny everything.
const INTERFACES: [&str; 27] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

/// Linker with all host functions.
pub(crate) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<Guest>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_sync(&mut linker)?;
    linker.allow_shadowing(true);
    interrupt::link(&mut linker, |guest: &mut Guest| PollHost {
        table: &mut guest.table,
        stop_conditions: &guest.stop_conditions,
    })?;
    file_quota::link(&mut linker)?;
    Ok(linker)
}

/// The reason why linking failed.
pub(crate) fn link_error(component: &Component, error: &wasmtime::Error) -> PrepareError {
    let engine = component.engine();
    let ty = component.component_type();
    let forbidden =
        ty.imports(engine).filter(|(name, import)| !is_allowed(name) && needs_implementation(engine, &import.ty));
    let names = truncate_names(forbidden.map(|(name, _)| name.to_owned()));
    if names.is_empty() {
        return PrepareError::WrongImport { why: truncate(format!("{error:#}")) };
    }
    PrepareError::ForbiddenImports { names }
}

/// Later versions than 0.2 are different interfaces with the same name.
fn is_allowed(import: &str) -> bool {
    let (interface, version) = import.split_once('@').unwrap_or((import, ""));
    INTERFACES.contains(&interface) && version.starts_with("0.2.")
}

/// Whether an import needs an implementation. An interface that consists only of types needs none.
fn needs_implementation(engine: &wasmtime::Engine, import: &ComponentItem) -> bool {
    match import {
        ComponentItem::ComponentInstance(instance) => {
            instance.exports(engine).any(|(_, export)| needs_implementation(engine, &export.ty))
        }
        ComponentItem::Type(_) => false,
        ComponentItem::ComponentFunc(_)
        | ComponentItem::CoreFunc(_)
        | ComponentItem::Module(_)
        | ComponentItem::Component(_)
        | ComponentItem::Resource(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_allowed_by_name_and_version() {
        assert!(is_allowed("wasi:cli/stdout@0.2.3"));
        assert!(!is_allowed("wasi:cli/stdout@0.3.0"));
        assert!(!is_allowed("wasi:cli/stdout"));
        assert!(!is_allowed("wasi:http/outgoing-handler@0.2.0"));
        assert!(!is_allowed("stdout"));
    }
}
