//! Tables and pages of schedules.

use std::time::Duration;

use api::ScheduleView;
use model::workflow::{CatchUp, Overlap};

use crate::duration;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Pairs, Table, shorten};

const TROUBLE_WIDTH: usize = 60;

pub fn table(schedules: &[ScheduleView], now: Duration, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("CRON", Align::Left),
        ("TIMEZONE", Align::Left),
        ("WORKFLOW", Align::Left),
        ("NEXT IN", Align::Right),
        ("STARTED", Align::Right),
        ("SKIPPED", Align::Right),
        ("LAST", Align::Left),
        ("LAST ERROR", Align::Left),
    ]);
    for schedule in schedules {
        let next = schedule.next_slot.map(|next| Duration::from_millis(next.0.0).saturating_sub(now));
        let (state, tone) = state(schedule);
        table.row([
            Cell::new(&schedule.name),
            Cell::new(state).tone(tone),
            Cell::new(&schedule.cron),
            Cell::new(&schedule.timezone),
            Cell::new(&schedule.workflow),
            Cell::option(next.map(duration::show)),
            Cell::new(schedule.started),
            Cell::new(schedule.skipped),
            Cell::option(schedule.last_workflow),
            Cell::option(schedule.trouble.as_ref().map(|trouble| shorten(trouble, TROUBLE_WIDTH))).tone(Tone::Bad),
        ]);
    }
    table.render(paint)
}

fn state(schedule: &ScheduleView) -> (&'static str, Tone) {
    if schedule.paused { ("paused", Tone::Plain) } else { ("active", Tone::Good) }
}

pub fn line(schedule: &ScheduleView, _: Paint) -> String {
    format!("{} {}\n", schedule.name, state(schedule).0)
}

pub fn page(schedule: &ScheduleView, paint: Paint) -> String {
    let mut pairs = Pairs::default();
    let (state, tone) = state(schedule);
    pairs.add_cell("name", Cell::new(&schedule.name).tone(Tone::Strong));
    pairs.add("id", schedule.id);
    pairs.add_cell("state", Cell::new(state).tone(tone));
    pairs.add_option("last error", schedule.trouble.as_ref());
    pairs.add("cron", &schedule.cron);
    pairs.add("timezone", &schedule.timezone);
    pairs.add_option("next", schedule.next_slot);
    pairs.add_option("last", schedule.last_slot);
    pairs.add_option("waiting", schedule.waiting_slot);
    pairs.add("workflow", &schedule.workflow);
    let inputs = schedule.inputs.as_str();
    pairs.add_option("inputs", (inputs != "{}").then_some(inputs));
    pairs.add_option("last started", schedule.last_workflow);
    pairs.add("started", schedule.started);
    pairs.add("skipped", schedule.skipped);
    pairs.add("catch up", catch_up(schedule.catch_up));
    pairs.add("overlap", overlap(schedule.overlap));
    let jitter = Duration::from_millis(schedule.jitter_ms);
    pairs.add_option("jitter", (!jitter.is_zero()).then(|| duration::show(jitter)));
    pairs.add("tenant", &schedule.tenant);
    pairs.add_option("queue", schedule.queue);
    pairs.add("created", schedule.created_at);
    pairs.add_option("submitter", schedule.submitter.as_ref());
    pairs.render(paint)
}

fn catch_up(catch_up: CatchUp) -> &'static str {
    match catch_up {
        CatchUp::Skip => "skip: missed slots are skipped",
        CatchUp::Once => "once: one workflow is started for all missed slots",
        CatchUp::All => "all: one workflow is started for each missed slot",
    }
}

fn overlap(overlap: Overlap) -> &'static str {
    match overlap {
        Overlap::Allow => "allow: workflows may run concurrently",
        Overlap::Forbid => "forbid: a slot is skipped while the previous workflow runs",
        Overlap::Replace => "replace: the previous workflow is cancelled",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schedule() -> ScheduleView {
        serde_json::from_str(
            &json!({
                "id": "sch_0000000000001", "name": "nightly", "tenant": "default", "queue": null, "cron": "30 2 * * *",
                "timezone": "Europe/Berlin", "catch_up": "once", "overlap": "forbid", "jitter_ms": 30_000, "paused": false,
                "created_at": "2026-01-01T00:00:00.000Z", "submitter": "ada", "last_slot": null,
                "next_slot": "2026-01-02T01:30:00.000Z", "last_workflow": null, "started": 0, "skipped": 0,
                "waiting_slot": null, "trouble": null, "workflow": "report", "inputs": {"days": 1},
            })
            .to_string(),
        )
        .unwrap()
    }

    #[test]
    fn a_list_is_one_line_per_schedule() {
        let now = Duration::from_millis(schedule().created_at.0.0);
        let trouble =
            ScheduleView { trouble: Some("no such queue".to_owned()), paused: true, next_slot: None, ..schedule() };
        insta::assert_snapshot!(table(&[schedule(), trouble], now, Paint::NONE), @"
        NAME     STATE   CRON        TIMEZONE       WORKFLOW  NEXT IN  STARTED  SKIPPED  LAST  LAST ERROR
        nightly  active  30 2 * * *  Europe/Berlin  report      1d01h        0        0  -     -
        nightly  paused  30 2 * * *  Europe/Berlin  report          -        0        0  -     no such queue
        ");
    }

    #[test]
    fn a_page_shows_all_settings() {
        insta::assert_snapshot!(page(&schedule(), Paint::NONE), @r#"
        name       nightly
        id         sch_0000000000001
        state      active
        cron       30 2 * * *
        timezone   Europe/Berlin
        next       2026-01-02T01:30:00.000Z
        workflow   report
        inputs     {"days":1}
        started    0
        skipped    0
        catch up   once: one workflow is started for all missed slots
        overlap    forbid: a slot is skipped while the previous workflow runs
        jitter     30s
        tenant     default
        created    2026-01-01T00:00:00.000Z
        submitter  ada
        "#);
    }
}
