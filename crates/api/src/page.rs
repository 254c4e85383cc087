//! Pages of lists.

use serde::{Deserialize, Serialize};

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Cursor of the next page; null on the last one. A page may be short, or empty, and still have a next one.
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// A list that is always shown whole.
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next_cursor: None }
    }
}
