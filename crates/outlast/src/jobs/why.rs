//! Explanation of a job's state.

use anyhow::Result;
use api::{PlacedView, RunnerWhyView, WhyView};

use super::show;
use crate::context::Context;
use crate::paint::{Paint, Tone, sanitize};
use crate::table::{Align, Cell, Pairs, Table};
use crate::{exit, ids};

pub async fn show(id: &str, context: &Context) -> Result<u8> {
    let why = context.client.why(ids::job(id)?).await?;
    context.printer.print(&why, page)?;
    Ok(exit::DONE)
}

fn page(why: &WhyView, paint: Paint) -> String {
    let mut pairs = Pairs::default();
    pairs.add_cell("id", Cell::new(why.id).tone(Tone::Strong));
    pairs.add_cell("state", Cell::new(why.state).tone(Tone::of_state(why.state)));
    pairs.add("since", why.since);
    pairs.add_option("next try", why.eligible_at);
    let mut text = format!("{}\n", pairs.render(paint));
    for sentence in &why.explanation {
        text.push_str(&format!("{}\n", sanitize(sentence)));
    }
    if !why.decisions.is_empty() {
        text.push_str(&format!("\n{}", show::decisions(&why.decisions).render(paint)));
    }
    if !why.output_decisions.is_empty() {
        text.push_str(&format!("\n{}", show::output_decisions(&why.output_decisions).render(paint)));
    }
    let placed: Vec<&PlacedView> = why.placements.iter().filter(|placed| placed.placement.is_some()).collect();
    if !placed.is_empty() {
        text.push_str(&format!("\n{}", placements(&placed).render(paint)));
    }
    if !why.runners.is_empty() && why.waits_for.is_some() {
        text.push_str(&format!("\n{}", runners(&why.runners).render(paint)));
    }
    text
}

/// Runners with their score and verdict for the job.
fn runners(runners: &[RunnerWhyView]) -> Table {
    let columns =
        [("RUNNER", Align::Left), ("SCORE", Align::Right), ("VERDICT", Align::Left), ("MESSAGE", Align::Left)];
    let mut table = Table::new(&columns);
    for runner in runners {
        table.row([
            Cell::new(&runner.runner),
            Cell::new(format!("{:.2}", runner.score)),
            Cell::new(&runner.verdict),
            Cell::option(runner.message.as_ref()),
        ]);
    }
    table
}

/// Runner of each attempt, with the counts of the alternatives.
fn placements(placed: &[&PlacedView]) -> Table {
    let mut table = Table::new(&[
        ("ATTEMPT", Align::Right),
        ("RUNNER", Align::Left),
        ("SCORE", Align::Right),
        ("AVAILABLE", Align::Right),
        ("BUSY", Align::Right),
        ("OTHER POOL", Align::Right),
        ("LACKS CAPABILITY", Align::Right),
        ("OTHER LABELS", Align::Right),
    ]);
    for attempt in placed {
        let Some(why) = &attempt.placement else { continue };
        let runner = if why.preferred { format!("{} (preferred)", attempt.runner) } else { attempt.runner.clone() };
        table.row([
            Cell::new(attempt.attempt),
            Cell::new(runner),
            Cell::new(format!("{:.2}", why.score)),
            Cell::new(why.available),
            Cell::new(why.busy),
            Cell::new(why.other_pool),
            Cell::new(why.lack_capability),
            Cell::new(why.other_labels),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::{DecisionView, PlacementView};
    use model::id::{Attempt, JobId};
    use model::state::State;
    use model::time::{Millis, Timestamp};

    use super::*;

    #[test]
    fn the_page_has_the_explanation_and_its_facts() {
        let decision = DecisionView {
            at: Timestamp(Millis(0)),
            verdict: "allow".to_owned(),
            rule: "default".to_owned(),
            message: None,
            policy: None,
            constraints: None,
            until: None,
        };
        let placement = PlacementView {
            score: 1.5,
            preferred: true,
            available: 2,
            busy: 1,
            other_pool: 0,
            lack_capability: 3,
            other_labels: 0,
        };
        let why = WhyView {
            id: JobId(1),
            state: State::Running,
            since: Timestamp(Millis(0)),
            reason: None,
            message: None,
            eligible_at: None,
            dispatch_tries: 0,
            dispatch_tries_max: None,
            waits_for: None,
            runners: Vec::new(),
            runner_counts: BTreeMap::new(),
            explanation: vec!["It runs.".to_owned(), "A\x1b[31m rule".to_owned()],
            decisions: vec![decision],
            approval: None,
            output_decisions: Vec::new(),
            placements: vec![PlacedView { attempt: Attempt(1), runner: "r".to_owned(), placement: Some(placement) }],
        };
        let expected = "\
id     job_0000000000001
state  running
since  1970-01-01T00:00:00.000Z

It runs.
A·[31m rule

DECIDED                   VERDICT  RULE     MESSAGE
1970-01-01T00:00:00.000Z  allow    default  -

ATTEMPT  RUNNER         SCORE  AVAILABLE  BUSY  OTHER POOL  LACKS CAPABILITY  OTHER LABELS
      1  r (preferred)   1.50          2     1           0                 3             0
";
        assert_eq!(page(&why, Paint::NONE), expected);
    }
}
