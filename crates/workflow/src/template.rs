//! Templates: strings with `${…}`.

mod segments;
mod value;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::expression::{Budget, Evaluation, Expression, Failure, kind, write_text};
use crate::limits;
use crate::scope::{RenderError, Scope};
use crate::slice::Slice;

pub(crate) use segments::{Segment, has_templates, segments};
pub use value::ValueTemplate;
pub(crate) use value::{Hole, bounded_bytes, parse_rendered};

/// Compiled template string.
#[derive(Debug)]
pub struct Template(Box<Inner>);

#[derive(Debug)]
struct Inner {
    /// Text in the definition, for messages.
    origin: Slice,
    /// Path of the field in its task. Shared, because it is the same for many tasks.
    field: Arc<str>,
    parts: TemplateParts,
}

#[derive(Debug)]
pub(crate) enum TemplateParts {
    /// A single expression without other text: the value keeps its type.
    Whole(Expression),
    Joined(Box<[TemplatePart]>),
}

#[derive(Debug)]
pub(crate) enum TemplatePart {
    Text(Box<str>),
    Expression(Expression),
}

impl Template {
    pub(crate) fn new(origin: Slice, field: Arc<str>, parts: TemplateParts) -> Self {
        Self(Box::new(Inner { origin, field, parts }))
    }

    /// Value, which must be a boolean.
    pub fn boolean(&self, scope: &Scope<'_>) -> Result<bool, RenderError> {
        match &*self.cow(scope, &mut Budget::default())? {
            Value::Bool(truth) => Ok(*truth),
            other => Err(self.error(0, &format!("expected a boolean, found {}", kind(other)))),
        }
    }

    /// Value as text: a string unchanged, anything else as JSON.
    pub fn text(&self, scope: &Scope<'_>) -> Result<String, RenderError> {
        self.text_within(scope, &mut Budget::default())
    }

    pub(crate) fn text_within(&self, scope: &Scope<'_>, budget: &mut Budget) -> Result<String, RenderError> {
        let mut text = String::new();
        match &self.0.parts {
            TemplateParts::Whole(expression) => match self.evaluate(0, expression, scope, budget)? {
                Cow::Owned(Value::String(whole)) if whole.len() <= limits::RENDERED_BYTES_MAX => text = whole,
                value => write_text(&value, &mut text).map_err(|failure| self.error(0, &failure))?,
            },
            TemplateParts::Joined(parts) => self.join(parts, scope, budget, &mut text)?,
        }
        Ok(text)
    }

    /// Value of any type.
    pub fn value(&self, scope: &Scope<'_>) -> Result<Value, RenderError> {
        self.bounded_value(scope, limits::RENDERED_BYTES_MAX)
    }

    pub(crate) fn bounded_value(&self, scope: &Scope<'_>, bytes_max: usize) -> Result<Value, RenderError> {
        let value = self.cow(scope, &mut Budget::default())?;
        bounded_bytes(&value, bytes_max).map_err(|failure| self.error(0, &failure))?;
        Ok(value.into_owned())
    }

    /// Value, borrowed from the scope where possible.
    pub(crate) fn cow<'a>(&'a self, scope: &'a Scope<'a>, budget: &mut Budget) -> Result<Cow<'a, Value>, RenderError> {
        match &self.0.parts {
            TemplateParts::Whole(expression) => self.evaluate(0, expression, scope, budget),
            TemplateParts::Joined(parts) => {
                let mut text = String::new();
                self.join(parts, scope, budget, &mut text)?;
                Ok(Cow::Owned(Value::String(text)))
            }
        }
    }

    pub(crate) fn field(&self) -> &Arc<str> {
        &self.0.field
    }

    fn join(
        &self,
        parts: &[TemplatePart],
        scope: &Scope<'_>,
        budget: &mut Budget,
        text: &mut String,
    ) -> Result<(), RenderError> {
        let mut at = 0;
        for part in parts {
            match part {
                TemplatePart::Text(part) => text.push_str(part),
                TemplatePart::Expression(expression) => {
                    let value = self.evaluate(at, expression, scope, budget)?;
                    write_text(&value, text).map_err(|failure| self.error(at, &failure))?;
                    at += 1;
                }
            }
        }
        if text.len() > limits::RENDERED_BYTES_MAX {
            return Err(self.error(at, &format!("the text is larger than {} bytes", limits::RENDERED_BYTES_MAX)));
        }
        Ok(())
    }

    fn evaluate<'a>(
        &self,
        at: usize,
        expression: &'a Expression,
        scope: &'a Scope<'a>,
        budget: &mut Budget,
    ) -> Result<Cow<'a, Value>, RenderError> {
        Evaluation::new(scope, budget).evaluate(expression).map_err(|failure| self.error(at, &failure))
    }

    /// Error with the text of the failed expression, which is taken from the definition.
    fn error(&self, at: usize, failure: &Failure) -> RenderError {
        let text: String = serde_json::from_slice(self.0.origin.as_bytes()).unwrap_or_default();
        let expression = segments(&text).ok().and_then(|segments| {
            let expressions = segments.iter().filter_map(|segment| match segment {
                Segment::Expression(expression) => Some(expression.trim().to_owned()),
                Segment::Text(_) => None,
            });
            expressions.into_iter().nth(at)
        });
        let message = match expression {
            Some(expression) => format!("`${{{expression}}}`: {failure}"),
            None => failure.clone(),
        };
        RenderError { field: self.0.field.to_string(), message }
    }

    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let (whole, parts) = match &self.0.parts {
            TemplateParts::Whole(expression) => (Some(expression), &[][..]),
            TemplateParts::Joined(parts) => (None, &**parts),
        };
        whole.into_iter().chain(parts.iter().filter_map(|part| match part {
            TemplatePart::Expression(expression) => Some(expression),
            TemplatePart::Text(_) => None,
        }))
    }
}
