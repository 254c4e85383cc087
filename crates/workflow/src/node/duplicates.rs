//! Reports duplicate fields of objects, with both positions.

use hashbrown::HashMap;

use super::{Data, MapEntry, Node};
use crate::diagnostic::{Position, Problems, code};
use crate::path::FieldPath;

/// Up to this many fields, pairwise comparison is faster than a hash map.
const COMPARED_MAX: usize = 12;

pub(crate) fn refuse_duplicates(root: &Node<'_>, problems: &mut Problems) {
    walk(root, FieldPath::Root, problems);
}

fn walk(node: &Node<'_>, path: FieldPath<'_>, problems: &mut Problems) {
    match &node.data {
        Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) => {}
        Data::List(nodes) => {
            for (at, element) in nodes.iter().enumerate() {
                walk(element, FieldPath::Element(&path, at), problems);
            }
        }
        Data::Map(entries) => {
            check(entries, path, problems);
            for entry in entries {
                walk(&entry.value, FieldPath::Field(&path, &entry.key), problems);
            }
        }
    }
}

fn check(entries: &[MapEntry<'_>], path: FieldPath<'_>, problems: &mut Problems) {
    if entries.len() <= COMPARED_MAX {
        for (at, entry) in entries.iter().enumerate() {
            if let Some(first) = entries[..at].iter().find(|earlier| earlier.key == entry.key) {
                refuse(entry, first.position, path, problems);
            }
        }
        return;
    }
    let mut positions: HashMap<&str, Position, foldhash::fast::RandomState> = HashMap::default();
    for entry in entries {
        if let Some(first) = positions.get(&*entry.key) {
            refuse(entry, *first, path, problems);
        } else {
            positions.insert(&entry.key, entry.position);
        }
    }
}

fn refuse(entry: &MapEntry<'_>, first: Position, path: FieldPath<'_>, problems: &mut Problems) {
    let key = &entry.key;
    let message = if first.line > 0 && entry.position.line > first.line {
        format!("`{key}` is defined twice: in line {} and in line {}", first.line, entry.position.line)
    } else {
        format!("`{key}` is defined twice")
    };
    let suggestion = "rename or remove one of the two".to_owned();
    problems.add_with_suggestion(
        entry.position,
        code::DUPLICATE_NAME,
        FieldPath::Field(&path, key),
        message,
        Some(suggestion),
    );
}
