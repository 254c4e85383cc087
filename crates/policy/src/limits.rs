//! All limits of rules and their evaluation, with their units. Each has a test at the limit.

use std::time::Duration;

/// Rule and data files of one set.
pub const FILES_MAX: usize = 256;
/// One file. Also the limit of the parser.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
/// All files of one set.
pub const SET_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Nested directories.
pub const DIRECTORY_DEPTH_MAX: usize = 8;
/// Directory entries visited, including ignored files.
pub const DIRECTORY_ENTRIES_MAX: usize = 4_096;
/// Operators, `.`, `[` and `(` in one expression. Each deepens the syntax tree, which is processed recursively.
pub const EXPRESSION_LINKS_MAX: usize = 32;
/// Nested brackets.
pub const BRACKET_DEPTH_MAX: usize = 24;
/// Length of a chain of rules that depend on each other. The evaluation recurses as deep, on the caller's stack.
pub const RULE_DEPTH_MAX: usize = 16;
/// One evaluation. Retried once, because the machine may have stalled.
pub const EVALUATION_TIME_MAX: Duration = Duration::from_millis(250);
/// Evaluation steps between two time checks. Small, because each step may take twice as long as the one before.
pub const STEPS_BETWEEN_CLOCK_READS: u32 = 4;
/// Rule verdicts on one job or result.
pub const VERDICTS_MAX: usize = 256;
/// Numbers in one result of `numbers.range` or `numbers.range_step`.
pub const RANGE_NUMBERS_MAX: u64 = 10_000;
/// Largest shift of `bits.lsh`.
pub const SHIFT_BITS_MAX: u64 = 1_024;
/// Digits of a width in a `sprintf` format.
pub const FORMAT_WIDTH_DIGITS_MAX: usize = 3;
/// Idle engines that one set retains.
pub const IDLE_EVALUATORS_MAX: usize = 64;
/// A job of which the rules read more is not cached: the evaluation is as fast as a lookup.
pub const CACHE_KEY_BYTES_MAX: usize = 64 * 1024;
/// Default capacity of the cache.
pub const CACHED_DECISIONS_DEFAULT: usize = 16 * 1024;
/// Test case files in one directory.
pub const CASE_FILES_MAX: usize = 256;
/// Test cases in one directory.
pub const CASES_MAX: usize = 10_000;
/// Lines of `print` output in an explanation.
pub const PRINTED_LINES_MAX: usize = 100;
