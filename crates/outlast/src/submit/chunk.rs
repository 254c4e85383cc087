//! Many jobs, cut into requests of a good size.

use std::iter::Peekable;

use anyhow::Result;

use super::source::{Item, Place};

/// Enough to make the cost of a request small, few enough to see progress.
pub const CHUNK_JOBS_MAX: usize = 1000;
/// A chunk goes beyond this only by being a single job.
pub const CHUNK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The body of one request, and where its jobs come from.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// One job per line.
    pub body: Vec<u8>,
    pub places: Vec<Place>,
}

impl Chunk {
    /// The next jobs; nothing at the end.
    pub fn next(items: &mut Peekable<impl Iterator<Item = Result<Item>>>) -> Result<Option<Self>> {
        let mut chunk = Self::default();
        while let Some(item) = items.next_if(|item| chunk.has_room_for(item)) {
            let item = item?;
            chunk.body.extend_from_slice(&item.json);
            chunk.body.push(b'\n');
            chunk.places.push(item.place);
        }
        Ok((!chunk.places.is_empty()).then_some(chunk))
    }

    fn has_room_for(&self, item: &Result<Item>) -> bool {
        match item {
            // What was read before an error is still sent; the error comes first in the next chunk.
            Err(_) => self.places.is_empty(),
            Ok(item) => {
                let fits = self.body.len() + item.json.len() < CHUNK_BYTES_MAX;
                self.places.len() < CHUNK_JOBS_MAX && (fits || self.places.is_empty())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(number: usize, size: usize) -> Result<Item> {
        Ok(Item { place: Place::Line(number), json: vec![b'x'; size] })
    }

    fn chunks(items: Vec<Result<Item>>) -> Vec<Result<Chunk>> {
        let mut items = items.into_iter().peekable();
        std::iter::from_fn(|| Chunk::next(&mut items).transpose()).collect()
    }

    #[test]
    fn a_chunk_has_at_most_a_thousand_jobs() {
        let sizes: Vec<_> = chunks((1..=2001).map(|number| item(number, 2)).collect())
            .into_iter()
            .map(|chunk| chunk.unwrap().places.len())
            .collect();
        assert_eq!(sizes, [1000, 1000, 1]);
        assert_eq!(chunks(Vec::new()).len(), 0);
    }

    #[test]
    fn a_large_job_travels_alone() {
        let sizes = [10, CHUNK_BYTES_MAX + 5, 10, 10];
        let items = sizes.iter().enumerate().map(|(index, size)| item(index + 1, *size)).collect();
        let places: Vec<_> = chunks(items).into_iter().map(|chunk| chunk.unwrap().places.len()).collect();
        assert_eq!(places, [1, 1, 2]);
    }

    #[test]
    fn what_came_before_an_error_is_not_lost() {
        let items = vec![item(1, 2), Err(anyhow::anyhow!("torn")), item(3, 2)];
        let outcomes: Vec<_> = chunks(items).into_iter().map(|chunk| chunk.map(|chunk| chunk.places)).collect();
        assert_eq!(outcomes[0].as_ref().unwrap(), &[Place::Line(1)]);
        assert_eq!(outcomes[1].as_ref().unwrap_err().to_string(), "torn");
        assert_eq!(outcomes[2].as_ref().unwrap(), &[Place::Line(3)]);
    }

    proptest! {
        #[test]
        fn every_job_is_in_one_chunk_and_in_order(sizes in proptest::collection::vec(0usize..600_000, 0..60)) {
            let items = sizes.iter().enumerate().map(|(index, size)| item(index, *size)).collect();
            let mut next = 0;
            for chunk in chunks(items) {
                let chunk = chunk.unwrap();
                let expected: usize = chunk.places.iter().zip(&sizes[next..]).map(|(_, size)| size + 1).sum();
                prop_assert_eq!(chunk.body.len(), expected);
                prop_assert!(chunk.body.len() <= CHUNK_BYTES_MAX || chunk.places.len() == 1);
                for place in chunk.places {
                    prop_assert_eq!(place, Place::Line(next));
                    next += 1;
                }
            }
            prop_assert_eq!(next, sizes.len());
        }
    }
}
