//! Shortens a tree to the height of a terminal. Running and failed branches have priority, hidden ones are counted.

use super::{Branch, Counts, Urgency, count, total};

/// The branches that fit into `room` lines, and the counts per state of the hidden ones.
pub fn fit(branches: Vec<Branch>, rest: Counts, room: usize) -> (Vec<Branch>, Counts) {
    let line_of_rest = usize::from(total(&rest) > 0);
    if lines(&branches) + line_of_rest <= room {
        return (branches, rest);
    }
    let mut branches = branches;
    // Details of succeeded and waiting branches are hidden first, and only as many as necessary.
    let mut used = lines(&branches) + line_of_rest;
    for branch in &mut branches {
        used -= fold(branch, used.saturating_sub(room));
    }
    if used <= room {
        return (branches, rest);
    }
    branches.sort_by_key(|branch| branch.urgency);
    let all_fit = branches.len() + line_of_rest <= room;
    let kept = if all_fit { branches.len() } else { room.saturating_sub(1).min(branches.len()) };
    let left_out = branches.split_off(kept);
    let mut rest = rest;
    left_out.iter().for_each(|branch| count(&mut rest, branch.state, 1));
    let mut spare = room.saturating_sub(branches.len() + usize::from(total(&rest) > 0));
    for branch in &mut branches {
        let wanted = below(branch);
        let share = wanted.min(spare);
        if share < wanted {
            shrink(branch, share);
        }
        spare -= below(branch).min(spare);
    }
    (branches, rest)
}

/// Hides the lines below low-priority branches until `excess` lines are saved or none is left. Returns the number of
/// lines saved.
fn fold(branch: &mut Branch, excess: usize) -> usize {
    if excess == 0 {
        return 0;
    }
    if branch.urgency == Urgency::Other {
        let saved = below(branch);
        // An epoch still has its progress bar.
        branch.below.clear();
        branch.rest.clear();
        return saved;
    }
    let mut saved = 0;
    for lower in &mut branch.below {
        saved += fold(lower, excess.saturating_sub(saved));
    }
    saved
}

/// Limits a branch to `room` lines below it.
fn shrink(branch: &mut Branch, room: usize) {
    let (below, rest) = (std::mem::take(&mut branch.below), std::mem::take(&mut branch.rest));
    if room > 0 {
        (branch.below, branch.rest) = fit(below, rest, room);
    }
}

pub fn lines(branches: &[Branch]) -> usize {
    branches.iter().map(|branch| 1 + below(branch)).sum()
}

fn below(branch: &Branch) -> usize {
    lines(&branch.below) + usize::from(total(&branch.rest) > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Mark;
    use super::*;
    use crate::paint::Tone;

    fn branch(urgency: Urgency, below: Vec<Branch>) -> Branch {
        Branch {
            mark: Mark::Busy,
            name: String::new(),
            state: "running",
            tone: Tone::Plain,
            took: None,
            bar: None,
            note: String::new(),
            urgency,
            below,
            rest: Vec::new(),
        }
    }

    fn any_branch() -> impl Strategy<Value = Branch> {
        let urgency = prop_oneof![Just(Urgency::Failed), Just(Urgency::Live), Just(Urgency::Other)];
        let leaf = urgency.clone().prop_map(|urgency| branch(urgency, Vec::new()));
        leaf.prop_recursive(3, 24, 6, move |inner| {
            (urgency.clone(), proptest::collection::vec(inner, 0..6))
                .prop_map(|(urgency, below)| branch(urgency, below))
        })
    }

    #[test]
    fn failed_branches_come_first_if_not_all_fit() {
        let urgencies = [Urgency::Other, Urgency::Live, Urgency::Other, Urgency::Failed];
        let branches = urgencies.map(|urgency| branch(urgency, Vec::new())).to_vec();
        let (all, rest) = fit(branches.clone(), Vec::new(), 4);
        assert_eq!((all, rest), (branches.clone(), Vec::new()), "in their order if all fit");
        let (some, rest) = fit(branches, Vec::new(), 3);
        assert_eq!(some.iter().map(|branch| branch.urgency).collect::<Vec<_>>(), [Urgency::Failed, Urgency::Live]);
        assert_eq!(rest, [("running", 2)]);
    }

    proptest! {
        #[test]
        fn the_lines_fit_and_hidden_branches_are_counted(
            branches in proptest::collection::vec(any_branch(), 0..12),
            room in 1usize..30,
        ) {
            let count = branches.len();
            let (kept, rest) = fit(branches, Vec::new(), room);
            prop_assert!(lines(&kept) + usize::from(total(&rest) > 0) <= room);
            prop_assert_eq!(kept.len() as u64 + total(&rest), count as u64);
        }
    }
}
