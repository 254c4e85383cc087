//! Whether there is a server, and whether it and this command belong together.

use client::{Client, Error};

use super::check::Check;

/// `may_be_down`: whoever has stopped the server on purpose need not be told to start it.
pub async fn check(client: &Client, may_be_down: bool) -> Vec<Check> {
    let health = match client.health().await {
        Ok(health) => health,
        Err(error) => {
            return vec![
                no_health(&error, may_be_down),
                Check::skipped("ready", "no server to ask"),
                Check::skipped("version", "no server to ask"),
            ];
        }
    };
    let ready = match client.ready().await {
        Ok(()) => Check::good("ready", "it takes requests"),
        Err(error) => {
            Check::bad("ready", error.to_string()).advice("it may still be starting; if it stays so, its log says why")
        }
    };
    vec![Check::good("server", format!("{} answers", client.address())), ready, version(health.version.as_deref())]
}

fn no_health(error: &Error, may_be_down: bool) -> Check {
    match error {
        Error::Unreachable { .. } if may_be_down => {
            Check::skipped("server", format!("{error}, as it should be while records are checked"))
        }
        Error::Unreachable { .. } | Error::Refused(_) | Error::Protocol(_) | Error::Address(_) | Error::File { .. } => {
            Check::bad("server", error.to_string())
                .advice("`outlast up` starts one here; --server or OUTLAST_SERVER names another")
        }
    }
}

fn version(server: Option<&str>) -> Check {
    let own = env!("CARGO_PKG_VERSION");
    match server {
        Some(server) if server == own => Check::good("version", format!("both are {own}")),
        Some(server) => Check::bad("version", format!("the server is {server}, this command is {own}"))
            .advice("use the command that came with the server"),
        None => Check::skipped("version", format!("this command is {own}; the server does not say")),
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
