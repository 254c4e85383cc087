//! A document whose values know where they stand in their file.

use std::fmt;

use anyhow::Result;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;
use serde_json::value::RawValue;
use serde_saphyr::Spanned;

use super::Invalid;

/// A value and the place where it begins, both counted from 1.
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
    /// In the order of the text.
    Map(Vec<(String, Located)>),
    /// JSON that came from elsewhere.
    Raw(Box<RawValue>),
}

impl Located {
    /// Reads YAML, of which JSON is a part. `file` is its name, for what is said about it.
    pub fn parse(text: &str, file: &str) -> Result<Self> {
        serde_saphyr::from_str_with_options(text, yaml_1_2()).map_err(|error| {
            let place = error.location().map(|location| (number(location.line()), number(location.column())));
            Invalid::syntax(file, &error.without_snippet().to_string(), place).into()
        })
    }

    /// The value alone.
    pub fn value(&self) -> Result<serde_json::Value> {
        Ok(serde_json::to_value(self)?)
    }

    /// Something that stands nowhere.
    pub fn new(data: Data) -> Self {
        Self { data, line: 0, column: 0 }
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.fields().iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.fields_mut().iter_mut().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Its fields; none where it is not an object.
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

    /// The line and column of what a path such as `tasks.build.needs[1]` leads to, or of the last value on the way to
    /// it that is there.
    pub fn place_of(&self, path: &str) -> Option<(u32, u32)> {
        let next = match &self.data {
            Data::Map(fields) => {
                // A name may contain dots, so the longest one that fits is meant.
                let fitting = fields.iter().filter_map(|(name, value)| {
                    let rest = path.strip_prefix(name.as_str())?;
                    (rest.is_empty() || rest.starts_with(['.', '['])).then_some((name.len(), value, rest))
                });
                fitting.max_by_key(|(length, _, _)| *length).map(|(_, value, rest)| (value, rest))
            }
            Data::List(values) => {
                path.strip_prefix('[').and_then(|rest| rest.split_once(']')).and_then(|(at, rest)| {
                    let value = values.get(at.parse::<usize>().ok()?)?;
                    Some((value, rest))
                })
            }
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::Raw(_) => None,
        };
        let below = next.and_then(|(value, rest)| value.place_of(rest.strip_prefix('.').unwrap_or(rest)));
        below.or((self.line > 0).then_some((self.line, self.column)))
    }
}

/// As the language of workflows has it: `no`, `off` and `n` are texts.
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
        number.map(Data::Number).ok_or_else(|| E::custom("a number that is not finite has no place in a definition"))
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
    fn a_document_keeps_its_order_and_becomes_the_json_it_means() {
        let located = Located::parse("z: 1\na: [-2, 2.5, null, ~, no, true]\nm: {}\n", "x").unwrap();
        assert_eq!(serde_json::to_string(&located).unwrap(), r#"{"z":1,"a":[-2,2.5,null,null,"no",true],"m":{}}"#);
        let json = Located::parse("{\"b\": [18446744073709551615],\n\t\"a\": \"\\u00e9\"}", "x").unwrap();
        assert_eq!(serde_json::to_string(&json).unwrap(), "{\"b\":[18446744073709551615],\"a\":\"é\"}");
    }

    #[test]
    fn paths_lead_to_places() {
        let located = Located::parse(TEXT, "x").unwrap();
        assert_eq!(located.place_of("tasks.a.b.needs[1]"), Some((4, 18)));
        assert_eq!(located.place_of("tasks.a.retry"), Some((6, 12)));
        assert_eq!(located.place_of("tasks.a.retry.limit"), Some((6, 12)), "the nearest that is there");
        assert_eq!(located.place_of("tasks.a.b.needs[7]"), Some((4, 12)));
        assert_eq!(located.place_of("nothing"), Some((1, 1)));
        assert_eq!(located.place_of(""), Some((1, 1)));
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_place() {
        let error = Located::parse("name: x\ntasks: [a\n", "flow.yaml").unwrap_err();
        assert!(error.is::<Invalid>(), "{error}");
        assert!(error.to_string().contains("flow.yaml:"), "{error}");
    }
}
