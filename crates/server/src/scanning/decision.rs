//! Decisions of the output policy.

use engine::PolicyMode;
use model::id::Attempt;
use model::job::{Artifact, Job, Outcome, SpilledResult};
use model::json::Json;
use model::spec::{JobSpec, decode_topic};
use model::verdict::{OutputDecision, OutputVerdict, Phase, PolicyVersion};
use policy::{ArtifactFacts, FindingFacts, FindingKind, JobFacts, OutcomeFacts, OutputCheck, OutputFacts};

use super::content::{Content, counts};
use super::log_of;
use crate::clock;
use crate::policy::PolicyChecks;

/// Rule name of the default without an output policy: results with secrets are quarantined.
const SECRETS_RULE: &str = "secrets";

/// Decision after a content scan.
pub(super) async fn decide(policy: &PolicyChecks, job: &Job, content: &Content) -> Result<OutputCheck, String> {
    let spec = job.decode_spec().map_err(|error| format!("cannot read the job: {error}"))?;
    let findings = content.facts(job);
    let outcome = outcome_of_job(job);
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
    if let Some(client) = policy.service() {
        let facts = service_facts(job, &spec, outcome, &findings);
        let checked = client.check_output(&facts).await.map_err(|error| error.to_string())?;
        return Ok(OutputCheck { decision: checked.decision, keep_original: checked.keep_original });
    }
    Ok(OutputCheck { decision: default_decision(policy, &findings), keep_original: false })
}

/// Metadata check: decision of the rules before the content scan. `None` for allow, since the content scan has the
/// final decision.
pub(crate) fn check_metadata(policy: &PolicyChecks, job: &Job, outcome: &Outcome) -> Option<OutputDecision> {
    let rules = policy.rules()?.rules();
    if !rules.has_output_rules() {
        return None;
    }
    let settings = policy.settings();
    let topic = settings.topic(decode_topic(&job.spec).ok()?)?;
    if !topic.output.scan {
        return None;
    }
    let spec = job.decode_spec().ok()?;
    let facts = OutputFacts {
        job: JobFacts { spec: &spec, submitter: job.submitter.as_deref(), queue: None },
        phase: Phase::Metadata,
        outcome: &outcome_of_attempt(outcome),
        findings: &[],
    };
    let decision = policy.measures().metadata.time(|| rules.decide_output(&facts, clock::now())).decision;
    (decision.verdict != OutputVerdict::Allow).then_some(decision)
}

fn outcome_of_attempt(outcome: &Outcome) -> OutcomeFacts {
    let usage = outcome.usage.unwrap_or_default();
    OutcomeFacts {
        exit_code: outcome.exit_code,
        cpu_ms: usage.cpu.0,
        memory_peak_bytes: usage.memory_peak_bytes,
        result_bytes: result_bytes(outcome.spilled.as_deref().copied(), outcome.result.as_ref()),
        log_bytes: outcome.log.map_or(0, |log| log.bytes),
        artifacts: artifacts(&outcome.artifacts),
    }
}

fn outcome_of_job(job: &Job) -> OutcomeFacts {
    let last = job.last_attempt();
    let usage = last.and_then(|attempt| attempt.usage.as_deref().copied()).unwrap_or_default();
    OutcomeFacts {
        exit_code: last.and_then(|attempt| attempt.exit_code),
        cpu_ms: usage.cpu.0,
        memory_peak_bytes: usage.memory_peak_bytes,
        result_bytes: result_bytes(job.spilled(), job.result.as_ref()),
        log_bytes: log_of(job).map_or(0, |log| log.bytes),
        artifacts: artifacts(job.artifacts()),
    }
}

/// Size of a result, spilled or not.
fn result_bytes(spilled: Option<SpilledResult>, result: Option<&Json>) -> u64 {
    match spilled {
        Some(spilled) => spilled.bytes,
        None => result.map_or(0, |result| result.as_bytes().len() as u64),
    }
}

fn artifacts(artifacts: &[Artifact]) -> Vec<ArtifactFacts> {
    let facts = |artifact: &Artifact| ArtifactFacts { path: artifact.path.clone(), bytes: artifact.bytes };
    artifacts.iter().map(facts).collect()
}

fn service_facts(
    job: &Job,
    spec: &JobSpec,
    outcome: OutcomeFacts,
    findings: &[FindingFacts],
) -> policy_service::OutputFacts {
    let kind = |kind: FindingKind| match kind {
        FindingKind::Secret => policy_service::FindingKind::Secret,
        FindingKind::Personal => policy_service::FindingKind::Personal,
    };
    let artifacts = outcome.artifacts.into_iter();
    policy_service::OutputFacts {
        job: job.id,
        tenant: spec.tenant.clone(),
        submitter: job.submitter.as_deref().map(str::to_owned),
        topic: spec.topic.clone(),
        labels: spec.labels.clone(),
        phase: Phase::Content,
        outcome: policy_service::Outcome {
            exit_code: outcome.exit_code,
            cpu_ms: outcome.cpu_ms,
            memory_peak_bytes: outcome.memory_peak_bytes,
            result_bytes: outcome.result_bytes,
            log_bytes: outcome.log_bytes,
            artifacts: artifacts
                .map(|ArtifactFacts { path, bytes }| policy_service::Artifact { path, bytes })
                .collect(),
        },
        findings: findings
            .iter()
            .zip(counts(findings))
            .map(|(finding, count)| policy_service::Finding { kind: kind(finding.kind), count })
            .collect(),
        now: clock::now(),
    }
}

/// Decision without an output policy.
fn default_decision(policy: &PolicyChecks, findings: &[FindingFacts]) -> OutputDecision {
    let secrets: Vec<&FindingFacts> = findings.iter().filter(|finding| finding.kind == FindingKind::Secret).collect();
    let (verdict, message) = match secrets.first() {
        None => (OutputVerdict::Allow, None),
        Some(first) => {
            let message = format!("possible secrets: {} in {}", first.pattern, first.place);
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

fn version(policy: &PolicyChecks) -> Option<PolicyVersion> {
    match policy.settings().policy {
        PolicyMode::Disabled => None,
        PolicyMode::Enforced(version) => Some(version),
    }
}
