//! Heights: every point near those it is joined with, and never too near to its neighbours.

use super::order::{Columns, as_number};

/// How often heights are settled in each direction.
const ROUNDS: usize = 6;

/// A run of points that push against each other and so move as one.
struct Block {
    sum: f64,
    weight: f64,
    points: usize,
}

/// Where the points of a column look for their height.
#[derive(Debug, Clone, Copy)]
enum Look {
    Back,
    Ahead,
    /// Both ways; but points with exactly one behind and one ahead, such as those of a passing line, only back, so that
    /// a line that must climb does so once.
    Around,
}

/// The middle of each point from the top. `sizes` are their heights, `gaps` the room that each wants above and below;
/// between neighbours the larger one counts.
pub(super) fn heights(columns: &Columns, sizes: &[f64], gaps: &[f64]) -> Vec<f64> {
    let offsets: Vec<Vec<f64>> = columns.points.iter().map(|points| offsets(points, sizes, gaps)).collect();
    let mut heights = vec![0.0; sizes.len()];
    for (points, offsets) in columns.points.iter().zip(&offsets) {
        for (point, offset) in points.iter().zip(offsets) {
            heights[*point] = *offset;
        }
    }
    let settle = |column: usize, look: Look, heights: &mut Vec<f64>| {
        let points = &columns.points[column];
        let wanted: Vec<f64> = points.iter().map(|point| wanted(columns, *point, look, heights)).collect();
        for (point, height) in points.iter().zip(settled(&wanted, &offsets[column])) {
            heights[*point] = height;
        }
    };
    let count = columns.points.len();
    for _ in 0..ROUNDS {
        (0..count).for_each(|column| settle(column, Look::Back, &mut heights));
        (0..count).rev().for_each(|column| settle(column, Look::Ahead, &mut heights));
    }
    (0..count).for_each(|column| settle(column, Look::Around, &mut heights));
    for (points, offsets) in columns.points.iter().zip(&offsets) {
        draw_up(columns, points, offsets, &mut heights);
    }
    let top = (0..sizes.len()).map(|point| heights[point] - sizes[point] / 2.0).fold(f64::INFINITY, f64::min);
    heights.iter().map(|height| height - top).collect()
}

/// The mean height of those a point is joined with; its own without any.
fn wanted(columns: &Columns, point: usize, look: Look, heights: &[f64]) -> f64 {
    let (before, after) = (columns.before[point].as_slice(), columns.after[point].as_slice());
    let (before, after) = match look {
        Look::Back => (before, &[][..]),
        Look::Ahead => (&[][..], after),
        Look::Around if before.len() == 1 && after.len() == 1 => (before, &[][..]),
        Look::Around => (before, after),
    };
    let count = before.len() + after.len();
    if count == 0 {
        return heights[point];
    }
    before.iter().chain(after).map(|other| heights[*other]).sum::<f64>() / as_number(count)
}

/// Moves points that are joined with nothing, and so want nothing, up to their neighbours. They are the last of their
/// column, so nothing is in their way.
fn draw_up(columns: &Columns, points: &[usize], offsets: &[f64], heights: &mut [f64]) {
    for place in 1..points.len() {
        if columns.is_alone(points[place]) {
            heights[points[place]] = heights[points[place - 1]] + offsets[place] - offsets[place - 1];
        }
    }
}

/// How far below the first point of a column each other one must be at least.
fn offsets(points: &[usize], sizes: &[f64], gaps: &[f64]) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(points.len());
    let mut offset = 0.0;
    for (place, point) in points.iter().enumerate() {
        if place > 0 {
            let above = points[place - 1];
            offset += f64::midpoint(sizes[above], sizes[*point]) + gaps[above].max(gaps[*point]);
        }
        offsets.push(offset);
    }
    offsets
}

/// The heights nearest to the wanted ones, in the sense of least squares, that keep all distances. Points that would
/// come too near to each other are pooled and share their disappointment.
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
    fn points_get_what_they_want_where_there_is_room() {
        assert_eq!(settled(&[10.0, 50.0, 90.0], &[0.0, 20.0, 40.0]), [10.0, 50.0, 90.0]);
    }

    #[test]
    fn points_that_want_the_same_place_share_it_fairly() {
        assert_eq!(settled(&[50.0, 50.0, 50.0], &[0.0, 20.0, 40.0]), [30.0, 50.0, 70.0]);
    }

    proptest::proptest! {
        #[test]
        fn distances_are_always_kept(wanted in proptest::collection::vec(-1e4_f64..1e4, 0..50), step in 1.0_f64..100.0) {
            let offsets: Vec<f64> = (0..wanted.len()).map(|place| as_number(place) * step).collect();
            let settled = settled(&wanted, &offsets);
            for pair in settled.windows(2) {
                proptest::prop_assert!(pair[1] - pair[0] >= step - 1e-6);
            }
        }
    }
}
