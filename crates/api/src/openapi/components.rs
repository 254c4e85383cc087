//! The schemas of the document.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::limits;
use crate::routes::Operation;

/// Named schemas, collected as the operations refer to them.
#[derive(Debug, Default)]
pub(crate) struct Components {
    schemas: BTreeMap<String, Value>,
}

fn reference_to(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn name_in(reference: &Value) -> Option<&str> {
    reference.get("$ref")?.as_str()?.rsplit('/').next()
}

impl Components {
    /// Adds the schema of a type and of everything in it; a reference to it.
    pub fn reference<T: ToSchema>(&mut self) -> Value {
        let mut found = Vec::new();
        T::schemas(&mut found);
        found.push((T::name().into_owned(), T::schema()));
        for (name, schema) in found {
            let schema = serde_json::to_value(schema).unwrap_or_default();
            let known = self.schemas.entry(name).or_insert_with(|| schema.clone());
            debug_assert!(*known == schema, "two types have the schema name {}", T::name());
        }
        reference_to(&T::name())
    }

    /// Adds a schema under a name; a reference to it.
    pub fn add(&mut self, name: &str, schema: impl FnOnce() -> Value) -> Value {
        self.schemas.entry(name.to_owned()).or_insert_with(schema);
        reference_to(name)
    }

    /// Adds the schema of a page of `T`.
    pub fn page<T: ToSchema>(&mut self) -> Value {
        let items = self.reference::<T>();
        let next_cursor = json!({
            "type": ["string", "null"],
            "description": "Cursor of the next page; null on the last one. A page may be short and still have a next one.",
        });
        let properties = json!({"items": {"type": "array", "items": items}, "next_cursor": next_cursor});
        self.add(
            &format!("{}Page", T::name()),
            || json!({"type": "object", "required": ["items", "next_cursor"], "properties": properties}),
        )
    }

    pub fn into_schemas(self) -> BTreeMap<String, Value> {
        self.schemas
    }

    /// Turns the derived schemas into the form that client generators understand best.
    pub fn finish(&mut self, operations: &mut [Operation]) {
        self.inline_values(operations);
        self.name_variants();
        self.merge_flattened();
        self.require_what_is_always_there(operations);
        self.schemas.values_mut().for_each(remove_marks);
        limits::set(&mut self.schemas);
    }

    /// Writes strings, numbers and arbitrary JSON in place of references to them.
    fn inline_values(&mut self, operations: &mut [Operation]) {
        let is_value = |schema: &Value| {
            let kind = schema.get("type").and_then(Value::as_str);
            !matches!(kind, Some("object"))
                && ["enum", "oneOf", "allOf", "items"].iter().all(|key| schema.get(key).is_none())
        };
        let values: BTreeMap<String, Value> = self
            .schemas
            .iter()
            .filter(|(_, schema)| is_value(schema))
            .map(|(name, schema)| (name.clone(), schema.clone()))
            .collect();
        self.schemas.retain(|name, _| !values.contains_key(name));
        self.schemas.values_mut().for_each(|schema| inline(schema, &values));
        for operation in operations {
            let responses = operation.responses.iter_mut().flat_map(|response| response.content.iter_mut());
            responses.chain(&mut operation.body).for_each(|(_, schema)| inline(schema, &values));
        }
    }

    /// Gives the variants of tagged unions a name: `Run` with `process` becomes a union with `RunProcess`. Untagged
    /// unions are `anyOf`: the first variant that fits counts.
    fn name_variants(&mut self) {
        let mut variants = BTreeMap::new();
        for (name, schema) in &mut self.schemas {
            let Some(members) = schema.get_mut("oneOf").and_then(Value::as_array_mut) else { continue };
            let mut is_tagged = false;
            for member in members.iter_mut() {
                let tag = member.get("required").and_then(|required| required.get(0)).and_then(Value::as_str);
                let Some(tag) = tag.map(str::to_owned) else { continue };
                let variant = format!("{name}{}{}", tag[..1].to_uppercase(), &tag[1..]);
                member["additionalProperties"] = json!(false);
                is_tagged = true;
                let taken = std::mem::replace(member, reference_to(&variant));
                variants.insert(variant, taken);
            }
            if !is_tagged && let Some(fields) = schema.as_object_mut() {
                let members = fields.remove("oneOf").unwrap_or_default();
                fields.insert("anyOf".to_owned(), members);
            }
        }
        self.schemas.extend(variants);
    }

    /// Makes one object of a struct with a flattened field.
    fn merge_flattened(&mut self) {
        let known = self.schemas.clone();
        for schema in self.schemas.values_mut() {
            let Some(parts) = schema.get("allOf").and_then(Value::as_array).cloned() else { continue };
            let mut merged = json!({"type": "object"});
            if let Some(description) = schema.get("description") {
                merged["description"] = description.clone();
            }
            let (mut required, mut properties) = (Vec::new(), Map::new());
            for part in &parts {
                let part = name_in(part).and_then(|name| known.get(name)).unwrap_or(part);
                required.extend(part["required"].as_array().cloned().unwrap_or_default());
                properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
            }
            merged["required"] = required.into();
            merged["properties"] = properties.into();
            *schema = merged;
        }
    }

    /// A field of a response that may be null is always there. Fields that may be missing are never null: they have
    /// `#[schema(nullable = false)]`. Types that are also part of requests are left alone.
    fn require_what_is_always_there(&mut self, operations: &[Operation]) {
        let bodies = operations.iter().flat_map(|operation| operation.body.iter().map(|(_, schema)| schema));
        let requested = self.reachable(bodies);
        for (name, schema) in &mut self.schemas {
            if requested.contains(name) || schema.get("properties").is_none() {
                continue;
            }
            let properties = schema["properties"].as_object().cloned().unwrap_or_default();
            let required: BTreeSet<String> = schema["required"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|name| Some(name.as_str()?.to_owned()))
                .chain(properties.iter().filter(|(_, property)| is_nullable(property)).map(|(name, _)| name.clone()))
                .collect();
            schema["required"] = required.into_iter().collect();
        }
    }

    /// The names of all components that some schemas refer to, directly or not.
    fn reachable<'a>(&self, from: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut open: Vec<Value> = from.cloned().collect();
        while let Some(value) = open.pop() {
            if let Some(name) = name_in(&value)
                && found.insert(name.to_owned())
            {
                open.extend(self.schemas.get(name).cloned());
            }
            match value {
                Value::Object(fields) => open.extend(fields.into_iter().map(|(_, field)| field)),
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        found
    }
}

/// Marks optional fields of arbitrary JSON until all schemas are finished.
const NULLABLE: &str = "x-nullable";

/// Whether the field of a struct was an `Option`.
fn is_nullable(schema: &Value) -> bool {
    let says_null = |value: &Value| value == "null" || value["type"] == "null";
    let has_null = |key: &str| schema[key].as_array().is_some_and(|members| members.iter().any(says_null));
    has_null("type") || has_null("oneOf") || schema.get(NULLABLE).is_some()
}

fn remove_marks(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove(NULLABLE);
            fields.values_mut().for_each(remove_marks);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_marks),
        _ => {}
    }
}

/// Cleans up one schema and everything in it: values in place of references to them, `type: [x, "null"]` in place of
/// unions of a value with null, descriptions beside the union instead of within.
fn inline(schema: &mut Value, values: &BTreeMap<String, Value>) {
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(|field| inline(field, values)),
        Value::Array(items) => items.iter_mut().for_each(|item| inline(item, values)),
        _ => return,
    }
    let Some(fields) = schema.as_object_mut() else { return };
    // JSON has no other keys than strings, and an absent field needs no default.
    fields.remove("propertyNames");
    if fields.get("default").is_some_and(Value::is_null) {
        fields.remove("default");
    }
    if let Some(Value::String(description)) = fields.get_mut("description") {
        *description = first_paragraph(description);
    }
    if let Some(nullable) = fields.get("oneOf").and_then(Value::as_array).and_then(|members| nullable(members)) {
        *schema = nullable;
    } else if let Some(value) = name_in(schema).and_then(|name| values.get(name)) {
        let own = schema.get("description").cloned();
        *schema = value.clone();
        // The description of the field is more specific than that of the type.
        if let Some(own) = own {
            schema["description"] = own;
        }
    }
}

/// Further paragraphs of doc comments are for readers of the code.
fn first_paragraph(description: &str) -> String {
    description.split("\n\n").next().unwrap_or_default().replace('\n', " ")
}

/// The schema of a union of something with null.
fn nullable(members: &[Value]) -> Option<Value> {
    let [one, other] = members else { return None };
    let mut present = match (&one["type"], &other["type"]) {
        (_, kind) if kind == "null" => one.clone(),
        (kind, _) if kind == "null" => other.clone(),
        _ => return None,
    };
    if let Some(kind) = present.get("type").cloned() {
        present["type"] = json!([kind, "null"]);
        return Some(present);
    }
    let description = present.as_object_mut()?.remove("description");
    let mut schema = match name_in(&present) {
        Some(_) => json!({"oneOf": [present, {"type": "null"}]}),
        // Arbitrary JSON has no type to tell it by.
        None => {
            present[NULLABLE] = json!(true);
            present
        }
    };
    if let Some(description) = description {
        schema["description"] = description;
    }
    Some(schema)
}
