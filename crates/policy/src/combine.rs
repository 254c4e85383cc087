//! Combines the verdicts of all rules: the strongest wins.

use model::limits::NAME_BYTES_MAX;
use model::reason::cut;
use model::spec::Sandbox;
use model::time::Millis;
use model::verdict::{Constraints, OutputVerdict, Verdict};

use crate::verdicts::{JobVerdict, ParsedVerdict, ResultVerdict};

/// Rule name of an answer if no rule applies.
pub(crate) const DEFAULT_RULE: &str = "default";
/// Rule name of an answer after a failed evaluation or an invalid answer.
pub(crate) const ERROR_RULE: &str = "policy_error";

/// An answer without time and policy version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer<V> {
    pub verdict: V,
    pub rule: String,
    pub message: Option<String>,
}

/// Answer about a job, with the constraints that apply after its approval. A throttle is a duration here.
pub(crate) type JobAnswer = (Answer<Verdict>, Option<Box<Constraints>>);

/// Combines the rule verdicts on a job.
pub(crate) fn combine_job(
    verdicts: &[ParsedVerdict<JobVerdict>],
    default: impl FnOnce() -> Answer<Verdict>,
) -> JobAnswer {
    let with = |matches: fn(&JobVerdict) -> bool| verdicts.iter().filter(move |parsed| matches(&parsed.verdict));
    let denials = with(|verdict| matches!(verdict, JobVerdict::Deny));
    if let Some(answer) = merge_rules(denials, Verdict::Deny) {
        return (answer, None);
    }
    let constraints = strictest_constraints(verdicts);
    let approvals = with(|verdict| matches!(verdict, JobVerdict::RequireApproval));
    if let Some(answer) = merge_rules(approvals, Verdict::RequireApproval) {
        return (answer, constraints.map(Box::new));
    }
    let wait = |parsed: &ParsedVerdict<JobVerdict>| match parsed.verdict {
        JobVerdict::Throttle(wait) => Some(wait),
        JobVerdict::Allow | JobVerdict::Constrain(_) | JobVerdict::RequireApproval | JobVerdict::Deny => None,
    };
    if let Some(longest) = verdicts.iter().filter_map(wait).max() {
        let throttles = verdicts.iter().filter(|parsed| wait(parsed) == Some(longest));
        if let Some(answer) = merge_rules(throttles, Verdict::Throttle(longest)) {
            return (answer, None);
        }
    }
    if let Some(constraints) = constraints {
        let constraining = with(|verdict| matches!(verdict, JobVerdict::Constrain(_)));
        if let Some(answer) = merge_rules(constraining, Verdict::AllowWith(constraints)) {
            return (answer, None);
        }
    }
    let allowing = with(|verdict| matches!(verdict, JobVerdict::Allow));
    (merge_rules(allowing, Verdict::Allow).unwrap_or_else(default), None)
}

/// Combines the rule verdicts on a result. The flag says whether the original is stored.
pub(crate) fn combine_output(verdicts: &[ParsedVerdict<ResultVerdict>]) -> (Answer<OutputVerdict>, bool) {
    let output_verdict = |verdict: ResultVerdict| match verdict {
        ResultVerdict::Redact { .. } => OutputVerdict::Redact,
        ResultVerdict::Quarantine => OutputVerdict::Quarantine,
        ResultVerdict::Deny => OutputVerdict::Deny,
    };
    let Some(strongest) = verdicts.iter().map(|parsed| parsed.verdict).max() else {
        let answer = Answer { verdict: OutputVerdict::Allow, rule: DEFAULT_RULE.to_owned(), message: None };
        return (answer, false);
    };
    let same = || verdicts.iter().filter(|parsed| output_verdict(parsed.verdict) == output_verdict(strongest));
    // Stored only if all rules that redact agree.
    let keep_original = same().all(|parsed| match parsed.verdict {
        ResultVerdict::Redact { keep_original } => keep_original,
        ResultVerdict::Quarantine | ResultVerdict::Deny => true,
    });
    let answer = merge_rules(same(), output_verdict(strongest)).unwrap_or_else(|| Answer {
        verdict: output_verdict(strongest),
        rule: ERROR_RULE.to_owned(),
        message: None,
    });
    (answer, keep_original && output_verdict(strongest) == OutputVerdict::Redact)
}

/// Merges rules with the same verdict into one answer. None without rules.
fn merge_rules<'a, V: 'a, W>(verdicts: impl Iterator<Item = &'a ParsedVerdict<V>>, verdict: W) -> Option<Answer<W>> {
    let (mut rules, mut reasons) = (Vec::new(), Vec::new());
    for parsed in verdicts {
        if !rules.contains(&parsed.rule.as_str()) {
            rules.push(&parsed.rule);
        }
        if !reasons.contains(&parsed.reason.as_str()) {
            reasons.push(&parsed.reason);
        }
    }
    if rules.is_empty() {
        return None;
    }
    rules.sort_unstable();
    Some(Answer { verdict, rule: merged_name(&rules), message: Some(cut(reasons.join("; "))) })
}

/// The names of all rules. If they are too long together: as many as fit, and a hash of all. An approval is bound to
/// this name, so different rules must have different names.
fn merged_name(rules: &[&str]) -> String {
    let all = rules.join(", ");
    if all.len() <= NAME_BYTES_MAX {
        return all;
    }
    let hash = blake3::hash(all.as_bytes()).to_hex();
    let end = format!("… and others, #{}", &hash[..16]);
    // Rule names are ASCII: any byte is a valid place to cut.
    format!("{}{end}", &all[..NAME_BYTES_MAX - end.len()])
}

/// The strictest value of each constraint.
fn strictest_constraints(verdicts: &[ParsedVerdict<JobVerdict>]) -> Option<Constraints> {
    let each = verdicts.iter().filter_map(|parsed| match &parsed.verdict {
        JobVerdict::Constrain(constraints) => Some(constraints),
        JobVerdict::Allow | JobVerdict::Throttle(_) | JobVerdict::RequireApproval | JobVerdict::Deny => None,
    });
    each.cloned().reduce(stricter)
}

fn stricter(a: Constraints, b: Constraints) -> Constraints {
    fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
    let rank = |sandbox: Sandbox| match sandbox {
        Sandbox::Strict => 0,
        Sandbox::Standard => 1,
        Sandbox::None => 2,
    };
    Constraints {
        max_runtime: least(a.max_runtime, b.max_runtime),
        max_retries: least(a.max_retries, b.max_retries),
        max_artifact_bytes: least(a.max_artifact_bytes, b.max_artifact_bytes),
        max_concurrent: least(a.max_concurrent, b.max_concurrent),
        sandbox: [a.sandbox, b.sandbox].into_iter().flatten().min_by_key(|sandbox| rank(*sandbox)),
        // `false` denies network access and is the minimum.
        network: least(a.network, b.network),
    }
}

/// Answer after a failed evaluation.
pub(crate) fn error_answer<V>(verdict: V, message: String) -> Answer<V> {
    Answer { verdict, rule: ERROR_RULE.to_owned(), message: Some(cut(message)) }
}

/// Turns the duration of a throttle into its end.
pub(crate) fn throttle_until(verdict: Verdict, now: Millis) -> Verdict {
    match verdict {
        Verdict::Throttle(wait) => Verdict::Throttle(now + wait),
        Verdict::Allow | Verdict::AllowWith(_) | Verdict::RequireApproval | Verdict::Deny => verdict,
    }
}
