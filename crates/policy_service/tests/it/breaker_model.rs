//! The breaker against a model: a naive implementation that derives its state from the whole history.

use model::time::Millis;
use policy_service::breaker::{Breaker, Outcome, Permit, Settings, State};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Action {
    Admit,
    /// Reports one of the outstanding permits.
    Report(prop::sample::Index, Outcome),
    Wait(u64),
    Trip,
}

/// One call in the model.
struct Call {
    period: usize,
    at: u64,
    /// Absent while in flight. `Some(None)`: reported, but not counted.
    report: Option<Option<Outcome>>,
}

/// A period in one state.
struct Period {
    state: State,
    since: u64,
}

/// State derived from the whole history.
struct Model {
    settings: Settings,
    periods: Vec<Period>,
    calls: Vec<Call>,
    /// Call numbers in the order of their reports.
    order: Vec<usize>,
}

impl Model {
    fn new(settings: Settings) -> Self {
        Self {
            settings,
            periods: vec![Period { state: State::Closed, since: 0 }],
            calls: Vec::new(),
            order: Vec::new(),
        }
    }

    fn period(&self) -> usize {
        self.periods.len() - 1
    }

    fn enter(&mut self, state: State, now: u64) {
        self.periods.push(Period { state, since: now });
    }

    fn advance(&mut self, now: u64) {
        let period = &self.periods[self.period()];
        if period.state == State::Open && now - period.since >= self.settings.open_for.0 {
            self.enter(State::HalfOpen, now);
        }
    }

    fn is_current(&self, call: &Call, now: u64) -> bool {
        call.period == self.period() && now - call.at < self.settings.probe_timeout.0
    }

    fn admit(&mut self, now: u64) -> bool {
        self.advance(now);
        let in_flight = self.calls.iter().filter(|call| call.report.is_none() && self.is_current(call, now)).count();
        let admitted = match self.periods[self.period()].state {
            State::Closed => true,
            State::Open => false,
            State::HalfOpen => in_flight < self.settings.probes_max as usize,
        };
        if admitted {
            self.calls.push(Call { period: self.period(), at: now, report: None });
        }
        admitted
    }

    /// Counted outcomes of this period, in order. Abandoned calls do not count.
    fn counted(&self) -> Vec<Outcome> {
        let here = self.order.iter().map(|number| &self.calls[*number]).filter(|call| call.period == self.period());
        here.filter_map(|call| call.report.flatten()).collect()
    }

    fn report(&mut self, number: usize, outcome: Outcome, now: u64) {
        self.advance(now);
        let counts = match self.periods[self.period()].state {
            State::Closed => self.calls[number].period == self.period(),
            State::Open => false,
            State::HalfOpen => self.is_current(&self.calls[number], now),
        };
        let outcome = (counts && outcome != Outcome::Abandoned).then_some(outcome);
        self.calls[number].report = Some(outcome);
        self.order.push(number);
        let counted = self.counted();
        let failures_in_a_row = counted.iter().rev().take_while(|outcome| **outcome == Outcome::Failed).count();
        let successes = counted.iter().filter(|outcome| **outcome == Outcome::Succeeded).count();
        match self.periods[self.period()].state {
            State::Closed if failures_in_a_row >= self.settings.failures_to_open as usize => {
                self.enter(State::Open, now)
            }
            State::HalfOpen if failures_in_a_row > 0 => self.enter(State::Open, now),
            State::HalfOpen if successes >= self.settings.successes_to_close as usize => self.enter(State::Closed, now),
            State::Closed | State::Open | State::HalfOpen => {}
        }
    }

    fn trip(&mut self, now: u64) {
        self.advance(now);
        if self.periods[self.period()].state != State::Open {
            self.enter(State::Open, now);
        }
    }

    fn state(&self, now: u64) -> State {
        let period = &self.periods[self.period()];
        match period.state {
            State::Open if now - period.since >= self.settings.open_for.0 => State::HalfOpen,
            state @ (State::Closed | State::Open | State::HalfOpen) => state,
        }
    }

    fn entered(&self, state: State) -> u64 {
        self.periods.iter().skip(1).filter(|period| period.state == state).count() as u64
    }
}

fn action() -> impl Strategy<Value = Action> {
    let outcome = prop_oneof![
        3 => Just(Outcome::Succeeded),
        4 => Just(Outcome::Failed),
        1 => Just(Outcome::Abandoned),
    ];
    prop_oneof![
        8 => Just(Action::Admit),
        8 => (any::<prop::sample::Index>(), outcome).prop_map(|(which, outcome)| Action::Report(which, outcome)),
        4 => prop_oneof![Just(1u64), 1..40u64, Just(29_999u64), Just(30_000u64)].prop_map(Action::Wait),
        1 => Just(Action::Trip),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let any_small =
        (1..5u32, 1..50u64, 1..5u32, 1..5u32, 1..50u64).prop_map(|(failures, open, probes, ok, timeout)| Settings {
            failures_to_open: failures,
            open_for: Millis(open),
            probes_max: probes,
            successes_to_close: ok,
            probe_timeout: Millis(timeout),
        });
    prop_oneof![Just(Settings::default()), any_small]
}

fn run(settings: Settings, actions: &[Action]) -> Result<(), TestCaseError> {
    let mut now = 0;
    let (mut breaker, mut model) = (Breaker::new(settings), Model::new(settings));
    let mut outstanding: Vec<(usize, Permit)> = Vec::new();
    for action in actions {
        match action {
            Action::Admit => {
                let permit = breaker.admit(Millis(now));
                prop_assert_eq!(permit.is_ok(), model.admit(now));
                match permit {
                    Ok(permit) => outstanding.push((model.calls.len() - 1, permit)),
                    Err(open) => {
                        prop_assert_eq!(open.state, model.state(now));
                        prop_assert!(open.retry_at > Millis(now), "the retry time is in the past");
                    }
                }
            }
            Action::Report(..) if outstanding.is_empty() => {}
            Action::Report(which, outcome) => {
                let (number, permit) = outstanding.swap_remove(which.index(outstanding.len()));
                let before = model.periods.len();
                model.report(number, *outcome, now);
                let changed = breaker.report(Millis(now), permit, *outcome);
                let expected =
                    model.periods[before..].last().map(|period| period.state).filter(|state| *state != State::HalfOpen);
                prop_assert_eq!(changed, expected);
            }
            Action::Wait(time) => now += time,
            Action::Trip => {
                breaker.trip(Millis(now));
                model.trip(now);
            }
        }
        prop_assert_eq!(breaker.state(Millis(now)), model.state(now));
        let transitions = breaker.transitions();
        prop_assert_eq!(transitions.opened, model.entered(State::Open));
        prop_assert_eq!(transitions.half_opened, model.entered(State::HalfOpen));
        prop_assert_eq!(transitions.closed, model.entered(State::Closed));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    // FEATURES: D9
    #[test]
    fn the_breaker_agrees_with_the_model(settings in settings(), actions in prop::collection::vec(action(), 0..200)) {
        run(settings, &actions)?;
    }

    /// After any history, with lost permits too, a working service closes the breaker.
    #[test]
    fn after_any_history_a_working_service_closes_the_breaker(
        settings in settings(),
        actions in prop::collection::vec(action(), 0..200),
    ) {
        let mut now = 0;
        let mut breaker = Breaker::new(settings);
        let mut outstanding = Vec::new();
        for action in &actions {
            match action {
                Action::Admit => outstanding.extend(breaker.admit(Millis(now))),
                Action::Report(..) if outstanding.is_empty() => {}
                Action::Report(which, outcome) => {
                    let permit = outstanding.swap_remove(which.index(outstanding.len()));
                    breaker.report(Millis(now), permit, *outcome);
                }
                Action::Wait(time) => now += time,
                Action::Trip => breaker.trip(Millis(now)),
            }
        }
        now += settings.open_for.0.max(settings.probe_timeout.0);
        for _ in 0..settings.successes_to_close {
            let permit = breaker.admit(Millis(now)).expect("calls are admitted again");
            breaker.report(Millis(now), permit, Outcome::Succeeded);
        }
        prop_assert_eq!(breaker.state(Millis(now)), State::Closed);
    }
}
