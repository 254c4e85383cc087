//! Checks of the server: reachable, ready, same version.

use client::{Client, Error};

use super::check::Check;

/// `may_be_down`: the server was stopped on purpose, so an unreachable one is no failure.
pub async fn check(client: &Client, may_be_down: bool) -> Vec<Check> {
    let health = match client.health().await {
        Ok(health) => health,
        Err(error) => {
            return vec![
                no_health(&error, may_be_down),
                Check::skipped("ready", "server unreachable"),
                Check::skipped("version", "server unreachable"),
            ];
        }
    };
    let ready = match client.ready().await {
        Ok(()) => Check::good("ready", "accepts requests"),
        Err(error) => {
            Check::bad("ready", error.to_string()).advice("it may still be starting; otherwise see the server log")
        }
    };
    vec![Check::good("server", format!("{} is reachable", client.address())), ready, version(health.version.as_deref())]
}

fn no_health(error: &Error, may_be_down: bool) -> Check {
    match error {
        Error::Unreachable { .. } if may_be_down => {
            Check::skipped("server", format!("{error} (expected with --verify)"))
        }
        Error::Unreachable { .. }
        | Error::Refused(_)
        | Error::OutcomeUnknown { .. }
        | Error::Protocol(_)
        | Error::Address(_)
        | Error::File { .. } => Check::bad("server", error.to_string())
            .advice("start one with `outlast up`, or set another one with --server or OUTLAST_SERVER"),
    }
}

fn version(server: Option<&str>) -> Check {
    let own = env!("CARGO_PKG_VERSION");
    match server {
        Some(server) if server == own => Check::good("version", format!("server and command are {own}")),
        Some(server) => Check::bad("version", format!("the server is {server}, this command is {own}"))
            .advice("use the same version of server and command"),
        None => Check::skipped("version", format!("this command is {own}; the server does not report its version")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Mark;

    #[test]
    fn versions_are_compared() {
        assert_eq!(version(Some(env!("CARGO_PKG_VERSION"))).mark, Mark::Good);
        assert_eq!(version(Some("0.0.0")).mark, Mark::Bad);
        assert_eq!(version(None).mark, Mark::Skipped);
    }
}
