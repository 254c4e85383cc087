//! Expands shorthands, so that later stages handle one form only. Invalid values stay unchanged and are reported later.

use std::borrow::Cow;

use crate::node::{Data, MapEntry, Node};

/// `name` is the key of a nested definition; the outermost definition has its own `name`.
pub(super) fn expand<'a>(definition: &mut Node<'a>, name: Option<&Cow<'a, str>>) {
    let position = definition.position;
    let Data::Map(entries) = &mut definition.data else {
        return;
    };
    if let Some(name) = name
        && !entries.iter().any(|entry| entry.key == "name")
    {
        let value = Node::new(Data::Text(name.clone()), position);
        entries.insert(0, MapEntry { key: Cow::Borrowed("name"), position, value });
    }
    for entry in entries {
        let Data::Map(fields) = &mut entry.value.data else {
            continue;
        };
        match &*entry.key {
            "workflows" => fields.iter_mut().for_each(|child| expand(&mut child.value, Some(&child.key))),
            "tasks" => fields.iter_mut().for_each(|task| expand_task(&mut task.value)),
            _ => {}
        }
    }
}

fn expand_task(task: &mut Node<'_>) {
    let Data::Map(entries) = &mut task.data else {
        return;
    };
    for entry in entries {
        match &*entry.key {
            "run" => expand_command(&mut entry.value),
            "compensation" => {
                if let Data::Text(_) = entry.value.data {
                    let position = entry.value.position;
                    wrap(&mut entry.value, "run");
                    entry.position = position;
                }
                if let Data::Map(fields) = &mut entry.value.data {
                    fields.iter_mut().filter(|field| field.key == "run").for_each(|run| expand_command(&mut run.value));
                }
            }
            _ => {}
        }
    }
}

/// A string becomes a shell command.
fn expand_command(run: &mut Node<'_>) {
    if let Data::Text(_) = run.data {
        let position = run.position;
        let command = std::mem::replace(run, Node::new(Data::Null, position));
        let argument = |text| Node::new(Data::Text(Cow::Borrowed(text)), position);
        run.data = Data::List(vec![argument("sh"), argument("-c"), command]);
        wrap(run, "command");
        wrap(run, "process");
    }
}

/// Replaces the value by an object with the value as its only field.
fn wrap(node: &mut Node<'_>, key: &'static str) {
    let position = node.position;
    let value = std::mem::replace(node, Node::new(Data::Null, position));
    node.data = Data::Map(vec![MapEntry { key: Cow::Borrowed(key), position, value }]);
}
