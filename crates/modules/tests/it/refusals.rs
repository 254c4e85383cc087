//! Components that are not modules.

use modules::{FailureKind, Limits};
use wasm::{Metering, PrepareError};

use crate::guests;
use crate::support::Fixture;

#[test]
fn what_is_not_a_module_is_refused_with_the_reason() {
    let fixture = Fixture::new();
    let refused = |content: &[u8]| fixture.code(content, Metering::Off).unwrap_err();
    assert!(matches!(refused(b"hello"), PrepareError::NotAComponent { .. }));
    let core = wat::parse_str("(module)").unwrap();
    assert!(refused(&core).to_string().contains("core module"));
    let empty = wat::parse_str("(component)").unwrap();
    assert!(refused(&empty).to_string().contains("does not implement the world"), "{}", refused(&empty));
    let foreign = r#"(component (import "acme:thing/api" (instance (export "f" (func)))))"#;
    let foreign = refused(&wat::parse_str(foreign).unwrap());
    assert!(foreign.to_string().contains("acme:thing/api"), "{foreign}");
}

#[test]
fn a_failing_init_is_a_failure_with_its_text() {
    let fixture = Fixture::new();
    let mut module = fixture.container(&guests::init_fails(), Limits::default());
    let failure = module.call("a", "get", b"").unwrap_err();
    assert_eq!(failure.kind, FailureKind::Init);
    assert!(failure.text.contains("refused on purpose"), "{failure}");
}

#[test]
fn compiled_code_is_read_from_the_cache() {
    let fixture = Fixture::new();
    let component = guests::counter();
    fixture.code(&component, Metering::Off).unwrap();
    let id = model::blob::BlobId::of(&component);
    let unread = || Err(std::io::Error::other("the content was read again"));
    assert!(fixture.host.code(id, Metering::Off, unread).is_ok());
    assert!(fixture.host.code(id, Metering::Fuel, unread).is_err());
}
