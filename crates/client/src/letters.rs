//! Dead letters: what ended undone.

use std::time::Duration;

use hyper::Method;
use model::id::JobId;
use model::view::{JobView, LetterDetailView, LetterView, Page, ParkedView, PurgedView};

use crate::client::Client;
use crate::error::Error;
use crate::query::Query;
use crate::transport::Ask;

/// Which letters are meant. Absent: all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub topic: Option<String>,
    pub tenant: Option<String>,
    /// The reason's code.
    pub reason: Option<String>,
    /// Only what ended at least so long ago.
    pub older_than: Option<Duration>,
}

impl Filter {
    fn query(&self) -> Query {
        Query::default()
            .with("topic", self.topic.as_deref())
            .with("tenant", self.tenant.as_deref())
            .with("reason", self.reason.as_deref())
            .with("older_than_ms", self.older_than.map(|age| age.as_millis()))
    }
}

impl Client {
    /// Of the oldest job first.
    pub async fn letters(
        &self,
        filter: &Filter,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<Page<LetterView>, Error> {
        self.get(filter.query().with("limit", limit).with("cursor", cursor).after("/v1/dlq")).await
    }

    pub async fn letter(&self, id: JobId) -> Result<LetterDetailView, Error> {
        self.get(format!("/v1/dlq/{id}")).await
    }

    /// Words of runners that could not be taken.
    pub async fn parked(&self) -> Result<Page<ParkedView>, Error> {
        self.get("/v1/dlq/parked".to_owned()).await
    }

    pub async fn retry_letter(&self, id: JobId) -> Result<JobView, Error> {
        self.post(format!("/v1/dlq/{id}/retry")).await
    }

    /// Removes a letter, and its job with it.
    pub async fn purge_letter(&self, id: JobId) -> Result<(), Error> {
        self.delete(format!("/v1/dlq/{id}")).await
    }

    /// Removes those that are meant, the oldest first, as many as the server takes at once. `all` must be said where
    /// the filter names nothing.
    pub async fn purge_letters(&self, filter: &Filter, all: bool) -> Result<PurgedView, Error> {
        let path = filter.query().with("all", all.then_some(true)).after("/v1/dlq");
        self.answer(&Ask::new(Method::DELETE, path)).await
    }
}
