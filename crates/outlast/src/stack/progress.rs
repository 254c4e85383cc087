//! Progress of a command: one line per service, redrawn on a terminal, printed as it changes elsewhere.

use std::time::Instant;

use crate::duration;
use crate::output;
use crate::paint::{Paint, Tone};
use crate::screen::{self, Screen, Size};
use crate::table::shorten;

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Active,
    Done,
    Failed,
}

#[derive(Debug)]
struct Line {
    service: String,
    phase: Phase,
    text: String,
    since: Instant,
}

#[derive(Debug)]
enum Display {
    Silent,
    /// Each service's first activity and its end.
    Plain,
    Terminal {
        screen: Screen,
        frame: usize,
    },
}

/// What happens to each service.
#[derive(Debug)]
pub struct Progress {
    lines: Vec<Line>,
    display: Display,
}

impl Progress {
    /// Without `shows`, nothing is printed.
    pub fn new(services: impl IntoIterator<Item = String>, shows: bool) -> Self {
        let display = match (shows, screen::size()) {
            (false, _) => Display::Silent,
            (true, None) => Display::Plain,
            (true, Some(_)) => Display::Terminal { screen: Screen::default(), frame: 0 },
        };
        let line = |service| Line { service, phase: Phase::Waiting, text: String::new(), since: Instant::now() };
        Self { lines: services.into_iter().map(line).collect(), display }
    }

    pub fn active(&mut self, service: &str, text: &str) {
        self.set(service, Phase::Active, text);
    }

    pub fn done(&mut self, service: &str, text: &str) {
        self.set(service, Phase::Done, text);
    }

    pub fn failed(&mut self, service: &str, text: &str) {
        self.set(service, Phase::Failed, text);
    }

    fn set(&mut self, service: &str, phase: Phase, text: &str) {
        let Some(line) = self.lines.iter_mut().find(|line| line.service == service) else { return };
        if (line.phase, line.text.as_str()) == (phase, text) {
            return;
        }
        let is_news = phase != Phase::Active || line.phase != Phase::Active;
        if line.phase != phase {
            line.since = Instant::now();
        }
        (line.phase, line.text) = (phase, text.to_owned());
        match &self.display {
            Display::Plain if is_news => print(&format!("{service} {text}\n")),
            Display::Plain | Display::Silent => {}
            Display::Terminal { .. } => self.draw(),
        }
    }

    /// Moves the spinner.
    pub fn tick(&mut self) {
        if let Display::Terminal { frame, .. } = &mut self.display {
            *frame += 1;
            self.draw();
        }
    }

    fn draw(&mut self) {
        let (Display::Terminal { screen, frame }, Some(size)) = (&mut self.display, screen::size()) else { return };
        let lines = rows(&self.lines, *frame, Paint::for_stdout(), size);
        // The command goes on even if nothing can be shown.
        let _ = screen.redraw(&lines, size);
    }
}

fn print(text: &str) {
    // As above.
    let _ = output::write(text.as_bytes());
}

/// As many lines as fit, without the first ones that are done.
fn rows(lines: &[Line], frame: usize, paint: Paint, size: Size) -> Vec<String> {
    // The cursor is on the last line.
    let room = size.height.saturating_sub(1).max(1);
    let open = lines.iter().position(|line| line.phase != Phase::Done).unwrap_or(lines.len());
    let skipped = lines.len().saturating_sub(room).min(open);
    let width = lines.iter().map(|line| line.service.len()).max().unwrap_or(0);
    let shown = lines.iter().skip(skipped).take(room);
    shown.map(|line| row(line, width, frame, paint, size.width)).collect()
}

fn row(line: &Line, width: usize, frame: usize, paint: Paint, columns: usize) -> String {
    let (mark, tone) = match line.phase {
        Phase::Waiting => ("·", Tone::Quiet),
        Phase::Active => (SPINNER[frame % SPINNER.len()], Tone::Busy),
        Phase::Done => ("✓", Tone::Good),
        Phase::Failed => ("✗", Tone::Bad),
    };
    let elapsed = line.since.elapsed();
    let text = match line.phase {
        Phase::Active if elapsed.as_secs() > 0 => format!("{}, {}", line.text, duration::show(elapsed)),
        Phase::Waiting | Phase::Active | Phase::Done | Phase::Failed => line.text.clone(),
    };
    let text = shorten(&text, columns.saturating_sub(width + 5));
    format!("{} {:width$}  {text}", paint.apply(tone, mark), line.service).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(count: usize) -> Progress {
        Progress::new((1..=count).map(|number| format!("build-{number}")), false)
    }

    #[test]
    fn every_service_has_a_line_with_its_mark() {
        let mut progress = progress(4);
        progress.done("build-1", "restarted in 1.2s");
        progress.active("build-2", "stopping");
        progress.failed("build-3", "ended");
        let drawn = rows(&progress.lines, 1, Paint::NONE, Size { width: 40, height: 24 });
        assert_eq!(drawn, ["✓ build-1  restarted in 1.2s", "⠙ build-2  stopping", "✗ build-3  ended", "· build-4"]);
    }

    #[test]
    fn the_display_fits_the_terminal() {
        let mut progress = progress(30);
        for number in 1..=20 {
            progress.done(&format!("build-{number}"), "restarted, and that took a rather long time");
        }
        let drawn = rows(&progress.lines, 0, Paint::NONE, Size { width: 30, height: 12 });
        assert_eq!(drawn.len(), 11);
        assert!(drawn[0].starts_with("✓ build-20") && drawn[1].starts_with("· build-21"), "{drawn:?}");
        assert!(drawn.iter().all(|line| line.chars().count() <= 30), "{drawn:?}");
    }
}
