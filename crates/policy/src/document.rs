//! The input of the rules, made straight from the job without a detour through text.

use std::collections::BTreeMap;

use regorus::Value;
use serde::Serialize;

use crate::reads::Extent;
use crate::walk::{Sink, WalkError, walk};

/// Those parts of a document that are read, as a value for the rules.
pub(crate) fn value_of<T: Serialize>(document: &T, extent: Extent<'_>) -> Result<Value, WalkError> {
    if extent.is_nothing() {
        return Ok(Value::new_object());
    }
    let mut builder = Builder { open: Vec::with_capacity(8), done: Value::Undefined };
    walk(document, extent, &mut builder)?;
    Ok(builder.done)
}

/// A value that is still being filled, with the key that waits for its value.
enum Open {
    Array(Vec<Value>),
    Object(BTreeMap<Value, Value>, Value),
}

struct Builder {
    open: Vec<Open>,
    done: Value,
}

impl Builder {
    fn put(&mut self, value: Value) {
        match self.open.last_mut() {
            None => self.done = value,
            Some(Open::Array(values)) => values.push(value),
            Some(Open::Object(values, key)) => {
                values.insert(std::mem::replace(key, Value::Undefined), value);
            }
        }
    }

    fn close(&mut self) {
        match self.open.pop() {
            None => {}
            Some(Open::Array(values)) => self.put(Value::from(values)),
            Some(Open::Object(values, _)) => self.put(Value::from(values)),
        }
    }
}

impl Sink for Builder {
    fn null(&mut self) {
        self.put(Value::Null);
    }

    fn bool(&mut self, value: bool) {
        self.put(Value::from(value));
    }

    fn unsigned(&mut self, value: u64) {
        self.put(Value::from(value));
    }

    fn signed(&mut self, value: i64) {
        self.put(Value::from(value));
    }

    fn float(&mut self, value: f64) {
        self.put(Value::from(value));
    }

    fn string(&mut self, value: &str) {
        self.put(Value::from(value));
    }

    fn json(&mut self, text: &str) -> Result<(), WalkError> {
        let value = Value::from_json_str(text)
            .map_err(|error| WalkError(format!("the job's value cannot be shown to rules: {error}")))?;
        self.put(value);
        Ok(())
    }

    fn begin_array(&mut self) {
        self.open.push(Open::Array(Vec::new()));
    }

    fn end_array(&mut self) {
        self.close();
    }

    fn begin_object(&mut self) {
        self.open.push(Open::Object(BTreeMap::new(), Value::Undefined));
    }

    fn key(&mut self, name: &str) {
        if let Some(Open::Object(_, key)) = self.open.last_mut() {
            *key = Value::from(name);
        }
    }

    fn end_object(&mut self) {
        self.close();
    }
}
