//! Splits a stream of jobs into batch requests.

use std::iter::Peekable;

use anyhow::Result;

use super::source::{Position, SourceJob};

/// Large enough to amortise the cost of a request, small enough to show progress.
pub const CHUNK_JOBS_MAX: usize = 1000;
/// Only a single larger job may exceed this limit.
pub const CHUNK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Body of one request with the positions of its jobs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// NDJSON.
    pub body: Vec<u8>,
    pub positions: Vec<Position>,
}

impl Chunk {
    /// The next chunk; `None` at the end.
    pub fn next(items: &mut Peekable<impl Iterator<Item = Result<SourceJob>>>) -> Result<Option<Self>> {
        let mut chunk = Self::default();
        while let Some(item) = items.next_if(|item| chunk.has_room_for(item)) {
            let item = item?;
            chunk.body.extend_from_slice(&item.json);
            chunk.body.push(b'\n');
            chunk.positions.push(item.position);
        }
        Ok((!chunk.positions.is_empty()).then_some(chunk))
    }

    fn has_room_for(&self, item: &Result<SourceJob>) -> bool {
        match item {
            // Jobs read before an error are still sent; the error starts the next chunk.
            Err(_) => self.positions.is_empty(),
            Ok(item) => {
                let fits = self.body.len() + item.json.len() < CHUNK_BYTES_MAX;
                self.positions.len() < CHUNK_JOBS_MAX && (fits || self.positions.is_empty())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(number: usize, size: usize) -> Result<SourceJob> {
        Ok(SourceJob { position: Position::Line(number), json: vec![b'x'; size] })
    }

    fn chunks(items: Vec<Result<SourceJob>>) -> Vec<Result<Chunk>> {
        let mut items = items.into_iter().peekable();
        std::iter::from_fn(|| Chunk::next(&mut items).transpose()).collect()
    }

    #[test]
    fn a_chunk_has_at_most_a_thousand_jobs() {
        let sizes: Vec<_> = chunks((1..=2001).map(|number| item(number, 2)).collect())
            .into_iter()
            .map(|chunk| chunk.unwrap().positions.len())
            .collect();
        assert_eq!(sizes, [1000, 1000, 1]);
        assert_eq!(chunks(Vec::new()).len(), 0);
    }

    #[test]
    fn a_large_job_is_sent_alone() {
        let sizes = [10, CHUNK_BYTES_MAX + 5, 10, 10];
        let items = sizes.iter().enumerate().map(|(index, size)| item(index + 1, *size)).collect();
        let positions: Vec<_> = chunks(items).into_iter().map(|chunk| chunk.unwrap().positions.len()).collect();
        assert_eq!(positions, [1, 1, 2]);
    }

    #[test]
    fn jobs_before_an_error_are_sent() {
        let items = vec![item(1, 2), Err(anyhow::anyhow!("torn")), item(3, 2)];
        let results: Vec<_> = chunks(items).into_iter().map(|chunk| chunk.map(|chunk| chunk.positions)).collect();
        assert_eq!(results[0].as_ref().unwrap(), &[Position::Line(1)]);
        assert_eq!(results[1].as_ref().unwrap_err().to_string(), "torn");
        assert_eq!(results[2].as_ref().unwrap(), &[Position::Line(3)]);
    }

    proptest! {
        #[test]
        fn every_job_is_in_one_chunk_and_in_order(sizes in proptest::collection::vec(0usize..600_000, 0..60)) {
            let items = sizes.iter().enumerate().map(|(index, size)| item(index, *size)).collect();
            let mut next = 0;
            for chunk in chunks(items) {
                let chunk = chunk.unwrap();
                let expected: usize = chunk.positions.iter().zip(&sizes[next..]).map(|(_, size)| size + 1).sum();
                prop_assert_eq!(chunk.body.len(), expected);
                prop_assert!(chunk.body.len() <= CHUNK_BYTES_MAX || chunk.positions.len() == 1);
                for position in chunk.positions {
                    prop_assert_eq!(position, Position::Line(next));
                    next += 1;
                }
            }
            prop_assert_eq!(next, sizes.len());
        }
    }
}
