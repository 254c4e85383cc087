//! Assigns boxes to columns: each box to the right of all its needs, as far left as possible.

/// Boxes by number, and the arrows between them.
pub(super) struct Graph {
    /// Epoch index of each box. Epochs are drawn from left to right.
    pub(super) epochs: Vec<usize>,
    /// Pairs of from and to.
    pub(super) arrows: Vec<(usize, usize)>,
}

/// Column of each box, from 0. Boxes on a cycle are not moved beyond what precedes the cycle: a compiled plan has no
/// cycles, so this only keeps other input bounded.
pub(super) fn columns(graph: &Graph) -> Vec<usize> {
    let count = graph.epochs.len();
    let mut after = vec![Vec::new(); count];
    let mut missing = vec![0_usize; count];
    for (from, to) in graph.arrows.iter().copied().filter(|(from, to)| graph.epochs[*from] <= graph.epochs[*to]) {
        after[from].push(to);
        missing[to] += 1;
    }
    let mut by_epoch: Vec<usize> = (0..count).collect();
    by_epoch.sort_by_key(|task| graph.epochs[*task]);
    let mut columns = vec![0; count];
    let mut first_free = 0;
    for epoch in by_epoch.chunk_by(|left, right| graph.epochs[*left] == graph.epochs[*right]) {
        let start = first_free;
        for task in epoch {
            columns[*task] = columns[*task].max(start);
        }
        let mut ready: Vec<usize> = epoch.iter().copied().filter(|task| missing[*task] == 0).collect();
        while let Some(task) = ready.pop() {
            for next in after[task].iter().copied() {
                columns[next] = columns[next].max(columns[task] + 1);
                missing[next] -= 1;
                if missing[next] == 0 && graph.epochs[next] == graph.epochs[task] {
                    ready.push(next);
                }
            }
        }
        first_free = epoch.iter().map(|task| columns[*task] + 1).max().unwrap_or(start);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns_of(epochs: &[usize], arrows: &[(usize, usize)]) -> Vec<usize> {
        columns(&Graph { epochs: epochs.to_vec(), arrows: arrows.to_vec() })
    }

    #[test]
    fn a_box_is_right_of_all_its_needs() {
        assert_eq!(columns_of(&[0; 4], &[(0, 1), (1, 2), (0, 2), (2, 3)]), [0, 1, 2, 3]);
        assert_eq!(columns_of(&[0; 4], &[(3, 1), (1, 0)]), [2, 1, 0, 0]);
        assert_eq!(columns_of(&[], &[]), Vec::<usize>::new());
    }

    #[test]
    fn epochs_are_drawn_in_order() {
        assert_eq!(columns_of(&[0, 0, 1, 1, 3], &[(0, 1), (0, 2), (2, 3)]), [0, 1, 2, 3, 4]);
        // The order of the definition may differ from that of the epochs.
        assert_eq!(columns_of(&[1, 0, 1], &[(1, 0)]), [1, 0, 1]);
    }

    #[test]
    fn a_cycle_terminates() {
        assert_eq!(columns_of(&[0; 3], &[(0, 1), (1, 0), (1, 2)]).len(), 3);
    }
}
