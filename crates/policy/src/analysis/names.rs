//! The functions that rules call: there must be one of that name, it must give the same answer to the same question,
//! and what it makes must have a bound.

use regorus::unstable::BUILTINS;

use super::graph::{self, Graph, Target};
use super::tree::{Call, Module, Reference};
use crate::error::LoadError;
use crate::limits;

/// Functions of the language that are there but not for rules.
const REFUSED: [&str; 5] = ["http.send", "net.lookup_ip_addr", "opa.runtime", "rand.intn", "uuid.rfc4122"];

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

/// Functions can also be handed on, with `with`.
fn check_reference(module: &Module, graph: &Graph, reference: &Reference) -> Result<(), LoadError> {
    if graph.resolve(module, reference) != Target::Local {
        return Ok(());
    }
    refuse_what_has_no_place(module, reference)?;
    if reference.dotted() == FORMAT {
        let message = format!("`{FORMAT}` can only be called: what it makes could have any length otherwise");
        return Err(graph::at(module, reference, message));
    }
    Ok(())
}

fn refuse_what_has_no_place(module: &Module, reference: &Reference) -> Result<(), LoadError> {
    let name = reference.dotted();
    if REFUSED.contains(&name.as_str()) {
        let message = format!("`{name}` has no place in rules: their answer depends on nothing but `input` and `data`");
        return Err(graph::at(module, reference, message));
    }
    Ok(())
}

fn check_call(module: &Module, graph: &Graph, call: &Call) -> Result<(), LoadError> {
    let name = call.function.dotted();
    match graph.resolve(module, &call.function) {
        Target::Rules(_) => return Ok(()),
        // Also the clock of the language, which is part of the input.
        Target::Input(_) if name == "time.now_ns" => return Ok(()),
        Target::Input(_) | Target::Data | Target::Local => {}
    }
    refuse_what_has_no_place(module, &call.function)?;
    if name != "print" && !BUILTINS.contains_key(name.as_str()) {
        let message = format!("there is no function `{name}`: define it in this package, or import it");
        return Err(graph::at(module, &call.function, message));
    }
    if name == FORMAT {
        check_format(module, call)?;
    }
    Ok(())
}

/// The width in a format is a length that is made up.
fn check_format(module: &Module, call: &Call) -> Result<(), LoadError> {
    let Some(format) = &call.first_text else {
        let message = format!("the first argument of `{FORMAT}` must be a text that is written out here");
        return Err(graph::at(module, &call.function, message));
    };
    let is_width = |letter: char| letter.is_numeric() || ['.', '-', '+', '#', ' '].contains(&letter);
    let widths =
        format.split('%').skip(1).map(|text| text.split(|letter| !is_width(letter)).next().unwrap_or_default());
    let digits =
        widths.flat_map(|width| width.split(|letter: char| !letter.is_numeric())).map(|digits| digits.chars().count());
    if digits.max().unwrap_or(0) > limits::FORMAT_WIDTH_DIGITS_MAX {
        let message = format!("a width in `{FORMAT}` has more than {} digits", limits::FORMAT_WIDTH_DIGITS_MAX);
        return Err(graph::at(module, &call.function, message));
    }
    Ok(())
}
