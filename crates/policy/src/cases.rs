//! Test cases for rules: a job or a result, and the expected decision.

use std::path::Path;

use api::ConstraintsView;
use model::spec::JobSpec;
use model::time::Timestamp;
use model::verdict::Phase;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::LoadError;
use crate::explain::Explanation;
use crate::facts::{FindingFacts, JobFacts, OutcomeFacts, OutputFacts};
use crate::files::{self, SourceFile};
use crate::limits;
use crate::rules::Rules;

/// Time of cases without one: a Wednesday noon, within usual working hours.
const TIME_DEFAULT: Timestamp = Timestamp(model::time::Millis(1_767_787_200_000));

/// One case in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    job: serde_json::Value,
    submitter: Option<String>,
    queue: Option<String>,
    time: Option<Timestamp>,
    /// A case with `phase`, `outcome` or `findings` is about a result.
    phase: Option<Phase>,
    outcome: Option<OutcomeFacts>,
    findings: Option<Vec<FindingFacts>>,
    expect: Expected,
}

/// Expected decision. Absent fields are not compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub verdict: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_contains: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_constraints")]
    pub constraints: Option<ConstraintsView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_original: Option<bool>,
}

/// Reads constraints and refuses unknown names, which the view itself ignores: a misspelt one would expect nothing.
fn known_constraints<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ConstraintsView>, D::Error> {
    use serde::de::Error as _;
    let Some(given) = Option::<serde_json::Map<String, serde_json::Value>>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let view: ConstraintsView = serde_json::from_value(given.clone().into()).map_err(D::Error::custom)?;
    let known = serde_json::to_value(view).map_err(D::Error::custom)?;
    match given.iter().find(|(name, value)| !value.is_null() && known.get(name.as_str()).is_none()) {
        Some((name, _)) => Err(D::Error::custom(format!("`{name}` is not a constraint"))),
        None => Ok(Some(view)),
    }
}

/// Result of one case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseResult {
    pub file: String,
    pub name: String,
    pub passed: bool,
    /// Unmet expectations.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// The decision, with all rule verdicts.
    pub got: String,
}

/// Results of all cases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub cases: Vec<CaseResult>,
}

impl Report {
    pub fn passed(&self) -> bool {
        self.cases.iter().all(|case| case.passed)
    }
}

/// Runs all cases in a directory against its rules.
pub fn run_cases(directory: &Path) -> Result<Report, LoadError> {
    let rules = Rules::load(directory)?;
    let mut cases = Vec::new();
    for file in files::read_cases(directory)? {
        for case in parse(&file)? {
            if cases.len() == limits::CASES_MAX {
                let message = format!("more than {} cases: split them over several directories", limits::CASES_MAX);
                return Err(LoadError::In { file: file.name, message });
            }
            cases.push(run(&rules, &file.name, case));
        }
    }
    Ok(Report { cases })
}

fn parse(file: &SourceFile) -> Result<Vec<Case>, LoadError> {
    let error = |message: String| LoadError::In { file: file.name.clone(), message };
    if file.name.ends_with(".json") {
        serde_json::from_str(&file.text).map_err(|cause| error(format!("invalid test cases: {cause}")))
    } else {
        serde_saphyr::from_str(&file.text).map_err(|cause| error(format!("invalid test cases: {cause}")))
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
        Err(problem) => return result(false, "a valid job".to_owned(), problem),
    };
    let explanation = evaluate(rules, &case, &spec);
    let unmet = unmet(&case.expect, &explanation);
    result(unmet.is_empty(), unmet.join(", "), describe(&explanation))
}

/// Parses the job from JSON text, as the API does. A job without `run` is an echo.
fn spec(case: &Case) -> Result<JobSpec, String> {
    let mut job = case.job.clone();
    if let Some(job) = job.as_object_mut() {
        job.entry("run").or_insert_with(|| serde_json::json!({"echo": {}}));
    }
    let spec: JobSpec = serde_json::from_str(&job.to_string()).map_err(|error| format!("invalid `job`: {error}"))?;
    spec.validate().map_err(|error| format!("the server would reject `job`: {error}"))?;
    Ok(spec)
}

fn evaluate(rules: &Rules, case: &Case, spec: &JobSpec) -> Explanation {
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

/// Unmet expectations.
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

fn describe(got: &Explanation) -> String {
    let mut text = format!("verdict {}, rule {}", got.verdict, got.rule);
    if let Some(message) = &got.message {
        text.push_str(&format!(", reason `{message}`"));
    }
    if let Some(constraints) = &got.constraints {
        text.push_str(&format!(", constraints {}", json(constraints)));
    }
    if got.rule_verdicts.len() > 1 {
        let verdicts: Vec<String> =
            got.rule_verdicts.iter().map(|verdict| format!("{} ({})", verdict.rule, verdict.verdict)).collect();
        text.push_str(&format!("; all rule verdicts: {}", verdicts.join(", ")));
    }
    text
}

fn json(constraints: &ConstraintsView) -> String {
    serde_json::to_string(constraints).unwrap_or_default()
}
