//! What the templates of a workflow see of it.

use std::borrow::Cow;

use model::json::Json;
use model::workflow::Place;
use serde_json::Value;
use workflow::scope::{Scope, Tasks};

use super::flow::Flow;

/// The value that carried bytes stand for.
pub(crate) fn value_of(json: &Json) -> Value {
    // It was JSON when it was taken in.
    serde_json::from_slice(json.as_bytes()).unwrap_or(Value::Null)
}

/// The tasks of a workflow, for its templates.
pub(crate) struct Seen<'a>(pub &'a Flow);

impl Tasks for Seen<'_> {
    fn result(&self, task: u32) -> Cow<'_, Value> {
        // Read once, however often it is named.
        let read = || Box::new(self.0.result_of(Place::of(task)).map_or(Value::Null, value_of));
        let slot = self.0.slots.get(task as usize).filter(|slot| slot.state.is_terminal());
        slot.map_or(Cow::Owned(Value::Null), |slot| Cow::Borrowed(slot.value.get_or_init(read).as_ref()))
    }

    fn state(&self, task: u32) -> &'static str {
        self.0.slots.get(task as usize).map_or("", |slot| slot.state.as_str())
    }
}

impl Flow {
    /// What a template of the task at `place` may refer to.
    pub fn scope<'a>(&'a self, seen: &'a Seen<'a>, place: Place) -> Scope<'a> {
        let items = self.slots.get(place.task as usize).and_then(|slot| slot.each.as_ref());
        let item = place.item.and_then(|item| Some((items?.items.get(item as usize)?, item)));
        Scope { item, ..self.outer_scope(seen) }
    }

    /// What a template of the workflow as a whole may refer to.
    pub fn outer_scope<'a>(&'a self, seen: &'a Seen<'a>) -> Scope<'a> {
        Scope {
            inputs: &self.inputs,
            tasks: seen,
            item: None,
            workflow: self.record.id,
            name: &self.record.name,
            schedule: self.slot_text.as_deref(),
            result: None,
        }
    }
}
