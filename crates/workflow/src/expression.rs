//! Expressions: what stands inside of `${…}`.

mod evaluate;
mod functions;
mod lex;
mod number;
mod parse;
mod types;

use serde_json::Number;

pub(crate) use evaluate::{Budget, Evaluation, Failure, kind, write_text};
pub(crate) use functions::Function;
pub(crate) use parse::{Names, Wrong, parse};
pub(crate) use types::Type;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expression {
    Null,
    Bool(bool),
    Number(Number),
    Text(Box<str>),
    List(Box<[Expression]>),
    Path(Box<Path>),
    Not(Box<Expression>),
    Negate(Box<Expression>),
    /// Operators of one rank, from left to right. Flat, so that a long sum is not a deep tree.
    Chain(Box<Chain>),
    /// Condition, then, else.
    Choose(Box<[Expression; 3]>),
    Call(Function, Box<[Expression]>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Path {
    pub base: Base,
    pub steps: Box<[Step]>,
}

/// Where a path begins.
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
    /// `result`: of what is compensated.
    Undone,
    /// A value that is not a name, like the list in `[1, 2][0]`.
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
    OrElse,
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
            Self::OrElse => "??",
        }
    }

    /// What binds tighter has the higher rank.
    pub fn rank(self) -> u8 {
        match self {
            Self::OrElse => 0,
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
    /// Tells every task that it refers to, and whether it reads the result or only the state.
    pub fn references(&self, tell: &mut dyn FnMut(u32, bool)) {
        self.bases(&mut |base| match base {
            Base::Result(task) => tell(*task, true),
            Base::State(task) => tell(*task, false),
            Base::Inputs
            | Base::Item
            | Base::Index
            | Base::WorkflowId
            | Base::WorkflowName
            | Base::ScheduleTime
            | Base::Undone
            | Base::Other(_) => {}
        });
    }

    /// Whether it reads the `result` of what is compensated.
    pub fn reads_own_result(&self) -> bool {
        let mut reads = false;
        self.bases(&mut |base| reads |= *base == Base::Undone);
        reads
    }

    fn bases(&self, tell: &mut dyn FnMut(&Base)) {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => {}
            Self::List(elements) | Self::Call(_, elements) => elements.iter().for_each(|element| element.bases(tell)),
            Self::Path(path) => {
                tell(&path.base);
                if let Base::Other(value) = &path.base {
                    value.bases(tell);
                }
                for step in &path.steps {
                    if let Step::Element(at) = step {
                        at.bases(tell);
                    }
                }
            }
            Self::Not(inner) | Self::Negate(inner) => inner.bases(tell),
            Self::Chain(chain) => {
                chain.first.bases(tell);
                chain.rest.iter().for_each(|(_, right)| right.bases(tell));
            }
            Self::Choose(parts) => parts.iter().for_each(|part| part.bases(tell)),
        }
    }
}
