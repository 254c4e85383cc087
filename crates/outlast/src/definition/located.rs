//! YAML or JSON document with the source position of each value.

use std::fmt;

use anyhow::Result;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;
use serde_json::value::RawValue;
use serde_saphyr::Spanned;

use super::InvalidDefinition;

/// A value with its position, both counted from 1; 0 means unknown.
#[derive(Debug, Clone)]
pub struct Located {
    pub data: Data,
    pub line: u32,
    pub column: u32,
}

#[derive(Debug, Clone)]
pub enum Data {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Located>),
    /// In source order.
    Map(Vec<(String, Located)>),
    /// JSON from another source.
    Raw(Box<RawValue>),
}

impl Located {
    /// Parses YAML, a superset of JSON. `file` is the name for error messages.
    pub fn parse(text: &str, file: &str) -> Result<Self> {
        serde_saphyr::from_str_with_options(text, yaml_1_2()).map_err(|error| {
            let position = error.location().map(|location| (number(location.line()), number(location.column())));
            InvalidDefinition::syntax(file, &error.without_snippet().to_string(), position).into()
        })
    }

    /// The value without positions.
    pub fn value(&self) -> Result<serde_json::Value> {
        Ok(serde_json::to_value(self)?)
    }

    /// A value without a position.
    pub fn new(data: Data) -> Self {
        Self { data, line: 0, column: 0 }
    }

    pub fn get(&self, name: &str) -> Option<&Self> {
        self.fields().iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.fields_mut().iter_mut().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Fields of an object; empty for other values.
    pub fn fields(&self) -> &[(String, Self)] {
        match &self.data {
            Data::Map(fields) => fields,
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) | Data::Raw(_) => &[],
        }
    }

    pub fn fields_mut(&mut self) -> &mut [(String, Self)] {
        match &mut self.data {
            Data::Map(fields) => fields,
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) | Data::Raw(_) => &mut [],
        }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.data {
            Data::Text(text) => Some(text),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::List(_) | Data::Map(_) | Data::Raw(_) => None,
        }
    }

    /// Line and column of a path such as `tasks.build.needs[1]`, or of its nearest existing ancestor.
    pub fn position_of(&self, path: &str) -> Option<(u32, u32)> {
        let next = match &self.data {
            Data::Map(fields) => {
                // Names may contain dots: the longest match wins.
                let matching = fields.iter().filter_map(|(name, value)| {
                    let rest = path.strip_prefix(name.as_str())?;
                    (rest.is_empty() || rest.starts_with(['.', '['])).then_some((name.len(), value, rest))
                });
                matching.max_by_key(|(length, _, _)| *length).map(|(_, value, rest)| (value, rest))
            }
            Data::List(values) => {
                path.strip_prefix('[').and_then(|rest| rest.split_once(']')).and_then(|(at, rest)| {
                    let value = values.get(at.parse::<usize>().ok()?)?;
                    Some((value, rest))
                })
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::Raw(_) => None,
        };
        let below = next.and_then(|(value, rest)| value.position_of(rest.strip_prefix('.').unwrap_or(rest)));
        below.or((self.line > 0).then_some((self.line, self.column)))
    }
}

/// YAML 1.2 booleans, like the workflow compiler: `no`, `off` and `n` are strings.
fn yaml_1_2() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true }
}

fn number(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Serialize for Located {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.data {
            Data::Null => serializer.serialize_unit(),
            Data::Bool(value) => serializer.serialize_bool(*value),
            Data::Number(value) => value.serialize(serializer),
            Data::Text(value) => serializer.serialize_str(value),
            Data::List(values) => serializer.collect_seq(values),
            Data::Map(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
            Data::Raw(json) => json.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Located {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Data>::deserialize(deserializer)?;
        let (line, column) = (number(spanned.referenced.line()), number(spanned.referenced.column()));
        Ok(Self { data: spanned.value, line, column })
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyData)
    }
}

struct AnyData;

impl<'de> Visitor<'de> for AnyData {
    type Value = Data;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Data, E> {
        Ok(Data::Null)
    }

    fn visit_none<E>(self) -> Result<Data, E> {
        Ok(Data::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Data, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Data, E> {
        Ok(Data::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Data, E> {
        Ok(Data::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Data, E> {
        Ok(Data::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Data, E> {
        let number = Number::from_f64(value);
        number.map(Data::Number).ok_or_else(|| E::custom("a definition cannot contain a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Data, E> {
        Ok(Data::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Data, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element()? {
            values.push(value);
        }
        Ok(Data::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Data, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = entries.next_entry()? {
            fields.push(field);
        }
        Ok(Data::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: x\ntasks:\n  a.b:\n    needs: [one, two]\n  a:\n    retry: 3\n    run: 'no'\n";

    #[test]
    fn a_document_is_converted_to_json_in_source_order() {
        let located = Located::parse("z: 1\na: [-2, 2.5, null, ~, no, true]\nm: {}\n", "x").unwrap();
        assert_eq!(serde_json::to_string(&located).unwrap(), r#"{"z":1,"a":[-2,2.5,null,null,"no",true],"m":{}}"#);
        let json = Located::parse("{\"b\": [18446744073709551615],\n\t\"a\": \"\\u00e9\"}", "x").unwrap();
        assert_eq!(serde_json::to_string(&json).unwrap(), "{\"b\":[18446744073709551615],\"a\":\"é\"}");
    }

    #[test]
    fn paths_are_resolved_to_positions() {
        let located = Located::parse(TEXT, "x").unwrap();
        assert_eq!(located.position_of("tasks.a.b.needs[1]"), Some((4, 18)));
        assert_eq!(located.position_of("tasks.a.retry"), Some((6, 12)));
        assert_eq!(located.position_of("tasks.a.retry.limit"), Some((6, 12)), "nearest existing ancestor");
        assert_eq!(located.position_of("tasks.a.b.needs[7]"), Some((4, 12)));
        assert_eq!(located.position_of("nothing"), Some((1, 1)));
        assert_eq!(located.position_of(""), Some((1, 1)));
    }

    #[test]
    fn syntax_errors_have_a_position() {
        let error = Located::parse("name: x\ntasks: [a\n", "flow.yaml").unwrap_err();
        assert!(error.is::<InvalidDefinition>(), "{error}");
        assert!(error.to_string().contains("flow.yaml:"), "{error}");
    }
}
