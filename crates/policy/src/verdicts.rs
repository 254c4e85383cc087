//! Parsing of rule verdicts from the value of an evaluation. Anything that violates the contract makes the whole answer
//! invalid.

use model::limits::{DURATION_MAX, NAME_BYTES_MAX};
use model::reason::cut;
use model::spec::Sandbox;
use model::time::Millis;
use model::verdict::Constraints;
use regorus::Value;

use crate::limits;

/// One rule's verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParsedVerdict<V> {
    pub verdict: V,
    pub rule: String,
    pub reason: String,
}

/// Verdicts of rules on a job, weakest first.
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

/// Verdicts of rules on a result, weakest first.
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

/// Violation of the contract by a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidAnswer(pub String);

/// All rule verdicts on a job, in a fixed order.
pub(crate) fn parse_job(value: &Value) -> Result<Vec<ParsedVerdict<JobVerdict>>, InvalidAnswer> {
    parse_sets(value, |name, object| match name {
        "deny" => Ok(JobVerdict::Deny),
        "require_approval" => Ok(JobVerdict::RequireApproval),
        "throttle" => {
            let wait = object.integer("for_ms")?.ok_or_else(|| object.invalid("`for_ms` is missing"))?;
            if wait == 0 || wait > DURATION_MAX.0 {
                return Err(object.invalid(format!("`for_ms` is {wait}: it must be 1 to {}", DURATION_MAX.0)));
            }
            Ok(JobVerdict::Throttle(Millis(wait)))
        }
        "constrain" => constraints(object).map(JobVerdict::Constrain),
        "allow" => Ok(JobVerdict::Allow),
        other => Err(InvalidAnswer(format!("unknown verdict `{other}`"))),
    })
}

/// All rule verdicts on a result, in a fixed order.
pub(crate) fn parse_output(value: &Value) -> Result<Vec<ParsedVerdict<ResultVerdict>>, InvalidAnswer> {
    parse_sets(value, |name, object| match name {
        "deny" => Ok(ResultVerdict::Deny),
        "quarantine" => Ok(ResultVerdict::Quarantine),
        "redact" => Ok(ResultVerdict::Redact { keep_original: object.flag("keep_original")?.unwrap_or(false) }),
        other => Err(InvalidAnswer(format!("unknown verdict `{other}`"))),
    })
}

fn constraints(object: &mut VerdictObject<'_>) -> Result<Constraints, InvalidAnswer> {
    let short = |object: &VerdictObject<'_>, name: &str, value: u64| {
        u32::try_from(value).map_err(|_| object.invalid(format!("`{name}` is {value}: the maximum is {}", u32::MAX)))
    };
    let not_zero = |object: &VerdictObject<'_>, name: &str, value: Option<u64>| match value {
        Some(0) => Err(object.invalid(format!("`{name}` is 0: the job could never run; use `deny` instead"))),
        Some(_) | None => Ok(value),
    };
    let runtime = object.integer("max_runtime_ms")?;
    let runtime = not_zero(object, "max_runtime_ms", runtime)?.map(Millis);
    let retries = object.integer("max_retries")?;
    let concurrent = object.integer("max_concurrent")?;
    let concurrent = not_zero(object, "max_concurrent", concurrent)?;
    let constraints = Constraints {
        max_runtime: runtime,
        max_retries: retries.map(|value| short(object, "max_retries", value)).transpose()?,
        max_artifact_bytes: object.integer("max_artifact_bytes")?,
        max_concurrent: concurrent.map(|value| short(object, "max_concurrent", value)).transpose()?,
        sandbox: sandbox(object)?,
        network: object.flag("network")?,
    };
    if constraints == Constraints::default() {
        return Err(object.invalid("no constraint is set"));
    }
    Ok(constraints)
}

fn sandbox(object: &mut VerdictObject<'_>) -> Result<Option<Sandbox>, InvalidAnswer> {
    let Some(value) = object.take("sandbox") else { return Ok(None) };
    let known = [Sandbox::Strict, Sandbox::Standard, Sandbox::None];
    let named = value.as_string().ok().and_then(|name| known.into_iter().find(|known| known.as_str() == &**name));
    match named {
        Some(sandbox) => Ok(Some(sandbox)),
        None => Err(object.invalid("`sandbox` must be `strict`, `standard` or `none`")),
    }
}

/// Parses all sets of verdicts. `parse` takes the verdict's own fields from an object.
fn parse_sets<V>(
    value: &Value,
    parse: impl Fn(&str, &mut VerdictObject<'_>) -> Result<V, InvalidAnswer>,
) -> Result<Vec<ParsedVerdict<V>>, InvalidAnswer> {
    let Ok(sets) = value.as_object() else { return Err(InvalidAnswer("the evaluation returned no object".to_owned())) };
    let mut verdicts = Vec::new();
    for (name, set) in sets.iter_sorted() {
        let Ok(name) = name.as_string() else { return Err(InvalidAnswer("a verdict has no name".to_owned())) };
        let Ok(set) = set.as_set() else { return Err(InvalidAnswer(format!("`{name}` is not a set"))) };
        for value in set.iter() {
            if verdicts.len() == limits::VERDICTS_MAX {
                return Err(InvalidAnswer(format!("more than {} verdicts on one job", limits::VERDICTS_MAX)));
            }
            let mut object = VerdictObject::new(name, value)?;
            let verdict = parse(name, &mut object)?;
            verdicts.push(object.finish(verdict)?);
        }
    }
    Ok(verdicts)
}

/// One object in a set of verdicts. Fields are taken one by one.
struct VerdictObject<'a> {
    verdict: &'a str,
    rule: String,
    reason: String,
    fields: Vec<(&'a str, &'a Value)>,
}

impl<'a> VerdictObject<'a> {
    fn new(verdict: &'a str, value: &'a Value) -> Result<Self, InvalidAnswer> {
        let Ok(pairs) = value.as_object() else {
            return Err(InvalidAnswer(format!("`{verdict}` contains {}: it must be an object", kind(value))));
        };
        let mut fields = Vec::with_capacity(pairs.len());
        for (name, value) in pairs.iter_sorted() {
            match name.as_string() {
                Ok(name) => fields.push((&**name, value)),
                Err(_) => {
                    return Err(InvalidAnswer(format!(
                        "`{verdict}` contains an object with a key that is not a string"
                    )));
                }
            }
        }
        let mut object = Self { verdict, rule: String::new(), reason: String::new(), fields };
        let rule = object.text("rule")?;
        if !is_rule_name(&rule) {
            return Err(object.invalid(format!(
                "`rule` must have 1 to {NAME_BYTES_MAX} letters, digits, `_`, `-`, `.`, `/` or `:`"
            )));
        }
        object.rule = rule;
        object.reason = object.text("reason")?;
        Ok(object)
    }

    fn invalid(&self, what: impl std::fmt::Display) -> InvalidAnswer {
        if self.rule.is_empty() {
            InvalidAnswer(format!("in `{}`: {what}", self.verdict))
        } else {
            InvalidAnswer(format!("in `{}` of rule `{}`: {what}", self.verdict, self.rule))
        }
    }

    fn take(&mut self, name: &str) -> Option<&'a Value> {
        let index = self.fields.iter().position(|(known, _)| *known == name)?;
        Some(self.fields.swap_remove(index).1)
    }

    fn text(&mut self, name: &str) -> Result<String, InvalidAnswer> {
        match self.take(name) {
            None => Err(self.invalid(format!("`{name}` is missing"))),
            Some(Value::String(text)) => Ok(cut(text.to_string())),
            Some(other) => Err(self.invalid(format!("`{name}` is {}: it must be a string", kind(other)))),
        }
    }

    fn integer(&mut self, name: &str) -> Result<Option<u64>, InvalidAnswer> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Number(number)) => match number.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.invalid(format!("`{name}` must be a non-negative integer"))),
            },
            Some(other) => Err(self.invalid(format!("`{name}` is {}: it must be a number", kind(other)))),
        }
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>, InvalidAnswer> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.invalid(format!("`{name}` is {}: it must be a boolean", kind(other)))),
        }
    }

    /// Fails if a field was not taken.
    fn finish<V>(self, verdict: V) -> Result<ParsedVerdict<V>, InvalidAnswer> {
        if let Some((name, _)) = self.fields.first() {
            return Err(self.invalid(format!("unknown field `{}`", cut((*name).to_owned()))));
        }
        Ok(ParsedVerdict { verdict, rule: self.rule, reason: self.reason })
    }
}

/// The names of several rules are joined with `, `, so they must not contain it.
fn is_rule_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Set(_) => "a set",
        Value::Object(_) => "an object",
        Value::Undefined => "undefined",
    }
}
