//! Every limit of the model, in one place, with its unit. Each has a test at the limit.

use crate::time::Millis;

/// A spec up to this size is written together with the job's record; a larger one once, beside it.
pub const INLINE_SPEC_BYTES_MAX: usize = 2 * 1024;
/// The largest body of a request that carries one job.
pub const JOB_BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The largest body of a request that carries many.
pub const BATCH_BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How many jobs one request may carry.
pub const BATCH_JOBS_MAX: usize = 10_000;
/// The largest result that is kept by value.
pub const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Topic, tenant, queue tag, label name and the like.
pub const NAME_BYTES_MAX: usize = 128;
pub const LABEL_VALUE_BYTES_MAX: usize = 1024;
pub const LABELS_MAX: usize = 64;
pub const REQUIRES_MAX: usize = 64;
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
pub const COMMAND_ARGS_MAX: usize = 4096;
pub const ENV_VARS_MAX: usize = 1024;
/// One argument, or one variable with its value: with its zero byte it fits the kernel's `MAX_ARG_STRLEN`.
pub const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 1;
/// All arguments and variables together, with a zero byte for each. The kernel takes twice that where the stack has its
/// usual limit; what a runner adds of its own must fit as well.
pub const COMMAND_BYTES_MAX: usize = 1024 * 1024;
pub const INPUTS_MAX: usize = 1024;
pub const OUTPUTS_MAX: usize = 256;
/// A path below a job's working directory, or a pattern for one.
pub const PATH_BYTES_MAX: usize = 1024;
/// What file systems take as one name.
pub const PATH_COMPONENT_BYTES_MAX: usize = 255;
/// How many files of a job are kept.
pub const ARTIFACTS_MAX: usize = 10_000;
/// How much a record says of them, roughly: it is read with every look at the job.
pub const ARTIFACTS_RECORD_BYTES_MAX: usize = 2 * 1024 * 1024;
/// A year on one core.
pub const CPU_LIMIT_MS_MAX: u64 = DURATION_MAX.0;
pub const MEMORY_LIMIT_BYTES_MAX: u64 = 16 << 40;
/// The kernel's own.
pub const PIDS_LIMIT_MAX: u64 = 4 << 20;
pub const OUTPUT_LIMIT_BYTES_MAX: u64 = 1 << 40;
/// What the kernel allows unless told otherwise.
pub const OPEN_FILES_LIMIT_MAX: u64 = 1 << 20;
/// The largest number that every reader of JSON reads exactly.
pub const FUEL_LIMIT_MAX: u64 = (1 << 53) - 1;
/// The longest duration a job may name: one year.
pub const DURATION_MAX: Millis = Millis::from_secs(366 * 24 * 3600);
pub const RETRIES_MAX: u32 = 1_000;
pub const RETRIES_DEFAULT: u32 = 3;
/// How often a job may lose its runner before it is the suspect.
pub const INFRASTRUCTURE_RETRIES_DEFAULT: u32 = 5;
/// Of a longer life the first and the newest states and attempts are kept, with a count of those between.
pub const HISTORY_ENTRIES_MAX: usize = 64;
/// Of what the scanners found in one result, this many kinds and places are kept on record.
pub const FINDINGS_MAX: usize = 64;
/// The text of a reason or of a runner's message, cut at this length.
pub const MESSAGE_BYTES_MAX: usize = 2 * 1024;
/// What a task of a workflow hands on by value; a larger result is a blob.
pub const TASK_RESULT_BYTES_MAX: usize = 256 * 1024;
/// The results of all items of a task together, where a template reads them.
pub const LIST_RESULT_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The payload of one signal.
pub const SIGNAL_BYTES_MAX: usize = 64 * 1024;
/// How many signals a workflow keeps that no task has taken yet.
pub const SIGNALS_MAX: usize = 1_000;
/// How many sub-workflows deep a workflow goes.
pub const WORKFLOW_DEPTH_MAX: u32 = 8;
