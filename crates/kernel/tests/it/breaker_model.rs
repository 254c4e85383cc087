//! The breaker against its diagram: a second, naive implementation that remembers everything and counts anew each time.

use kernel::breaker::{Breaker, Outcome, Settings, State, Ticket};
use model::time::Millis;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Act {
    Admit,
    /// Reports one of the tickets that are still out.
    Report(prop::sample::Index, Outcome),
    Wait(u64),
    Trip,
}

/// One call, as the diagram sees it.
struct Call {
    era: usize,
    at: u64,
    /// Absent while it is out; then what counted of it.
    came_of_it: Option<Option<Outcome>>,
}

/// A stay in one state.
struct Era {
    state: State,
    since: u64,
}

/// What the diagram says, derived from the whole past.
struct Diagram {
    settings: Settings,
    eras: Vec<Era>,
    calls: Vec<Call>,
    /// Reports in the order in which they came, as the numbers of their calls.
    order: Vec<usize>,
}

impl Diagram {
    fn new(settings: Settings) -> Self {
        Self { settings, eras: vec![Era { state: State::Closed, since: 0 }], calls: Vec::new(), order: Vec::new() }
    }

    fn era(&self) -> usize {
        self.eras.len() - 1
    }

    fn go(&mut self, state: State, now: u64) {
        self.eras.push(Era { state, since: now });
    }

    fn let_time_pass(&mut self, now: u64) {
        let era = &self.eras[self.era()];
        if era.state == State::Open && now - era.since >= self.settings.open_for.0 {
            self.go(State::HalfOpen, now);
        }
    }

    fn is_fresh(&self, call: &Call, now: u64) -> bool {
        call.era == self.era() && now - call.at < self.settings.probe_patience.0
    }

    fn admit(&mut self, now: u64) -> bool {
        self.let_time_pass(now);
        let out = self.calls.iter().filter(|call| call.came_of_it.is_none() && self.is_fresh(call, now)).count();
        let admitted = match self.eras[self.era()].state {
            State::Closed => true,
            State::Open => false,
            State::HalfOpen => out < self.settings.probes_max as usize,
        };
        if admitted {
            self.calls.push(Call { era: self.era(), at: now, came_of_it: None });
        }
        admitted
    }

    /// What counted in this era, in order; abandoned calls count as nothing.
    fn counted(&self) -> Vec<Outcome> {
        let here = self.order.iter().map(|number| &self.calls[*number]).filter(|call| call.era == self.era());
        here.filter_map(|call| call.came_of_it.flatten()).collect()
    }

    fn report(&mut self, number: usize, outcome: Outcome, now: u64) {
        self.let_time_pass(now);
        let counts = match self.eras[self.era()].state {
            State::Closed => self.calls[number].era == self.era(),
            State::Open => false,
            State::HalfOpen => self.is_fresh(&self.calls[number], now),
        };
        let outcome = (counts && outcome != Outcome::Abandoned).then_some(outcome);
        self.calls[number].came_of_it = Some(outcome);
        self.order.push(number);
        let counted = self.counted();
        let failures_in_a_row = counted.iter().rev().take_while(|outcome| **outcome == Outcome::Failed).count();
        let successes = counted.iter().filter(|outcome| **outcome == Outcome::Succeeded).count();
        match self.eras[self.era()].state {
            State::Closed if failures_in_a_row >= self.settings.failures_to_open as usize => self.go(State::Open, now),
            State::HalfOpen if failures_in_a_row > 0 => self.go(State::Open, now),
            State::HalfOpen if successes >= self.settings.successes_to_close as usize => self.go(State::Closed, now),
            State::Closed | State::Open | State::HalfOpen => {}
        }
    }

    fn trip(&mut self, now: u64) {
        self.let_time_pass(now);
        if self.eras[self.era()].state != State::Open {
            self.go(State::Open, now);
        }
    }

    fn state(&self, now: u64) -> State {
        let era = &self.eras[self.era()];
        match era.state {
            State::Open if now - era.since >= self.settings.open_for.0 => State::HalfOpen,
            state @ (State::Closed | State::Open | State::HalfOpen) => state,
        }
    }

    fn entered(&self, state: State) -> u64 {
        self.eras.iter().skip(1).filter(|era| era.state == state).count() as u64
    }
}

fn act() -> impl Strategy<Value = Act> {
    let outcome = prop_oneof![
        3 => Just(Outcome::Succeeded),
        4 => Just(Outcome::Failed),
        1 => Just(Outcome::Abandoned),
    ];
    prop_oneof![
        8 => Just(Act::Admit),
        8 => (any::<prop::sample::Index>(), outcome).prop_map(|(which, outcome)| Act::Report(which, outcome)),
        4 => prop_oneof![Just(1u64), 1..40u64, Just(29_999u64), Just(30_000u64)].prop_map(Act::Wait),
        1 => Just(Act::Trip),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let any_small =
        (1..5u32, 1..50u64, 1..5u32, 1..5u32, 1..50u64).prop_map(|(failures, open, probes, ok, patience)| Settings {
            failures_to_open: failures,
            open_for: Millis(open),
            probes_max: probes,
            successes_to_close: ok,
            probe_patience: Millis(patience),
        });
    prop_oneof![Just(Settings::default()), any_small]
}

fn play(settings: Settings, acts: &[Act]) -> Result<(), TestCaseError> {
    let mut now = 0;
    let (mut breaker, mut diagram) = (Breaker::new(settings), Diagram::new(settings));
    let mut out: Vec<(usize, Ticket)> = Vec::new();
    for act in acts {
        match act {
            Act::Admit => {
                let ticket = breaker.admit(Millis(now));
                prop_assert_eq!(ticket.is_ok(), diagram.admit(now));
                match ticket {
                    Ok(ticket) => out.push((diagram.calls.len() - 1, ticket)),
                    Err(open) => {
                        prop_assert_eq!(open.state, diagram.state(now));
                        prop_assert!(open.until > Millis(now), "it is refused for a time that is over");
                    }
                }
            }
            Act::Report(..) if out.is_empty() => {}
            Act::Report(which, outcome) => {
                let (number, ticket) = out.swap_remove(which.index(out.len()));
                let before = diagram.eras.len();
                diagram.report(number, *outcome, now);
                let changed = breaker.report(Millis(now), ticket, *outcome);
                let went = diagram.eras[before..].last().map(|era| era.state).filter(|state| *state != State::HalfOpen);
                prop_assert_eq!(changed, went);
            }
            Act::Wait(time) => now += time,
            Act::Trip => {
                breaker.trip(Millis(now));
                diagram.trip(now);
            }
        }
        prop_assert_eq!(breaker.state(Millis(now)), diagram.state(now));
        let transitions = breaker.transitions();
        prop_assert_eq!(transitions.opened, diagram.entered(State::Open));
        prop_assert_eq!(transitions.half_opened, diagram.entered(State::HalfOpen));
        prop_assert_eq!(transitions.closed, diagram.entered(State::Closed));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    // FEATURES: D9
    #[test]
    fn the_breaker_does_what_its_diagram_says(settings in settings(), acts in prop::collection::vec(act(), 0..200)) {
        play(settings, &acts)?;
    }

    /// Whatever has happened, tickets lost and all: a service that works again is trusted again.
    #[test]
    fn after_any_past_a_service_that_works_closes_the_circuit(
        settings in settings(),
        acts in prop::collection::vec(act(), 0..200),
    ) {
        let mut now = 0;
        let mut breaker = Breaker::new(settings);
        let mut out = Vec::new();
        for act in &acts {
            match act {
                Act::Admit => out.extend(breaker.admit(Millis(now))),
                Act::Report(..) if out.is_empty() => {}
                Act::Report(which, outcome) => {
                    let ticket = out.swap_remove(which.index(out.len()));
                    breaker.report(Millis(now), ticket, *outcome);
                }
                Act::Wait(time) => now += time,
                Act::Trip => breaker.trip(Millis(now)),
            }
        }
        now += settings.open_for.0.max(settings.probe_patience.0);
        for _ in 0..settings.successes_to_close {
            let ticket = breaker.admit(Millis(now)).expect("nothing from the past keeps a call out");
            breaker.report(Millis(now), ticket, Outcome::Succeeded);
        }
        prop_assert_eq!(breaker.state(Millis(now)), State::Closed);
    }
}
