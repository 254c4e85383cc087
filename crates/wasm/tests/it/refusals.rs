//! Components that cannot be prepared.

use std::io;

use bytes::Bytes;
use model::blob::BlobId;
use proptest::prelude::*;
use wasm::{CORE_INSTANCES_MAX, GuestExit, Limits, MEMORIES_MAX, Metering, PrepareError};

use crate::guests::{noop, standalone, wat};
use crate::support::Fixture;

async fn prepare_error(component: &Bytes) -> PrepareError {
    let fixture = Fixture::new();
    let error = fixture.prepare(component, Metering::Off).await.unwrap_err();
    // The executor still works.
    assert_eq!(fixture.run(&noop(), Limits::default()).await.exit, GuestExit::Succeeded);
    error
}

#[tokio::test]
async fn garbage_is_not_a_component() {
    for garbage in ["", "garbage", "\0asm", "\0asm\x0d\0\x01\0 and then garbage"] {
        let refused = prepare_error(&Bytes::from(garbage)).await;
        assert!(matches!(refused, PrepareError::NotAComponent { .. }), "{garbage:?}: {refused}");
    }
}

#[tokio::test]
async fn a_core_module_is_refused_with_advice() {
    let refused = prepare_error(&wat("(module (func (export \"_start\")))")).await;
    assert!(refused.to_string().contains("wasm32-wasip2"), "{refused}");
}

#[tokio::test]
async fn compiled_code_is_refused() {
    // The engine's own format; loading it would execute it.
    let refused = prepare_error(&Bytes::from_static(b"\x7fELF\x02\x01\x01\xc8\x00\x00\x00\x00\x00\x00\x00\x00")).await;
    assert!(matches!(refused, PrepareError::NotAComponent { .. }), "{refused}");
}

#[tokio::test]
async fn unavailable_imports_are_named() {
    let component = wat(r#"(component
        (import "wasi:cli/environment@0.2.0" (instance (export "get-arguments" (func (result (list string))))))
        (import "wasi:http/outgoing-handler@0.2.0" (instance (export "handle" (func))))
        (import "acme:types/only@1.0.0" (instance))
        (import "launch-missiles" (func)))"#);
    let PrepareError::ForbiddenImports { names } = prepare_error(&component).await else { panic!() };
    assert_eq!(names, ["wasi:http/outgoing-handler@0.2.0", "launch-missiles"]);
}

#[tokio::test]
async fn an_available_import_of_another_type_is_named() {
    let component = wat(r#"(component
        (import "wasi:cli/environment@0.2.0" (instance (export "get-secrets" (func (result string))))))"#);
    let refused = prepare_error(&component).await;
    assert!(matches!(&refused, PrepareError::WrongImport { why } if why.contains("get-secrets")), "{refused}");
}

#[tokio::test]
async fn a_component_must_export_the_entry_function() {
    assert_eq!(prepare_error(&wat("(component)")).await, PrepareError::NoEntry);
    let other = wat(r#"(component
        (core module $m (func (export "run")))
        (core instance $i (instantiate $m))
        (func (export "run") (canon lift (core func $i "run"))))"#);
    assert_eq!(prepare_error(&other).await, PrepareError::NoEntry);
}

#[tokio::test]
async fn a_component_is_accepted_up_to_the_maximum_size() {
    let component = noop();
    let bytes = component.len();
    let fixture = Fixture::with(|options| options.component_bytes_max = bytes);
    fixture.prepare(&component, Metering::Off).await.unwrap();
    let fixture = Fixture::with(|options| options.component_bytes_max = bytes - 1);
    let refused = fixture.prepare(&component, Metering::Off).await.unwrap_err();
    assert_eq!(refused, PrepareError::TooLarge { bytes, bytes_max: bytes - 1 });
}

// FEATURES: E1
#[tokio::test]
async fn a_component_is_accepted_up_to_the_parts_of_a_slot() {
    let with_memories = |count: u32| {
        let memories = "(memory 1)".repeat(count as usize);
        standalone(&format!("{memories} (func (export \"run\") (result i32) i32.const 0)"))
    };
    let with_instances = |count: u32| {
        let others = "(core instance (instantiate $main-module))".repeat(count as usize - 1);
        wat(&format!(
            r#"(component
              (core module $main-module (func (export "run") (result i32) i32.const 0))
              (core instance $main (instantiate $main-module)) {others}
              (func $run (result (result)) (canon lift (core func $main "run")))
              (instance $entry (export "run" (func $run)))
              (export "wasi:cli/run@0.2.0" (instance $entry)))"#
        ))
    };
    let fixture = Fixture::new();
    for within in [with_memories(MEMORIES_MAX), with_instances(CORE_INSTANCES_MAX)] {
        assert_eq!(fixture.run(&within, Limits::default()).await.exit, GuestExit::Succeeded);
    }
    for beyond in [with_memories(MEMORIES_MAX + 1), with_instances(CORE_INSTANCES_MAX + 1)] {
        let refused = fixture.prepare(&beyond, Metering::Off).await.unwrap_err();
        assert!(matches!(refused, PrepareError::Unfit { .. }), "{refused}");
    }
}

// FEATURES: E1
#[tokio::test]
async fn a_component_with_more_initial_memory_than_a_slot_is_refused() {
    let fixture = Fixture::with(|options| options.memory_bytes_max = 1 << 20);
    let large = standalone(r#"(memory 17) (func (export "run") (result i32) i32.const 0)"#);
    let refused = fixture.prepare(&large, Metering::Off).await.unwrap_err();
    assert!(matches!(refused, PrepareError::Unfit { .. }), "{refused}");
}

#[tokio::test]
async fn unreadable_content_is_read_again_by_the_next_call() {
    let fixture = Fixture::new();
    let component = noop();
    let id = BlobId::of(&component);
    let failing = async { Err(io::Error::other("disk error")) };
    let refused = fixture.executor.prepare(id, Metering::Off, failing).await.unwrap_err();
    assert!(matches!(&refused, PrepareError::Unavailable { why } if why.contains("disk error")), "{refused}");
    let other = async { Ok(Bytes::from_static(b"something else")) };
    let refused = fixture.executor.prepare(id, Metering::Off, other).await.unwrap_err();
    assert!(matches!(refused, PrepareError::Unavailable { .. }), "{refused}");
    fixture.prepare(&component, Metering::Off).await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_component_bytes_cause_a_panic(
        head in prop_oneof![Just(&b""[..]), Just(&b"\0asm\x0d\0\x01\0"[..])],
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        prepare_any([head, &bytes].concat());
    }

    #[test]
    fn no_changed_byte_of_a_component_causes_a_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = noop().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        prepare_any(bytes);
    }
}

fn prepare_any(bytes: Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        if let Err(refused) = Fixture::new().prepare(&Bytes::from(bytes), Metering::Off).await {
            assert!(refused.is_permanent(), "{refused}");
        }
    });
}
