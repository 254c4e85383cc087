//! Static type check of expressions.

use super::parse::{Names, TemplateError};
use super::{Base, Chain, Expression, Operator, PathExpression, Step};
use crate::plan::InputType;

/// Type of a value, as far as it is known before evaluation.
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
    /// With its article, for messages.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Unknown => "any value",
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }

    /// Whether a value of this type could have the other type.
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

    /// Common type of two alternatives.
    fn either(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Integer, Self::Number) | (Self::Number, Self::Integer) => Self::Number,
            _ => Self::Unknown,
        }
    }
}

impl From<InputType> for Type {
    fn from(kind: InputType) -> Self {
        match kind {
            InputType::String => Self::Text,
            InputType::Integer => Self::Integer,
            InputType::Number => Self::Number,
            InputType::Boolean => Self::Boolean,
            InputType::List => Self::List,
            InputType::Object => Self::Object,
            InputType::Any => Self::Unknown,
        }
    }
}

/// Returns the type of an expression; refuses operations that always fail.
pub(super) fn check(expression: &Expression, names: &dyn Names) -> Result<Type, TemplateError> {
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
        Expression::Conditional(parts) => {
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

fn expect(found: Type, wanted: Type, what: &str) -> Result<(), TemplateError> {
    if found.may_be(wanted) {
        return Ok(());
    }
    Err(TemplateError::new(format!("{what} {}, not {}", wanted.describe(), found.describe())))
}

fn check_path(path: &PathExpression, names: &dyn Names) -> Result<Type, TemplateError> {
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
        Base::Result(_) | Base::Item | Base::CompensatedResult => Type::Unknown,
        Base::Index => Type::Integer,
        Base::State(_) | Base::WorkflowId | Base::WorkflowName => Type::Text,
        // Null without a schedule, else a string.
        Base::ScheduleTime => Type::Unknown,
        Base::Other(value) => check(value, names)?,
    };
    for step in steps {
        current = check_step(current, step, names)?;
    }
    Ok(current)
}

fn check_step(value: Type, step: &Step, names: &dyn Names) -> Result<Type, TemplateError> {
    match step {
        Step::Member(name) => match value {
            Type::Unknown | Type::Object | Type::Null => Ok(Type::Unknown),
            Type::Boolean | Type::Integer | Type::Number | Type::Text | Type::List => {
                Err(TemplateError::new(format!("there is no `{name}` in {}", value.describe())))
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
            Err(TemplateError::new(format!("{} cannot be indexed with {}", value.describe(), at.describe())))
        }
    }
}

fn check_chain(chain: &Chain, names: &dyn Names) -> Result<Type, TemplateError> {
    let mut left = check(&chain.first, names)?;
    for (operator, right) in &chain.rest {
        left = operate(*operator, left, check(right, names)?)?;
    }
    Ok(left)
}

fn operate(operator: Operator, left: Type, right: Type) -> Result<Type, TemplateError> {
    let refused = || {
        let message =
            format!("`{}` does not work between {} and {}", operator.as_str(), left.describe(), right.describe());
        TemplateError::new(message)
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
            Err(TemplateError::new(format!("{} never equals {}", left.describe(), right.describe())))
        }
        Operator::And | Operator::Or => {
            if both(Type::Boolean) {
                Ok(Type::Boolean)
            } else {
                Err(refused())
            }
        }
        Operator::Coalesce => Ok(match left {
            Type::Null => right,
            other => other.either(right),
        }),
    }
}

/// Type of `+`, whose operands may also be strings or lists.
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
