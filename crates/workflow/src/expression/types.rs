//! What is known of the types of values before there are any.

use super::parse::{Names, Wrong};
use super::{Base, Chain, Expression, Operator, Path, Step};
use crate::plan::Kind;

/// The type of a value, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Unknown,
    Null,
    Boolean,
    Integer,
    Number,
    Text,
    List,
    Object,
}

impl Type {
    /// In words for a message.
    pub fn shown(self) -> &'static str {
        match self {
            Self::Unknown => "anything",
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }

    /// Whether a value of this type could be one of the other.
    pub fn may_be(self, other: Self) -> bool {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => true,
            (Self::Integer, Self::Number) | (Self::Number, Self::Integer) => true,
            (one, other) => one == other,
        }
    }

    fn is_number(self) -> bool {
        self.may_be(Self::Number)
    }

    /// What is known of a value that is one of the two.
    fn either(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Integer, Self::Number) | (Self::Number, Self::Integer) => Self::Number,
            _ => Self::Unknown,
        }
    }
}

impl From<Kind> for Type {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::String => Self::Text,
            Kind::Integer => Self::Integer,
            Kind::Number => Self::Number,
            Kind::Boolean => Self::Boolean,
            Kind::List => Self::List,
            Kind::Object => Self::Object,
            Kind::Any => Self::Unknown,
        }
    }
}

/// The type of an expression; refuses what can never work.
pub(super) fn check(expression: &Expression, names: &dyn Names) -> Result<Type, Wrong> {
    match expression {
        Expression::Null => Ok(Type::Null),
        Expression::Bool(_) => Ok(Type::Boolean),
        Expression::Number(number) => Ok(if number.is_f64() { Type::Number } else { Type::Integer }),
        Expression::Text(_) => Ok(Type::Text),
        Expression::List(elements) => {
            elements.iter().try_for_each(|element| check(element, names).map(drop))?;
            Ok(Type::List)
        }
        Expression::Path(path) => check_path(path, names),
        Expression::Not(inner) => expect(check(inner, names)?, Type::Boolean, "`!` takes").map(|()| Type::Boolean),
        Expression::Negate(inner) => {
            let inner = check(inner, names)?;
            expect(inner, Type::Number, "`-` takes")?;
            Ok(if inner == Type::Integer { Type::Integer } else { Type::Number })
        }
        Expression::Chain(chain) => check_chain(chain, names),
        Expression::Choose(parts) => {
            let [condition, then, other] = &**parts;
            expect(check(condition, names)?, Type::Boolean, "the condition before `?` must be")?;
            Ok(check(then, names)?.either(check(other, names)?))
        }
        Expression::Call(function, arguments) => {
            let types = arguments.iter().map(|argument| check(argument, names)).collect::<Result<Vec<_>, _>>()?;
            function.check(&types)
        }
    }
}

fn expect(found: Type, wanted: Type, what: &str) -> Result<(), Wrong> {
    if found.may_be(wanted) {
        return Ok(());
    }
    Err(Wrong::new(format!("{what} {}, not {}", wanted.shown(), found.shown())))
}

fn check_path(path: &Path, names: &dyn Names) -> Result<Type, Wrong> {
    let mut steps = path.steps.iter();
    let mut current = match &path.base {
        Base::Inputs => match steps.next() {
            Some(Step::Member(name)) => names.input(name).map_or(Type::Unknown, Type::from),
            Some(Step::Element(at)) => {
                let at = check(at, names)?;
                expect(at, Type::Text, "the name of an input is")?;
                Type::Unknown
            }
            None => Type::Object,
        },
        Base::Result(_) | Base::Item | Base::Undone => Type::Unknown,
        Base::Index => Type::Integer,
        Base::State(_) | Base::WorkflowId | Base::WorkflowName => Type::Text,
        // Null without a schedule.
        Base::ScheduleTime => Type::Unknown,
        Base::Other(value) => check(value, names)?,
    };
    for step in steps {
        current = check_step(current, step, names)?;
    }
    Ok(current)
}

fn check_step(value: Type, step: &Step, names: &dyn Names) -> Result<Type, Wrong> {
    match step {
        Step::Member(name) => match value {
            Type::Unknown | Type::Object | Type::Null => Ok(Type::Unknown),
            Type::Boolean | Type::Integer | Type::Number | Type::Text | Type::List => {
                Err(Wrong::new(format!("there is no `{name}` in {}", value.shown())))
            }
        },
        Step::Element(at) => {
            let at = check(at, names)?;
            let fits = match value {
                Type::Unknown | Type::Null => at.may_be(Type::Integer) || at.may_be(Type::Text),
                Type::List => at.may_be(Type::Integer),
                Type::Object => at.may_be(Type::Text),
                Type::Boolean | Type::Integer | Type::Number | Type::Text => false,
            };
            if fits {
                return Ok(Type::Unknown);
            }
            Err(Wrong::new(format!("{} cannot be asked for `[…]` with {}", value.shown(), at.shown())))
        }
    }
}

fn check_chain(chain: &Chain, names: &dyn Names) -> Result<Type, Wrong> {
    let mut left = check(&chain.first, names)?;
    for (operator, right) in &chain.rest {
        left = operate(*operator, left, check(right, names)?)?;
    }
    Ok(left)
}

fn operate(operator: Operator, left: Type, right: Type) -> Result<Type, Wrong> {
    let refused = || {
        let message = format!("`{}` does not work between {} and {}", operator.as_str(), left.shown(), right.shown());
        Wrong::new(message)
    };
    let both = |wanted: Type| left.may_be(wanted) && right.may_be(wanted);
    match operator {
        Operator::Add => {
            if both(Type::Number) {
                Ok(sum(left, right))
            } else if both(Type::Text) {
                Ok(Type::Text)
            } else if both(Type::List) {
                Ok(Type::List)
            } else {
                Err(refused())
            }
        }
        Operator::Subtract | Operator::Multiply | Operator::Remainder => {
            if left.is_number() && right.is_number() {
                Ok(arithmetic(left, right))
            } else {
                Err(refused())
            }
        }
        Operator::Divide => {
            if left.is_number() && right.is_number() {
                Ok(Type::Number)
            } else {
                Err(refused())
            }
        }
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            if both(Type::Number) || both(Type::Text) { Ok(Type::Boolean) } else { Err(refused()) }
        }
        Operator::Equal | Operator::NotEqual => {
            if left.may_be(right) || left == Type::Null || right == Type::Null {
                return Ok(Type::Boolean);
            }
            Err(Wrong::new(format!("{} never equals {}", left.shown(), right.shown())))
        }
        Operator::And | Operator::Or => {
            if both(Type::Boolean) {
                Ok(Type::Boolean)
            } else {
                Err(refused())
            }
        }
        Operator::OrElse => Ok(match left {
            Type::Null => right,
            other => other.either(right),
        }),
    }
}

/// Of what might be numbers, but also texts or lists.
fn sum(left: Type, right: Type) -> Type {
    match (left, right) {
        (Type::Unknown, Type::Unknown) => Type::Unknown,
        (one, other) => arithmetic(one, other),
    }
}

fn arithmetic(left: Type, right: Type) -> Type {
    match (left, right) {
        (Type::Integer, Type::Integer) => Type::Integer,
        _ => Type::Number,
    }
}
