//! Orders the points of each column to reduce line crossings.

/// Points in columns, connected by lines between adjacent columns.
pub(super) struct Columns {
    /// Points of each column from top to bottom.
    pub(super) points: Vec<Vec<usize>>,
    /// Neighbours of each point in the previous column, and in the next one.
    pub(super) before: Vec<Vec<usize>>,
    pub(super) after: Vec<Vec<usize>>,
}

impl Columns {
    /// Whether a point has no neighbours.
    pub(super) fn is_isolated(&self, point: usize) -> bool {
        self.before[point].is_empty() && self.after[point].is_empty()
    }
}

/// Maximum number of sweeps in each direction.
const SWEEPS_MAX: usize = 8;

/// Barycentre heuristic: sorts every column by the mean rank of its neighbours, in alternating directions, and keeps
/// the order with the fewest crossings. Isolated points go last, where they are not in the way.
pub(super) fn reduce_crossings(columns: &mut Columns) {
    let mut points = std::mem::take(&mut columns.points);
    points.iter_mut().for_each(|column| column.sort_by_key(|point| columns.is_isolated(*point)));
    columns.points = points;
    let mut ranks = ranks(columns);
    let mut fewest = crossings(columns, &ranks);
    let mut best = columns.points.clone();
    for sweep in 0..2 * SWEEPS_MAX {
        if fewest == 0 {
            break;
        }
        let forward = sweep % 2 == 0;
        for step in 1..columns.points.len() {
            let column = if forward { step } else { columns.points.len() - 1 - step };
            let order = sorted(columns, column, forward, &ranks);
            for (rank, point) in order.iter().enumerate() {
                ranks[*point] = rank;
            }
            columns.points[column] = order;
        }
        let now = crossings(columns, &ranks);
        if now < fewest {
            fewest = now;
            best.clone_from(&columns.points);
        }
    }
    columns.points = best;
}

fn ranks(columns: &Columns) -> Vec<usize> {
    let mut ranks = vec![0; columns.before.len()];
    for column in &columns.points {
        for (rank, point) in column.iter().enumerate() {
            ranks[*point] = rank;
        }
    }
    ranks
}

/// A column sorted by the mean rank of the neighbours on one side.
fn sorted(columns: &Columns, column: usize, forward: bool, ranks: &[usize]) -> Vec<usize> {
    let neighbours = if forward { &columns.before } else { &columns.after };
    let middle = |point: usize| {
        let connected = &neighbours[point];
        if columns.is_isolated(point) {
            f64::INFINITY
        } else if connected.is_empty() {
            to_f64(ranks[point])
        } else {
            to_f64(connected.iter().map(|other| ranks[*other]).sum()) / to_f64(connected.len())
        }
    };
    let mut keyed: Vec<(f64, usize)> = columns.points[column].iter().map(|point| (middle(*point), *point)).collect();
    // A stable sort: points with equal means keep their order.
    keyed.sort_by(|left, right| left.0.total_cmp(&right.0));
    keyed.into_iter().map(|(_, point)| point).collect()
}

/// Number of crossing pairs of lines.
pub(super) fn crossings(columns: &Columns, ranks: &[usize]) -> u64 {
    let between = |pair: &[Vec<usize>]| {
        let mut counts = Counts::new(pair[1].len());
        let mut crossings = 0;
        for point in &pair[0] {
            let ends = &columns.after[*point];
            // Lines from the same point do not cross, so all are compared before any is added.
            crossings += ends.iter().map(|end| counts.above(ranks[*end])).sum::<u64>();
            for end in ends {
                counts.add(ranks[*end]);
            }
        }
        crossings
    };
    columns.points.windows(2).map(between).sum()
}

/// Number of line ends by rank, as a Fenwick tree: both operations take logarithmic time.
struct Counts {
    sums: Vec<u64>,
    total: u64,
}

impl Counts {
    fn new(ranks: usize) -> Self {
        Self { sums: vec![0; ranks + 1], total: 0 }
    }

    fn add(&mut self, rank: usize) {
        self.total += 1;
        let mut node = rank + 1;
        while node < self.sums.len() {
            self.sums[node] += 1;
            node += node & node.wrapping_neg();
        }
    }

    /// Number of line ends at a higher rank.
    fn above(&self, rank: usize) -> u64 {
        let mut up_to = 0;
        let mut node = rank + 1;
        while node > 0 {
            up_to += self.sums[node];
            node -= node & node.wrapping_neg();
        }
        self.total - up_to
    }
}

/// A count as a floating-point number.
pub(super) fn to_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two columns with all points that the lines mention, in ascending order.
    fn two_columns(lines: &[(usize, usize)]) -> Columns {
        let size = lines.iter().map(|(from, to)| from.max(to) + 1).max().unwrap_or(0);
        let mut columns = Columns {
            points: vec![(0..size).collect(), (size..2 * size).collect()],
            before: vec![Vec::new(); 2 * size],
            after: vec![Vec::new(); 2 * size],
        };
        for (from, to) in lines {
            columns.after[*from].push(size + to);
            columns.before[size + to].push(*from);
        }
        columns
    }

    fn crossings_of(columns: &Columns) -> u64 {
        crossings(columns, &ranks(columns))
    }

    #[test]
    fn crossings_are_counted() {
        assert_eq!(crossings_of(&two_columns(&[(0, 0), (1, 1), (2, 2)])), 0);
        assert_eq!(crossings_of(&two_columns(&[(0, 1), (1, 0)])), 1);
        assert_eq!(crossings_of(&two_columns(&[(0, 2), (1, 1), (2, 0)])), 3);
        assert_eq!(crossings_of(&two_columns(&[(0, 0), (0, 1), (1, 0), (1, 1)])), 1);
    }

    #[test]
    fn avoidable_crossings_are_removed() {
        let mut columns = two_columns(&[(0, 3), (1, 2), (2, 1), (3, 0)]);
        reduce_crossings(&mut columns);
        assert_eq!(crossings_of(&columns), 0);
    }

    proptest::proptest! {
        #[test]
        fn crossings_never_increase_and_no_point_is_lost(
            lines in proptest::collection::btree_set((0_usize..12, 0_usize..12), 0..40)
        ) {
            let lines: Vec<_> = lines.into_iter().collect();
            let mut columns = two_columns(&lines);
            let slow = |columns: &Columns| {
                let ranks = ranks(columns);
                let rank = |(from, to): (usize, usize)| (ranks[from], ranks[columns.before.len() / 2 + to]);
                let ends: Vec<_> = lines.iter().copied().map(rank).collect();
                let pairs = ends.iter().flat_map(|left| ends.iter().map(move |right| (left, right)));
                pairs.filter(|(left, right)| left.0 < right.0 && left.1 > right.1).count()
            };
            let before = crossings_of(&columns);
            proptest::prop_assert_eq!(u64::try_from(slow(&columns)).unwrap(), before);
            reduce_crossings(&mut columns);
            proptest::prop_assert!(crossings_of(&columns) <= before);
            for (column, points) in columns.points.iter().enumerate() {
                let mut sorted = points.clone();
                sorted.sort_unstable();
                let size = points.len();
                proptest::prop_assert_eq!(sorted, (column * size..(column + 1) * size).collect::<Vec<_>>());
            }
        }
    }
}
