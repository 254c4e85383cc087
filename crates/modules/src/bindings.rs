//! Bindings of the module world, generated from `wit/module.wit`.

wasmtime::component::bindgen!({
    path: "wit",
    world: "module",
    imports: { default: trappable },
});
