//! Compiled and linked code of a module.

use std::fmt;
use std::sync::Arc;

use model::blob::BlobId;
use wasm::host::{Compiled, truncate};
use wasm::{Metering, PrepareError};
use wasmtime::component::{Component, ComponentExportIndex, Instance, InstancePre, Linker};
use wasmtime::{Engine, Store};

use crate::bindings::{Module, ModuleIndices};
use crate::guest::Guest;
use crate::ticker::Ticker;

const RESTART: &str = "outlast:module/restart@0.1.0";
const AGGREGATE: &str = "outlast:module/aggregate@0.1.0";
const UPGRADE: &str = "outlast:module/upgrade@0.1.0";

/// Code of a module. Instances are made of it. Cheap to clone.
#[derive(Clone)]
pub struct Code(Arc<Inner>);

struct Inner {
    id: BlobId,
    metering: Metering,
    code_bytes: usize,
    linked: InstancePre<Guest>,
    required: ModuleIndices,
    optional: OptionalExports,
    ticker: Arc<Ticker>,
}

/// Functions that a module may export.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptionalExports {
    pub on_restart: Option<ComponentExportIndex>,
    pub aggregate: Option<ComponentExportIndex>,
    pub upgrade: Option<ComponentExportIndex>,
}

impl OptionalExports {
    fn of(component: &Component) -> Self {
        let function = |interface, name| {
            let interface = component.get_export_index(None, interface)?;
            component.get_export_index(Some(&interface), name)
        };
        Self {
            on_restart: function(RESTART, "on-restart"),
            aggregate: function(AGGREGATE, "aggregate"),
            upgrade: function(UPGRADE, "upgrade"),
        }
    }
}

impl Code {
    pub(crate) fn link(
        linker: &Linker<Guest>,
        id: BlobId,
        metering: Metering,
        compiled: &Compiled,
        ticker: Arc<Ticker>,
    ) -> Result<Self, PrepareError> {
        let component = compiled.component();
        let linked = linker.instantiate_pre(component).map_err(|error| wrong_import(&error))?;
        let required = ModuleIndices::new(&linked).map_err(|error| wrong_export(&error))?;
        let (code_bytes, optional) = (compiled.code_bytes(), OptionalExports::of(component));
        Ok(Self(Arc::new(Inner { id, metering, code_bytes, linked, required, optional, ticker })))
    }

    pub fn id(&self) -> BlobId {
        self.0.id
    }

    pub fn metering(&self) -> Metering {
        self.0.metering
    }

    /// Size of the compiled code.
    pub fn code_bytes(&self) -> usize {
        self.0.code_bytes
    }

    pub fn has_aggregate(&self) -> bool {
        self.0.optional.aggregate.is_some()
    }

    pub fn has_upgrade(&self) -> bool {
        self.0.optional.upgrade.is_some()
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.0.linked.engine()
    }

    /// A fresh instance, and its functions.
    pub(crate) fn instantiate(&self, store: &mut Store<Guest>) -> wasmtime::Result<(Instance, Module)> {
        let instance = self.0.linked.instantiate(&mut *store)?;
        let module = self.0.required.load(store, &instance)?;
        Ok((instance, module))
    }

    pub(crate) fn optional(&self) -> OptionalExports {
        self.0.optional
    }

    pub(crate) fn ticker(&self) -> &Ticker {
        &self.0.ticker
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code").field("id", &self.0.id).field("metering", &self.0.metering).finish_non_exhaustive()
    }
}

fn wrong_import(error: &wasmtime::Error) -> PrepareError {
    PrepareError::WrongImport { why: truncate(format!("{error:#}")) }
}

fn wrong_export(error: &wasmtime::Error) -> PrepareError {
    let why = format!("it does not implement the world `outlast:module/module@0.1.0`: {error:#}");
    PrepareError::Unfit { why: truncate(why) }
}
