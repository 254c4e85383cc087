//! Tables and pages of queues.

use api::QueueView;
use model::queue::{Counters, QueueState};

use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Pairs, Table};

pub fn table(queues: &[QueueView], paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("TAG", Align::Left),
        ("TENANT", Align::Left),
        ("STATE", Align::Left),
        ("ACTIVE", Align::Right),
        ("SUCCEEDED", Align::Right),
        ("FAILED", Align::Right),
        ("OTHER", Align::Right),
        ("MAX RUNNING", Align::Right),
        ("RETRIES", Align::Right),
    ]);
    for queue in queues {
        let counters = &queue.counters;
        table.row([
            Cell::new(queue.id),
            Cell::option((!queue.tag.is_empty()).then_some(&queue.tag)),
            Cell::new(&queue.tenant),
            state(queue.state),
            Cell::new(counters.active),
            Cell::new(counters.succeeded),
            Cell::new(counters.failed),
            Cell::new(ended(counters) - counters.succeeded - counters.failed),
            Cell::option(queue.max_running),
            Cell::new(queue.max_retries),
        ]);
    }
    table.render(paint)
}

pub fn page(queue: &QueueView, paint: Paint) -> String {
    let mut pairs = Pairs::default();
    pairs.add_cell("id", Cell::new(queue.id).tone(Tone::Strong));
    pairs.add_option("token", queue.token.as_ref());
    pairs.add_option("tag", (!queue.tag.is_empty()).then_some(&queue.tag));
    pairs.add("tenant", &queue.tenant);
    pairs.add_cell("state", state(queue.state));
    pairs.add("created", queue.created_at);
    pairs.add_option("max running", queue.max_running);
    pairs.add("max retries", queue.max_retries);
    if queue.implicit {
        pairs.add("note", "implicit queue: for the tenant's jobs that name none");
    }
    pairs.add("active", queue.counters.active);
    let Counters { active: _, succeeded, failed, timed_out, cancelled, denied, quarantined, abandoned } =
        queue.counters;
    let ends = [
        ("succeeded", succeeded),
        ("failed", failed),
        ("timed out", timed_out),
        ("cancelled", cancelled),
        ("denied", denied),
        ("quarantined", quarantined),
        ("abandoned", abandoned),
    ];
    for (name, count) in ends {
        pairs.add_option(name, (count > 0).then_some(count));
    }
    pairs.render(paint)
}

/// Number of terminal jobs.
pub fn ended(counters: &Counters) -> u64 {
    let Counters { active: _, succeeded, failed, timed_out, cancelled, denied, quarantined, abandoned } = counters;
    succeeded + failed + timed_out + cancelled + denied + quarantined + abandoned
}

fn state(state: QueueState) -> Cell {
    let tone = match state {
        QueueState::Active => Tone::Plain,
        QueueState::Draining => Tone::Busy,
        QueueState::Cancelled => Tone::Quiet,
    };
    Cell::new(state.as_str()).tone(tone)
}

#[cfg(test)]
mod tests {
    use model::id::QueueId;
    use model::time::{Millis, Timestamp};

    use super::*;

    fn queue() -> QueueView {
        QueueView {
            id: QueueId(2),
            token: Some("qt_x".to_owned()),
            tag: "nightly".to_owned(),
            tenant: "default".to_owned(),
            state: QueueState::Draining,
            max_retries: 3,
            max_running: None,
            created_at: Timestamp(Millis(0)),
            implicit: false,
            counters: Counters { active: 4, succeeded: 10, cancelled: 2, ..Counters::default() },
            deduplicated: false,
        }
    }

    #[test]
    fn a_list_is_one_line_per_queue() {
        let expected = "\
ID               TAG      TENANT   STATE     ACTIVE  SUCCEEDED  FAILED  OTHER  MAX RUNNING  RETRIES
q_0000000000002  nightly  default  draining       4         10       0      2            -        3
";
        assert_eq!(table(&[queue()], Paint::NONE), expected);
    }

    #[test]
    fn a_page_shows_the_token_and_the_nonzero_counters() {
        let expected = "\
id           q_0000000000002
token        qt_x
tag          nightly
tenant       default
state        draining
created      1970-01-01T00:00:00.000Z
max retries  3
active       4
succeeded    10
cancelled    2
";
        assert_eq!(page(&queue(), Paint::NONE), expected);
    }
}
