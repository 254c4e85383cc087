//! Arithmetic: exact for integers that fit into 64 bits, else in floating point.

use std::cmp::Ordering;

use serde_json::Number;

use super::Operator;

#[derive(Debug, Clone, Copy)]
enum Numeric {
    Integer(i128),
    Float(f64),
}

fn numeric(number: &Number) -> Numeric {
    if let Some(integer) = number.as_i64() {
        Numeric::Integer(integer.into())
    } else if let Some(integer) = number.as_u64() {
        Numeric::Integer(integer.into())
    } else {
        Numeric::Float(number.as_f64().unwrap_or(f64::NAN))
    }
}

fn float(number: Numeric) -> f64 {
    match number {
        Numeric::Integer(integer) => integer as f64,
        Numeric::Float(float) => float,
    }
}

fn integer(result: i128) -> Result<Number, String> {
    if let Ok(result) = i64::try_from(result) {
        return Ok(result.into());
    }
    u64::try_from(result).map(Number::from).map_err(|_| format!("{result} is too large for an integer"))
}

fn finite(result: f64) -> Result<Number, String> {
    Number::from_f64(result).ok_or_else(|| "the result is too large for a number".to_owned())
}

/// Evaluates `+ - * / %`.
pub(super) fn operate(operator: Operator, left: &Number, right: &Number) -> Result<Number, String> {
    let (left, right) = (numeric(left), numeric(right));
    let by_zero = matches!(operator, Operator::Divide | Operator::Remainder) && float(right) == 0.0;
    if by_zero {
        return Err("division by zero".to_owned());
    }
    if let (Numeric::Integer(left), Numeric::Integer(right)) = (left, right) {
        // The product of two 64-bit numbers fits into 128 bits.
        match operator {
            Operator::Add => return integer(left + right),
            Operator::Subtract => return integer(left - right),
            Operator::Multiply => return integer(left * right),
            Operator::Remainder => return integer(left % right),
            Operator::Divide if left % right == 0 => return integer(left / right),
            _ => {}
        }
    }
    let (left, right) = (float(left), float(right));
    finite(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Remainder => left % right,
        Operator::Less
        | Operator::LessOrEqual
        | Operator::Greater
        | Operator::GreaterOrEqual
        | Operator::Equal
        | Operator::NotEqual
        | Operator::And
        | Operator::Or
        | Operator::Coalesce => return Err(format!("`{}` is not an arithmetic operator", operator.as_str())),
    })
}

pub(super) fn negate(number: &Number) -> Result<Number, String> {
    match numeric(number) {
        Numeric::Integer(value) => integer(-value),
        Numeric::Float(value) => finite(-value),
    }
}

pub(super) fn compare(left: &Number, right: &Number) -> Ordering {
    match (numeric(left), numeric(right)) {
        (Numeric::Integer(left), Numeric::Integer(right)) => left.cmp(&right),
        // JSON numbers are never NaN.
        (left, right) => float(left).partial_cmp(&float(right)).unwrap_or(Ordering::Equal),
    }
}

/// Rounds to `digits` decimal places; with 0, to an integer.
pub(super) fn round(number: &Number, digits: u32) -> Result<Number, String> {
    let value = match numeric(number) {
        Numeric::Integer(value) => return integer(value),
        Numeric::Float(value) => value,
    };
    if digits > 0 {
        let factor = 10f64.powi(digits.min(15).cast_signed());
        let rounded = (value * factor).round() / factor;
        return finite(if rounded.is_finite() { rounded } else { value });
    }
    let rounded = value.round();
    if rounded.abs() < 9.0e18 { Ok((rounded as i64).into()) } else { finite(rounded) }
}

pub(super) fn as_index(number: &Number) -> Option<usize> {
    match numeric(number) {
        Numeric::Integer(value) => usize::try_from(value).ok(),
        Numeric::Float(_) => None,
    }
}
