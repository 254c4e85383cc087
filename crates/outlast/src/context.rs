//! Shared by most commands: the client and the printer.

use anyhow::Result;
use client::Client;

use crate::cli::Global;
use crate::exit::Usage;
use crate::output::Printer;

pub struct Context {
    pub client: Client,
    pub printer: Printer,
}

impl Context {
    pub fn new(global: &Global) -> Result<Self> {
        let options = client::Options { token: global.token.clone(), actor: actor(), ..client::Options::default() };
        let client = Client::with_options(&global.server, options).map_err(|error| Usage(error.to_string()))?;
        Ok(Self { client, printer: Printer::new(global.output) })
    }
}

/// Name of the user for the audit log, from the environment; ignored if it is not a valid name.
fn actor() -> Option<String> {
    let names = ["OUTLAST_ACTOR", "USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    names.into_iter().find(|name| model::spec::name("actor", name).is_ok())
}
