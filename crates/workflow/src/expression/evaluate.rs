//! Evaluates expressions.
//!
//! Values are borrowed from the scope where possible. The language has no loops, so only work on large values needs a
//! bound: every operation charges a budget for the bytes and elements that it processes.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Base, Chain, Expression, Operator, PathExpression, Step, number};
use crate::limits;
use crate::scope::Scope;

/// Error message of an evaluation.
pub(crate) type Failure = String;

type Evaluated<'a> = Result<Cow<'a, Value>, Failure>;

/// Remaining evaluation steps, shared by all expressions of one rendering.
#[derive(Debug)]
pub(crate) struct Budget {
    steps_left: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { steps_left: limits::EVALUATION_STEPS_MAX }
    }
}

/// Evaluation of one expression.
pub(crate) struct Evaluation<'a, 'b> {
    scope: &'a Scope<'a>,
    budget: &'b mut Budget,
}

/// Type of a value with its article, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Appends a value to a text: a string unchanged, anything else as JSON.
pub(crate) fn write_text(value: &Value, text: &mut String) -> Result<(), Failure> {
    match value {
        Value::String(string) => text.push_str(string),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let mut bytes = BoundedWriter { bytes: std::mem::take(text).into_bytes() };
            let written = serde_json::to_writer(&mut bytes, value);
            // Always UTF-8: serde writes whole characters after a valid string.
            *text = String::from_utf8(bytes.bytes).map_err(|_| "the text is not UTF-8".to_owned())?;
            written.map_err(|_| too_large())?;
        }
    }
    if text.len() > limits::RENDERED_BYTES_MAX { Err(too_large()) } else { Ok(()) }
}

fn too_large() -> Failure {
    format!("the text is larger than {} bytes", limits::RENDERED_BYTES_MAX)
}

/// Refuses more bytes than a rendered value may have.
struct BoundedWriter {
    bytes: Vec<u8>,
}

impl std::io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > limits::RENDERED_BYTES_MAX {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a, 'b> Evaluation<'a, 'b> {
    pub fn new(scope: &'a Scope<'a>, budget: &'b mut Budget) -> Self {
        Self { scope, budget }
    }

    /// Deducts steps from the budget.
    pub fn charge(&mut self, steps: usize) -> Result<(), Failure> {
        match self.budget.steps_left.checked_sub(steps as u64) {
            Some(left) => {
                self.budget.steps_left = left;
                Ok(())
            }
            None => Err(format!("the evaluation takes more than {} steps", limits::EVALUATION_STEPS_MAX)),
        }
    }

    pub fn charge_bytes(&mut self, bytes: usize) -> Result<(), Failure> {
        self.charge(1 + bytes / 64)
    }

    pub fn charge_elements(&mut self, elements: usize) -> Result<(), Failure> {
        self.charge(1 + elements / 8)
    }

    /// Copies a borrowed value, charged by its size.
    pub fn detach(&mut self, value: Cow<'a, Value>) -> Result<Value, Failure> {
        match value {
            Cow::Owned(value) => Ok(value),
            Cow::Borrowed(value) => self.copy(value),
        }
    }

    pub fn copy(&mut self, value: &Value) -> Result<Value, Failure> {
        Ok(match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
            Value::String(text) => {
                self.charge(text.len() / 64)?;
                value.clone()
            }
            Value::Array(elements) => {
                self.charge_elements(elements.len())?;
                Value::Array(elements.iter().map(|element| self.copy(element)).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                self.charge_elements(fields.len())?;
                let mut copied = Map::new();
                for (name, value) in fields {
                    copied.insert(name.clone(), self.copy(value)?);
                }
                Value::Object(copied)
            }
        })
    }

    pub fn evaluate(&mut self, expression: &'a Expression) -> Evaluated<'a> {
        self.charge(1)?;
        Ok(match expression {
            Expression::Null => Cow::Owned(Value::Null),
            Expression::Bool(truth) => Cow::Owned(Value::Bool(*truth)),
            Expression::Number(number) => Cow::Owned(Value::Number(number.clone())),
            Expression::Text(text) => Cow::Owned(Value::String(text.to_string())),
            Expression::List(elements) => {
                let mut list = Vec::with_capacity(elements.len());
                for element in elements {
                    let value = self.evaluate(element)?;
                    list.push(self.detach(value)?);
                }
                Cow::Owned(Value::Array(list))
            }
            Expression::Path(path) => return self.path(path),
            Expression::Not(inner) => Cow::Owned(Value::Bool(!self.condition(inner, "`!` takes")?)),
            Expression::Negate(inner) => match &*self.evaluate(inner)? {
                Value::Number(number) => Cow::Owned(Value::Number(number::negate(number)?)),
                other => return Err(format!("`-` takes a number, not {}", kind(other))),
            },
            Expression::Chain(chain) => return self.chain(chain),
            Expression::Conditional(parts) => {
                let [condition, then, other] = &**parts;
                let chosen = if self.condition(condition, "the condition before `?` must be")? { then } else { other };
                return self.evaluate(chosen);
            }
            Expression::Call(function, arguments) => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(self.evaluate(argument)?);
                }
                return function.call(self, values);
            }
        })
    }

    pub fn condition(&mut self, expression: &'a Expression, what: &str) -> Result<bool, Failure> {
        match &*self.evaluate(expression)? {
            Value::Bool(truth) => Ok(*truth),
            other => Err(format!("{what} a boolean, not {}", kind(other))),
        }
    }

    fn path(&mut self, path: &'a PathExpression) -> Evaluated<'a> {
        let text = |text: &str| Cow::Owned(Value::String(text.to_owned()));
        let mut value = match &path.base {
            Base::Inputs => Cow::Borrowed(self.scope.inputs),
            Base::Result(task) => self.scope.tasks.result(*task),
            Base::State(task) => text(self.scope.tasks.state(*task)),
            Base::Item => match self.scope.item {
                Some((item, _)) => Cow::Borrowed(item),
                None => return Err("`item` is not available here".to_owned()),
            },
            Base::Index => match self.scope.item {
                Some((_, index)) => Cow::Owned(Value::from(index)),
                None => return Err("`item` is not available here".to_owned()),
            },
            Base::WorkflowId => Cow::Owned(Value::String(self.scope.workflow.to_string())),
            Base::WorkflowName => text(self.scope.name),
            Base::ScheduleTime => self.scope.schedule.map_or(Cow::Owned(Value::Null), text),
            Base::CompensatedResult => self.scope.result.map_or(Cow::Owned(Value::Null), Cow::Borrowed),
            Base::Other(value) => self.evaluate(value)?,
        };
        for step in &path.steps {
            self.charge(1)?;
            value = match step {
                Step::Member(name) => member(value, name)?,
                Step::Element(at) => {
                    let at = self.evaluate(at)?;
                    element(value, &at)?
                }
            };
        }
        Ok(value)
    }

    fn chain(&mut self, chain: &'a Chain) -> Evaluated<'a> {
        let mut left = self.evaluate(&chain.first)?;
        for (operator, right) in &chain.rest {
            left = match operator {
                Operator::And | Operator::Or => {
                    let decided = *operator == Operator::Or;
                    if boolean_operand(*operator, &left)? == decided {
                        Cow::Owned(Value::Bool(decided))
                    } else {
                        let right = self.evaluate(right)?;
                        Cow::Owned(Value::Bool(boolean_operand(*operator, &right)?))
                    }
                }
                Operator::Coalesce if !left.is_null() => left,
                Operator::Coalesce => self.evaluate(right)?,
                Operator::Multiply
                | Operator::Divide
                | Operator::Remainder
                | Operator::Add
                | Operator::Subtract
                | Operator::Less
                | Operator::LessOrEqual
                | Operator::Greater
                | Operator::GreaterOrEqual
                | Operator::Equal
                | Operator::NotEqual => {
                    let right = self.evaluate(right)?;
                    Cow::Owned(self.operate(*operator, left, right)?)
                }
            };
        }
        Ok(left)
    }

    fn operate(&mut self, operator: Operator, left: Cow<'a, Value>, right: Cow<'a, Value>) -> Result<Value, Failure> {
        match operator {
            Operator::Equal => return Ok(Value::Bool(self.equal(&left, &right)?)),
            Operator::NotEqual => return Ok(Value::Bool(!self.equal(&left, &right)?)),
            Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
                let ordering = match (&*left, &*right) {
                    (Value::Number(left), Value::Number(right)) => number::compare(left, right),
                    (Value::String(left), Value::String(right)) => {
                        self.charge_bytes(left.len().min(right.len()))?;
                        left.cmp(right)
                    }
                    (left, right) => return Err(refused(operator, left, right)),
                };
                return Ok(Value::Bool(match operator {
                    Operator::Less => ordering.is_lt(),
                    Operator::LessOrEqual => ordering.is_le(),
                    Operator::Greater => ordering.is_gt(),
                    _ => ordering.is_ge(),
                }));
            }
            _ => {}
        }
        match (&*left, &*right) {
            (Value::Number(left), Value::Number(right)) => number::operate(operator, left, right).map(Value::Number),
            (Value::String(left), Value::String(right)) if operator == Operator::Add => {
                self.charge_bytes(left.len() + right.len())?;
                if left.len() + right.len() > limits::RENDERED_BYTES_MAX {
                    return Err(too_large());
                }
                Ok(Value::String([left.as_str(), right].concat()))
            }
            (Value::Array(first), Value::Array(second)) if operator == Operator::Add => {
                if first.len() + second.len() > limits::ITEMS_MAX {
                    return Err(format!("the list has more than {} elements", limits::ITEMS_MAX));
                }
                let (mut joined, right) = (self.detach(left)?, self.detach(right)?);
                if let (Value::Array(joined), Value::Array(right)) = (&mut joined, right) {
                    joined.extend(right);
                }
                Ok(joined)
            }
            (left, right) => Err(refused(operator, left, right)),
        }
    }

    /// Numbers are compared by value: 1 equals 1.0.
    pub fn equal(&mut self, left: &Value, right: &Value) -> Result<bool, Failure> {
        Ok(match (left, right) {
            (Value::Number(left), Value::Number(right)) => number::compare(left, right).is_eq(),
            (Value::String(left), Value::String(right)) => {
                self.charge(left.len() / 64)?;
                left == right
            }
            (Value::Array(left), Value::Array(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                self.charge_elements(left.len())?;
                for (left, right) in left.iter().zip(right) {
                    if !self.equal(left, right)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Value::Object(left), Value::Object(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                self.charge_elements(left.len())?;
                for (name, left) in left {
                    match right.get(name) {
                        Some(right) if self.equal(left, right)? => {}
                        Some(_) | None => return Ok(false),
                    }
                }
                true
            }
            (Value::Null, Value::Null) => true,
            (Value::Bool(left), Value::Bool(right)) => left == right,
            _ => false,
        })
    }
}

fn boolean_operand(operator: Operator, value: &Value) -> Result<bool, Failure> {
    match value {
        Value::Bool(truth) => Ok(*truth),
        other => Err(format!("`{}` takes booleans, not {}", operator.as_str(), kind(other))),
    }
}

fn refused(operator: Operator, left: &Value, right: &Value) -> Failure {
    format!("`{}` does not work between {} and {}", operator.as_str(), kind(left), kind(right))
}

fn member<'a>(value: Cow<'a, Value>, name: &str) -> Evaluated<'a> {
    let error = |other: &Value| Err(format!("there is no `{name}` in {}", kind(other)));
    Ok(match value {
        Cow::Borrowed(Value::Object(fields)) => fields.get(name).map_or(Cow::Owned(Value::Null), Cow::Borrowed),
        Cow::Owned(Value::Object(mut fields)) => Cow::Owned(fields.remove(name).unwrap_or_default()),
        Cow::Borrowed(Value::Null) | Cow::Owned(Value::Null) => Cow::Owned(Value::Null),
        Cow::Borrowed(other) => return error(other),
        Cow::Owned(other) => return error(&other),
    })
}

fn element<'a>(value: Cow<'a, Value>, at: &Value) -> Evaluated<'a> {
    match (&*value, at) {
        (Value::Null, Value::Number(_) | Value::String(_)) => Ok(Cow::Owned(Value::Null)),
        (Value::Object(_), Value::String(name)) => member(value, name),
        (Value::Array(elements), Value::Number(at)) => {
            let Some(at) = number::as_index(at).filter(|at| *at < elements.len()) else {
                return Ok(Cow::Owned(Value::Null));
            };
            Ok(match value {
                Cow::Borrowed(Value::Array(elements)) => Cow::Borrowed(&elements[at]),
                Cow::Owned(Value::Array(mut elements)) => Cow::Owned(elements.swap_remove(at)),
                Cow::Borrowed(other) => Cow::Borrowed(other),
                Cow::Owned(other) => Cow::Owned(other),
            })
        }
        (value, at) => Err(format!("{} cannot be indexed with {}", kind(value), kind(at))),
    }
}
