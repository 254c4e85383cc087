//! Guests in text form.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Makes a component of a core module that implements a world of `wit/module.wit`.
pub fn component(world: &str, core: &str) -> Vec<u8> {
    let mut core = wat::parse_str(core).unwrap();
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(concat!(env!("CARGO_MANIFEST_DIR"), "/wit")).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).unwrap();
    let mut encoder = ComponentEncoder::default().module(&core).unwrap().validate(true);
    encoder.encode().unwrap()
}

/// A module with these functions besides the ones that every guest needs. `handle` gets the place and length of the
/// method's name first, then those of the body.
fn module(functions: &str) -> String {
    format!(
        r#"(module
  (import "outlast:module/local-store@0.1.0" "get" (func $get (param i32 i32 i32)))
  (import "outlast:module/local-store@0.1.0" "set" (func $set (param i32 i32 i32 i32 i32)))
  (import "outlast:module/local-store@0.1.0" "delete" (func $delete (param i32 i32)))
  (import "outlast:module/local-store@0.1.0" "list" (func $list (param i32 i32 i32 i32 i32 i32 i32)))
  (import "outlast:module/jobs@0.1.0" "submit" (func $submit (param i32 i32 i32)))
  (import "outlast:module/timers@0.1.0" "set" (func $set_timer (param i32 i32 i64 i32 i32 i32)))
  (import "outlast:module/logging@0.1.0" "log" (func $log (param i32 i32 i32)))
  (import "outlast:module/clock@0.1.0" "now" (func $now (result i64)))
  (memory (export "memory") 2)
  (global $heap (mut i32) (i32.const 65536))
  (data (i32.const 16) "count")
  (data (i32.const 32) "refused on purpose")
  (data (i32.const 64) "{{\"run\":{{\"echo\":{{\"value\":1}}}}}}")
  (func (export "cabi_realloc") (param $old i32) (param $old_bytes i32) (param $align i32) (param $bytes i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get $bytes)))
    (block $fits
      (br_if $fits (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
      (br_if $fits (i32.ne (i32.const -1)
        (memory.grow (i32.add (i32.const 1) (i32.div_u (local.get $bytes) (i32.const 65536))))))
      unreachable)
    (local.get $at))
  (func $free (global.set $heap (i32.const 65536)))
  (func (export "cabi_post_init") (param i32) (call $free))
  (func (export "cabi_post_on-event") (param i32) (call $free))
  (func (export "cabi_post_handle") (param i32) (call $free))

  ;; The counter in the local store, 0 if it is not there.
  (func $count (result i64)
    (call $get (i32.const 16) (i32.const 5) (i32.const 1024))
    (if (result i64) (i32.load8_u (i32.const 1024))
      (then (i64.load (i32.load (i32.const 1028))))
      (else (i64.const 0))))
  (func $set_count (param $to i64)
    (i64.store (i32.const 1040) (local.get $to))
    (call $set (i32.const 16) (i32.const 5) (i32.const 1040) (i32.const 8) (i32.const 1056)))
  ;; A reply of some bytes.
  (func $reply (param $at i32) (param $bytes i32) (result i32)
    (i32.store (i32.const 1100) (i32.const 0))
    (i32.store (i32.const 1104) (local.get $at))
    (i32.store (i32.const 1108) (local.get $bytes))
    (i32.const 1100))
  (func $reply_count (result i32)
    (i64.store (i32.const 1040) (call $count))
    (call $reply (i32.const 1040) (i32.const 8)))
  (func $refuse (result i32)
    (i32.store (i32.const 1100) (i32.const 1))
    (i32.store (i32.const 1104) (i32.const 1))
    (i32.store (i32.const 1108) (i32.const 32))
    (i32.store (i32.const 1112) (i32.const 18))
    (i32.const 1100))
  (func $unknown (result i32)
    (i32.store (i32.const 1100) (i32.const 1))
    (i32.store (i32.const 1104) (i32.const 0))
    (i32.const 1100))
  (func $ok (result i32) (i32.store (i32.const 1100) (i32.const 0)) (i32.const 1100))
  (func $failed (result i32)
    (i32.store (i32.const 1100) (i32.const 1))
    (i32.store (i32.const 1104) (i32.const 32))
    (i32.store (i32.const 1108) (i32.const 18))
    (i32.const 1100))
{functions})"#
    )
}

/// Methods by their first letter: `add` and `get` the counter, `refuse` after adding, `trap` after adding, `loop`,
/// `memory` without end, `big` reply, `jobs`, `delay` (a timer), `say` (log the body), `write` the body, `now`.
/// Events: every event adds one; one with a body is refused.
pub fn counter() -> Vec<u8> {
    component("module", &module(COUNTER))
}

const COUNTER: &str = r#"
  (func (export "init") (param i32 i32) (result i32) (call $ok))
  (func (export "on-event") (param i64 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (call $set_count (i64.add (call $count) (i64.const 1)))
    (if (result i32) (local.get 7) (then (call $failed)) (else (call $ok))))
  (func $starts (param $method i32) (param $letter i32) (result i32)
    (i32.eq (i32.load8_u (local.get $method)) (local.get $letter)))
  (func (export "handle") (param $key i32) (param i32) (param $method i32) (param i32) (param $body i32) (param $bytes i32)
    (result i32)
    (if (call $starts (local.get $method) (i32.const 97)) ;; add
      (then (call $set_count (i64.add (call $count) (i64.const 1))) (return (call $reply_count))))
    (if (call $starts (local.get $method) (i32.const 103)) (then (return (call $reply_count)))) ;; get
    (if (call $starts (local.get $method) (i32.const 114)) ;; refuse
      (then (call $set_count (i64.const 99)) (return (call $refuse))))
    (if (call $starts (local.get $method) (i32.const 116)) ;; trap
      (then (call $set_count (i64.const 99)) (unreachable)))
    (if (call $starts (local.get $method) (i32.const 108)) (then (loop $again (br $again)))) ;; loop
    (if (call $starts (local.get $method) (i32.const 109)) ;; memory
      (then (loop $more (br_if $more (i32.ne (i32.const -1) (memory.grow (i32.const 16))))) (unreachable)))
    (if (call $starts (local.get $method) (i32.const 98)) ;; big
      (then (return (call $reply (i32.const 0) (i32.const 131072)))))
    (if (call $starts (local.get $method) (i32.const 106)) ;; jobs
      (then
        (call $submit (i32.const 64) (i32.const 28) (i32.const 1200))
        (if (i32.load8_u (i32.const 1200)) (then (return (call $refuse))))
        (return (call $reply (i32.load (i32.const 1204)) (i32.load (i32.const 1208))))))
    (if (call $starts (local.get $method) (i32.const 100)) ;; delay
      (then
        (call $set_timer (i32.const 16) (i32.const 5) (i64.const 1500) (local.get $body) (local.get $bytes)
          (i32.const 1200))
        (return (call $reply (i32.const 0) (i32.const 0)))))
    (if (call $starts (local.get $method) (i32.const 115)) ;; say
      (then (call $log (i32.const 2) (local.get $body) (local.get $bytes)) (return (call $reply (i32.const 0) (i32.const 0)))))
    (if (call $starts (local.get $method) (i32.const 119)) ;; write
      (then
        (call $set (i32.const 16) (i32.const 5) (local.get $body) (local.get $bytes) (i32.const 1200))
        (if (i32.load8_u (i32.const 1200)) (then (return (call $refuse))))
        (return (call $reply (i32.const 0) (i32.const 0)))))
    (if (call $starts (local.get $method) (i32.const 110)) ;; now
      (then (i64.store (i32.const 1040) (call $now)) (return (call $reply (i32.const 1040) (i32.const 8)))))
    (call $unknown))
"#;

/// `init` returns an error.
pub fn init_fails() -> Vec<u8> {
    component("module", &module(INIT_FAILS))
}

const INIT_FAILS: &str = r#"
  (func (export "init") (param i32 i32) (result i32) (call $failed))
  (func (export "on-event") (param i64 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (call $ok))
  (func (export "handle") (param i32 i32 i32 i32 i32 i32) (result i32) (call $unknown))
"#;

/// All optional exports: a restart sets the counter to 1000, `aggregate` returns the number of replies as a byte,
/// `upgrade` sets the counter to 7.
pub fn full() -> Vec<u8> {
    component("full", &module(FULL))
}

const FULL: &str = r#"
  (func (export "init") (param i32 i32) (result i32) (call $ok))
  (func (export "on-event") (param i64 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (call $ok))
  (func (export "handle") (param i32 i32 i32 i32 i32 i32) (result i32) (call $reply_count))
  (func (export "outlast:module/restart@0.1.0#on-restart") (param i32 i32 i32) (call $set_count (i64.const 1000)))
  (func (export "outlast:module/aggregate@0.1.0#aggregate") (param i32 i32 i32 i32) (result i32)
    (i32.store8 (i32.const 1040) (local.get 3))
    (call $reply (i32.const 1040) (i32.const 1)))
  (func (export "outlast:module/upgrade@0.1.0#upgrade") (param i32 i32 i32 i32) (result i32)
    (call $set_count (i64.const 7)) (call $ok))
"#;
