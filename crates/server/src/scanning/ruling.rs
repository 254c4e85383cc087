//! What the policy says of a result and of what was found in it.

use engine::Gate;
use model::id::Attempt;
use model::job::{Artifact, Job, Outcome};
use model::json::Json;
use model::spec::{JobSpec, decode_topic};
use model::verdict::{OutputDecision, OutputVerdict, Phase, PolicyVersion};
use model::workflow::Origin;
use policy::{ArtifactFacts, FindingFacts, FindingKind, JobFacts, OutcomeFacts, OutputFacts, OutputRuling};

use super::content::{Content, counts};
use super::log_of;
use crate::clock;
use crate::keeping::Kept;
use crate::policy::PolicyService;

/// The rule of servers whose policy says nothing about results: what looks like a secret stays inside.
const SECRETS_RULE: &str = "secrets";

pub(super) async fn rule(policy: &PolicyService, job: &Job, content: &Content) -> Result<OutputRuling, String> {
    let spec = job.decode_spec().map_err(|error| format!("the job cannot be read: {error}"))?;
    let findings = content.facts(job);
    let outcome = of_job(job);
    if let Some(rules) = policy.rules()
        && rules.rules().has_output_rules()
    {
        let facts = OutputFacts {
            job: JobFacts { spec: &spec, submitter: job.submitter.as_deref(), queue: None },
            phase: Phase::Content,
            outcome: &outcome,
            findings: &findings,
        };
        return Ok(rules.decide_output(&facts, clock::now()));
    }
    if let Some(client) = policy.kernel() {
        let facts = kernel_facts(job, &spec, outcome, &findings);
        let checked = client.check_output(&facts).await.map_err(|error| error.to_string())?;
        return Ok(OutputRuling { decision: checked.decision, keep_original: checked.keep_original });
    }
    Ok(OutputRuling { decision: by_itself(policy, &findings), keep_original: false })
}

/// What the rules say of a result at once, by what is known about it. Only what they have against it: the last word is
/// that of the scan.
pub(crate) fn glance(policy: &PolicyService, job: &Job, outcome: &Outcome) -> Option<OutputDecision> {
    let rules = policy.rules()?.rules();
    if !rules.has_output_rules() {
        return None;
    }
    let setup = policy.setup();
    let topic = setup.topic(decode_topic(&job.spec).ok()?)?;
    if !topic.output.scan {
        return None;
    }
    let spec = job.decode_spec().ok()?;
    let facts = OutputFacts {
        job: JobFacts { spec: &spec, submitter: job.submitter.as_deref(), queue: None },
        phase: Phase::Metadata,
        outcome: &of_attempt(job.origin.as_deref(), outcome),
        findings: &[],
    };
    let decision = policy.measures().metadata.time(|| rules.decide_output(&facts, clock::now())).decision;
    (decision.verdict != OutputVerdict::Allow).then_some(decision)
}

fn of_attempt(origin: Option<&Origin>, outcome: &Outcome) -> OutcomeFacts {
    let usage = outcome.usage.unwrap_or_default();
    OutcomeFacts {
        exit_code: outcome.exit_code,
        cpu_ms: usage.cpu.0,
        memory_peak_bytes: usage.memory_peak_bytes,
        result_bytes: bytes(origin, outcome.result.as_ref()),
        log_bytes: outcome.log.map_or(0, |log| log.bytes),
        artifacts: artifacts(&outcome.artifacts),
    }
}

/// The same of a job on record.
fn of_job(job: &Job) -> OutcomeFacts {
    let last = job.last_attempt();
    let usage = last.and_then(|attempt| attempt.usage).unwrap_or_default();
    OutcomeFacts {
        exit_code: last.and_then(|attempt| attempt.exit_code),
        cpu_ms: usage.cpu.0,
        memory_peak_bytes: usage.memory_peak_bytes,
        result_bytes: bytes(job.origin.as_deref(), job.result.as_ref()),
        log_bytes: log_of(job).map_or(0, |log| log.bytes),
        artifacts: artifacts(job.artifacts()),
    }
}

/// How large a result is, wherever it was put.
fn bytes(origin: Option<&Origin>, result: Option<&Json>) -> u64 {
    match Kept::of(origin, result) {
        Some(kept) => kept.bytes,
        None => result.map_or(0, |result| result.as_bytes().len() as u64),
    }
}

fn artifacts(artifacts: &[Artifact]) -> Vec<ArtifactFacts> {
    let facts = |artifact: &Artifact| ArtifactFacts { path: artifact.path.clone(), bytes: artifact.bytes };
    artifacts.iter().map(facts).collect()
}

fn kernel_facts(job: &Job, spec: &JobSpec, outcome: OutcomeFacts, findings: &[FindingFacts]) -> kernel::OutputFacts {
    let kind = |kind: FindingKind| match kind {
        FindingKind::Secret => kernel::FindingKind::Secret,
        FindingKind::Personal => kernel::FindingKind::Personal,
    };
    let artifacts = outcome.artifacts.into_iter();
    kernel::OutputFacts {
        job: job.id,
        tenant: spec.tenant.clone(),
        submitter: job.submitter.as_deref().map(str::to_owned),
        topic: spec.topic.clone(),
        labels: spec.labels.clone(),
        phase: Phase::Content,
        outcome: kernel::Outcome {
            exit_code: outcome.exit_code,
            cpu_ms: outcome.cpu_ms,
            memory_peak_bytes: outcome.memory_peak_bytes,
            result_bytes: outcome.result_bytes,
            log_bytes: outcome.log_bytes,
            artifacts: artifacts.map(|ArtifactFacts { path, bytes }| kernel::Artifact { path, bytes }).collect(),
        },
        findings: findings
            .iter()
            .zip(counts(findings))
            .map(|(finding, count)| kernel::Finding { kind: kind(finding.kind), count })
            .collect(),
        now: clock::now(),
    }
}

/// Without a word of the policy about results.
fn by_itself(policy: &PolicyService, findings: &[FindingFacts]) -> OutputDecision {
    let secrets: Vec<&FindingFacts> = findings.iter().filter(|finding| finding.kind == FindingKind::Secret).collect();
    let (verdict, message) = match secrets.first() {
        None => (OutputVerdict::Allow, None),
        Some(first) => {
            let message = format!("it seems to contain secrets: {} in {}", first.pattern, first.place);
            (OutputVerdict::Quarantine, Some(message))
        }
    };
    OutputDecision {
        at: clock::now(),
        phase: Phase::Content,
        verdict,
        rule: SECRETS_RULE.to_owned(),
        message,
        policy: version(policy),
        findings: counts(findings),
        attempt: Attempt::default(),
    }
}

fn version(policy: &PolicyService) -> Option<PolicyVersion> {
    match policy.setup().gate {
        Gate::Open => None,
        Gate::Policy(version) => Some(version),
    }
}
