//! OpenAPI schemas of the types whose JSON form is a string, a number or any JSON.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::blob::{BlobId, WorkerId};
use crate::id::{Attempt, JobId, NodeId, QueueId, RunnerId, ScheduleId, WorkflowId};
use crate::json::Json;
use crate::queue::QueueRef;
use crate::time::Timestamp;
use crate::verdict::PolicyVersion;

/// Schemas written in place of the type instead of as a component of the document.
macro_rules! inline {
    ($($type:ty => $schema:expr;)*) => {$(
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }

        impl ToSchema for $type {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
        }
    )*};
}

fn string(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}

inline! {
    JobId => string("Job id, `job_…`.");
    QueueId => string("Queue id, `q_…`.");
    WorkflowId => string("Workflow id, `wf_…`.");
    ScheduleId => string("Schedule id, `sch_…`.");
    NodeId => string("Node id, `node_…`.");
    RunnerId => string("Runner id.");
    QueueRef => string("Id (`q_…`) or token (`qt_…`) of a queue.");
    BlobId => string("Blob id: `blob:` and the BLAKE3 hash of the content.").pattern(Some("^blob:[0-9a-f]{64}$"));
    WorkerId => string("Worker id: `w_` and the hash of the manifest.").pattern(Some("^w_[0-9a-f]{32}$"));
    PolicyVersion => string("Policy version.");
    Timestamp => string("Time in UTC, RFC 3339.").format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
    Attempt => ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
        .minimum(Some(0))
        .description(Some("Attempt number, from 1; 0 before the first."));
    Json => ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some("Any JSON."));
}
