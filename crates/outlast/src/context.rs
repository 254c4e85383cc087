//! Shared by most commands: the client and the printer.

use std::io::{self, Write};

use anyhow::Result;
use client::Client;

use crate::cli::Global;
use crate::exit::Usage;
use crate::output::Printer;
use crate::paint::{Paint, Tone};

pub struct Context {
    pub client: Client,
    pub printer: Printer,
}

impl Context {
    pub fn new(global: &Global) -> Result<Self> {
        let options = client::Options {
            token: global.token.clone(),
            actor: actor(),
            resend_for: global.retry_for,
            connect_wait: global.connect_wait,
            on_outage: Some(report_outage),
            ..client::Options::default()
        };
        let client = Client::with_options(&global.server, options).map_err(|error| Usage(error.to_string()))?;
        Ok(Self { client, printer: Printer::new(global.output) })
    }
}

fn report_outage(message: &str) {
    // Without standard error there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{}", Paint::for_stderr().apply(Tone::Quiet, message));
}

/// Name of the user for the audit log, from the environment; ignored if it is not a valid name.
fn actor() -> Option<String> {
    let names = ["OUTLAST_ACTOR", "USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    names.into_iter().find(|name| model::spec::name("actor", name).is_ok())
}
