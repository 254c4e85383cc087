//! Reads jobs from a file or standard input: JSON, YAML or NDJSON.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use model::limits::{BATCH_BODY_BYTES_MAX, JOB_BODY_BYTES_MAX};
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::exit::{NotFound, Usage};

/// Position of a job in its source, for error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    Line(usize),
    Entry(usize),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Entry(number) => write!(f, "job {number}"),
        }
    }
}

/// One job as JSON without line breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceJob {
    pub position: Position,
    pub json: Vec<u8>,
}

/// Stream of jobs.
pub struct Jobs {
    pub items: Box<dyn Iterator<Item = Result<SourceJob>>>,
    /// `None` if unknown without reading everything.
    pub total_bytes: Option<u64>,
}

pub enum Source {
    One(Bytes),
    Many(Jobs),
}

/// Opens a file. Its format follows from the extension, or from the content for standard input (`-`).
pub fn open(path: &Path) -> Result<Source> {
    if path == Path::new("-") {
        return detect(io::stdin().lock());
    }
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::Error::from(NotFound(format!("no such file: {}", path.display()))),
        _ => anyhow::Error::from(error).context(format!("cannot open {}", path.display())),
    })?;
    let total_bytes = file.metadata().ok().map(|metadata| metadata.len());
    let reader = BufReader::new(file);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("ndjson" | "jsonl") => Ok(Source::Many(Jobs { items: Box::new(lines(reader, 1)), total_bytes })),
        Some("yaml" | "yml") => from_yaml(&read_all(reader)?),
        Some("json") => from_json(&read_all(reader)?),
        Some(_) | None => detect(reader),
    }
    .with_context(|| format!("in {}", path.display()))
}

/// Detects the format. A first line that is a complete job means NDJSON; everything else is one document.
fn detect(mut reader: impl BufRead + 'static) -> Result<Source> {
    let first = read_line(&mut reader)?.unwrap_or_default();
    let is_job = serde_json::from_slice::<Value>(&first).is_ok_and(|value| value.get("run").is_some());
    if is_job {
        let line = SourceJob { position: Position::Line(1), json: first.trim_ascii().to_vec() };
        let items = std::iter::once(Ok(line)).chain(lines(reader, 2));
        // A single line is a single job, which --wait accepts.
        let mut items = items.peekable();
        let first = items.next();
        return match (first, items.peek()) {
            (Some(Ok(only)), None) => Ok(Source::One(only.json.into())),
            (first, _) => Ok(Source::Many(Jobs { items: Box::new(first.into_iter().chain(items)), total_bytes: None })),
        };
    }
    let mut text = first;
    text.extend(read_all(reader)?);
    let looks_like_json = matches!(text.trim_ascii_start().first(), Some(b'{' | b'['));
    if looks_like_json { from_json(&text) } else { from_yaml(&text) }
}

/// One job, a list of jobs, or an object with `jobs`. The text of each job is kept unchanged.
fn from_json(text: &[u8]) -> Result<Source> {
    let not_json = |error: serde_json::Error| Usage(format!("invalid JSON: {error}"));
    let text = text.trim_ascii();
    if text.starts_with(b"[") {
        return Ok(many(serde_json::from_slice(text).map_err(not_json)?));
    }
    if !text.starts_with(b"{") {
        let value: Result<IgnoredAny, _> = serde_json::from_slice(text);
        value.map_err(not_json)?;
        return Err(Usage("no job found; a job is an object with at least `run`".to_owned()).into());
    }
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(text).map_err(not_json)?;
    match members.get("jobs") {
        None => Ok(Source::One(Bytes::copy_from_slice(text))),
        Some(jobs) if members.len() == 1 && jobs.get().starts_with('[') => {
            Ok(many(serde_json::from_str(jobs.get()).map_err(not_json)?))
        }
        Some(_) => Err(Usage("`jobs` must be a list and the only field".to_owned()).into()),
    }
}

fn many(jobs: Vec<Box<RawValue>>) -> Source {
    let item = |(index, job): (usize, Box<RawValue>)| {
        // JSON strings contain no raw line breaks, so that they can be replaced.
        let json = job.get().bytes().map(|byte| if byte == b'\n' || byte == b'\r' { b' ' } else { byte }).collect();
        Ok(SourceJob { position: Position::Entry(index + 1), json })
    };
    Source::Many(Jobs { items: Box::new(jobs.into_iter().enumerate().map(item)), total_bytes: None })
}

fn from_yaml(text: &[u8]) -> Result<Source> {
    let text = std::str::from_utf8(text).map_err(|error| Usage(format!("invalid UTF-8: {error}")))?;
    let document: Value = serde_saphyr::from_str(text).map_err(|error| Usage(format!("invalid YAML: {error}")))?;
    from_json(&serde_json::to_vec(&document)?)
}

fn read_all(reader: impl Read) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    reader.take(BATCH_BODY_BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
    if text.len() > BATCH_BODY_BYTES_MAX {
        bail!(Usage(format!(
            "the file is larger than {BATCH_BODY_BYTES_MAX} bytes; use NDJSON, which has no size limit"
        )));
    }
    Ok(text)
}

/// Jobs of an NDJSON stream. `first_number` is the number of its first line. Empty lines are skipped.
fn lines(mut reader: impl BufRead, first_number: usize) -> impl Iterator<Item = Result<SourceJob>> {
    let mut number = first_number - 1;
    std::iter::from_fn(move || {
        loop {
            number += 1;
            let line = read_line(&mut reader).with_context(|| format!("in line {number}")).transpose()?;
            match line {
                Ok(line) if line.trim_ascii().is_empty() => {}
                Ok(line) => {
                    return Some(Ok(SourceJob { position: Position::Line(number), json: line.trim_ascii().to_vec() }));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    })
}

fn read_line(reader: &mut impl BufRead) -> Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    reader.take(JOB_BODY_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
    if line.len() > JOB_BODY_BYTES_MAX {
        bail!(Usage(format!("a line is longer than {JOB_BODY_BYTES_MAX} bytes")));
    }
    Ok((!line.is_empty()).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Result<Vec<(String, String)>> {
        match detect(text.as_bytes())? {
            Source::One(job) => Ok(vec![("one".to_owned(), String::from_utf8(job.to_vec()).unwrap())]),
            Source::Many(jobs) => jobs
                .items
                .map(|item| item.map(|item| (item.position.to_string(), String::from_utf8(item.json).unwrap())))
                .collect(),
        }
    }

    fn positions(text: &'static str) -> Vec<String> {
        read(text).unwrap().into_iter().map(|(position, _)| position).collect()
    }

    #[test]
    fn the_format_is_detected_from_the_content() {
        assert_eq!(positions(r#"{"run":{"echo":{}}}"#), ["one"]);
        assert_eq!(positions("{\n  \"run\": {\"echo\": {}}\n}"), ["one"]);
        assert_eq!(positions("run:\n  echo:\n    value: [1, a]\n"), ["one"]);
        assert_eq!(positions("{\"run\":1}\n\n  {\"run\":2}\r\nnot json\n"), ["line 1", "line 3", "line 4"]);
        assert_eq!(positions(r#"[{"run":1},{"run":2}]"#), ["job 1", "job 2"]);
        assert_eq!(positions(r#"{"jobs":[{"run":1}]}"#), ["job 1"]);
        assert_eq!(positions("[\n {\"run\":\n 1.10}\n]"), ["job 1"]);
        assert_eq!(read("[\n {\"run\":\n 1.10}\n]").unwrap()[0].1, "{\"run\":  1.10}");
        assert_eq!(positions("- run: 1\n- run: 2\n"), ["job 1", "job 2"]);
        assert_eq!(positions("jobs:\n  - run: 1\n  - run: 2\n"), ["job 1", "job 2"]);
    }

    #[test]
    fn yaml_is_converted_to_json() {
        let jobs = read("topic: t\nrun: {process: {command: [sh, -c, 'exit 3']}}\nsandbox: none\n").unwrap();
        assert_eq!(jobs[0].1, r#"{"run":{"process":{"command":["sh","-c","exit 3"]}},"sandbox":"none","topic":"t"}"#);
    }

    #[test]
    fn input_without_jobs_is_invalid_usage() {
        for text in ["", "hello", "[1", "{\"run\": ", "jobs: 5", "{\"jobs\":[],\"more\":1}"] {
            assert!(read(text).unwrap_err().is::<Usage>(), "{text}");
        }
    }

    #[test]
    fn a_missing_file_is_not_found() {
        let error = open(Path::new("/does/not/exist.json")).err().unwrap();
        assert!(error.is::<NotFound>(), "{error}");
    }
}
