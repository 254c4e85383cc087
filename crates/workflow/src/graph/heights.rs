//! Vertical positions: each point close to its neighbours in other columns, with minimum distances in its own.

use super::order::{Columns, to_f64};

/// Iterations in each direction.
const ROUNDS: usize = 6;

/// Adjacent points at minimum distance, which move together.
struct Block {
    sum: f64,
    weight: f64,
    points: usize,
}

/// Neighbours that determine the height of a point.
#[derive(Debug, Clone, Copy)]
enum Neighbours {
    Left,
    Right,
    /// Both sides. Points with exactly one neighbour on each side, such as those of a crossing line, use only the left
    /// one, so that a line changes its height once.
    Both,
}

/// Vertical centre of each point. `sizes` are the heights of the points, `gaps` their minimum distances; between two
/// points the larger gap applies.
pub(super) fn heights(columns: &Columns, sizes: &[f64], gaps: &[f64]) -> Vec<f64> {
    let offsets: Vec<Vec<f64>> = columns.points.iter().map(|points| offsets(points, sizes, gaps)).collect();
    let mut heights = vec![0.0; sizes.len()];
    for (points, offsets) in columns.points.iter().zip(&offsets) {
        for (point, offset) in points.iter().zip(offsets) {
            heights[*point] = *offset;
        }
    }
    let settle = |column: usize, neighbours: Neighbours, heights: &mut Vec<f64>| {
        let points = &columns.points[column];
        let wanted: Vec<f64> = points.iter().map(|point| wanted(columns, *point, neighbours, heights)).collect();
        for (point, height) in points.iter().zip(settled(&wanted, &offsets[column])) {
            heights[*point] = height;
        }
    };
    let count = columns.points.len();
    for _ in 0..ROUNDS {
        (0..count).for_each(|column| settle(column, Neighbours::Left, &mut heights));
        (0..count).rev().for_each(|column| settle(column, Neighbours::Right, &mut heights));
    }
    (0..count).for_each(|column| settle(column, Neighbours::Both, &mut heights));
    for (points, offsets) in columns.points.iter().zip(&offsets) {
        pull_up_isolated(columns, points, offsets, &mut heights);
    }
    let top = (0..sizes.len()).map(|point| heights[point] - sizes[point] / 2.0).fold(f64::INFINITY, f64::min);
    heights.iter().map(|height| height - top).collect()
}

/// Mean height of the neighbours; the current height without any.
fn wanted(columns: &Columns, point: usize, neighbours: Neighbours, heights: &[f64]) -> f64 {
    let (before, after) = (columns.before[point].as_slice(), columns.after[point].as_slice());
    let (before, after) = match neighbours {
        Neighbours::Left => (before, &[][..]),
        Neighbours::Right => (&[][..], after),
        Neighbours::Both if before.len() == 1 && after.len() == 1 => (before, &[][..]),
        Neighbours::Both => (before, after),
    };
    let count = before.len() + after.len();
    if count == 0 {
        return heights[point];
    }
    before.iter().chain(after).map(|other| heights[*other]).sum::<f64>() / to_f64(count)
}

/// Moves isolated points up to the point above. They are the last of their column, so nothing is in the way.
fn pull_up_isolated(columns: &Columns, points: &[usize], offsets: &[f64], heights: &mut [f64]) {
    for rank in 1..points.len() {
        if columns.is_isolated(points[rank]) {
            heights[points[rank]] = heights[points[rank - 1]] + offsets[rank] - offsets[rank - 1];
        }
    }
}

/// Minimum distance of each point from the first of its column.
fn offsets(points: &[usize], sizes: &[f64], gaps: &[f64]) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(points.len());
    let mut offset = 0.0;
    for (rank, point) in points.iter().enumerate() {
        if rank > 0 {
            let above = points[rank - 1];
            offset += f64::midpoint(sizes[above], sizes[*point]) + gaps[above].max(gaps[*point]);
        }
        offsets.push(offset);
    }
    offsets
}

/// The heights closest to the wanted ones by least squares that keep the minimum distances (pool adjacent violators).
fn settled(wanted: &[f64], offsets: &[f64]) -> Vec<f64> {
    let mut blocks: Vec<Block> = Vec::with_capacity(wanted.len());
    for (wanted, offset) in wanted.iter().zip(offsets) {
        let mut block = Block { sum: wanted - offset, weight: 1.0, points: 1 };
        while let Some(above) = blocks.pop_if(|above| above.sum / above.weight >= block.sum / block.weight) {
            block.sum += above.sum;
            block.weight += above.weight;
            block.points += above.points;
        }
        blocks.push(block);
    }
    let levels = blocks.iter().flat_map(|block| std::iter::repeat_n(block.sum / block.weight, block.points));
    levels.zip(offsets).map(|(level, offset)| level + offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_get_their_wanted_heights_where_there_is_room() {
        assert_eq!(settled(&[10.0, 50.0, 90.0], &[0.0, 20.0, 40.0]), [10.0, 50.0, 90.0]);
    }

    #[test]
    fn points_with_the_same_wanted_height_are_centred_on_it() {
        assert_eq!(settled(&[50.0, 50.0, 50.0], &[0.0, 20.0, 40.0]), [30.0, 50.0, 70.0]);
    }

    proptest::proptest! {
        #[test]
        fn minimum_distances_are_kept(wanted in proptest::collection::vec(-1e4_f64..1e4, 0..50), step in 1.0_f64..100.0) {
            let offsets: Vec<f64> = (0..wanted.len()).map(|rank| to_f64(rank) * step).collect();
            let settled = settled(&wanted, &offsets);
            for pair in settled.windows(2) {
                proptest::prop_assert!(pair[1] - pair[0] >= step - 1e-6);
            }
        }
    }
}
