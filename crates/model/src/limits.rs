//! Limits of the model, with units. Each has a test at the limit.

use crate::time::Millis;

/// Maximum size of a spec within the job's record. A larger spec is stored once, under a key of its own.
pub const INLINE_SPEC_BYTES_MAX: usize = 2 * 1024;
/// Maximum body size of a request with one job.
pub const JOB_BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum body size of a request with many jobs.
pub const BATCH_BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum number of jobs in one request.
pub const BATCH_JOBS_MAX: usize = 10_000;
/// Maximum size of a result.
pub const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Topic, tenant, queue tag, label name and the like.
pub const NAME_BYTES_MAX: usize = 128;
pub const LABEL_VALUE_BYTES_MAX: usize = 1024;
pub const LABELS_MAX: usize = 64;
pub const REQUIRES_MAX: usize = 64;
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
pub const COMMAND_ARGS_MAX: usize = 4096;
pub const ENV_VARS_MAX: usize = 1024;
/// One argument, or one variable with its value. With the zero byte this is the kernel's `MAX_ARG_STRLEN`.
pub const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 1;
/// All arguments and variables together, each with a zero byte. The kernel accepts twice that with the default stack
/// limit; the rest is for variables that the runner adds.
pub const COMMAND_BYTES_MAX: usize = 1024 * 1024;
pub const INPUTS_MAX: usize = 1024;
pub const OUTPUTS_MAX: usize = 256;
/// Path of an input or artifact, or a glob.
pub const PATH_BYTES_MAX: usize = 1024;
/// Maximum length of a file name in common file systems.
pub const PATH_COMPONENT_BYTES_MAX: usize = 255;
/// Maximum number of artifacts of a job.
pub const ARTIFACTS_MAX: usize = 10_000;
/// Approximate maximum size of the artifact list in a record. Every read of the job reads it.
pub const ARTIFACTS_RECORD_BYTES_MAX: usize = 2 * 1024 * 1024;
/// One year on one core.
pub const CPU_LIMIT_MS_MAX: u64 = DURATION_MAX.0;
pub const MEMORY_LIMIT_BYTES_MAX: u64 = 16 << 40;
/// The kernel's maximum.
pub const PIDS_LIMIT_MAX: u64 = 4 << 20;
pub const OUTPUT_LIMIT_BYTES_MAX: u64 = 1 << 40;
/// The kernel's default maximum.
pub const OPEN_FILES_LIMIT_MAX: u64 = 1 << 20;
/// The largest integer that all JSON parsers read exactly.
pub const FUEL_LIMIT_MAX: u64 = (1 << 53) - 1;
/// Maximum duration in a spec: one year.
pub const DURATION_MAX: Millis = Millis::from_secs(366 * 24 * 3600);
pub const RETRIES_MAX: u32 = 1_000;
pub const RETRIES_DEFAULT: u32 = 3;
/// Maximum number of infrastructure failures. After more the job itself is the likely cause, and it fails.
pub const INFRASTRUCTURE_RETRIES_DEFAULT: u32 = 5;
/// Maximum number of states and attempts in a record. The oldest and newest are retained, the dropped ones counted.
pub const HISTORY_ENTRIES_MAX: usize = 64;
/// Maximum number of findings (pattern and place) recorded per result.
pub const FINDINGS_MAX: usize = 64;
/// Messages of reasons and runners are truncated to this length.
pub const MESSAGE_BYTES_MAX: usize = 2 * 1024;
/// Maximum size of the reason for a decision about a node: the decisions about all nodes are one document.
pub const NODE_REASON_BYTES_MAX: usize = 200;
/// Maximum size of a task's inline result. A larger result is spilled to a blob.
pub const TASK_RESULT_BYTES_MAX: usize = 256 * 1024;
/// Maximum total size of the results of all items of a task, as read by a template.
pub const LIST_RESULT_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum payload size of a signal.
pub const SIGNAL_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of unconsumed signals of a workflow.
pub const SIGNALS_MAX: usize = 1_000;
/// Maximum nesting depth of sub-workflows.
pub const WORKFLOW_DEPTH_MAX: u32 = 8;

/// Longest lease of an exclusive attempt.
pub const LEASE_MAX: Millis = Millis::from_secs(3_600);
