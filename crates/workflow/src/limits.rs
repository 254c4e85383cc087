//! Every limit of a definition and of its templates, in one place, with its unit. Each has a test at the limit.

/// The text of a definition, and the normalised text that is kept of it.
pub const DEFINITION_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Values in a definition, each element of a list and each field counted, aliases of YAML written out.
pub const NODES_MAX: usize = 4_000_000;
/// How deep lists and objects of a definition may be in each other.
pub const DEPTH_MAX: usize = 64;
/// Tasks of a definition and of all definitions in it.
pub const TASKS_MAX: usize = 100_000;
/// Edges between the tasks of one definition.
pub const NEEDS_MAX: usize = 1_000_000;
/// Items of one `for_each`, and elements of any list that a template makes.
pub const ITEMS_MAX: usize = 100_000;
/// All items of one `for_each` together, as JSON.
pub const ITEMS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How deep definitions may be in each other; the outermost counts.
pub const NESTING_MAX: usize = 8;
pub const EPOCHS_MAX: usize = 1_000;
pub const INPUTS_MAX: usize = 256;
/// Of a workflow, task, input, epoch or signal.
pub const NAME_BYTES_MAX: usize = 64;
pub const DESCRIPTION_BYTES_MAX: usize = 16 * 1024;
/// Branches of one switch.
pub const CASES_MAX: usize = 1_000;
/// `${…}` in all texts of a definition.
pub const EXPRESSIONS_MAX: usize = 1_000_000;
/// `${…}` in one text, those that only write `${` counted.
pub const TEXT_EXPRESSIONS_MAX: usize = 1_000;
/// One `${…}`.
pub const EXPRESSION_BYTES_MAX: usize = 4 * 1024;
/// How deep parentheses, lists, calls and conditions of an expression may be in each other.
pub const EXPRESSION_DEPTH_MAX: usize = 32;
/// What one evaluation may do. A step is one operation, or eight elements or 64 bytes that it goes through.
pub const EVALUATION_STEPS_MAX: u64 = 100_000;
/// One rendered value, as JSON or as text.
pub const RENDERED_BYTES_MAX: usize = 1024 * 1024;
/// How many problems of one definition are told; of more, only how many.
pub const DIAGNOSTICS_MAX: usize = 20;
