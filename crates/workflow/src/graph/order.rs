//! The order of what stands in one column, chosen so that few lines cross.

/// Points in columns, joined by lines from one column to the next.
pub(super) struct Columns {
    /// The points of each column from top to bottom.
    pub(super) points: Vec<Vec<usize>>,
    /// For each point, those it is joined with in the column before, and in the one after.
    pub(super) before: Vec<Vec<usize>>,
    pub(super) after: Vec<Vec<usize>>,
}

impl Columns {
    /// Whether nothing is joined with a point.
    pub(super) fn is_alone(&self, point: usize) -> bool {
        self.before[point].is_empty() && self.after[point].is_empty()
    }
}

/// How often the order is improved in each direction.
const SWEEPS_MAX: usize = 8;

/// Moves every point to the middle of those it is joined with, back and forth, and keeps the order with the fewest
/// crossings that was met. What is joined with nothing goes last, where it is in nobody's way.
pub(super) fn improve(columns: &mut Columns) {
    let mut points = std::mem::take(&mut columns.points);
    points.iter_mut().for_each(|column| column.sort_by_key(|point| columns.is_alone(*point)));
    columns.points = points;
    let mut places = places(columns);
    let mut fewest = crossings(columns, &places);
    let mut best = columns.points.clone();
    for sweep in 0..2 * SWEEPS_MAX {
        if fewest == 0 {
            break;
        }
        let forward = sweep % 2 == 0;
        for step in 1..columns.points.len() {
            let column = if forward { step } else { columns.points.len() - 1 - step };
            let order = sorted(columns, column, forward, &places);
            for (place, point) in order.iter().enumerate() {
                places[*point] = place;
            }
            columns.points[column] = order;
        }
        let now = crossings(columns, &places);
        if now < fewest {
            fewest = now;
            best.clone_from(&columns.points);
        }
    }
    columns.points = best;
}

fn places(columns: &Columns) -> Vec<usize> {
    let mut places = vec![0; columns.before.len()];
    for column in &columns.points {
        for (place, point) in column.iter().enumerate() {
            places[*point] = place;
        }
    }
    places
}

/// A column in the order of the middles of what its points are joined with on one side.
fn sorted(columns: &Columns, column: usize, forward: bool, places: &[usize]) -> Vec<usize> {
    let joined = if forward { &columns.before } else { &columns.after };
    let middle = |point: usize| {
        let others = &joined[point];
        if columns.is_alone(point) {
            f64::INFINITY
        } else if others.is_empty() {
            as_number(places[point])
        } else {
            as_number(others.iter().map(|other| places[*other]).sum()) / as_number(others.len())
        }
    };
    let mut keyed: Vec<(f64, usize)> = columns.points[column].iter().map(|point| (middle(*point), *point)).collect();
    // A stable sort: points that pull to the same place keep their order.
    keyed.sort_by(|left, right| left.0.total_cmp(&right.0));
    keyed.into_iter().map(|(_, point)| point).collect()
}

/// How many pairs of lines cross.
pub(super) fn crossings(columns: &Columns, places: &[usize]) -> u64 {
    let between = |pair: &[Vec<usize>]| {
        let mut counts = Counts::new(pair[1].len());
        let mut crossings = 0;
        for point in &pair[0] {
            let ends = &columns.after[*point];
            // Lines from the same point do not cross, so all are compared before any is counted.
            crossings += ends.iter().map(|end| counts.above(places[*end])).sum::<u64>();
            for end in ends {
                counts.add(places[*end]);
            }
        }
        crossings
    };
    columns.points.windows(2).map(between).sum()
}

/// How many lines end at or before a place, as a tree of sums: both questions take logarithmic time.
struct Counts {
    sums: Vec<u64>,
    total: u64,
}

impl Counts {
    fn new(places: usize) -> Self {
        Self { sums: vec![0; places + 1], total: 0 }
    }

    fn add(&mut self, place: usize) {
        self.total += 1;
        let mut node = place + 1;
        while node < self.sums.len() {
            self.sums[node] += 1;
            node += node & node.wrapping_neg();
        }
    }

    /// How many end at a higher place.
    fn above(&self, place: usize) -> u64 {
        let mut up_to = 0;
        let mut node = place + 1;
        while node > 0 {
            up_to += self.sums[node];
            node -= node & node.wrapping_neg();
        }
        self.total - up_to
    }
}

/// A count as a number to reckon with.
pub(super) fn as_number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two columns of as many points as lines mention, in their natural order.
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
        crossings(columns, &places(columns))
    }

    #[test]
    fn crossings_are_counted() {
        assert_eq!(crossings_of(&two_columns(&[(0, 0), (1, 1), (2, 2)])), 0);
        assert_eq!(crossings_of(&two_columns(&[(0, 1), (1, 0)])), 1);
        assert_eq!(crossings_of(&two_columns(&[(0, 2), (1, 1), (2, 0)])), 3);
        assert_eq!(crossings_of(&two_columns(&[(0, 0), (0, 1), (1, 0), (1, 1)])), 1);
    }

    #[test]
    fn what_can_be_untangled_is() {
        let mut columns = two_columns(&[(0, 3), (1, 2), (2, 1), (3, 0)]);
        improve(&mut columns);
        assert_eq!(crossings_of(&columns), 0);
    }

    proptest::proptest! {
        #[test]
        fn an_order_never_gets_worse_and_loses_nothing(
            lines in proptest::collection::btree_set((0_usize..12, 0_usize..12), 0..40)
        ) {
            let lines: Vec<_> = lines.into_iter().collect();
            let mut columns = two_columns(&lines);
            let slow = |columns: &Columns| {
                let places = places(columns);
                let place = |(from, to): (usize, usize)| (places[from], places[columns.before.len() / 2 + to]);
                let ends: Vec<_> = lines.iter().copied().map(place).collect();
                let pairs = ends.iter().flat_map(|left| ends.iter().map(move |right| (left, right)));
                pairs.filter(|(left, right)| left.0 < right.0 && left.1 > right.1).count()
            };
            let before = crossings_of(&columns);
            proptest::prop_assert_eq!(u64::try_from(slow(&columns)).unwrap(), before);
            improve(&mut columns);
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
