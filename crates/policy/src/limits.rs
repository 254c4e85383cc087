//! Every limit of the rules and of their evaluation, in one place, with its unit. Each has a test at the limit.

use std::time::Duration;

/// Files of one set, rules and data together.
pub const FILES_MAX: usize = 256;
/// One file. The parser takes no more.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
/// All files of one set.
pub const SET_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Directories within directories.
pub const DIRECTORY_DEPTH_MAX: usize = 8;
/// Names that are looked at in search of files, also those that turn out to be something else.
pub const DIRECTORY_ENTRIES_MAX: usize = 4_096;
/// How often one expression may go on: with `.`, `[`, `(` or an operator. Each makes the tree deeper that others walk.
pub const EXPRESSION_LINKS_MAX: usize = 32;
/// Brackets within brackets.
pub const BRACKET_DEPTH_MAX: usize = 24;
/// Rules that need rules that need rules. The evaluation goes as deep, on the stack of whoever asks.
pub const RULE_DEPTH_MAX: usize = 16;
/// One evaluation. It is tried twice, for a machine that stood still is not the fault of the rules.
pub const EVALUATION_TIME_MAX: Duration = Duration::from_millis(250);
/// Steps of an evaluation between two looks at the clock. Each step may take twice as long as the one before.
pub const STEPS_BETWEEN_CLOCK_READS: u32 = 4;
/// Verdicts that rules may give on one job.
pub const VERDICTS_MAX: usize = 256;
/// What `numbers.range` and `numbers.range_step` may make at once.
pub const RANGE_NUMBERS_MAX: u64 = 10_000;
/// How far `bits.lsh` may shift.
pub const SHIFT_BITS_MAX: u64 = 1_024;
/// The width that `sprintf` may pad to has this many digits.
pub const FORMAT_WIDTH_DIGITS_MAX: usize = 3;
/// Prepared evaluators that one set keeps for its next questions.
pub const IDLE_EVALUATORS_MAX: usize = 64;
/// A job of which the rules read more than this is not looked up in the cache: asking the rules is as fast.
pub const CACHE_KEY_BYTES_MAX: usize = 64 * 1024;
/// What is cached without being asked for another number.
pub const CACHED_DECISIONS_DEFAULT: usize = 16 * 1024;
/// Files with cases, in one directory.
pub const CASE_FILES_MAX: usize = 256;
/// Cases in all those files together.
pub const CASES_MAX: usize = 10_000;
/// What a rule printed and an explanation repeats.
pub const PRINTED_LINES_MAX: usize = 100;
