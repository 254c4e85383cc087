//! A set of rules: loaded and checked once, then asked about any number of jobs and results.

use std::fmt;
use std::path::Path;

use model::id::Attempt;
use model::limits::FINDINGS_MAX;
use model::time::Millis;
use model::verdict::{Decision, FindingCount, OutputDecision, OutputVerdict, PolicyVersion, Verdict};
use regorus::Value;

use crate::analysis::{Analysis, DEFAULT_VERDICT, Package, analyse};
use crate::answer::{self, JobVerdict, Spoken};
use crate::document::value_of;
use crate::error::LoadError;
use crate::evaluator::{EvaluationError, Evaluator, Printed};
use crate::facts::{JobDocument, JobFacts, OutputDocument, OutputFacts};
use crate::files::{self, Sources};
use crate::key::Key;
use crate::reads::Extent;
use crate::weigh::{self, DEFAULT_RULE, ERROR_RULE, JobAnswer, Weighed};

/// A set of rules in force.
pub struct Rules {
    version: PolicyVersion,
    files: Vec<String>,
    analysis: Analysis,
    evaluator: Evaluator,
}

/// What the rules say of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputRuling {
    pub decision: OutputDecision,
    /// Whether the original stays beside a copy from which something was taken out.
    pub keep_original: bool,
}

/// Everything that was said about a job.
pub(crate) struct Heard {
    pub spoken: Vec<Spoken<JobVerdict>>,
    pub answer: JobAnswer,
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
        let asked =
            [(Package::Job, verdicts(&analysis.job.defined)), (Package::Output, verdicts(&analysis.output.defined))];
        let evaluator = Evaluator::new(engine, &asked)?;
        let Sources { rules, data, version } = sources;
        let mut files: Vec<String> = rules.into_iter().chain(data).map(|file| file.name).collect();
        files.sort_unstable();
        Ok(Self { version, files, analysis, evaluator })
    }

    /// A hash of the names and contents of all files.
    pub fn version(&self) -> PolicyVersion {
        self.version
    }

    /// The files it was made of.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Whether there is anything to ask about results.
    pub fn has_output_rules(&self) -> bool {
        !self.analysis.output.defined.is_empty()
    }

    /// Whether the rules for results may depend on what scanners find in them.
    pub fn needs_content(&self) -> bool {
        let reads = self.analysis.output.reads.extent();
        self.has_output_rules() && ["findings", "phase"].iter().any(|name| !reads.below(name).is_nothing())
    }

    /// Whether the same job always gets the same answer, whenever it is asked about.
    pub fn is_cacheable(&self) -> bool {
        !self.analysis.job.reads_time
    }

    /// The parts of their input that the rules for jobs read.
    pub fn reads(&self) -> Vec<String> {
        self.analysis.job.reads.paths()
    }

    /// What the rules say of a job. The same facts at the same time always get the same answer.
    pub fn decide(&self, facts: &JobFacts<'_>, now: Millis) -> Decision {
        self.decision(self.hear(facts, now, self.job_extent()).answer, now)
    }

    /// What the rules say of a result. Where they cannot say, nobody gets it until an operator has looked.
    pub fn decide_output(&self, facts: &OutputFacts<'_>, now: Millis) -> OutputRuling {
        let (weighed, keep_original) = self.hear_output(facts, now).1;
        self.ruling(weighed, keep_original, facts, now)
    }

    pub(crate) fn ruling(
        &self,
        weighed: Weighed<OutputVerdict>,
        keep_original: bool,
        facts: &OutputFacts<'_>,
        now: Millis,
    ) -> OutputRuling {
        let Weighed { verdict, rule, message } = weighed;
        let findings = facts.findings.iter().take(FINDINGS_MAX).map(|finding| FindingCount {
            pattern: finding.pattern.clone(),
            place: finding.place.clone(),
            count: finding.count,
        });
        let (phase, policy) = (facts.phase, Some(self.version));
        let findings = findings.collect();
        let decision =
            OutputDecision { at: now, phase, verdict, rule, message, policy, findings, attempt: Attempt::default() };
        OutputRuling { decision, keep_original }
    }

    pub(crate) fn hear_output(
        &self,
        facts: &OutputFacts<'_>,
        now: Millis,
    ) -> (Vec<Spoken<answer::ResultVerdict>>, (Weighed<OutputVerdict>, bool), Printed) {
        let failed = |message: String| (weigh::error(OutputVerdict::Quarantine, self.problem(&message)), false);
        let document = OutputDocument::new(facts, now);
        let input = match value_of(&document, self.analysis.output.reads.extent()) {
            Ok(input) => input,
            Err(error) => return (Vec::new(), failed(error.to_string()), Printed::new()),
        };
        let (value, printed) = match self.evaluator.verdicts(Package::Output, input, now) {
            Ok(answer) => answer,
            Err(error) => return (Vec::new(), failed(error.to_string()), Printed::new()),
        };
        match answer::of_result(&value) {
            Ok(spoken) => {
                let weighed = weigh::result(&spoken);
                (spoken, weighed, printed)
            }
            Err(nonsense) => (Vec::new(), failed(nonsense.to_string()), printed),
        }
    }

    pub(crate) fn job_extent(&self) -> Extent<'_> {
        self.analysis.job.reads.extent()
    }

    /// Asks the rules, and shows them only so much of the job.
    pub(crate) fn hear(&self, facts: &JobFacts<'_>, now: Millis, extent: Extent<'_>) -> Heard {
        self.try_hear(facts, now, extent).unwrap_or_else(|problem| {
            let answer = (weigh::error(Verdict::Deny, self.problem(&problem)), None);
            Heard { spoken: Vec::new(), answer, printed: Printed::new() }
        })
    }

    fn try_hear(&self, facts: &JobFacts<'_>, now: Millis, extent: Extent<'_>) -> Result<Heard, String> {
        let input = value_of(&JobDocument::new(facts, now), extent).map_err(|error| error.to_string())?;
        let failed = |error: EvaluationError| error.to_string();
        let (value, mut printed) = self.evaluator.verdicts(Package::Job, input.clone(), now).map_err(failed)?;
        let spoken = answer::of_job(&value).map_err(|nonsense| nonsense.to_string())?;
        let mut default = Weighed { verdict: Verdict::Allow, rule: DEFAULT_RULE.to_owned(), message: None };
        if spoken.is_empty() && self.analysis.job.defined.contains(&DEFAULT_VERDICT) {
            let rule = "data.outlast.job.default_verdict";
            let (value, more) = self.evaluator.run(rule, input, now).map_err(failed)?;
            printed.extend(more);
            default.verdict = default_verdict(&value)?;
        }
        let answer = weigh::job(&spoken, || default);
        Ok(Heard { spoken, answer, printed })
    }

    fn problem(&self, message: &str) -> String {
        format!("the policy {} gave no usable answer: {message}", self.version)
    }

    pub(crate) fn decision(&self, (weighed, constraints): JobAnswer, now: Millis) -> Decision {
        let Weighed { verdict, rule, message } = weighed;
        let verdict = weigh::until(verdict, now);
        Decision { at: now, verdict, rule, message, policy: Some(self.version), constraints }
    }

    /// Under which key the answer about a job may be cached, if it may.
    pub(crate) fn key(&self, facts: &JobFacts<'_>, now: Millis) -> Option<Key> {
        if !self.is_cacheable() {
            return None;
        }
        Key::of(&self.version.0, &JobDocument::new(facts, now), self.job_extent())
    }

    /// Whether an answer says something about the job, and not about the rules or the machine.
    pub(crate) fn is_sound((weighed, _): &JobAnswer) -> bool {
        weighed.rule != ERROR_RULE
    }
}

/// Absent where the rule for it does not apply, as if there were none.
fn default_verdict(value: &Value) -> Result<Verdict, String> {
    match value {
        Value::Undefined => Ok(Verdict::Allow),
        Value::String(text) => match &**text {
            "allow" => Ok(Verdict::Allow),
            "deny" => Ok(Verdict::Deny),
            "require_approval" => Ok(Verdict::RequireApproval),
            _ => Err(format!("`{DEFAULT_VERDICT}` is none of `allow`, `deny`, `require_approval`")),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Set(_) | Value::Object(_) => {
            Err(format!("`{DEFAULT_VERDICT}` must be a text"))
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("version", &self.version).field("files", &self.files).finish_non_exhaustive()
    }
}
