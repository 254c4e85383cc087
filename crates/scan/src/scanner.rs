//! Public type [`Scanner`]: a compiled set of patterns.

use std::sync::Arc;

use crate::FINDINGS_MAX;
use crate::collector::Collector;
use crate::encoding::Encoding;
use crate::error::Error;
use crate::findings::Findings;
use crate::matcher::Matcher;
use crate::pattern::Pattern;
use crate::patterns;
use crate::stream::{Limits, Stream};

/// A compiled set of patterns. Cheap to clone. Creation takes milliseconds, so create it once.
#[derive(Clone, Debug)]
pub struct Scanner {
    pub(crate) matcher: Arc<Matcher>,
}

impl Scanner {
    /// A scanner for all patterns.
    pub fn new() -> Self {
        Self { matcher: Arc::new(Matcher::new(patterns::all())) }
    }

    /// A scanner for these patterns only.
    pub fn with<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let names = known(names)?;
        Self::of(|pattern| names.contains(&pattern.name))
    }

    /// A scanner for all patterns except these.
    pub fn without<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let names = known(names)?;
        Self::of(|pattern| !names.contains(&pattern.name))
    }

    fn of(wanted: impl Fn(&Pattern) -> bool) -> Result<Self, Error> {
        let matcher = Matcher::new(patterns::all().filter(|pattern| wanted(pattern)));
        if matcher.len() == 0 {
            return Err(Error::NoPatterns);
        }
        Ok(Self { matcher: Arc::new(matcher) })
    }

    /// All built-in patterns.
    pub fn known() -> impl Iterator<Item = &'static Pattern> {
        patterns::all()
    }

    /// The patterns of this scanner.
    pub fn patterns(&self) -> impl Iterator<Item = &'static Pattern> {
        self.matcher.patterns()
    }

    /// Scans complete bytes. Equivalent to a stream of one chunk.
    pub fn scan(&self, bytes: &[u8]) -> Findings {
        let limits = Limits { findings_max: FINDINGS_MAX };
        if Encoding::of(bytes) != Encoding::Bytes {
            let mut stream = self.stream(limits);
            stream.feed(bytes);
            return stream.finish();
        }
        let mut collector = Collector::new(self.matcher.len(), limits.findings_max);
        self.matcher.sweep_all(bytes, &mut collector);
        collector.finish(self.patterns().map(|pattern| pattern.name), bytes.len() as u64, Encoding::Bytes)
    }

    /// Starts the scan of a stream.
    pub fn stream(&self, limits: Limits) -> Stream {
        Stream::new(self.matcher.clone(), limits)
    }
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

fn known<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<&'a str>, Error> {
    let names: Vec<&str> = names.into_iter().collect();
    match names.iter().find(|name| patterns::all().all(|pattern| pattern.name != **name)) {
        None => Ok(names),
        Some(name) => {
            let known: Vec<&str> = patterns::all().map(|pattern| pattern.name).collect();
            let name = name.chars().take(100).collect();
            Err(Error::UnknownPattern { name, known: known.join(", ") })
        }
    }
}
