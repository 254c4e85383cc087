//! The echo executor: returns its value, after a delay, or fails as it is told. For tests and demonstrations.

use std::time::Duration;

use model::job::{End, Outcome};
use model::spec::{EchoFailure, EchoRun};
use tokio::sync::oneshot;

/// What an echo job comes to.
pub(crate) fn outcome(echo: EchoRun) -> Outcome {
    match echo.fail {
        None => Outcome { result: Some(echo.value), ..Outcome::of(End::Succeeded) },
        Some(EchoFailure::Error) => failed(End::Error),
        Some(EchoFailure::Fatal) => failed(End::Fatal),
    }
}

fn failed(end: End) -> Outcome {
    Outcome { message: Some("the echo job was told to fail".to_owned()), ..Outcome::of(end) }
}

/// Waits out the delay, unless it is stopped before.
pub(crate) async fn run(echo: EchoRun, stopped: oneshot::Receiver<()>) -> Outcome {
    tokio::select! {
        // A sender that is dropped without a word means that nobody will ever ask to stop.
        Ok(()) = stopped => Outcome::of(End::Stopped),
        () = tokio::time::sleep(Duration::from_millis(echo.delay_ms)) => outcome(echo),
    }
}
