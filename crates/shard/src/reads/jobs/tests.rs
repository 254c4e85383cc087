//! Lists of jobs, with commits between their single reads.

use store::Observed;

use super::super::tests::{QUEUE, Writer, job_of};
use super::*;

const LIMITS: [usize; 3] = [1, 2, 100];

fn one_shard() -> Shards {
    Shards::new(1).unwrap()
}

/// All pages of a list.
fn listed(store: &Observed, filter: &Filter, limit: usize, chunk_max: usize, read_max: usize) -> Vec<u64> {
    let reader = Reader::new(store, one_shard(), filter).with_limits(chunk_max, read_max);
    let (mut ids, mut before) = (Vec::new(), None);
    loop {
        let page = reader.page(before, limit).unwrap();
        assert!(page.jobs.len() <= limit);
        ids.extend(page.jobs.iter().map(|listed| listed.job.id.0));
        before = page.next;
        if before.is_none() {
            return ids;
        }
    }
}

/// The list, which is the same for all limits.
fn list(store: &Observed, filter: &Filter) -> Vec<u64> {
    let all = listed(store, filter, 100, CHUNK, READ_MAX);
    for limit in LIMITS {
        for chunk_max in LIMITS {
            for read_max in LIMITS {
                assert_eq!(listed(store, filter, limit, chunk_max, read_max), all);
            }
        }
    }
    all
}

fn with_states(states: &[State]) -> Filter {
    Filter { states: Some(states.to_vec()), ..Filter::default() }
}

#[test]
fn a_list_has_the_matching_jobs_newest_first() {
    let (mut writer, store) = Writer::new();
    let states = [State::Pending, State::Failed, State::Succeeded, State::Cancelled, State::Running, State::Failed];
    for (id, state) in (1..).zip(states) {
        writer.put(&job_of(id, state));
    }
    assert_eq!(list(&store, &Filter::default()), [6, 5, 4, 3, 2, 1]);
    assert_eq!(list(&store, &with_states(&[State::Failed])), [6, 2]);
    assert_eq!(list(&store, &with_states(&[State::Cancelled, State::Failed, State::Pending])), [6, 4, 2, 1]);
    assert_eq!(list(&store, &with_states(&[State::Running, State::Succeeded])), [5, 3]);
    assert_eq!(list(&store, &with_states(&[])), [0; 0]);
    let of_queue = |queue, states| Filter { queue: Some(queue), states, ..Filter::default() };
    assert_eq!(list(&store, &of_queue(QUEUE, None)), [6, 5, 4, 3, 2, 1]);
    assert_eq!(list(&store, &of_queue(QUEUE, Some(vec![State::Failed]))), [6, 2]);
    assert_eq!(list(&store, &of_queue(QueueId(2), None)), [0; 0]);
    let of_tenant = |tenant: &str| Filter { tenant: Some(tenant.to_owned()), ..Filter::default() };
    assert_eq!(list(&store, &of_tenant("default")).len(), 6);
    assert_eq!(list(&store, &of_tenant("other")), [0; 0]);
}

/// One job changes before every read, from one state to the next.
fn with_a_job_that_moves(states: [State; 2]) -> std::sync::Arc<Observed> {
    let (mut writer, store) = Writer::new();
    for id in [1, 2, 4, 5] {
        writer.put(&job_of(id, states[0]));
    }
    writer.put(&job_of(3, states[1]));
    let mut states = states.into_iter().cycle();
    store.before_each_read(move || writer.put(&job_of(3, states.next().unwrap())));
    store
}

#[test]
fn a_job_that_moves_between_the_indexes_is_listed_once() {
    for states in [[State::Failed, State::Pending], [State::Failed, State::Cancelled]] {
        for filter in [Filter::default(), with_states(&states), with_states(&[states[1], states[0]])] {
            let store = with_a_job_that_moves(states);
            for _ in 0..2 {
                assert_eq!(list(&store, &filter), [5, 4, 3, 2, 1]);
                // One more read, so that the moves meet the reads in the other order.
                store.get(ShardId(0), Keyspace::Meta, b"").unwrap();
            }
        }
    }
}

#[test]
fn a_job_that_is_removed_meanwhile_is_listed_or_not() {
    for reads in 0..20 {
        let (mut writer, store) = Writer::new();
        (1..=3).for_each(|id| writer.put(&job_of(id, State::Failed)));
        let mut left = reads;
        store.before_each_read(move || match left {
            0 => writer.remove(2),
            _ => left -= 1,
        });
        let ids = listed(&store, &Filter::default(), 1, 2, 2);
        assert!(ids == [3, 2, 1] || ids == [3, 1], "{ids:?}");
    }
}
