//! Doing the same to several things that were named.

use anyhow::Result;
use serde::Serialize;

use crate::context::Context;
use crate::{exit, output};

/// All of them, one after the other: what fails is reported and does not keep the others from being done. The exit
/// code is the highest of all. `act` gives the thing as it is now, or nothing if it is gone; `line` says it to people.
pub async fn each<T: Serialize>(
    texts: &[String],
    context: &Context,
    act: impl AsyncFn(&str) -> Result<Option<T>>,
    line: impl Fn(&T) -> String,
) -> Result<u8> {
    let mut things = Vec::new();
    let mut worst = exit::DONE;
    for text in texts {
        match act(text).await {
            Ok(Some(thing)) if context.printer.is_for_people() => output::write(line(&thing).as_bytes())?,
            Ok(Some(thing)) => things.push(thing),
            Ok(None) if context.printer.is_for_people() => output::write(format!("{text} removed\n").as_bytes())?,
            Ok(None) => {}
            Err(error) => {
                // Among several it must be clear which one is meant, and many errors say so themselves.
                let is_named = texts.len() == 1 || error.to_string().contains(text);
                let error = if is_named { error } else { error.context(text.clone()) };
                worst = worst.max(exit::complain(&error));
            }
        }
    }
    match &things[..] {
        [] => {}
        [thing] if texts.len() == 1 => context.printer.print(thing, |_, _| String::new())?,
        things => context.printer.print(&things, |_, _| String::new())?,
    }
    Ok(worst)
}
