//! Expressions: the language inside `${…}`.

mod evaluate;
mod functions;
mod lex;
mod number;
mod parse;
mod types;

use serde_json::Number;

pub(crate) use evaluate::{Budget, Evaluation, Failure, kind, write_text};
pub(crate) use functions::Function;
pub(crate) use parse::{Names, TemplateError, parse};
pub(crate) use types::Type;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expression {
    Null,
    Bool(bool),
    Number(Number),
    Text(Box<str>),
    List(Box<[Expression]>),
    Path(Box<PathExpression>),
    Not(Box<Expression>),
    Negate(Box<Expression>),
    /// Operators of one precedence, from left to right. Flat, so that a long sum is not a deep tree.
    Chain(Box<Chain>),
    /// Condition, then, else.
    Conditional(Box<[Expression; 3]>),
    Call(Function, Box<[Expression]>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PathExpression {
    pub base: Base,
    pub steps: Box<[Step]>,
}

/// First part of a path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Base {
    Inputs,
    Result(u32),
    State(u32),
    Item,
    Index,
    WorkflowId,
    WorkflowName,
    ScheduleTime,
    /// `result`, the result of the compensated task.
    CompensatedResult,
    /// A value without a name, such as the list in `[1, 2][0]`.
    Other(Expression),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Member(Box<str>),
    Element(Expression),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chain {
    pub first: Expression,
    pub rest: Box<[(Operator, Expression)]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Multiply,
    Divide,
    Remainder,
    Add,
    Subtract,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    And,
    Or,
    Coalesce,
}

impl Operator {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::And => "&&",
            Self::Or => "||",
            Self::Coalesce => "??",
        }
    }

    /// Precedence; operators with a higher rank bind tighter.
    pub fn rank(self) -> u8 {
        match self {
            Self::Coalesce => 0,
            Self::Or => 1,
            Self::And => 2,
            Self::Equal | Self::NotEqual => 3,
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => 4,
            Self::Add | Self::Subtract => 5,
            Self::Multiply | Self::Divide | Self::Remainder => 6,
        }
    }
}

impl Expression {
    /// Visits the referenced tasks; the flag tells whether the result is read, or only the state.
    pub fn for_each_reference(&self, visit: &mut dyn FnMut(u32, bool)) {
        self.for_each_base(&mut |base| match base {
            Base::Result(task) => visit(*task, true),
            Base::State(task) => visit(*task, false),
            Base::Inputs
            | Base::Item
            | Base::Index
            | Base::WorkflowId
            | Base::WorkflowName
            | Base::ScheduleTime
            | Base::CompensatedResult
            | Base::Other(_) => {}
        });
    }

    /// Whether it reads `result`, the result of the compensated task.
    pub fn reads_own_result(&self) -> bool {
        let mut reads = false;
        self.for_each_base(&mut |base| reads |= *base == Base::CompensatedResult);
        reads
    }

    fn for_each_base(&self, visit: &mut dyn FnMut(&Base)) {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => {}
            Self::List(elements) | Self::Call(_, elements) => {
                elements.iter().for_each(|element| element.for_each_base(visit))
            }
            Self::Path(path) => {
                visit(&path.base);
                if let Base::Other(value) = &path.base {
                    value.for_each_base(visit);
                }
                for step in &path.steps {
                    if let Step::Element(at) = step {
                        at.for_each_base(visit);
                    }
                }
            }
            Self::Not(inner) | Self::Negate(inner) => inner.for_each_base(visit),
            Self::Chain(chain) => {
                chain.first.for_each_base(visit);
                chain.rest.iter().for_each(|(_, right)| right.for_each_base(visit));
            }
            Self::Conditional(parts) => parts.iter().for_each(|part| part.for_each_base(visit)),
        }
    }
}
