//! Requests of a benchmark, built once and copied.

use std::io::Write;

use client::Address;
use client::load::{Reply, RequestHead, Tally, Workload};
use model::queue::QueueRef;

use super::{Executor, Options};

/// Server-side wait with `--wait`.
const WAIT_MS: u64 = 60_000;

pub struct JobWorkload {
    /// One per queue.
    heads: Vec<RequestHead>,
    /// JSON of a job without the closing brace.
    job: Vec<u8>,
    /// Prefix of the idempotency keys.
    key_prefix: Option<String>,
    jobs: u64,
    batch: u64,
    wait: bool,
}

impl JobWorkload {
    pub fn new(options: &Options, queues: &[QueueRef], address: &Address, token: Option<&str>, run: &str) -> Self {
        let content_type = if options.batch > 1 { "application/x-ndjson" } else { "application/json" };
        let authorization = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![("Content-Type", content_type)];
        headers.extend(authorization.as_deref().map(|value| ("Authorization", value)));
        let query = if options.wait { format!("?wait_ms={WAIT_MS}") } else { String::new() };
        let head = |queue| RequestHead::new("POST", address, &format!("/v1/queues/{queue}/jobs{query}"), &headers);
        let job = match options.executor {
            Executor::Echo => format!(r#"{{"run":{{"echo":{{"value":"{}"}}}}"#, "x".repeat(options.value_bytes)),
            Executor::Process => r#"{"run":{"process":{"command":["true"]}}"#.to_owned(),
        };
        Self {
            heads: queues.iter().map(head).collect(),
            job: job.into_bytes(),
            key_prefix: options.keys.then(|| run.to_owned()),
            jobs: options.jobs,
            batch: options.batch,
            wait: options.wait,
        }
    }

    pub fn requests(&self) -> u64 {
        self.jobs.div_ceil(self.batch)
    }

    fn write_job(&self, number: u64, body: &mut Vec<u8>) {
        body.extend_from_slice(&self.job);
        if let Some(prefix) = &self.key_prefix {
            // Writing to a vector cannot fail.
            let _ = write!(body, r#","idempotency_key":"{prefix}-{number}""#);
        }
        body.push(b'}');
    }
}

impl Workload for JobWorkload {
    fn request(&self, number: u64, body: &mut Vec<u8>) -> &RequestHead {
        let first = number * self.batch;
        for job in first..first + Workload::jobs(self, number) {
            self.write_job(job, body);
            if self.batch > 1 {
                body.push(b'\n');
            }
        }
        &self.heads[(number % self.heads.len() as u64) as usize]
    }

    fn jobs(&self, number: u64) -> u64 {
        self.batch.min(self.jobs.saturating_sub(number * self.batch))
    }

    /// Searches for substrings instead of parsing the JSON: the values of these jobs cannot contain them.
    fn judge(&self, number: u64, reply: &Reply<'_>) -> Tally {
        let jobs = Workload::jobs(self, number);
        let failed = match reply.status {
            200 | 201 if self.batch > 1 => (count(reply.body, br#""error":"#) as u64).min(jobs),
            200 | 201 if self.wait => u64::from(count(reply.body, br#""state":"succeeded""#) == 0),
            200 | 201 => 0,
            _ => jobs,
        };
        Tally { accepted: jobs - failed, failed }
    }
}

fn count(bytes: &[u8], wanted: &[u8]) -> usize {
    bytes.windows(wanted.len()).filter(|window| *window == wanted).count()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use model::id::QueueId;
    use model::spec::JobSpec;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn workload(line: &str) -> JobWorkload {
        let options = Line::try_parse_from(line.split(' ')).unwrap().options;
        let queues = [QueueRef::Id(QueueId(1)), QueueRef::Id(QueueId(2))];
        JobWorkload::new(&options, &queues, &"http://x:1".parse().unwrap(), Some("t"), "run")
    }

    fn request(workload: &JobWorkload, number: u64) -> (String, String) {
        let (mut body, mut whole) = (Vec::new(), Vec::new());
        workload.request(number, &mut body).write(&body, &mut whole);
        let text = String::from_utf8(whole).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn tally(workload: &JobWorkload, number: u64, status: u16, body: &str) -> (u64, u64) {
        let tally = workload.judge(number, &Reply { status, body: body.as_bytes(), closes: false });
        (tally.accepted, tally.failed)
    }

    #[test]
    fn single_jobs_go_to_the_queues_in_turn() {
        let workload = workload("bench --jobs 3 --keys --value-bytes 4 --wait");
        assert_eq!(workload.requests(), 3);
        let (head, body) = request(&workload, 1);
        assert!(head.starts_with("POST /v1/queues/q_0000000000002/jobs?wait_ms=60000 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nAuthorization: Bearer t\r\n"), "{head}");
        let spec: JobSpec = serde_json::from_str(&body).unwrap();
        assert_eq!(spec.validate(), Ok(()));
        assert_eq!(spec.idempotency_key.as_deref(), Some("run-1"));
        assert_eq!(tally(&workload, 0, 201, r#"{"state":"succeeded"}"#), (1, 0));
        assert_eq!(tally(&workload, 0, 200, r#"{"state":"running"}"#), (0, 1));
        assert_eq!(tally(&workload, 0, 503, ""), (0, 1));
    }

    #[test]
    fn the_last_batch_has_the_remaining_jobs() {
        let workload = workload("bench --jobs 25 --batch 10 --executor process");
        assert_eq!(workload.requests(), 3);
        let (_, body) = request(&workload, 2);
        let jobs: Vec<JobSpec> = body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(jobs.len(), 5);
        assert_eq!(jobs[0].validate(), Ok(()));
        assert_eq!(tally(&workload, 2, 200, r#"{"results":[{"id":"x"},{"error":{}}]}"#), (4, 1));
        assert_eq!(tally(&workload, 0, 413, "{}"), (0, 10));
    }
}
