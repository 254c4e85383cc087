//! Parser of expressions. Resolves names.

use super::lex::{Lexer, Token};
use super::types::{self, Type};
use super::{Base, Chain, Expression, Function, Operator, PathExpression, Step};
use crate::diagnostic::{closest, code};
use crate::limits;
use crate::plan::InputType;

/// Names that an expression can refer to.
pub(crate) trait Names {
    fn input(&self, name: &str) -> Option<InputType>;
    fn task(&self, name: &str) -> Option<u32>;
    /// All inputs, for suggestions.
    fn inputs(&self) -> Box<dyn Iterator<Item = &str> + '_>;
    /// All tasks, for suggestions.
    fn tasks(&self) -> Box<dyn Iterator<Item = &str> + '_>;
    /// Whether `item` and `index` exist.
    fn has_item(&self) -> bool;
    /// Whether `result` exists.
    fn has_result(&self) -> bool;
}

/// Error in a template or in a reference to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemplateError {
    pub code: &'static str,
    pub message: String,
    pub suggestion: Option<String>,
}

impl TemplateError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { code: code::INVALID_TEMPLATE, message: message.into(), suggestion: None }
    }

    pub fn with_suggestion(message: impl Into<String>, suggestion: Option<String>) -> Self {
        Self { suggestion, ..Self::new(message) }
    }
}

/// Parses an expression and returns it with its type, as far as it is known.
pub(crate) fn parse(text: &str, names: &dyn Names) -> Result<(Expression, Type), TemplateError> {
    if text.len() > limits::EXPRESSION_BYTES_MAX {
        let message =
            format!("the expression has {} bytes: at most {} are allowed", text.len(), limits::EXPRESSION_BYTES_MAX);
        return Err(TemplateError { code: code::TOO_LARGE, ..TemplateError::new(message) });
    }
    let mut parser = Parser { lexer: Lexer { rest: text }, token: Token::End, names, depth: 0 };
    parser.advance()?;
    if parser.token == Token::End {
        return Err(TemplateError::new("the expression is empty"));
    }
    let expression = parser.expression()?;
    if parser.token != Token::End {
        return Err(TemplateError::new(format!("unexpected {} after the expression", parser.token.describe())));
    }
    let kind = types::check(&expression, names)?;
    Ok((expression, kind))
}

struct Parser<'a, 'n> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    names: &'n dyn Names,
    depth: usize,
}

impl<'a> Parser<'a, '_> {
    fn advance(&mut self) -> Result<Token<'a>, TemplateError> {
        let next = self.lexer.next().map_err(TemplateError::new)?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn expect(&mut self, token: &Token<'_>, why: &str) -> Result<(), TemplateError> {
        if self.token == *token {
            self.advance().map(drop)
        } else {
            Err(TemplateError::new(format!("{} is missing before {}{why}", token.describe(), self.token.describe())))
        }
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, TemplateError>) -> Result<T, TemplateError> {
        if self.depth >= limits::EXPRESSION_DEPTH_MAX {
            let message = format!("the expression is nested more than {} levels deep", limits::EXPRESSION_DEPTH_MAX);
            return Err(TemplateError { code: code::TOO_LARGE, ..TemplateError::new(message) });
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn expression(&mut self) -> Result<Expression, TemplateError> {
        self.deeper(|parser| {
            let condition = parser.chain(0)?;
            if parser.token != Token::Question {
                return Ok(condition);
            }
            parser.advance()?;
            let then = parser.expression()?;
            parser.expect(&Token::Colon, ": a conditional is `a ? b : c`")?;
            let other = parser.expression()?;
            Ok(Expression::Conditional(Box::new([condition, then, other])))
        })
    }

    fn chain(&mut self, rank: u8) -> Result<Expression, TemplateError> {
        if rank > Operator::Multiply.rank() {
            return self.unary();
        }
        let first = self.chain(rank + 1)?;
        let mut rest = Vec::new();
        while let Token::Operator(operator) = self.token
            && operator.rank() == rank
        {
            if !rest.is_empty() && matches!(rank, 3 | 4) {
                return Err(TemplateError::with_suggestion(
                    "comparisons cannot be chained",
                    Some("combine them: `a < b && b < c`".to_owned()),
                ));
            }
            self.advance()?;
            rest.push((operator, self.chain(rank + 1)?));
        }
        Ok(if rest.is_empty() { first } else { Expression::Chain(Box::new(Chain { first, rest: rest.into() })) })
    }

    fn unary(&mut self) -> Result<Expression, TemplateError> {
        match self.token {
            Token::Not => {
                self.advance()?;
                Ok(Expression::Not(Box::new(self.deeper(Self::unary)?)))
            }
            Token::Operator(Operator::Subtract) => {
                self.advance()?;
                Ok(Expression::Negate(Box::new(self.deeper(Self::unary)?)))
            }
            _ => self.postfix(),
        }
    }

    fn postfix(&mut self) -> Result<Expression, TemplateError> {
        let start = self.primary()?;
        let steps = self.steps()?;
        Ok(match start {
            Start::Base(base) => Expression::Path(Box::new(PathExpression { base, steps })),
            Start::Value(value) if steps.is_empty() => value,
            Start::Value(value) => Expression::Path(Box::new(PathExpression { base: Base::Other(value), steps })),
        })
    }

    fn steps(&mut self) -> Result<Box<[Step]>, TemplateError> {
        let mut steps = Vec::new();
        loop {
            match self.token {
                Token::Dot => {
                    self.advance()?;
                    steps.push(Step::Member(self.member()?.into()));
                }
                Token::OpenList => {
                    self.advance()?;
                    let element = self.expression()?;
                    self.expect(&Token::CloseList, "")?;
                    steps.push(match element {
                        Expression::Text(name) => Step::Member(name),
                        other => Step::Element(other),
                    });
                }
                _ => return Ok(steps.into()),
            }
        }
    }

    fn member(&mut self) -> Result<&'a str, TemplateError> {
        match self.advance()? {
            Token::Name(name) => Ok(name),
            other => Err(TemplateError::with_suggestion(
                format!("expected a name after `.`, found {}", other.describe()),
                Some("write other names and indexes as `[\"name\"]` or `[0]`".to_owned()),
            )),
        }
    }

    fn primary(&mut self) -> Result<Start, TemplateError> {
        Ok(Start::Value(match self.advance()? {
            Token::Number(number) => Expression::Number(number),
            Token::Text(text) => Expression::Text(text.into()),
            Token::Open => {
                let inner = self.expression()?;
                self.expect(&Token::Close, "")?;
                inner
            }
            Token::OpenList => Expression::List(self.list(&Token::CloseList)?),
            Token::Name("true") => Expression::Bool(true),
            Token::Name("false") => Expression::Bool(false),
            Token::Name("null") => Expression::Null,
            Token::Name(name) if self.token == Token::Open => return self.call(name).map(Start::Value),
            Token::Name(name) => return self.base(name).map(Start::Base),
            other => return Err(TemplateError::new(format!("expected a value, found {}", other.describe()))),
        }))
    }

    fn list(&mut self, end: &Token<'_>) -> Result<Box<[Expression]>, TemplateError> {
        let mut elements = Vec::new();
        while self.token != *end {
            elements.push(self.expression()?);
            if self.token == Token::Comma {
                self.advance()?;
            } else if self.token != *end {
                let message = format!("`,` or {} is missing before {}", end.describe(), self.token.describe());
                return Err(TemplateError::new(message));
            }
        }
        self.advance()?;
        Ok(elements.into())
    }

    fn call(&mut self, name: &str) -> Result<Expression, TemplateError> {
        let Some(function) = Function::named(name) else {
            let suggestion = closest(name, Function::ALL.iter().map(|function| function.as_str()));
            let suggestion = suggestion.map(|name| format!("did you mean `{name}`?"));
            return Err(TemplateError::with_suggestion(format!("there is no function `{name}`"), suggestion));
        };
        self.advance()?;
        let arguments = self.list(&Token::Close)?;
        let (least, most) = function.arity();
        if arguments.len() < least || arguments.len() > most {
            let message = format!("`{name}` is called with {} arguments: {}", arguments.len(), function.usage());
            return Err(TemplateError::new(message));
        }
        Ok(Expression::Call(function, arguments))
    }

    fn base(&mut self, name: &str) -> Result<Base, TemplateError> {
        match name {
            "inputs" => {
                self.known_input()?;
                Ok(Base::Inputs)
            }
            "tasks" => self.task(),
            "item" if self.names.has_item() => Ok(Base::Item),
            "index" if self.names.has_item() => Ok(Base::Index),
            "item" | "index" => Err(TemplateError::new(format!(
                "`{name}` is not available here: only the work of a task with `for_each` has it"
            ))),
            "result" if self.names.has_result() => Ok(Base::CompensatedResult),
            "result" => Err(TemplateError::with_suggestion(
                "`result` is not available here: only a `compensation` has it",
                Some("the result of a task is `tasks.name.result`".to_owned()),
            )),
            "workflow" => self.one_of("workflow", &[("id", Base::WorkflowId), ("name", Base::WorkflowName)]),
            "schedule" => self.one_of("schedule", &[("time", Base::ScheduleTime)]),
            other => Err(self.unknown(other)),
        }
    }

    /// Checks that the input named by the next step exists. Does not consume the step.
    fn known_input(&mut self) -> Result<(), TemplateError> {
        let mut ahead = Parser { lexer: Lexer { rest: self.lexer.rest }, token: self.token.clone(), ..*self };
        let name: std::borrow::Cow<'_, str> = match ahead.token {
            Token::Dot => {
                ahead.advance()?;
                ahead.member()?.into()
            }
            Token::OpenList => {
                ahead.advance()?;
                match ahead.advance()? {
                    Token::Text(name) if ahead.token == Token::CloseList => name,
                    _ => return Ok(()),
                }
            }
            _ => return Ok(()),
        };
        if self.names.input(&name).is_some() {
            return Ok(());
        }
        let suggestion = match closest(&name, self.names.inputs()) {
            Some(near) => Some(format!("did you mean `inputs.{near}`?")),
            None => Some(format!("declare it under `inputs`, such as `{name}: string`")),
        };
        Err(TemplateError {
            code: code::UNKNOWN_INPUT,
            message: format!("there is no input `{name}`"),
            suggestion: difference(&name).or(suggestion),
        })
    }

    fn task(&mut self) -> Result<Base, TemplateError> {
        let name: std::borrow::Cow<'_, str> = match self.advance()? {
            Token::Dot => self.member()?.into(),
            Token::OpenList => match self.advance()? {
                Token::Text(name) => {
                    self.expect(&Token::CloseList, "")?;
                    name
                }
                _ => {
                    return Err(TemplateError::new("the name of the task must be a constant: write `tasks[\"name\"]`"));
                }
            },
            _ => {
                return Err(TemplateError::new(
                    "`tasks` is not a value: write `tasks.name.result` or `tasks.name.state`",
                ));
            }
        };
        let Some(task) = self.names.task(&name) else {
            let suggestion = closest(&name, self.names.tasks()).map(|near| format!("did you mean `tasks.{near}`?"));
            return Err(TemplateError {
                code: code::UNKNOWN_TASK,
                message: format!("there is no task `{name}`"),
                suggestion: suggestion.or_else(|| difference(&name)),
            });
        };
        let usage = || TemplateError::new(format!("expected `tasks.{name}.result` or `tasks.{name}.state`"));
        if self.token != Token::Dot {
            return Err(usage());
        }
        self.advance()?;
        match self.member()? {
            "result" => Ok(Base::Result(task)),
            "state" => Ok(Base::State(task)),
            _ => Err(usage()),
        }
    }

    fn one_of(&mut self, name: &str, known: &[(&str, Base)]) -> Result<Base, TemplateError> {
        let all = known.iter().map(|(member, _)| format!("`{name}.{member}`")).collect::<Vec<_>>().join(" or ");
        if self.token != Token::Dot {
            return Err(TemplateError::new(format!("`{name}` is not a value: write {all}")));
        }
        self.advance()?;
        let member = self.member()?;
        let found = known.iter().find(|(known, _)| *known == member).map(|(_, base)| base.clone());
        found.ok_or_else(|| TemplateError::new(format!("there is no `{name}.{member}`: write {all}")))
    }

    fn unknown(&self, name: &str) -> TemplateError {
        const BASES: [&str; 7] = ["inputs", "tasks", "item", "index", "workflow", "schedule", "result"];
        let suggestion = if self.names.input(name).is_some() {
            Some(format!("for the input write `inputs.{name}`"))
        } else if self.names.task(name).is_some() {
            Some(format!("for the result of the task write `tasks.{name}.result`"))
        } else if let Some(near) = closest(name, BASES) {
            Some(format!("did you mean `{near}`?"))
        } else {
            difference(name).or_else(|| Some(format!("write a string in quotes: `\"{name}\"`")))
        };
        TemplateError::with_suggestion(format!("unknown name `{name}`"), suggestion)
    }
}

enum Start {
    Base(Base),
    Value(Expression),
}

/// Suggestion for `a-b`, which is one name, not a difference.
fn difference(name: &str) -> Option<String> {
    let (left, right) = name.split_once('-')?;
    Some(format!("for a difference put spaces around the minus: `{left} - {right}`"))
}
