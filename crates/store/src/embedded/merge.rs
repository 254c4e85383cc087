//! Ordered merge of the overlay and the tables.

use std::cmp::Ordering;
use std::iter::Peekable;

use bytes::Bytes;

use super::overlay::ValueOrTombstone;
use crate::key::FullKey;
use crate::{Error, Key, Order};

type Item = Result<(FullKey, ValueOrTombstone), Error>;

/// Merges sorted sources, given newest first. The newest version of a key wins; deleted keys are left out.
pub(crate) fn merge<'a>(
    sources: Vec<Box<dyn Iterator<Item = Item> + 'a>>,
    order: Order,
    limit: usize,
) -> Result<Vec<(Key, Bytes)>, Error> {
    let mut sources: Vec<Peekable<_>> = sources.into_iter().map(Iterator::peekable).collect();
    let mut found = Vec::new();
    while found.len() < limit {
        let Some(key) = first_key(&mut sources, order)? else { break };
        let mut newest: Option<ValueOrTombstone> = None;
        for source in &mut sources {
            let has_key = source.peek().is_some_and(|item| matches!(item, Ok((other, _)) if *other == key));
            if has_key && let Some(Ok((_, value))) = source.next() {
                newest.get_or_insert(value);
            }
        }
        if let Some(Some(value)) = newest {
            found.push((key.key(), value));
        }
    }
    Ok(found)
}

/// The next key over all sources.
fn first_key<I: Iterator<Item = Item>>(sources: &mut [Peekable<I>], order: Order) -> Result<Option<FullKey>, Error> {
    let before = match order {
        Order::Ascending => Ordering::Less,
        Order::Descending => Ordering::Greater,
    };
    let mut first: Option<FullKey> = None;
    for source in sources {
        match source.peek() {
            Some(Ok((key, _))) if first.as_ref().is_none_or(|first| key.cmp(first) == before) => first = Some(*key),
            Some(Err(error)) => return Err(error.clone()),
            Some(Ok(_)) | None => {}
        }
    }
    Ok(first)
}
