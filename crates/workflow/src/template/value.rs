//! JSON values with templates in their strings.
//!
//! A value is stored as its text in the definition, with holes for the templates. Rendering fills the holes, so values
//! without templates cost only their bytes.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Template;
use crate::expression::Budget;
use crate::limits;
use crate::scope::{RenderError, Scope};
use crate::slice::Slice;

/// Compiled JSON value.
#[derive(Debug)]
pub struct ValueTemplate {
    text: Slice,
    /// In the order of the text. Boxed, because most values have none.
    #[expect(clippy::box_collection, reason = "one word instead of three in each of 100,000 tasks")]
    holes: Option<Box<Vec<Hole>>>,
}

/// A JSON string that is replaced by the value of its template.
#[derive(Debug)]
pub(crate) struct Hole {
    /// Offsets in the text, including the quotes.
    pub start: u32,
    pub end: u32,
    /// Whether the value is converted to a string.
    pub as_text: bool,
    pub template: Template,
}

impl ValueTemplate {
    pub(crate) fn new(text: Slice, holes: Vec<Hole>) -> Self {
        Self { text, holes: (!holes.is_empty()).then(|| Box::new(holes)) }
    }

    /// `{}`
    pub(crate) fn empty_object() -> Self {
        let text = std::sync::Arc::new(bytes::Bytes::from_static(b"{}"));
        Self { text: Slice::new(&text, (0, 2)), holes: None }
    }

    /// Renders the value.
    pub fn render(&self, scope: &Scope<'_>) -> Result<Value, RenderError> {
        self.bounded(scope, limits::RENDERED_BYTES_MAX)
    }

    pub(crate) fn bounded(&self, scope: &Scope<'_>, bytes_max: usize) -> Result<Value, RenderError> {
        if let Some(template) = self.whole() {
            return template.bounded_value(scope, bytes_max);
        }
        self.with_text(scope, bytes_max, |text| parse_rendered("", text))?
    }

    /// Passes the rendered JSON to `take`.
    pub(crate) fn with_text<T>(
        &self,
        scope: &Scope<'_>,
        bytes_max: usize,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, RenderError> {
        match &self.holes {
            None => Ok(take(self.text.as_bytes())),
            Some(holes) => self.fill(holes, scope, bytes_max).map(|text| take(&text)),
        }
    }

    fn fill(&self, holes: &[Hole], scope: &Scope<'_>, bytes_max: usize) -> Result<Vec<u8>, RenderError> {
        let text = self.text.as_bytes();
        let mut filled = Vec::with_capacity(text.len() + 64);
        let mut from = 0;
        let mut budget = Budget::default();
        for hole in holes {
            filled.extend_from_slice(&text[from..hole.start as usize]);
            from = hole.end as usize;
            let written = if hole.as_text {
                serde_json::to_writer(&mut filled, &hole.template.text_within(scope, &mut budget)?)
            } else {
                let value = hole.template.cow(scope, &mut budget)?;
                bounded_bytes(&value, bytes_max).map_err(|failure| hole.template.error(0, &failure))?;
                serde_json::to_writer(&mut filled, &*value)
            };
            written.map_err(|error| hole.template.error(0, &error.to_string()))?;
            if filled.len() > bytes_max {
                return Err(hole.template.error(0, &format!("the value is larger than {bytes_max} bytes")));
            }
        }
        filled.extend_from_slice(&text[from..]);
        Ok(filled)
    }

    /// The template, if the value consists of a single one.
    pub(crate) fn whole(&self) -> Option<&Template> {
        match self.holes.as_ref().map(|holes| holes.as_slice()) {
            Some([hole]) if hole.start == 0 && hole.end as usize == self.text.as_bytes().len() && !hole.as_text => {
                Some(&hole.template)
            }
            Some(_) | None => None,
        }
    }

    pub(crate) fn is_constant(&self) -> bool {
        self.holes.is_none()
    }
}

/// Fails if the value is larger than `bytes_max` as JSON.
pub(crate) fn bounded_bytes(value: &Value, bytes_max: usize) -> Result<(), String> {
    let small = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        // An escape takes at most six bytes.
        Value::String(text) => text.len() < bytes_max / 6,
        Value::Array(elements) => elements.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    };
    if small || serde_json::to_writer(ByteLimit { left: bytes_max }, value).is_ok() {
        return Ok(());
    }
    Err(format!("the value is larger than {bytes_max} bytes"))
}

/// Writer that discards its input and fails at the limit.
struct ByteLimit {
    left: usize,
}

impl std::io::Write for ByteLimit {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Deserialises rendered JSON. Errors name their field, relative to `field`.
pub(crate) fn parse_rendered<T: DeserializeOwned>(field: &str, text: &[u8]) -> Result<T, RenderError> {
    serde_json::from_slice(text).map_err(|_| {
        // Deserialised again for the path, which is too expensive to track on success.
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let failed = serde_path_to_error::deserialize::<_, T>(&mut deserializer);
        let (path, message) = match failed {
            Ok(_) => (String::new(), "the value cannot be deserialised".to_owned()),
            Err(error) => (error.path().to_string(), error.inner().to_string()),
        };
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message).to_owned();
        let field = match (field, path.as_str()) {
            (field, "." | "") => field.to_owned(),
            ("", path) => path.to_owned(),
            (field, path) => format!("{field}.{path}"),
        };
        RenderError { field, message }
    })
}
