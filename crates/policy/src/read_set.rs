//! The paths of `input` that a set of rules reads, as a tree of names.

use std::collections::BTreeSet;

/// A part of the input: read as a whole, or only below some names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ReadSet {
    whole: bool,
    below: Vec<(Box<str>, ReadSet)>,
}

/// The part of a value that is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Extent<'a> {
    Nothing,
    Part(&'a ReadSet),
    Whole,
}

impl<'a> Extent<'a> {
    /// Extent of the field with this name.
    pub fn below(self, name: &str) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::Part(reads) => reads.extent_of(name),
            Self::Whole => Self::Whole,
        }
    }

    pub fn is_nothing(self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Part(_) | Self::Whole => false,
        }
    }
}

impl ReadSet {
    /// Adds a path with everything below it.
    pub fn add<'a>(&mut self, path: impl IntoIterator<Item = &'a str>) {
        let mut node = self;
        for name in path {
            if node.whole {
                return;
            }
            let index = node.below.binary_search_by(|(known, _)| (**known).cmp(name)).unwrap_or_else(|index| {
                node.below.insert(index, (name.into(), Self::default()));
                index
            });
            node = &mut node.below[index].1;
        }
        node.whole = true;
        node.below.clear();
    }

    pub fn extent(&self) -> Extent<'_> {
        if self.whole {
            Extent::Whole
        } else if self.below.is_empty() {
            Extent::Nothing
        } else {
            Extent::Part(self)
        }
    }

    fn extent_of(&self, name: &str) -> Extent<'_> {
        // Few names: linear search is faster than binary search.
        self.below.iter().find(|(known, _)| **known == *name).map_or(Extent::Nothing, |(_, reads)| reads.extent())
    }

    /// All paths as text.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = BTreeSet::new();
        self.collect("input", &mut paths);
        paths.into_iter().collect()
    }

    fn collect(&self, prefix: &str, paths: &mut BTreeSet<String>) {
        if self.whole {
            paths.insert(prefix.to_owned());
        }
        for (name, reads) in &self.below {
            reads.collect(&format!("{prefix}.{name}"), paths);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_covers_everything_below_it() {
        let mut reads = ReadSet::default();
        assert!(reads.extent().is_nothing());
        reads.add(["job", "labels", "env"]);
        reads.add(["tenant"]);
        assert_eq!(reads.paths(), ["input.job.labels.env", "input.tenant"]);
        assert!(reads.extent().below("job").below("topic").is_nothing());
        assert!(matches!(reads.extent().below("job").below("labels").below("env").below("x"), Extent::Whole));
        reads.add(["job", "labels"]);
        reads.add(["job", "labels", "team"]);
        assert_eq!(reads.paths(), ["input.job.labels", "input.tenant"]);
        reads.add([]);
        assert_eq!(reads.paths(), ["input"]);
    }
}
