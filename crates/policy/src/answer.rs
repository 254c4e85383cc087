//! What the rules have said, taken from the value that they left. Anything that is not exactly as it must be is
//! nonsense, and nonsense is not guessed at.

use model::limits::{DURATION_MAX, NAME_BYTES_MAX};
use model::reason::cut;
use model::spec::Sandbox;
use model::time::Millis;
use model::verdict::Constraints;
use regorus::Value;

use crate::limits;

/// One verdict of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spoken<V> {
    pub verdict: V,
    pub rule: String,
    pub reason: String,
}

/// What a rule can say of a job, weakest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobVerdict {
    Allow,
    Constrain(Constraints),
    Throttle(Millis),
    RequireApproval,
    Deny,
}

impl JobVerdict {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Constrain(_) => "constrain",
            Self::Throttle(_) => "throttle",
            Self::RequireApproval => "require_approval",
            Self::Deny => "deny",
        }
    }
}

/// What a rule can say of a result, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ResultVerdict {
    Redact { keep_original: bool },
    Quarantine,
    Deny,
}

impl ResultVerdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Redact { .. } => "redact",
            Self::Quarantine => "quarantine",
            Self::Deny => "deny",
        }
    }
}

/// Something a rule said that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Nonsense(pub String);

/// Everything that was said of a job, in a fixed order.
pub(crate) fn of_job(value: &Value) -> Result<Vec<Spoken<JobVerdict>>, Nonsense> {
    spoken(value, |name, entry| match name {
        "deny" => Ok(JobVerdict::Deny),
        "require_approval" => Ok(JobVerdict::RequireApproval),
        "throttle" => {
            let wait = entry.whole("for_ms")?.ok_or_else(|| entry.wrong("`for_ms` is missing"))?;
            if wait == 0 || wait > DURATION_MAX.0 {
                return Err(entry.wrong(format!("`for_ms` is {wait}: 1 to {} are possible", DURATION_MAX.0)));
            }
            Ok(JobVerdict::Throttle(Millis(wait)))
        }
        "constrain" => constraints(entry).map(JobVerdict::Constrain),
        "allow" => Ok(JobVerdict::Allow),
        other => Err(Nonsense(format!("there is no verdict `{other}`"))),
    })
}

/// Everything that was said of a result, in a fixed order.
pub(crate) fn of_result(value: &Value) -> Result<Vec<Spoken<ResultVerdict>>, Nonsense> {
    spoken(value, |name, entry| match name {
        "deny" => Ok(ResultVerdict::Deny),
        "quarantine" => Ok(ResultVerdict::Quarantine),
        "redact" => Ok(ResultVerdict::Redact { keep_original: entry.flag("keep_original")?.unwrap_or(false) }),
        other => Err(Nonsense(format!("there is no verdict `{other}`"))),
    })
}

fn constraints(entry: &mut Entry<'_>) -> Result<Constraints, Nonsense> {
    let short = |entry: &Entry<'_>, name: &str, value: u64| {
        u32::try_from(value).map_err(|_| entry.wrong(format!("`{name}` is {value}: at most {} is possible", u32::MAX)))
    };
    let not_zero = |entry: &Entry<'_>, name: &str, value: Option<u64>| match value {
        Some(0) => Err(entry.wrong(format!("`{name}` is 0, and so it could never run: deny it instead"))),
        Some(_) | None => Ok(value),
    };
    let runtime = entry.whole("max_runtime_ms")?;
    let runtime = not_zero(entry, "max_runtime_ms", runtime)?.map(Millis);
    let retries = entry.whole("max_retries")?;
    let concurrent = entry.whole("max_concurrent")?;
    let concurrent = not_zero(entry, "max_concurrent", concurrent)?;
    let constraints = Constraints {
        max_runtime: runtime,
        max_retries: retries.map(|value| short(entry, "max_retries", value)).transpose()?,
        max_artifact_bytes: entry.whole("max_artifact_bytes")?,
        max_concurrent: concurrent.map(|value| short(entry, "max_concurrent", value)).transpose()?,
        sandbox: sandbox(entry)?,
        network: entry.flag("network")?,
    };
    if constraints == Constraints::default() {
        return Err(entry.wrong("it constrains nothing"));
    }
    Ok(constraints)
}

fn sandbox(entry: &mut Entry<'_>) -> Result<Option<Sandbox>, Nonsense> {
    let Some(value) = entry.take("sandbox") else { return Ok(None) };
    let known = [Sandbox::Strict, Sandbox::Standard, Sandbox::None];
    let named = value.as_string().ok().and_then(|name| known.into_iter().find(|known| known.as_str() == &**name));
    match named {
        Some(sandbox) => Ok(Some(sandbox)),
        None => Err(entry.wrong("`sandbox` is none of `strict`, `standard`, `none`")),
    }
}

/// Goes through all sets of verdicts; `understand` takes from an entry what belongs to its verdict.
fn spoken<V>(
    value: &Value,
    understand: impl Fn(&str, &mut Entry<'_>) -> Result<V, Nonsense>,
) -> Result<Vec<Spoken<V>>, Nonsense> {
    let Ok(sets) = value.as_object() else { return Err(Nonsense("the rules gave no answer".to_owned())) };
    let mut spoken = Vec::new();
    for (name, set) in sets.iter_sorted() {
        let Ok(name) = name.as_string() else { return Err(Nonsense("a verdict has no name".to_owned())) };
        let Ok(set) = set.as_set() else { return Err(Nonsense(format!("`{name}` is not a set"))) };
        for said in set.iter() {
            if spoken.len() == limits::VERDICTS_MAX {
                return Err(Nonsense(format!("more than {} verdicts on one job", limits::VERDICTS_MAX)));
            }
            let mut entry = Entry::new(name, said)?;
            let verdict = understand(name, &mut entry)?;
            spoken.push(entry.finish(verdict)?);
        }
    }
    Ok(spoken)
}

/// One object in a set of verdicts, of which the fields are taken one by one.
struct Entry<'a> {
    verdict: &'a str,
    rule: String,
    reason: String,
    fields: Vec<(&'a str, &'a Value)>,
}

impl<'a> Entry<'a> {
    fn new(verdict: &'a str, said: &'a Value) -> Result<Self, Nonsense> {
        let Ok(object) = said.as_object() else {
            return Err(Nonsense(format!("`{verdict}` contains {}: it must be an object", kind(said))));
        };
        let mut fields = Vec::with_capacity(object.len());
        for (name, value) in object.iter_sorted() {
            match name.as_string() {
                Ok(name) => fields.push((&**name, value)),
                Err(_) => return Err(Nonsense(format!("`{verdict}` contains an object with a key that is no text"))),
            }
        }
        let mut entry = Self { verdict, rule: String::new(), reason: String::new(), fields };
        let rule = entry.text("rule")?;
        if !is_rule_name(&rule) {
            return Err(entry
                .wrong(format!("`rule` must have 1 to {NAME_BYTES_MAX} letters, digits, `_`, `-`, `.`, `/` or `:`")));
        }
        entry.rule = rule;
        entry.reason = entry.text("reason")?;
        Ok(entry)
    }

    fn wrong(&self, what: impl std::fmt::Display) -> Nonsense {
        if self.rule.is_empty() {
            Nonsense(format!("in `{}`: {what}", self.verdict))
        } else {
            Nonsense(format!("in `{}` of rule `{}`: {what}", self.verdict, self.rule))
        }
    }

    fn take(&mut self, name: &str) -> Option<&'a Value> {
        let place = self.fields.iter().position(|(known, _)| *known == name)?;
        Some(self.fields.swap_remove(place).1)
    }

    fn text(&mut self, name: &str) -> Result<String, Nonsense> {
        match self.take(name) {
            None => Err(self.wrong(format!("`{name}` is missing"))),
            Some(Value::String(text)) => Ok(cut(text.to_string())),
            Some(other) => Err(self.wrong(format!("`{name}` is {}: it must be a text", kind(other)))),
        }
    }

    fn whole(&mut self, name: &str) -> Result<Option<u64>, Nonsense> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Number(number)) => match number.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(format!("`{name}` must be a whole number that is not negative"))),
            },
            Some(other) => Err(self.wrong(format!("`{name}` is {}: it must be a number", kind(other)))),
        }
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>, Nonsense> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong(format!("`{name}` is {}: it must be true or false", kind(other)))),
        }
    }

    /// With every field understood.
    fn finish<V>(self, verdict: V) -> Result<Spoken<V>, Nonsense> {
        if let Some((name, _)) = self.fields.first() {
            return Err(self.wrong(format!("`{}` means nothing here", cut((*name).to_owned()))));
        }
        Ok(Spoken { verdict, rule: self.rule, reason: self.reason })
    }
}

/// Names are joined where several rules speak, so they contain nothing that could join them.
fn is_rule_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Set(_) => "a set",
        Value::Object(_) => "an object",
        Value::Undefined => "undefined",
    }
}
