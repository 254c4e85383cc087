//! Writes shorthands out, so that everything after it knows one form only. What is wrong stays as it is, to be refused.

use std::borrow::Cow;

use crate::node::{Data, Entry, Node};

/// `name` is what a definition is called where it stands; the outermost says so itself.
pub(super) fn prepare<'a>(definition: &mut Node<'a>, name: Option<&Cow<'a, str>>) {
    let place = definition.place;
    let Data::Map(entries) = &mut definition.data else {
        return;
    };
    if let Some(name) = name
        && !entries.iter().any(|entry| entry.key == "name")
    {
        let value = Node::new(Data::Text(name.clone()), place);
        entries.insert(0, Entry { key: Cow::Borrowed("name"), place, value });
    }
    for entry in entries {
        let Data::Map(fields) = &mut entry.value.data else {
            continue;
        };
        match &*entry.key {
            "workflows" => fields.iter_mut().for_each(|child| prepare(&mut child.value, Some(&child.key))),
            "tasks" => fields.iter_mut().for_each(|task| prepare_task(&mut task.value)),
            _ => {}
        }
    }
}

fn prepare_task(task: &mut Node<'_>) {
    let Data::Map(entries) = &mut task.data else {
        return;
    };
    for entry in entries {
        match &*entry.key {
            "run" => write_out_command(&mut entry.value),
            "compensation" => {
                if let Data::Text(_) = entry.value.data {
                    let place = entry.value.place;
                    wrap(&mut entry.value, "run");
                    entry.place = place;
                }
                if let Data::Map(fields) = &mut entry.value.data {
                    fields
                        .iter_mut()
                        .filter(|field| field.key == "run")
                        .for_each(|run| write_out_command(&mut run.value));
                }
            }
            _ => {}
        }
    }
}

/// A text is a command of the shell.
fn write_out_command(run: &mut Node<'_>) {
    if let Data::Text(_) = run.data {
        let place = run.place;
        let command = std::mem::replace(run, Node::new(Data::Null, place));
        let word = |text| Node::new(Data::Text(Cow::Borrowed(text)), place);
        run.data = Data::List(vec![word("sh"), word("-c"), command]);
        wrap(run, "command");
        wrap(run, "process");
    }
}

/// An object with the value as its only field.
fn wrap(node: &mut Node<'_>, key: &'static str) {
    let place = node.place;
    let value = std::mem::replace(node, Node::new(Data::Null, place));
    node.data = Data::Map(vec![Entry { key: Cow::Borrowed(key), place, value }]);
}
