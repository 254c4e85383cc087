//! One name, one field: what stands twice in an object is refused, with both places.

use hashbrown::HashMap;

use super::{Data, Entry, Node};
use crate::diagnostic::{Place, Problems, code};
use crate::path::Path;

/// Up to this many fields it is quicker to compare each with each.
const COMPARED_MAX: usize = 12;

pub(crate) fn refuse_duplicates(root: &Node<'_>, problems: &mut Problems) {
    walk(root, Path::Root, problems);
}

fn walk(node: &Node<'_>, path: Path<'_>, problems: &mut Problems) {
    match &node.data {
        Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) => {}
        Data::List(nodes) => {
            for (at, element) in nodes.iter().enumerate() {
                walk(element, Path::Element(&path, at), problems);
            }
        }
        Data::Map(entries) => {
            check(entries, path, problems);
            for entry in entries {
                walk(&entry.value, Path::Field(&path, &entry.key), problems);
            }
        }
    }
}

fn check(entries: &[Entry<'_>], path: Path<'_>, problems: &mut Problems) {
    if entries.len() <= COMPARED_MAX {
        for (at, entry) in entries.iter().enumerate() {
            if let Some(first) = entries[..at].iter().find(|earlier| earlier.key == entry.key) {
                refuse(entry, first.place, path, problems);
            }
        }
        return;
    }
    let mut places: HashMap<&str, Place, foldhash::fast::RandomState> = HashMap::default();
    for entry in entries {
        if let Some(first) = places.get(&*entry.key) {
            refuse(entry, *first, path, problems);
        } else {
            places.insert(&entry.key, entry.place);
        }
    }
}

fn refuse(entry: &Entry<'_>, first: Place, path: Path<'_>, problems: &mut Problems) {
    let key = &entry.key;
    let message = if first.line > 0 && entry.place.line > first.line {
        format!("`{key}` stands twice: in line {} and again in line {}", first.line, entry.place.line)
    } else {
        format!("`{key}` stands twice")
    };
    let suggestion = "give one of the two another name, or leave it out".to_owned();
    problems.advise(entry.place, code::DUPLICATE_NAME, Path::Field(&path, key), message, Some(suggestion));
}
