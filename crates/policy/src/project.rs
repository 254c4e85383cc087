//! Projection of a document onto the parts that rules read. It builds both the `input` of the rules and the cache key,
//! so the rules cannot see anything that is not in the key.

use serde::ser::{self, Serialize};

use crate::read_set::Extent;

/// Receives the projected parts, in order.
pub(crate) trait Sink {
    fn null(&mut self);
    fn bool(&mut self, value: bool);
    fn unsigned(&mut self, value: u64);
    fn signed(&mut self, value: i64);
    fn float(&mut self, value: f64);
    fn string(&mut self, value: &str);
    /// Raw JSON text, not parsed yet.
    fn json(&mut self, text: &str) -> Result<(), ProjectError>;
    fn begin_array(&mut self);
    fn end_array(&mut self);
    fn begin_object(&mut self);
    fn key(&mut self, key: &str);
    fn end_object(&mut self);
}

/// A document that cannot be projected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ProjectError(pub String);

impl ser::Error for ProjectError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Sends the parts of `document` within `extent` to `sink`.
pub(crate) fn project<T: Serialize, S: Sink>(
    document: &T,
    extent: Extent<'_>,
    sink: &mut S,
) -> Result<(), ProjectError> {
    document.serialize(Projector { sink, extent })
}

/// Struct name under which serde_json serialises a `RawValue`.
const RAW_JSON: &str = "$serde_json::private::RawValue";

struct Projector<'s, 'r, S> {
    sink: &'s mut S,
    extent: Extent<'r>,
}

impl<'s, 'r, S: Sink> Projector<'s, 'r, S> {
    fn scalar(self, send: impl FnOnce(&mut S)) -> Result<(), ProjectError> {
        send(self.sink);
        Ok(())
    }

    fn array(self) -> Result<Array<'s, S>, ProjectError> {
        self.sink.begin_array();
        Ok(Array { sink: self.sink, variant: false })
    }

    fn object(self) -> Result<Object<'s, 'r, S>, ProjectError> {
        self.sink.begin_object();
        Ok(Object { sink: self.sink, extent: self.extent, below: Extent::Nothing, ends: 1 })
    }

    /// An object with the variant name as its only key. Without the name, variants would be indistinguishable.
    fn variant(self, name: &str) -> Self {
        self.sink.begin_object();
        self.sink.key(name);
        Self { extent: self.extent.below(name), sink: self.sink }
    }
}

impl<'s, 'r, S: Sink> ser::Serializer for Projector<'s, 'r, S> {
    type Ok = ();
    type Error = ProjectError;
    type SerializeSeq = Array<'s, S>;
    type SerializeTuple = Array<'s, S>;
    type SerializeTupleStruct = Array<'s, S>;
    type SerializeTupleVariant = Array<'s, S>;
    type SerializeMap = Object<'s, 'r, S>;
    type SerializeStruct = Object<'s, 'r, S>;
    type SerializeStructVariant = Object<'s, 'r, S>;

    fn serialize_bool(self, value: bool) -> Result<(), ProjectError> {
        self.scalar(|sink| sink.bool(value))
    }

    fn serialize_i8(self, value: i8) -> Result<(), ProjectError> {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<(), ProjectError> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), ProjectError> {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<(), ProjectError> {
        self.scalar(|sink| sink.signed(value))
    }

    fn serialize_u8(self, value: u8) -> Result<(), ProjectError> {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), ProjectError> {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), ProjectError> {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result<(), ProjectError> {
        self.scalar(|sink| sink.unsigned(value))
    }

    fn serialize_f32(self, value: f32) -> Result<(), ProjectError> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), ProjectError> {
        self.scalar(|sink| sink.float(value))
    }

    fn serialize_char(self, value: char) -> Result<(), ProjectError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), ProjectError> {
        self.scalar(|sink| sink.string(value))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), ProjectError> {
        value.serialize(self)
    }

    fn serialize_none(self) -> Result<(), ProjectError> {
        self.scalar(Sink::null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), ProjectError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), ProjectError> {
        self.scalar(Sink::null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), ProjectError> {
        self.scalar(Sink::null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), ProjectError> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), ProjectError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), ProjectError> {
        let Projector { sink, extent } = self.variant(variant);
        if extent.is_nothing() {
            sink.null();
        } else {
            value.serialize(Projector { sink: &mut *sink, extent })?;
        }
        sink.end_object();
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Array<'s, S>, ProjectError> {
        self.array()
    }

    fn serialize_tuple(self, _: usize) -> Result<Array<'s, S>, ProjectError> {
        self.array()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Array<'s, S>, ProjectError> {
        self.array()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Array<'s, S>, ProjectError> {
        Ok(Array { variant: true, ..self.variant(variant).array()? })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Object<'s, 'r, S>, ProjectError> {
        self.object()
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Object<'s, 'r, S>, ProjectError> {
        if name == RAW_JSON {
            return Ok(Object { sink: self.sink, extent: self.extent, below: Extent::Nothing, ends: 0 });
        }
        self.object()
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Object<'s, 'r, S>, ProjectError> {
        Ok(Object { ends: 2, ..self.variant(variant).object()? })
    }
}

/// Arrays are projected as a whole: rules rarely read a fixed index.
pub(crate) struct Array<'s, S> {
    sink: &'s mut S,
    variant: bool,
}

impl<S: Sink> Array<'_, S> {
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ProjectError> {
        value.serialize(Projector { sink: &mut *self.sink, extent: Extent::Whole })
    }

    fn finish(self) -> Result<(), ProjectError> {
        self.sink.end_array();
        if self.variant {
            self.sink.end_object();
        }
        Ok(())
    }
}

impl<S: Sink> ser::SerializeSeq for Array<'_, S> {
    type Ok = ();
    type Error = ProjectError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ProjectError> {
        self.element(value)
    }

    fn end(self) -> Result<(), ProjectError> {
        self.finish()
    }
}

impl<S: Sink> ser::SerializeTuple for Array<'_, S> {
    type Ok = ();
    type Error = ProjectError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ProjectError> {
        self.element(value)
    }

    fn end(self) -> Result<(), ProjectError> {
        self.finish()
    }
}

impl<S: Sink> ser::SerializeTupleStruct for Array<'_, S> {
    type Ok = ();
    type Error = ProjectError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ProjectError> {
        self.element(value)
    }

    fn end(self) -> Result<(), ProjectError> {
        self.finish()
    }
}

impl<S: Sink> ser::SerializeTupleVariant for Array<'_, S> {
    type Ok = ();
    type Error = ProjectError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ProjectError> {
        self.element(value)
    }

    fn end(self) -> Result<(), ProjectError> {
        self.finish()
    }
}

/// Objects are projected onto the names that are read.
pub(crate) struct Object<'s, 'r, S> {
    sink: &'s mut S,
    extent: Extent<'r>,
    /// Extent of the value of the last key.
    below: Extent<'r>,
    /// Number of objects that end here. 0 for raw JSON.
    ends: u8,
}

impl<S: Sink> Object<'_, '_, S> {
    fn entry<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), ProjectError> {
        if self.ends == 0 {
            return self.sink.json(&text_of(value)?);
        }
        let extent = self.extent.below(key);
        if extent.is_nothing() {
            return Ok(());
        }
        self.sink.key(key);
        value.serialize(Projector { sink: &mut *self.sink, extent })
    }

    fn finish(self) -> Result<(), ProjectError> {
        (0..self.ends).for_each(|_| self.sink.end_object());
        Ok(())
    }
}

impl<S: Sink> ser::SerializeStruct for Object<'_, '_, S> {
    type Ok = ();
    type Error = ProjectError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), ProjectError> {
        self.entry(key, value)
    }

    fn end(self) -> Result<(), ProjectError> {
        self.finish()
    }
}

impl<S: Sink> ser::SerializeStructVariant for Object<'_, '_, S> {
    type Ok = ();
    type Error = ProjectError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), ProjectError> {
        self.entry(key, value)
    }

    fn end(self) -> Result<(), ProjectError> {
        self.finish()
    }
}

impl<S: Sink> ser::SerializeMap for Object<'_, '_, S> {
    type Ok = ();
    type Error = ProjectError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), ProjectError> {
        let name = text_of(key)?;
        self.below = self.extent.below(&name);
        if !self.below.is_nothing() {
            self.sink.key(&name);
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ProjectError> {
        if self.below.is_nothing() {
            return Ok(());
        }
        value.serialize(Projector { sink: &mut *self.sink, extent: self.below })
    }

    fn end(self) -> Result<(), ProjectError> {
        self.finish()
    }
}

/// The text of a key or of raw JSON.
fn text_of<T: Serialize + ?Sized>(value: &T) -> Result<String, ProjectError> {
    let mut text = Text(None);
    value.serialize(Projector { sink: &mut text, extent: Extent::Whole })?;
    text.0.ok_or_else(|| ProjectError("a key in the job is not a string".to_owned()))
}

struct Text(Option<String>);

impl Sink for Text {
    fn null(&mut self) {}
    fn bool(&mut self, _: bool) {}
    fn unsigned(&mut self, _: u64) {}
    fn signed(&mut self, _: i64) {}
    fn float(&mut self, _: f64) {}

    fn string(&mut self, value: &str) {
        self.0 = Some(value.to_owned());
    }

    fn json(&mut self, _: &str) -> Result<(), ProjectError> {
        Ok(())
    }

    fn begin_array(&mut self) {}
    fn end_array(&mut self) {}
    fn begin_object(&mut self) {}
    fn key(&mut self, _: &str) {}
    fn end_object(&mut self) {}
}
