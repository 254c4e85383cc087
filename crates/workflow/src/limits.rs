//! All limits of definitions and templates, with their units. Each has a test at the limit.

/// Text of a definition, and its stored normalised text.
pub const DEFINITION_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Values in a definition: elements of lists and fields count, YAML aliases count as often as they are used.
pub const NODES_MAX: usize = 1_000_000;
/// Nesting depth of lists and objects in a definition.
pub const DEPTH_MAX: usize = 64;
/// Tasks of a definition and of all definitions nested in it.
pub const TASKS_MAX: usize = 50_000;
/// Edges between the tasks of one definition.
pub const NEEDS_MAX: usize = 500_000;
/// Items of one `for_each`, and elements of any list computed by a template.
pub const ITEMS_MAX: usize = 100_000;
/// All items of one `for_each` together, as JSON.
pub const ITEMS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Nesting depth of definitions, including the outermost.
pub const NESTING_MAX: usize = 8;
pub const EPOCHS_MAX: usize = 1_000;
pub const INPUTS_MAX: usize = 256;
/// Name of a workflow, task, input, epoch or signal.
pub const NAME_BYTES_MAX: usize = 64;
pub const DESCRIPTION_BYTES_MAX: usize = 16 * 1024;
/// Cases of one switch.
pub const CASES_MAX: usize = 1_000;
/// `${…}` in a definition.
pub const EXPRESSIONS_MAX: usize = 1_000_000;
/// `${…}` in one string, including escaped `$${`.
pub const TEXT_EXPRESSIONS_MAX: usize = 1_000;
/// One `${…}`.
pub const EXPRESSION_BYTES_MAX: usize = 4 * 1024;
/// Nesting depth of parentheses, lists, calls and conditionals in an expression.
pub const EXPRESSION_DEPTH_MAX: usize = 32;
/// Steps of one evaluation. A step is one operation, or eight elements or 64 bytes that it processes.
pub const EVALUATION_STEPS_MAX: u64 = 100_000;
/// One rendered value, as JSON or as a string.
pub const RENDERED_BYTES_MAX: usize = 1024 * 1024;
/// Listed problems of one definition; further ones are only counted.
pub const DIAGNOSTICS_MAX: usize = 20;
