//! Checks of function calls: the function must exist, be deterministic, and have bounded results.

use regorus::unstable::BUILTINS;

use super::graph::{self, Graph, Target};
use super::tree::{Call, Module, Reference};
use crate::error::LoadError;
use crate::limits;

/// Built-in functions that rules must not use.
const FORBIDDEN: [&str; 5] = ["http.send", "net.lookup_ip_addr", "opa.runtime", "rand.intn", "uuid.rfc4122"];

const FORMAT: &str = "sprintf";

pub(super) fn check(modules: &[Module], graph: &Graph) -> Result<(), LoadError> {
    for module in modules {
        for rule in &module.rules {
            rule.references.iter().try_for_each(|reference| check_reference(module, graph, reference))?;
            rule.calls.iter().try_for_each(|call| check_call(module, graph, call))?;
        }
    }
    Ok(())
}

/// A `with` clause can pass functions without a call.
fn check_reference(module: &Module, graph: &Graph, reference: &Reference) -> Result<(), LoadError> {
    if graph.resolve(module, reference) != Target::Local {
        return Ok(());
    }
    check_forbidden(module, reference)?;
    if reference.dotted() == FORMAT {
        let message = format!("`{FORMAT}` can only be called directly: its result would have no length limit");
        return Err(graph::error_at(module, reference, message));
    }
    Ok(())
}

fn check_forbidden(module: &Module, reference: &Reference) -> Result<(), LoadError> {
    let name = reference.dotted();
    if FORBIDDEN.contains(&name.as_str()) {
        let message = format!("`{name}` is forbidden in rules: decisions depend only on `input` and `data`");
        return Err(graph::error_at(module, reference, message));
    }
    Ok(())
}

fn check_call(module: &Module, graph: &Graph, call: &Call) -> Result<(), LoadError> {
    let name = call.function.dotted();
    match graph.resolve(module, &call.function) {
        Target::Rules(_) => return Ok(()),
        // The built-in clock is `input.time`.
        Target::Input(_) if name == "time.now_ns" => return Ok(()),
        Target::Input(_) | Target::Data | Target::Local => {}
    }
    check_forbidden(module, &call.function)?;
    if name != "print" && !BUILTINS.contains_key(name.as_str()) {
        let message = format!("unknown function `{name}`: define it in this package, or import it");
        return Err(graph::error_at(module, &call.function, message));
    }
    if name == FORMAT {
        check_format(module, call)?;
    }
    Ok(())
}

/// Limits the widths in a format: they make results of any length.
fn check_format(module: &Module, call: &Call) -> Result<(), LoadError> {
    let Some(format) = &call.first_literal else {
        let message = format!("the first argument of `{FORMAT}` must be a string literal");
        return Err(graph::error_at(module, &call.function, message));
    };
    let is_width = |letter: char| letter.is_numeric() || ['.', '-', '+', '#', ' '].contains(&letter);
    let widths =
        format.split('%').skip(1).map(|text| text.split(|letter| !is_width(letter)).next().unwrap_or_default());
    let digits =
        widths.flat_map(|width| width.split(|letter: char| !letter.is_numeric())).map(|digits| digits.chars().count());
    if digits.max().unwrap_or(0) > limits::FORMAT_WIDTH_DIGITS_MAX {
        let message = format!("a width in `{FORMAT}` has more than {} digits", limits::FORMAT_WIDTH_DIGITS_MAX);
        return Err(graph::error_at(module, &call.function, message));
    }
    Ok(())
}
