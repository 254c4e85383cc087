//! The strongest of all that was said, in the words of whoever said it.

use model::limits::NAME_BYTES_MAX;
use model::reason::cut;
use model::spec::Sandbox;
use model::time::Millis;
use model::verdict::{Constraints, OutputVerdict, Verdict};

use crate::answer::{JobVerdict, ResultVerdict, Spoken};

/// The rule that an answer comes from if no rule has spoken.
pub(crate) const DEFAULT_RULE: &str = "default";
/// The rule that an answer comes from if the rules could not be asked or answered nonsense.
pub(crate) const ERROR_RULE: &str = "policy_error";

/// An answer, before it is bound to a time and a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Weighed<V> {
    pub verdict: V,
    pub rule: String,
    pub message: Option<String>,
}

/// What a set of rules says of a job. The time of a throttle counts from when it is said.
pub(crate) type JobAnswer = (Weighed<Verdict>, Option<Box<Constraints>>);

/// The answer about a job of which all this was said.
pub(crate) fn job(spoken: &[Spoken<JobVerdict>], default: impl FnOnce() -> Weighed<Verdict>) -> JobAnswer {
    let with = |verdict: fn(&JobVerdict) -> bool| spoken.iter().filter(move |said| verdict(&said.verdict));
    let denied = with(|verdict| matches!(verdict, JobVerdict::Deny));
    if let Some(weighed) = joined(denied, Verdict::Deny) {
        return (weighed, None);
    }
    let constraints = merged(spoken);
    let asked = with(|verdict| matches!(verdict, JobVerdict::RequireApproval));
    if let Some(weighed) = joined(asked, Verdict::RequireApproval) {
        return (weighed, constraints.map(Box::new));
    }
    let waits = |said: &Spoken<JobVerdict>| match said.verdict {
        JobVerdict::Throttle(wait) => Some(wait),
        JobVerdict::Allow | JobVerdict::Constrain(_) | JobVerdict::RequireApproval | JobVerdict::Deny => None,
    };
    if let Some(longest) = spoken.iter().filter_map(waits).max() {
        let longest_first = spoken.iter().filter(|said| waits(said) == Some(longest));
        if let Some(weighed) = joined(longest_first, Verdict::Throttle(longest)) {
            return (weighed, None);
        }
    }
    if let Some(constraints) = constraints {
        let constraining = with(|verdict| matches!(verdict, JobVerdict::Constrain(_)));
        if let Some(weighed) = joined(constraining, Verdict::AllowWith(constraints)) {
            return (weighed, None);
        }
    }
    let allowed = with(|verdict| matches!(verdict, JobVerdict::Allow));
    (joined(allowed, Verdict::Allow).unwrap_or_else(default), None)
}

/// The answer about a result of which all this was said, and whether the original is kept.
pub(crate) fn result(spoken: &[Spoken<ResultVerdict>]) -> (Weighed<OutputVerdict>, bool) {
    let strength = |verdict: ResultVerdict| match verdict {
        ResultVerdict::Redact { .. } => OutputVerdict::Redact,
        ResultVerdict::Quarantine => OutputVerdict::Quarantine,
        ResultVerdict::Deny => OutputVerdict::Deny,
    };
    let Some(strongest) = spoken.iter().map(|said| said.verdict).max() else {
        let weighed = Weighed { verdict: OutputVerdict::Allow, rule: DEFAULT_RULE.to_owned(), message: None };
        return (weighed, false);
    };
    let same = || spoken.iter().filter(|said| strength(said.verdict) == strength(strongest));
    // Kept only if everyone who wants something taken out agrees to that.
    let keep_original = same().all(|said| match said.verdict {
        ResultVerdict::Redact { keep_original } => keep_original,
        ResultVerdict::Quarantine | ResultVerdict::Deny => true,
    });
    let weighed = joined(same(), strength(strongest)).unwrap_or_else(|| Weighed {
        verdict: strength(strongest),
        rule: ERROR_RULE.to_owned(),
        message: None,
    });
    (weighed, keep_original && strength(strongest) == OutputVerdict::Redact)
}

/// One answer of several rules that say the same. Nothing if there is none.
fn joined<'a, V: 'a, W>(spoken: impl Iterator<Item = &'a Spoken<V>>, verdict: W) -> Option<Weighed<W>> {
    let (mut rules, mut reasons) = (Vec::new(), Vec::new());
    for said in spoken {
        if !rules.contains(&said.rule.as_str()) {
            rules.push(&said.rule);
        }
        if !reasons.contains(&said.reason.as_str()) {
            reasons.push(&said.reason);
        }
    }
    if rules.is_empty() {
        return None;
    }
    rules.sort_unstable();
    Some(Weighed { verdict, rule: joined_name(&rules), message: Some(cut(reasons.join("; "))) })
}

/// The names of all rules; where they are too long together, as many as fit and a hash of all. An approval is bound to
/// this name, so that of other rules must be another one.
fn joined_name(rules: &[&str]) -> String {
    let all = rules.join(", ");
    if all.len() <= NAME_BYTES_MAX {
        return all;
    }
    let hash = blake3::hash(all.as_bytes()).to_hex();
    let end = format!("… and others, #{}", &hash[..16]);
    // Names of rules are plain ASCII, so that they can be cut anywhere.
    format!("{}{end}", &all[..NAME_BYTES_MAX - end.len()])
}

/// The strictest of each limit that any rule asks for.
fn merged(spoken: &[Spoken<JobVerdict>]) -> Option<Constraints> {
    let each = spoken.iter().filter_map(|said| match &said.verdict {
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
    let distance = |sandbox: Sandbox| match sandbox {
        Sandbox::Strict => 0,
        Sandbox::Standard => 1,
        Sandbox::None => 2,
    };
    Constraints {
        max_runtime: least(a.max_runtime, b.max_runtime),
        max_retries: least(a.max_retries, b.max_retries),
        max_artifact_bytes: least(a.max_artifact_bytes, b.max_artifact_bytes),
        max_concurrent: least(a.max_concurrent, b.max_concurrent),
        sandbox: [a.sandbox, b.sandbox].into_iter().flatten().min_by_key(|sandbox| distance(*sandbox)),
        // `false` takes it away, and is the lesser of the two.
        network: least(a.network, b.network),
    }
}

/// An answer in place of one that could not be had.
pub(crate) fn error<V>(verdict: V, message: String) -> Weighed<V> {
    Weighed { verdict, rule: ERROR_RULE.to_owned(), message: Some(cut(message)) }
}

/// When a throttled job may ask again.
pub(crate) fn until(verdict: Verdict, now: Millis) -> Verdict {
    match verdict {
        Verdict::Throttle(wait) => Verdict::Throttle(now + wait),
        Verdict::Allow | Verdict::AllowWith(_) | Verdict::RequireApproval | Verdict::Deny => verdict,
    }
}
