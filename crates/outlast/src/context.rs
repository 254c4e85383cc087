//! What most commands need: a client, and the way results are to be printed.

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
        let options = client::Options { token: global.token.clone(), ..client::Options::default() };
        let client = Client::with_options(&global.server, options).map_err(|error| Usage(error.to_string()))?;
        Ok(Self { client, printer: Printer::new(global.output) })
    }
}
