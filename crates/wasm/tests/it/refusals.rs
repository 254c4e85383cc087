//! What is not run at all, and the reason that is given.

use std::io;

use bytes::Bytes;
use model::blob::BlobId;
use proptest::prelude::*;
use wasm::{CORE_INSTANCES_MAX, Limits, MEMORIES_MAX, Metering, Refused, Verdict};

use crate::common::Fixture;
use crate::guests::{alone, noop, wat};

async fn refusal(component: &Bytes) -> Refused {
    let fixture = Fixture::new();
    let refused = fixture.prepare(component, Metering::Off).await.unwrap_err();
    // The node goes on.
    assert_eq!(fixture.run(&noop(), Limits::default()).await.verdict, Verdict::Succeeded);
    refused
}

#[tokio::test]
async fn garbage_is_not_a_component() {
    for garbage in ["", "garbage", "\0asm", "\0asm\x0d\0\x01\0 and then nonsense"] {
        let refused = refusal(&Bytes::from(garbage)).await;
        assert!(matches!(refused, Refused::NotAComponent { .. }), "{garbage:?}: {refused}");
    }
}

#[tokio::test]
async fn a_core_module_is_not_a_component_and_the_reason_says_what_to_do() {
    let refused = refusal(&wat("(module (func (export \"_start\")))")).await;
    assert!(refused.to_string().contains("wasm32-wasip2"), "{refused}");
}

#[tokio::test]
async fn code_that_is_compiled_already_is_not_taken() {
    // It looks like the engine's own format; loading it would be running it.
    let refused = refusal(&Bytes::from_static(b"\x7fELF\x02\x01\x01\xc8\x00\x00\x00\x00\x00\x00\x00\x00")).await;
    assert!(matches!(refused, Refused::NotAComponent { .. }), "{refused}");
}

#[tokio::test]
async fn imports_that_no_job_gets_are_named() {
    let component = wat(r#"(component
        (import "wasi:cli/environment@0.2.0" (instance (export "get-arguments" (func (result (list string))))))
        (import "wasi:http/outgoing-handler@0.2.0" (instance (export "handle" (func))))
        (import "acme:types/only@1.0.0" (instance))
        (import "launch-missiles" (func)))"#);
    let Refused::ForbiddenImports { names } = refusal(&component).await else { panic!() };
    assert_eq!(names, ["wasi:http/outgoing-handler@0.2.0", "launch-missiles"]);
}

#[tokio::test]
async fn a_known_import_of_another_shape_is_named_too() {
    let component = wat(r#"(component
        (import "wasi:cli/environment@0.2.0" (instance (export "get-secrets" (func (result string))))))"#);
    let refused = refusal(&component).await;
    assert!(matches!(&refused, Refused::WrongImport { why } if why.contains("get-secrets")), "{refused}");
}

#[tokio::test]
async fn a_component_must_have_an_entry() {
    assert_eq!(refusal(&wat("(component)")).await, Refused::NoEntry);
    let other = wat(r#"(component
        (core module $m (func (export "run")))
        (core instance $i (instantiate $m))
        (func (export "run") (canon lift (core func $i "run"))))"#);
    assert_eq!(refusal(&other).await, Refused::NoEntry);
}

#[tokio::test]
async fn a_component_is_as_large_as_its_limit_and_not_larger() {
    let component = noop();
    let bytes = component.len();
    let fixture = Fixture::with(|options| options.component_bytes_max = bytes);
    fixture.prepare(&component, Metering::Off).await.unwrap();
    let fixture = Fixture::with(|options| options.component_bytes_max = bytes - 1);
    let refused = fixture.prepare(&component, Metering::Off).await.unwrap_err();
    assert_eq!(refused, Refused::TooLarge { bytes, bytes_max: bytes - 1 });
}

// FEATURES: E1
#[tokio::test]
async fn a_component_has_as_many_parts_as_a_slot_and_not_more() {
    let with_memories = |count: u32| {
        let memories = "(memory 1)".repeat(count as usize);
        alone(&format!("{memories} (func (export \"run\") (result i32) i32.const 0)"))
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
        assert_eq!(fixture.run(&within, Limits::default()).await.verdict, Verdict::Succeeded);
    }
    for beyond in [with_memories(MEMORIES_MAX + 1), with_instances(CORE_INSTANCES_MAX + 1)] {
        let refused = fixture.prepare(&beyond, Metering::Off).await.unwrap_err();
        assert!(matches!(refused, Refused::Unfit { .. }), "{refused}");
    }
}

// FEATURES: E1
#[tokio::test]
async fn a_component_that_begins_with_more_memory_than_any_slot_has_is_refused() {
    let fixture = Fixture::with(|options| options.memory_bytes_max = 1 << 20);
    let large = alone(r#"(memory 17) (func (export "run") (result i32) i32.const 0)"#);
    let refused = fixture.prepare(&large, Metering::Off).await.unwrap_err();
    assert!(matches!(refused, Refused::Unfit { .. }), "{refused}");
}

#[tokio::test]
async fn content_that_cannot_be_read_is_asked_for_again() {
    let fixture = Fixture::new();
    let component = noop();
    let id = BlobId::of(&component);
    let failing = async { Err(io::Error::other("the disk is on fire")) };
    let refused = fixture.executor.prepare(id, Metering::Off, failing).await.unwrap_err();
    assert!(matches!(&refused, Refused::Unavailable { why } if why.contains("on fire")), "{refused}");
    let other = async { Ok(Bytes::from_static(b"something else")) };
    let refused = fixture.executor.prepare(id, Metering::Off, other).await.unwrap_err();
    assert!(matches!(refused, Refused::Unavailable { .. }), "{refused}");
    fixture.prepare(&component, Metering::Off).await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_as_a_component_end_without_a_panic(
        head in prop_oneof![Just(&b""[..]), Just(&b"\0asm\x0d\0\x01\0"[..])],
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        prepare_any([head, &bytes].concat());
    }

    #[test]
    fn a_component_with_any_byte_changed_ends_without_a_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
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
            assert!(refused.is_final(), "{refused}");
        }
    });
}
