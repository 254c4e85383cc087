//! Texts with `${…}` in them.

mod pieces;
mod value;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::expression::{Budget, Evaluation, Expression, Failure, kind, write_text};
use crate::limits;
use crate::scope::{RenderError, Scope};
use crate::slice::Slice;

pub(crate) use pieces::{Piece, has_templates, pieces};
pub use value::ValueTemplate;
pub(crate) use value::{Hole, bounded_bytes, parse_rendered};

/// One text, compiled.
#[derive(Debug)]
pub struct Template(Box<Inner>);

#[derive(Debug)]
struct Inner {
    /// The text as it stands in the definition, for messages.
    origin: Slice,
    /// Where it stands in its task. Shared: many tasks look alike.
    field: Arc<str>,
    parts: Parts,
}

#[derive(Debug)]
pub(crate) enum Parts {
    /// One expression and nothing beside it: the value keeps its type.
    Whole(Expression),
    Joined(Box<[Part]>),
}

#[derive(Debug)]
pub(crate) enum Part {
    Text(Box<str>),
    Expression(Expression),
}

impl Template {
    pub(crate) fn new(origin: Slice, field: Arc<str>, parts: Parts) -> Self {
        Self(Box::new(Inner { origin, field, parts }))
    }

    /// Its value, which must be a boolean.
    pub fn truth(&self, scope: &Scope<'_>) -> Result<bool, RenderError> {
        match &*self.cow(scope, &mut Budget::default())? {
            Value::Bool(truth) => Ok(*truth),
            other => Err(self.error(0, &format!("a boolean is needed, not {}", kind(other)))),
        }
    }

    /// Its value as text: a string as it is, anything else as JSON.
    pub fn text(&self, scope: &Scope<'_>) -> Result<String, RenderError> {
        self.text_within(scope, &mut Budget::default())
    }

    pub(crate) fn text_within(&self, scope: &Scope<'_>, budget: &mut Budget) -> Result<String, RenderError> {
        let mut text = String::new();
        match &self.0.parts {
            Parts::Whole(expression) => match self.evaluate(0, expression, scope, budget)? {
                Cow::Owned(Value::String(whole)) if whole.len() <= limits::RENDERED_BYTES_MAX => text = whole,
                value => write_text(&value, &mut text).map_err(|failure| self.error(0, &failure))?,
            },
            Parts::Joined(parts) => self.join(parts, scope, budget, &mut text)?,
        }
        Ok(text)
    }

    /// Its value.
    pub fn value(&self, scope: &Scope<'_>) -> Result<Value, RenderError> {
        self.bounded_value(scope, limits::RENDERED_BYTES_MAX)
    }

    pub(crate) fn bounded_value(&self, scope: &Scope<'_>, bytes_max: usize) -> Result<Value, RenderError> {
        let value = self.cow(scope, &mut Budget::default())?;
        bounded_bytes(&value, bytes_max).map_err(|failure| self.error(0, &failure))?;
        Ok(value.into_owned())
    }

    /// Its value without a copy where it stands in the scope.
    pub(crate) fn cow<'a>(&'a self, scope: &'a Scope<'a>, budget: &mut Budget) -> Result<Cow<'a, Value>, RenderError> {
        match &self.0.parts {
            Parts::Whole(expression) => self.evaluate(0, expression, scope, budget),
            Parts::Joined(parts) => {
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
        parts: &[Part],
        scope: &Scope<'_>,
        budget: &mut Budget,
        text: &mut String,
    ) -> Result<(), RenderError> {
        let mut at = 0;
        for part in parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Expression(expression) => {
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

    /// Names the expression: its text is found again where the definition is kept.
    fn error(&self, at: usize, failure: &Failure) -> RenderError {
        let text: String = serde_json::from_slice(self.0.origin.as_bytes()).unwrap_or_default();
        let expression = pieces(&text).ok().and_then(|pieces| {
            let expressions = pieces.iter().filter_map(|piece| match piece {
                Piece::Expression(expression) => Some(expression.trim().to_owned()),
                Piece::Text(_) => None,
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
            Parts::Whole(expression) => (Some(expression), &[][..]),
            Parts::Joined(parts) => (None, &**parts),
        };
        whole.into_iter().chain(parts.iter().filter_map(|part| match part {
            Part::Expression(expression) => Some(expression),
            Part::Text(_) => None,
        }))
    }
}
