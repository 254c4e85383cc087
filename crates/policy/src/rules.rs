//! A validated set of rules and its decisions about jobs and results.

use std::fmt;
use std::path::Path;

use model::id::Attempt;
use model::limits::FINDINGS_MAX;
use model::time::Millis;
use model::verdict::{Decision, FindingCount, OutputDecision, OutputVerdict, PolicyVersion, Verdict};
use regorus::Value;

use crate::analysis::{Analysis, DEFAULT_VERDICT, Package, analyse};
use crate::combine::{self, Answer, DEFAULT_RULE, ERROR_RULE, JobAnswer};
use crate::document::value_of;
use crate::error::LoadError;
use crate::evaluator::{EvaluationError, Evaluator, Printed};
use crate::facts::{JobDocument, JobFacts, OutputDocument, OutputFacts};
use crate::files::{self, Sources};
use crate::key::Key;
use crate::read_set::Extent;
use crate::verdicts::{self, JobVerdict, ParsedVerdict, ResultVerdict};

/// A set of rules.
pub struct Rules {
    version: PolicyVersion,
    files: Vec<String>,
    analysis: Analysis,
    evaluator: Evaluator,
}

/// Decision about a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputCheck {
    pub decision: OutputDecision,
    /// Whether the original is stored beside the redacted copy.
    pub keep_original: bool,
}

/// Evaluation of the rules for one job.
pub(crate) struct JobEvaluation {
    pub verdicts: Vec<ParsedVerdict<JobVerdict>>,
    pub answer: JobAnswer,
    pub printed: Printed,
}

/// Evaluation of the rules for one result.
pub(crate) struct OutputEvaluation {
    pub verdicts: Vec<ParsedVerdict<ResultVerdict>>,
    pub answer: Answer<OutputVerdict>,
    pub keep_original: bool,
    pub printed: Printed,
}

impl Rules {
    /// Loads all rules in a directory.
    pub fn load(directory: &Path) -> Result<Self, LoadError> {
        Self::of(files::read(directory)?)
    }

    pub(crate) fn of(sources: Sources) -> Result<Self, LoadError> {
        let (engine, modules) = Evaluator::parse(&sources)?;
        let analysis = analyse(&modules)?;
        let verdicts =
            |defined: &[&'static str]| defined.iter().copied().filter(|name| *name != DEFAULT_VERDICT).collect();
        let packages =
            [(Package::Job, verdicts(&analysis.job.defined)), (Package::Output, verdicts(&analysis.output.defined))];
        let evaluator = Evaluator::new(engine, &packages)?;
        let Sources { rules, data, version } = sources;
        let mut files: Vec<String> = rules.into_iter().chain(data).map(|file| file.name).collect();
        files.sort_unstable();
        Ok(Self { version, files, analysis, evaluator })
    }

    /// Hash of the names and contents of all files.
    pub fn version(&self) -> PolicyVersion {
        self.version
    }

    /// Names of its rule and data files.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Whether there are rules for results.
    pub fn has_output_rules(&self) -> bool {
        !self.analysis.output.defined.is_empty()
    }

    /// Whether the rules for results may depend on the content scan.
    pub fn needs_content(&self) -> bool {
        let reads = self.analysis.output.reads.extent();
        self.has_output_rules() && ["findings", "phase"].iter().any(|name| !reads.below(name).is_nothing())
    }

    /// Whether answers about jobs are independent of the time.
    pub fn is_cacheable(&self) -> bool {
        !self.analysis.job.reads_time
    }

    /// Paths of `input` that the rules for jobs read.
    pub fn reads(&self) -> Vec<String> {
        self.analysis.job.reads.paths()
    }

    /// Decides about a job. Deterministic in `facts` and `now`.
    pub fn decide(&self, facts: &JobFacts<'_>, now: Millis) -> Decision {
        self.decision(self.evaluate(facts, now, self.job_extent()).answer, now)
    }

    /// Decides about a result. Quarantines it if the evaluation fails.
    pub fn decide_output(&self, facts: &OutputFacts<'_>, now: Millis) -> OutputCheck {
        let OutputEvaluation { answer: Answer { verdict, rule, message }, keep_original, .. } =
            self.evaluate_output(facts, now);
        let findings = facts.findings.iter().take(FINDINGS_MAX).map(|finding| FindingCount {
            pattern: finding.pattern.clone(),
            place: finding.place.clone(),
            count: finding.count,
        });
        let (phase, policy) = (facts.phase, Some(self.version));
        let findings = findings.collect();
        let decision =
            OutputDecision { at: now, phase, verdict, rule, message, policy, findings, attempt: Attempt::default() };
        OutputCheck { decision, keep_original }
    }

    pub(crate) fn evaluate_output(&self, facts: &OutputFacts<'_>, now: Millis) -> OutputEvaluation {
        let failed = |message: String, printed: Printed| OutputEvaluation {
            verdicts: Vec::new(),
            answer: combine::error_answer(OutputVerdict::Quarantine, self.error_message(&message)),
            keep_original: false,
            printed,
        };
        let document = OutputDocument::new(facts, now);
        let input = match value_of(&document, self.analysis.output.reads.extent()) {
            Ok(input) => input,
            Err(error) => return failed(error.to_string(), Printed::new()),
        };
        let (value, printed) = match self.evaluator.verdicts(Package::Output, input, now) {
            Ok(evaluated) => evaluated,
            Err(error) => return failed(error.to_string(), Printed::new()),
        };
        match verdicts::parse_output(&value) {
            Ok(verdicts) => {
                let (answer, keep_original) = combine::combine_output(&verdicts);
                OutputEvaluation { verdicts, answer, keep_original, printed }
            }
            Err(invalid) => failed(invalid.to_string(), printed),
        }
    }

    pub(crate) fn job_extent(&self) -> Extent<'_> {
        self.analysis.job.reads.extent()
    }

    /// Evaluates the rules for a job with only the given extent of it as input.
    pub(crate) fn evaluate(&self, facts: &JobFacts<'_>, now: Millis, extent: Extent<'_>) -> JobEvaluation {
        self.try_evaluate(facts, now, extent).unwrap_or_else(|message| {
            let answer = (combine::error_answer(Verdict::Deny, self.error_message(&message)), None);
            JobEvaluation { verdicts: Vec::new(), answer, printed: Printed::new() }
        })
    }

    fn try_evaluate(&self, facts: &JobFacts<'_>, now: Millis, extent: Extent<'_>) -> Result<JobEvaluation, String> {
        let input = value_of(&JobDocument::new(facts, now), extent).map_err(|error| error.to_string())?;
        let failed = |error: EvaluationError| error.to_string();
        let (value, mut printed) = self.evaluator.verdicts(Package::Job, input.clone(), now).map_err(failed)?;
        let verdicts = verdicts::parse_job(&value).map_err(|invalid| invalid.to_string())?;
        let mut default = Answer { verdict: Verdict::Allow, rule: DEFAULT_RULE.to_owned(), message: None };
        if verdicts.is_empty() && self.analysis.job.defined.contains(&DEFAULT_VERDICT) {
            let rule = "data.outlast.job.default_verdict";
            let (value, more) = self.evaluator.run(rule, input, now).map_err(failed)?;
            printed.extend(more);
            default.verdict = default_verdict(&value)?;
        }
        let answer = combine::combine_job(&verdicts, || default);
        Ok(JobEvaluation { verdicts, answer, printed })
    }

    fn error_message(&self, message: &str) -> String {
        format!("error in policy {}: {message}", self.version)
    }

    pub(crate) fn decision(&self, (answer, constraints): JobAnswer, now: Millis) -> Decision {
        let Answer { verdict, rule, message } = answer;
        let verdict = combine::throttle_until(verdict, now);
        Decision { at: now, verdict, rule, message, policy: Some(self.version), constraints }
    }

    /// Cache key of a job. None if its answer must not be cached.
    pub(crate) fn key(&self, facts: &JobFacts<'_>, now: Millis) -> Option<Key> {
        if !self.is_cacheable() {
            return None;
        }
        Key::of(&self.version.0, &JobDocument::new(facts, now), self.job_extent())
    }

    /// Whether an answer is about the job, and not an error of the evaluation.
    pub(crate) fn is_valid((answer, _): &JobAnswer) -> bool {
        answer.rule != ERROR_RULE
    }
}

/// Undefined if the rule does not apply, as if there were none.
fn default_verdict(value: &Value) -> Result<Verdict, String> {
    match value {
        Value::Undefined => Ok(Verdict::Allow),
        Value::String(text) => match &**text {
            "allow" => Ok(Verdict::Allow),
            "deny" => Ok(Verdict::Deny),
            "require_approval" => Ok(Verdict::RequireApproval),
            _ => Err(format!("`{DEFAULT_VERDICT}` must be `allow`, `deny` or `require_approval`")),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Set(_) | Value::Object(_) => {
            Err(format!("`{DEFAULT_VERDICT}` must be a string"))
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("version", &self.version).field("files", &self.files).finish_non_exhaustive()
    }
}
