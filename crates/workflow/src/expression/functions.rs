//! Built-in functions.

use std::borrow::Cow;

use serde_json::{Number, Value};

use super::evaluate::{Evaluation, Failure, kind, write_text};
use super::number;
use super::parse::TemplateError;
use super::types::Type;
use crate::limits;

macro_rules! functions {
    ($($variant:ident $name:literal $least:literal..=$most:literal $usage:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Function { $($variant,)* }

        impl Function {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Minimum and maximum number of arguments.
            pub fn arity(self) -> (usize, usize) {
                match self { $(Self::$variant => ($least, $most),)* }
            }

            pub fn usage(self) -> &'static str {
                match self { $(Self::$variant => concat!("write `", $usage, "`"),)* }
            }
        }
    };
}

functions! {
    Length "length" 1..=1 "length(value)",
    Contains "contains" 2..=2 "contains(value, part)",
    StartsWith "starts_with" 2..=2 "starts_with(string, start)",
    EndsWith "ends_with" 2..=2 "ends_with(string, end)",
    Split "split" 2..=2 "split(string, separator)",
    Join "join" 1..=2 "join(list, separator)",
    Keys "keys" 1..=1 "keys(object)",
    Values "values" 1..=1 "values(object)",
    Range "range" 1..=2 "range(end)` or `range(start, end)",
    Json "json" 1..=1 "json(value)",
    Parse "parse" 1..=1 "parse(string)",
    Text "string" 1..=1 "string(value)",
    Number "number" 1..=1 "number(value)",
    Lower "lower" 1..=1 "lower(string)",
    Upper "upper" 1..=1 "upper(string)",
    Trim "trim" 1..=1 "trim(string)",
    Min "min" 1..=64 "min(a, b, …)` or `min(list)",
    Max "max" 1..=64 "max(a, b, …)` or `max(list)",
    Round "round" 1..=2 "round(number)` or `round(number, digits)",
    Default "default" 2..=2 "default(value, otherwise)",
    Quote "quote" 1..=1 "quote(value)",
}

impl Function {
    /// Checks the types of the arguments and returns the type of the result.
    pub fn check(self, types: &[Type]) -> Result<Type, TemplateError> {
        let takes = |at: usize, wanted: &[Type]| match types.get(at) {
            Some(found) if !wanted.iter().any(|wanted| found.may_be(*wanted)) => {
                let wanted = wanted.iter().map(|wanted| wanted.describe()).collect::<Vec<_>>().join(" or ");
                Err(TemplateError::new(format!(
                    "`{}` takes {wanted}, not {}: {}",
                    self.as_str(),
                    found.describe(),
                    self.usage()
                )))
            }
            Some(_) | None => Ok(()),
        };
        match self {
            Self::Length => takes(0, &[Type::Text, Type::List, Type::Object]).map(|()| Type::Integer),
            Self::Contains => takes(0, &[Type::Text, Type::List, Type::Object]).map(|()| Type::Boolean),
            Self::StartsWith | Self::EndsWith => {
                takes(0, &[Type::Text]).and_then(|()| takes(1, &[Type::Text])).map(|()| Type::Boolean)
            }
            Self::Split => takes(0, &[Type::Text]).and_then(|()| takes(1, &[Type::Text])).map(|()| Type::List),
            Self::Join => takes(0, &[Type::List]).and_then(|()| takes(1, &[Type::Text])).map(|()| Type::Text),
            Self::Keys | Self::Values => takes(0, &[Type::Object]).map(|()| Type::List),
            Self::Range => takes(0, &[Type::Integer]).and_then(|()| takes(1, &[Type::Integer])).map(|()| Type::List),
            Self::Json | Self::Text | Self::Quote => Ok(Type::Text),
            Self::Parse => takes(0, &[Type::Text]).map(|()| Type::Unknown),
            Self::Number => takes(0, &[Type::Text, Type::Number]).map(|()| Type::Number),
            Self::Lower | Self::Upper | Self::Trim => takes(0, &[Type::Text]).map(|()| Type::Text),
            Self::Min | Self::Max if types.len() == 1 => takes(0, &[Type::List]).map(|()| Type::Number),
            Self::Min | Self::Max => {
                (0..types.len()).try_for_each(|at| takes(at, &[Type::Number]))?;
                Ok(if types.iter().all(|given| *given == Type::Integer) { Type::Integer } else { Type::Number })
            }
            Self::Round if types.len() == 1 => takes(0, &[Type::Number]).map(|()| Type::Integer),
            Self::Round => takes(0, &[Type::Number]).and_then(|()| takes(1, &[Type::Integer])).map(|()| Type::Number),
            Self::Default => Ok(Type::Unknown),
        }
    }

    pub fn call<'a>(
        self,
        evaluation: &mut Evaluation<'a, '_>,
        values: Vec<Cow<'a, Value>>,
    ) -> Result<Cow<'a, Value>, Failure> {
        let mut values = values.into_iter();
        let first = values.next().unwrap_or_default();
        let second = values.next();
        let call = Call { function: self, evaluation };
        Ok(Cow::Owned(match self {
            Self::Default => return Ok(if first.is_null() { second.unwrap_or_default() } else { first }),
            Self::Length => call.length(&first)?,
            Self::Contains => call.contains(&first, &second.unwrap_or_default())?,
            Self::StartsWith => Value::Bool(call.text(&first)?.starts_with(call.text(&second.unwrap_or_default())?)),
            Self::EndsWith => Value::Bool(call.text(&first)?.ends_with(call.text(&second.unwrap_or_default())?)),
            Self::Split => call.split(&first, &second.unwrap_or_default())?,
            Self::Join => call.join(&first, second.as_deref())?,
            Self::Keys | Self::Values => call.fields(&first)?,
            Self::Range => call.range(&first, second.as_deref())?,
            Self::Json => Value::String(call.json(&first)?),
            Self::Parse => call.parse(&first)?,
            Self::Text => call.string(&first)?,
            Self::Quote => call.quote(&first)?,
            Self::Number => call.number(&first)?,
            Self::Lower | Self::Upper | Self::Trim => call.transform(&first)?,
            Self::Min | Self::Max => call.extreme(&first, second.as_deref(), values.as_slice())?,
            Self::Round => call.round(&first, second.as_deref())?,
        }))
    }
}

struct Call<'e, 'a, 'b> {
    function: Function,
    evaluation: &'e mut Evaluation<'a, 'b>,
}

impl Call<'_, '_, '_> {
    fn refuse<T>(&self, value: &Value) -> Result<T, Failure> {
        let name = self.function.as_str();
        Err(format!("`{name}` does not take {}: {}", kind(value), self.function.usage()))
    }

    fn text<'v>(&self, value: &'v Value) -> Result<&'v str, Failure> {
        value.as_str().map_or_else(|| self.refuse(value), Ok)
    }

    fn length(self, value: &Value) -> Result<Value, Failure> {
        Ok(Value::from(match value {
            Value::String(text) => {
                self.evaluation.charge_bytes(text.len())?;
                text.chars().count()
            }
            Value::Array(elements) => elements.len(),
            Value::Object(fields) => fields.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => return self.refuse(value),
        }))
    }

    fn contains(self, value: &Value, part: &Value) -> Result<Value, Failure> {
        Ok(Value::Bool(match value {
            Value::String(text) => {
                self.evaluation.charge_bytes(text.len())?;
                text.contains(self.text(part)?)
            }
            Value::Array(elements) => {
                self.evaluation.charge_elements(elements.len())?;
                for element in elements {
                    if self.evaluation.equal(element, part)? {
                        return Ok(Value::Bool(true));
                    }
                }
                false
            }
            Value::Object(fields) => fields.contains_key(self.text(part)?),
            Value::Null | Value::Bool(_) | Value::Number(_) => return self.refuse(value),
        }))
    }

    fn split(self, value: &Value, separator: &Value) -> Result<Value, Failure> {
        let (text, separator) = (self.text(value)?, self.text(separator)?);
        if separator.is_empty() {
            return Err("`split` needs a separator that is not empty".to_owned());
        }
        self.evaluation.charge_bytes(text.len())?;
        let mut parts = Vec::new();
        for part in text.split(separator) {
            if parts.len() >= limits::ITEMS_MAX {
                return Err(format!("`split` returns more than {} parts", limits::ITEMS_MAX));
            }
            parts.push(Value::String(part.to_owned()));
        }
        self.evaluation.charge_elements(parts.len())?;
        Ok(Value::Array(parts))
    }

    fn join(self, value: &Value, separator: Option<&Value>) -> Result<Value, Failure> {
        let Value::Array(elements) = value else {
            return self.refuse(value);
        };
        let separator = separator.map_or(Ok(""), |separator| self.text(separator))?;
        self.evaluation.charge_elements(elements.len())?;
        let mut text = String::new();
        for (at, element) in elements.iter().enumerate() {
            if at > 0 {
                text.push_str(separator);
            }
            write_text(element, &mut text)?;
        }
        self.evaluation.charge_bytes(text.len())?;
        Ok(Value::String(text))
    }

    /// Sorted by name, independent of the order in the object.
    fn fields(self, value: &Value) -> Result<Value, Failure> {
        let Value::Object(fields) = value else {
            return self.refuse(value);
        };
        self.evaluation.charge_elements(fields.len())?;
        let mut sorted: Vec<_> = fields.iter().collect();
        sorted.sort_by_key(|(name, _)| *name);
        let mut list = Vec::with_capacity(sorted.len());
        for (name, value) in sorted {
            list.push(match self.function {
                Function::Keys => Value::String(name.clone()),
                _ => self.evaluation.copy(value)?,
            });
        }
        Ok(Value::Array(list))
    }

    fn range(self, first: &Value, second: Option<&Value>) -> Result<Value, Failure> {
        let integer = |value: &Value| value.as_i64().map_or_else(|| self.refuse(value), Ok);
        let (start, end) = match second {
            Some(end) => (integer(first)?, integer(end)?),
            None => (0, integer(first)?),
        };
        let count = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
        if count > limits::ITEMS_MAX {
            return Err(format!("`range` returns {count} numbers: at most {} are allowed", limits::ITEMS_MAX));
        }
        self.evaluation.charge_elements(count)?;
        Ok(Value::Array((start..end).map(Value::from).collect()))
    }

    fn json(self, value: &Value) -> Result<String, Failure> {
        let mut text = String::new();
        match value {
            Value::String(_) => {
                let bytes = serde_json::to_string(value).map_err(|error| error.to_string())?;
                text.push_str(&bytes);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                write_text(value, &mut text)?;
            }
        }
        self.evaluation.charge_bytes(text.len())?;
        Ok(text)
    }

    fn parse(self, value: &Value) -> Result<Value, Failure> {
        let text = self.text(value)?;
        // A parsed value takes far more memory than its text.
        self.evaluation.charge(1 + text.len() / 16)?;
        serde_json::from_str(text).map_err(|error| format!("`parse`: the string is not valid JSON: {error}"))
    }

    fn string(self, value: &Value) -> Result<Value, Failure> {
        let mut text = String::new();
        write_text(value, &mut text)?;
        self.evaluation.charge_bytes(text.len())?;
        Ok(Value::String(text))
    }

    /// Quotes a value as a single shell word.
    fn quote(self, value: &Value) -> Result<Value, Failure> {
        let mut text = String::new();
        write_text(value, &mut text)?;
        self.evaluation.charge_bytes(text.len())?;
        Ok(Value::String(format!("'{}'", text.replace('\'', r"'\''"))))
    }

    fn number(self, value: &Value) -> Result<Value, Failure> {
        match value {
            Value::Number(_) => Ok(value.clone()),
            Value::String(text) => serde_json::from_str::<Number>(text.trim()).map(Value::Number).map_err(|_| {
                let start: String = text.chars().take(40).collect();
                format!("`number`: \"{start}\" is not a number")
            }),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => self.refuse(value),
        }
    }

    fn transform(self, value: &Value) -> Result<Value, Failure> {
        let text = self.text(value)?;
        self.evaluation.charge_bytes(text.len())?;
        Ok(Value::String(match self.function {
            Function::Lower => text.to_lowercase(),
            Function::Upper => text.to_uppercase(),
            _ => text.trim().to_owned(),
        }))
    }

    fn extreme(self, first: &Value, second: Option<&Value>, others: &[Cow<'_, Value>]) -> Result<Value, Failure> {
        let all: Vec<&Value> = match (first, second) {
            (Value::Array(elements), None) => elements.iter().collect(),
            (first, None) => return self.refuse(first),
            (first, Some(second)) => [first, second].into_iter().chain(others.iter().map(|other| &**other)).collect(),
        };
        self.evaluation.charge_elements(all.len())?;
        let mut best: Option<&Number> = None;
        for value in all {
            let Value::Number(number) = value else {
                return self.refuse(value);
            };
            let is_better = best.is_none_or(|best| match self.function {
                Function::Min => number::compare(number, best).is_lt(),
                _ => number::compare(number, best).is_gt(),
            });
            if is_better {
                best = Some(number);
            }
        }
        let name = self.function.as_str();
        best.map(|best| Value::Number(best.clone())).ok_or_else(|| format!("`{name}` of an empty list is undefined"))
    }

    fn round(self, value: &Value, digits: Option<&Value>) -> Result<Value, Failure> {
        let Value::Number(number) = value else {
            return self.refuse(value);
        };
        let digits = match digits {
            Some(digits) => match digits.as_u64().and_then(|digits| u32::try_from(digits).ok()) {
                Some(digits) => digits,
                None => return self.refuse(digits),
            },
            None => 0,
        };
        number::round(number, digits).map(Value::Number)
    }
}
