//! Writes a tree as normalised JSON.

use super::{Data, Node};

/// Writes the tree in its order of fields and sets the span of every value. Returns the text and the number of values.
pub(crate) fn normalise(root: &mut Node<'_>) -> (Vec<u8>, usize) {
    let mut out = Vec::new();
    let nodes = write(root, &mut out);
    // Lives as long as the plan.
    out.shrink_to_fit();
    (out, nodes)
}

fn write(node: &mut Node<'_>, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    let mut nodes = 1;
    match &mut node.data {
        Data::Null => out.extend_from_slice(b"null"),
        Data::Bool(true) => out.extend_from_slice(b"true"),
        Data::Bool(false) => out.extend_from_slice(b"false"),
        Data::Number(number) => json(number, out),
        Data::Text(text) => json(text, out),
        Data::List(elements) => {
            out.push(b'[');
            for (at, element) in elements.iter_mut().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                nodes += write(element, out);
            }
            out.push(b']');
        }
        Data::Map(entries) => {
            out.push(b'{');
            for (at, entry) in entries.iter_mut().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                json(&entry.key, out);
                out.push(b':');
                nodes += write(&mut entry.value, out);
            }
            out.push(b'}');
        }
    }
    node.span = (offset(start), offset(out.len()));
    nodes
}

fn json<T: serde::Serialize>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("strings and numbers can always be serialised to memory");
}

/// Saturates; such a text is refused by its size afterwards.
fn offset(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
