//! Replacements of built-in functions: results are bounded, and the clock is the time of the decision.

use std::cell::Cell;

use anyhow::{Result, bail};
use model::time::Millis;
use regorus::{Engine, Value};

use crate::limits;

thread_local! {
    /// Time of the evaluation on this thread.
    static NOW: Cell<Millis> = const { Cell::new(Millis(0)) };
}

/// Sets the clock for the next evaluation on this thread.
pub(crate) fn set_now(now: Millis) {
    NOW.set(now);
}

/// Replaces the built-in functions.
pub(crate) fn install(engine: &mut Engine) -> Result<()> {
    engine.add_extension("time.now_ns".to_owned(), 0, Box::new(|_: Vec<Value>| Ok(now_ns())))?;
    engine.add_extension("numbers.range".to_owned(), 2, Box::new(|arguments: Vec<Value>| range(&arguments)))?;
    engine.add_extension("numbers.range_step".to_owned(), 3, Box::new(|arguments: Vec<Value>| range(&arguments)))?;
    engine.add_extension("bits.lsh".to_owned(), 2, Box::new(|arguments: Vec<Value>| shift(&arguments)))
}

fn now_ns() -> Value {
    Value::from(u128::from(NOW.get().0) * 1_000_000)
}

/// All numbers from the first to the second argument, up or down. The step is the third argument or 1.
fn range(arguments: &[Value]) -> Result<Value> {
    let integer = |index: usize| match arguments.get(index).map(Value::as_i64) {
        Some(Ok(number)) => Ok(i128::from(number)),
        Some(Err(_)) | None => bail!("the bounds and the step of a range must be integers"),
    };
    let (first, last) = (integer(0)?, integer(1)?);
    let step = if arguments.len() > 2 { integer(2)? } else { 1 };
    if step < 1 {
        bail!("the step of a range must be at least 1");
    }
    let count = (last - first).unsigned_abs() / step.unsigned_abs() + 1;
    if count > u128::from(limits::RANGE_NUMBERS_MAX) {
        bail!("a range of {count} numbers is too long: at most {}", limits::RANGE_NUMBERS_MAX);
    }
    let step = if first <= last { step } else { -step };
    let numbers = std::iter::successors(Some(first), |number| Some(number + step));
    let count = usize::try_from(count).unwrap_or(0);
    Ok(Value::from(numbers.take(count).map(Value::from).collect::<Vec<_>>()))
}

fn shift(arguments: &[Value]) -> Result<Value> {
    let [Value::Number(number), Value::Number(bits)] = arguments else {
        bail!("`bits.lsh` needs two numbers");
    };
    if bits.as_u64().is_none_or(|bits| bits > limits::SHIFT_BITS_MAX) {
        bail!("`bits.lsh` shifts by at most {} bits", limits::SHIFT_BITS_MAX);
    }
    match number.lsh(bits) {
        Some(shifted) => Ok(Value::from(shifted)),
        None => bail!("`bits.lsh` needs integers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(values: &[i64]) -> Vec<Value> {
        values.iter().map(|value| Value::from(*value)).collect()
    }

    #[test]
    fn ranges_go_up_and_down_in_steps() {
        assert_eq!(range(&numbers(&[1, 3])).unwrap(), Value::from(numbers(&[1, 2, 3])));
        assert_eq!(range(&numbers(&[3, 1])).unwrap(), Value::from(numbers(&[3, 2, 1])));
        assert_eq!(range(&numbers(&[0, 7, 3])).unwrap(), Value::from(numbers(&[0, 3, 6])));
        assert_eq!(range(&numbers(&[7, 0, 3])).unwrap(), Value::from(numbers(&[7, 4, 1])));
        assert!(range(&numbers(&[1, 2, 0])).is_err());
        assert!(range(&[Value::from("a"), Value::from(1_u64)]).is_err());
    }

    #[test]
    fn ranges_are_limited_in_length() {
        let max = i64::try_from(limits::RANGE_NUMBERS_MAX).unwrap();
        assert_eq!(range(&numbers(&[1, max])).unwrap().as_array().unwrap().len(), limits::RANGE_NUMBERS_MAX as usize);
        assert!(range(&numbers(&[0, max])).unwrap_err().to_string().contains("too long"));
        assert!(range(&numbers(&[i64::MIN, i64::MAX])).is_err());
    }

    #[test]
    fn shifts_are_limited() {
        assert_eq!(shift(&numbers(&[3, 2])).unwrap(), Value::from(12_u64));
        assert!(shift(&numbers(&[1, limits::SHIFT_BITS_MAX as i64])).is_ok());
        assert!(shift(&numbers(&[1, limits::SHIFT_BITS_MAX as i64 + 1])).is_err());
        assert!(shift(&numbers(&[1, -1])).is_err());
    }
}
