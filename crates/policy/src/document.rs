//! Builds the `input` value of the rules directly from the job, without a detour through JSON text.

use std::collections::BTreeMap;

use regorus::Value;
use serde::Serialize;

use crate::project::{ProjectError, Sink, project};
use crate::read_set::Extent;

/// The parts of a document within `extent`, as a value for the rules.
pub(crate) fn value_of<T: Serialize>(document: &T, extent: Extent<'_>) -> Result<Value, ProjectError> {
    if extent.is_nothing() {
        return Ok(Value::new_object());
    }
    let mut builder = Builder { open: Vec::with_capacity(8), done: Value::Undefined };
    project(document, extent, &mut builder)?;
    Ok(builder.done)
}

/// An unfinished array or object, the latter with the key of its next value.
enum Container {
    Array(Vec<Value>),
    Object(BTreeMap<Value, Value>, Value),
}

struct Builder {
    open: Vec<Container>,
    done: Value,
}

impl Builder {
    fn put(&mut self, value: Value) {
        match self.open.last_mut() {
            None => self.done = value,
            Some(Container::Array(values)) => values.push(value),
            Some(Container::Object(values, key)) => {
                values.insert(std::mem::replace(key, Value::Undefined), value);
            }
        }
    }

    fn close(&mut self) {
        match self.open.pop() {
            None => {}
            Some(Container::Array(values)) => self.put(Value::from(values)),
            Some(Container::Object(values, _)) => self.put(Value::from(values)),
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

    fn json(&mut self, text: &str) -> Result<(), ProjectError> {
        let value = Value::from_json_str(text).map_err(|error| {
            ProjectError(format!("the JSON value of the job cannot be converted for the rules: {error}"))
        })?;
        self.put(value);
        Ok(())
    }

    fn begin_array(&mut self) {
        self.open.push(Container::Array(Vec::new()));
    }

    fn end_array(&mut self) {
        self.close();
    }

    fn begin_object(&mut self) {
        self.open.push(Container::Object(BTreeMap::new(), Value::Undefined));
    }

    fn key(&mut self, name: &str) {
        if let Some(Container::Object(_, key)) = self.open.last_mut() {
            *key = Value::from(name);
        }
    }

    fn end_object(&mut self) {
        self.close();
    }
}
