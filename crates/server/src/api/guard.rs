//! Protection from web pages: browsers send their requests to loopback addresses, too.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::future::{Either, Ready, ready};
use tower_service::Service;

use super::App;
use super::problem::{ProblemKind, Refused};
use super::replay::Replaying;
use crate::options::Options;

/// Host names that the server accepts.
#[derive(Debug)]
pub(crate) struct Guard {
    names: Vec<String>,
    /// The server is open to other machines: any numeric address is accepted.
    any_address: bool,
}

impl Guard {
    pub fn new(options: &Options, listen: SocketAddr) -> Self {
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        names.push(listen.ip().to_string());
        names.extend(options.hosts.iter().map(|name| name.to_ascii_lowercase()));
        Self { names, any_address: options.insecure }
    }

    fn admits(&self, authority: &str) -> bool {
        let name = host_of(authority).to_ascii_lowercase();
        self.names.contains(&name) || (self.any_address && name.parse::<IpAddr>().is_ok())
    }

    fn check(&self, host: Option<&str>, origin: Option<&str>) -> Result<(), Refused> {
        let host = host.unwrap_or_default();
        if !self.admits(host) {
            let detail = format!(
                "the request is for `{host}`; this server accepts its own address and `localhost` (the setting `hosts` adds names)"
            );
            return Err(Refused::detailed(ProblemKind::ForeignHost, detail));
        }
        let Some(origin) = origin else { return Ok(()) };
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if own.is_none_or(|own| !own.eq_ignore_ascii_case(host)) {
            let detail = format!("the request comes from a page of `{origin}`; only pages of this server are allowed");
            return Err(Refused::detailed(ProblemKind::ForeignOrigin, detail));
        }
        Ok(())
    }
}

/// The host of `host`, `host:port`, `[address]` or `[address]:port`.
fn host_of(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}

/// The router behind the guard. A wrapper instead of a layer: layers of a router are boxed and cloned for every
/// request, which costs more than the check.
#[derive(Clone)]
pub(crate) struct Guarded {
    pub app: Arc<App>,
    pub inner: Replaying,
}

impl Service<Request> for Guarded {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response, Infallible>>, <Replaying as Service<Request>>::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match admit(&self.app.guard, &request) {
            Ok(()) => Either::Right(self.inner.call(request)),
            Err(refused) => Either::Left(ready(Ok(refused.into_response()))),
        }
    }
}

fn admit(guard: &Guard, request: &Request) -> Result<(), Refused> {
    let host = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    // An unreadable origin is a foreign one.
    let origin = request.headers().get(header::ORIGIN).map(|value| value.to_str().unwrap_or("null"));
    guard.check(host, origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(insecure: bool) -> Guard {
        let options = Options { insecure, hosts: vec!["build.example".to_owned()], ..Options::default() };
        Guard::new(&options, "127.0.0.1:7070".parse().unwrap())
    }

    #[test]
    fn only_own_host_names_are_accepted() {
        let guard = guard(false);
        for own in ["localhost", "localhost:7070", "127.0.0.1:7070", "[::1]:7070", "build.example", "LOCALHOST:1"] {
            assert!(guard.check(Some(own), None).is_ok(), "{own}");
        }
        for foreign in ["evil.example", "evil.example:7070", "10.0.0.1", "", "localhost.evil.example"] {
            assert!(guard.check(Some(foreign), None).is_err(), "{foreign}");
        }
        assert!(guard.check(None, None).is_err());
    }

    #[test]
    fn only_own_origins_are_accepted() {
        let guard = guard(false);
        let host = Some("localhost:7070");
        assert!(guard.check(host, Some("http://localhost:7070")).is_ok());
        for foreign in ["http://localhost:3000", "http://evil.example", "null", "", "file://"] {
            assert!(guard.check(host, Some(foreign)).is_err(), "{foreign}");
        }
    }

    #[test]
    fn an_open_server_accepts_addresses_but_not_foreign_names() {
        let guard = guard(true);
        assert!(guard.check(Some("10.1.2.3:7070"), None).is_ok());
        assert!(guard.check(Some("evil.example:7070"), None).is_err());
    }
}
