//! Limits of fields in the document, from the constants that the server checks.

use std::collections::BTreeMap;

use model::limits::{
    BATCH_JOBS_MAX, COMMAND_ARGS_MAX, CPU_LIMIT_MS_MAX, FUEL_LIMIT_MAX, IDEMPOTENCY_KEY_BYTES_MAX, INPUTS_MAX,
    LABELS_MAX, MEMORY_LIMIT_BYTES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, OPEN_FILES_LIMIT_MAX,
    OUTPUT_LIMIT_BYTES_MAX, OUTPUTS_MAX, PATH_BYTES_MAX, PIDS_LIMIT_MAX, REQUIRES_MAX, RETRIES_MAX,
};
use serde_json::{Value, json};

/// Limits of the crate `blobs`, which is above this one. The server's tests compare them.
const BLOB_IDS_MAX: u64 = 10_000;
const BUNDLE_FILES_MAX: u64 = 100_000;
const BUNDLE_FUNCTIONS_MAX: u64 = 1_000;
const PERCENT_MAX: u64 = 100;

/// Component, pointer to the field within its properties, keyword, limit.
fn all() -> Vec<(&'static str, &'static str, &'static str, u64)> {
    vec![
        ("JobSpec", "/topic", "maxLength", NAME_BYTES_MAX as u64),
        ("JobSpec", "/tenant", "maxLength", NAME_BYTES_MAX as u64),
        ("JobSpec", "/timeout_ms", "minimum", 1),
        ("JobSpec", "/max_retries", "maximum", u64::from(RETRIES_MAX)),
        ("JobSpec", "/labels", "maxProperties", LABELS_MAX as u64),
        ("JobSpec", "/idempotency_key", "maxLength", IDEMPOTENCY_KEY_BYTES_MAX as u64),
        ("JobSpec", "/inputs", "maxProperties", INPUTS_MAX as u64),
        ("JobSpec", "/outputs", "maxItems", OUTPUTS_MAX as u64),
        ("JobSpec", "/outputs/items", "maxLength", PATH_BYTES_MAX as u64),
        ("JobSpec", "/requires", "maxItems", REQUIRES_MAX as u64),
        ("JobSpec", "/requires/items", "maxLength", NAME_BYTES_MAX as u64),
        ("BatchSpec", "/jobs", "maxItems", BATCH_JOBS_MAX as u64),
        ("ProcessRun", "/command", "maxItems", COMMAND_ARGS_MAX as u64),
        ("WasmRun", "/args", "maxItems", COMMAND_ARGS_MAX as u64),
        ("Limits", "/cpu_ms", "maximum", CPU_LIMIT_MS_MAX),
        ("Limits", "/memory_bytes", "maximum", MEMORY_LIMIT_BYTES_MAX),
        ("Limits", "/pids", "maximum", PIDS_LIMIT_MAX),
        ("Limits", "/output_bytes", "maximum", OUTPUT_LIMIT_BYTES_MAX),
        ("Limits", "/open_files", "maximum", OPEN_FILES_LIMIT_MAX),
        ("Limits", "/fuel", "maximum", FUEL_LIMIT_MAX),
        ("QueueSpec", "/max_retries", "maximum", u64::from(RETRIES_MAX)),
        ("QueueSpec", "/max_running", "minimum", 1),
        ("ApprovalRequest", "/comment", "maxLength", MESSAGE_BYTES_MAX as u64),
        ("ApprovalRequest", "/rule", "maxLength", MESSAGE_BYTES_MAX as u64),
        ("ProgressReport", "/percent", "maximum", PERCENT_MAX),
        ("ProgressReport", "/message", "maxLength", MESSAGE_BYTES_MAX as u64),
        ("WorkflowStart", "/labels", "maxProperties", LABELS_MAX as u64),
        ("WorkflowStart", "/idempotency_key", "maxLength", IDEMPOTENCY_KEY_BYTES_MAX as u64),
        ("BlobList", "/blobs", "maxItems", BLOB_IDS_MAX),
        ("Manifest", "/name", "maxLength", NAME_BYTES_MAX as u64),
        ("Manifest", "/version", "maxLength", NAME_BYTES_MAX as u64),
        ("Manifest", "/files", "maxProperties", BUNDLE_FILES_MAX),
        ("Manifest", "/functions", "maxItems", BUNDLE_FUNCTIONS_MAX),
    ]
}

pub(super) fn set(schemas: &mut BTreeMap<String, Value>) {
    for (component, field, keyword, limit) in all() {
        let properties = schemas.get_mut(component).and_then(|schema| schema.get_mut("properties"));
        let field = properties.and_then(|properties| properties.pointer_mut(field));
        debug_assert!(field.is_some(), "{component} has no such field");
        if let Some(field) = field {
            field[keyword] = json!(limit);
        }
    }
    for component in ["JobSpec"] {
        for field in ["topic", "tenant"] {
            if let Some(schema) = schemas.get_mut(component) {
                schema["properties"][field]["default"] = json!("default");
            }
        }
    }
}
