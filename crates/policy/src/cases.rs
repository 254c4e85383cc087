//! Cases beside the rules: a job or a result, and what the rules should say of it.

use std::path::Path;

use model::spec::JobSpec;
use model::time::Timestamp;
use model::verdict::Phase;
use serde::{Deserialize, Serialize};

use crate::error::LoadError;
use crate::explain::{ConstraintsView, Explanation};
use crate::facts::{FindingFacts, JobFacts, OutcomeFacts, OutputFacts};
use crate::files::{self, SourceFile};
use crate::limits;
use crate::rules::Rules;

/// Noon of a Wednesday, for cases that name no time: within everyone's working hours.
const TIME_DEFAULT: Timestamp = Timestamp(model::time::Millis(1_767_787_200_000));

/// One case, as it is written down.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    job: serde_json::Value,
    submitter: Option<String>,
    queue: Option<String>,
    time: Option<Timestamp>,
    /// With one of these three it is about a result.
    phase: Option<Phase>,
    outcome: Option<OutcomeFacts>,
    findings: Option<Vec<FindingFacts>>,
    expect: Expected,
}

/// What the rules should say. What is left out is not compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub verdict: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_contains: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConstraintsView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_original: Option<bool>,
}

/// What came of one case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseResult {
    pub file: String,
    pub name: String,
    pub passed: bool,
    /// What was expected, of what was not met.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// What the rules said, with every rule that spoke.
    pub got: String,
}

/// What came of all cases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub cases: Vec<CaseResult>,
}

impl Report {
    pub fn passed(&self) -> bool {
        self.cases.iter().all(|case| case.passed)
    }
}

/// Asks the rules in a directory about every case beside them.
pub fn run_cases(directory: &Path) -> Result<Report, LoadError> {
    let rules = Rules::load(directory)?;
    let mut cases = Vec::new();
    for file in files::read_cases(directory)? {
        for case in parse(&file)? {
            if cases.len() == limits::CASES_MAX {
                let message = format!("more than {} cases: spread them over several directories", limits::CASES_MAX);
                return Err(LoadError::In { file: file.name, message });
            }
            cases.push(run(&rules, &file.name, case));
        }
    }
    Ok(Report { cases })
}

fn parse(file: &SourceFile) -> Result<Vec<Case>, LoadError> {
    let wrong = |message: String| LoadError::In { file: file.name.clone(), message };
    if file.name.ends_with(".json") {
        serde_json::from_str(&file.text).map_err(|error| wrong(format!("these are no cases: {error}")))
    } else {
        serde_saphyr::from_str(&file.text).map_err(|error| wrong(format!("these are no cases: {error}")))
    }
}

fn run(rules: &Rules, file: &str, case: Case) -> CaseResult {
    let result = |passed: bool, expected: String, got: String| CaseResult {
        file: file.to_owned(),
        name: case.name.clone(),
        passed,
        expected,
        got,
    };
    let spec = match spec(&case) {
        Ok(spec) => spec,
        Err(problem) => return result(false, "a job".to_owned(), problem),
    };
    let explanation = ask(rules, &case, &spec);
    let unmet = unmet(&case.expect, &explanation);
    result(unmet.is_empty(), unmet.join(", "), shown(&explanation))
}

/// The job through text, as it would come in. A case that says nothing of what it runs means an echo.
fn spec(case: &Case) -> Result<JobSpec, String> {
    let mut job = case.job.clone();
    if let Some(job) = job.as_object_mut() {
        job.entry("run").or_insert_with(|| serde_json::json!({"echo": {}}));
    }
    let spec: JobSpec = serde_json::from_str(&job.to_string()).map_err(|error| format!("`job` is no job: {error}"))?;
    spec.validate().map_err(|error| format!("`job` would not be accepted: {error}"))?;
    Ok(spec)
}

fn ask(rules: &Rules, case: &Case, spec: &JobSpec) -> Explanation {
    let now = case.time.unwrap_or(TIME_DEFAULT).0;
    let job = JobFacts { spec, submitter: case.submitter.as_deref(), queue: case.queue.clone() };
    if case.phase.is_none() && case.outcome.is_none() && case.findings.is_none() {
        return rules.explain(&job, now);
    }
    let findings = case.findings.as_deref().unwrap_or_default();
    let phase = case.phase.unwrap_or(if findings.is_empty() { Phase::Metadata } else { Phase::Content });
    let outcome = case.outcome.clone().unwrap_or_default();
    rules.explain_output(&OutputFacts { job, phase, outcome: &outcome, findings }, now)
}

/// What was expected and is not so.
fn unmet(expected: &Expected, got: &Explanation) -> Vec<String> {
    let Expected { verdict, rule, reason_contains, constraints, keep_original } = expected;
    let mut unmet = Vec::new();
    if verdict != got.verdict {
        unmet.push(format!("verdict {verdict}"));
    }
    if let Some(rule) = rule.as_ref().filter(|rule| **rule != got.rule) {
        unmet.push(format!("rule {rule}"));
    }
    let message = got.message.as_deref().unwrap_or_default();
    if let Some(part) = reason_contains.as_ref().filter(|part| !message.contains(part.as_str())) {
        unmet.push(format!("a reason with `{part}`"));
    }
    if let Some(constraints) = constraints.filter(|constraints| Some(*constraints) != got.constraints) {
        unmet.push(format!("constraints {}", json(&constraints)));
    }
    if let Some(keep) = keep_original.filter(|keep| *keep != got.keep_original) {
        unmet.push(format!("keep_original {keep}"));
    }
    unmet
}

fn shown(got: &Explanation) -> String {
    let mut text = format!("verdict {}, rule {}", got.verdict, got.rule);
    if let Some(message) = &got.message {
        text.push_str(&format!(", reason `{message}`"));
    }
    if let Some(constraints) = &got.constraints {
        text.push_str(&format!(", constraints {}", json(constraints)));
    }
    if got.spoke.len() > 1 {
        let spoke: Vec<String> = got.spoke.iter().map(|said| format!("{} ({})", said.rule, said.verdict)).collect();
        text.push_str(&format!("; rules that spoke: {}", spoke.join(", ")));
    }
    text
}

fn json(constraints: &ConstraintsView) -> String {
    serde_json::to_string(constraints).unwrap_or_default()
}
