//! Findings in a result, and its redacted copy.

use blobs::Blobs;
use bytes::Bytes;
use futures_util::TryStreamExt;
use model::blob::BlobId;
use model::job::{Artifact, Job, LogRef, Redacted, SpilledResult};
use model::json::Json;
use model::limits;
use model::verdict::FindingCount;
use policy::{FindingFacts, FindingKind};
use scan::{Findings, Kind, Limits, Mask, RedactedJson, Scanner};

use super::log::{self, LogFindings};
use super::log_of;

/// Limit of the total size of artifacts and log for a scan.
const CONTENT_BYTES_MAX: u64 = 1 << 30;

/// Limit of the size of an artifact for redaction.
const REDACTED_BYTES_MAX: u64 = 64 << 20;

/// Findings in a result.
pub(super) struct Content {
    result: Option<RedactedJson>,
    /// One for each artifact.
    artifacts: Vec<Findings>,
    log: Option<LogFindings>,
}

impl Content {
    /// Scans the result, artifacts and log of a succeeded job.
    pub async fn scan(blobs: &Blobs, scanner: &Scanner, job: &Job) -> Result<Self, String> {
        let log = log_of(job);
        let bytes = job.artifacts().iter().map(|artifact| artifact.bytes).sum::<u64>() + log.map_or(0, |log| log.bytes);
        if bytes > CONTENT_BYTES_MAX {
            return Err(format!("artifacts and log have {bytes} bytes: scans are limited to {CONTENT_BYTES_MAX}"));
        }
        let result = match &job.result {
            Some(result) => {
                let large = match job.spilled() {
                    Some(spilled) => Some(read(blobs, spilled.blob, spilled.bytes).await?),
                    None => None,
                };
                let text = match &large {
                    Some(large) => std::str::from_utf8(large).map_err(|error| error.to_string())?,
                    None => result.as_str(),
                };
                Some(scanner.redact_json(text).map_err(|error| error.to_string())?)
            }
            None => None,
        };
        let mut artifacts = Vec::with_capacity(job.artifacts().len());
        for artifact in job.artifacts() {
            artifacts.push(scan_blob(blobs, scanner, artifact.blob).await?);
        }
        let log = match log {
            Some(log) => Some(log::scan(&read(blobs, log.blob, log.bytes).await?, scanner)?),
            None => None,
        };
        Ok(Self { result, artifacts, log })
    }

    /// Findings for the policy.
    pub fn facts(&self, job: &Job) -> Vec<FindingFacts> {
        let mut facts = Vec::new();
        let mut add = |place: &str, counts: &std::collections::BTreeMap<&'static str, u64>| {
            for (pattern, count) in counts {
                let kind = kind_of(pattern);
                let count = u32::try_from(*count).unwrap_or(u32::MAX);
                facts.push(FindingFacts { pattern: (*pattern).to_owned(), kind, place: place.to_owned(), count });
            }
        };
        if let Some(result) = &self.result {
            add("result", &result.counts);
        }
        for (artifact, findings) in job.artifacts().iter().zip(&self.artifacts) {
            add(&artifact.path, &findings.counts);
        }
        if let Some(log) = &self.log {
            add("log", &log.counts());
        }
        // Secrets first: only the first findings go to a policy service and into the record.
        facts.sort_by_key(|finding| match finding.kind {
            FindingKind::Secret => 0,
            FindingKind::Personal => 1,
        });
        facts
    }

    /// Redacted copy. `None` if a clean copy cannot be guaranteed.
    pub async fn redact(
        &self,
        blobs: &Blobs,
        scanner: &Scanner,
        job: &Job,
        keep_original: bool,
    ) -> Result<Option<Redacted>, String> {
        let mut spilled = job.spilled().map(Box::new);
        let result = match (&self.result, &job.result) {
            (Some(redacted), Some(result)) => {
                let copy = Json::parse(redacted.text.as_bytes()).ok_or("the redacted result is not JSON")?;
                match &spilled {
                    Some(_) if redacted.counts.is_empty() => Some(result.clone()),
                    Some(_) if copy.as_bytes().len() > limits::TASK_RESULT_BYTES_MAX => {
                        let bytes = copy.as_bytes().len() as u64;
                        let blob = put(blobs, copy.as_bytes().to_vec()).await?;
                        spilled = Some(Box::new(SpilledResult { blob, bytes }));
                        spilled.as_deref().map(Json::of)
                    }
                    Some(_) | None => {
                        spilled = None;
                        Some(copy)
                    }
                }
            }
            (None, _) | (_, None) => None,
        };
        let mut artifacts = Vec::with_capacity(self.artifacts.len());
        for (artifact, findings) in job.artifacts().iter().zip(&self.artifacts) {
            if findings.is_empty() {
                artifacts.push(artifact.clone());
                continue;
            }
            if findings.truncated || artifact.bytes > REDACTED_BYTES_MAX {
                return Ok(None);
            }
            let mut bytes = read(blobs, artifact.blob, artifact.bytes).await?;
            Mask::new(findings).apply(0, &mut bytes);
            // Masking can uncover a finding next to another one.
            if !scanner.scan(&bytes).is_empty() {
                return Ok(None);
            }
            artifacts.push(Artifact { blob: put(blobs, bytes).await?, ..artifact.clone() });
        }
        let log = match (&self.log, log_of(job)) {
            (Some(findings), Some(log)) if !findings.is_empty() => {
                if findings.is_truncated() {
                    return Ok(None);
                }
                let mut bytes = read(blobs, log.blob, log.bytes).await?;
                findings.mask(&mut bytes)?;
                if !log::scan(&bytes, scanner)?.is_empty() {
                    return Ok(None);
                }
                Some(LogRef { blob: put(blobs, bytes).await?, ..log })
            }
            (Some(_), Some(log)) => Some(log),
            (None, _) | (_, None) => None,
        };
        Ok(Some(Redacted { result, spilled, artifacts, log, keep_original }))
    }
}

fn kind_of(pattern: &str) -> FindingKind {
    let known = Scanner::known().find(|known| known.name == pattern);
    match known.map(|known| known.kind) {
        Some(Kind::Personal) => FindingKind::Personal,
        Some(Kind::Secret) | None => FindingKind::Secret,
    }
}

/// Findings for the job's record.
pub(super) fn counts(facts: &[FindingFacts]) -> Vec<FindingCount> {
    let kept = facts.iter().take(limits::FINDINGS_MAX);
    kept.map(|finding| {
        let FindingFacts { pattern, place, count, .. } = finding.clone();
        FindingCount { pattern, place, count }
    })
    .collect()
}

async fn scan_blob(blobs: &Blobs, scanner: &Scanner, id: BlobId) -> Result<Findings, String> {
    let mut reading = blobs.read(id).await.map_err(|error| error.to_string())?;
    let mut stream = scanner.stream(Limits::default());
    while let Some(piece) = reading.try_next().await.map_err(|error| error.to_string())? {
        stream.feed(&piece);
        // A large artifact must not block the thread for other tasks.
        tokio::task::yield_now().await;
    }
    Ok(stream.finish())
}

async fn read(blobs: &Blobs, id: BlobId, bytes: u64) -> Result<Vec<u8>, String> {
    let mut reading = blobs.read(id).await.map_err(|error| error.to_string())?;
    let mut content = Vec::with_capacity(bytes.min(REDACTED_BYTES_MAX) as usize);
    while let Some(piece) = reading.try_next().await.map_err(|error| error.to_string())? {
        content.extend_from_slice(&piece);
    }
    Ok(content)
}

async fn put(blobs: &Blobs, content: Vec<u8>) -> Result<BlobId, String> {
    blobs.put(Bytes::from(content)).await.map_err(|error| error.to_string())
}
