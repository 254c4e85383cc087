//! Walks over a document and hands on only those parts that rules read: to make their input, and to make the key under
//! which an answer is cached. Both see the same parts, so what the key leaves out the rules cannot have seen.

use serde::ser::{self, Serialize};

use crate::reads::Extent;

/// Takes what is walked over, in order.
pub(crate) trait Sink {
    fn null(&mut self);
    fn bool(&mut self, value: bool);
    fn unsigned(&mut self, value: u64);
    fn signed(&mut self, value: i64);
    fn float(&mut self, value: f64);
    fn string(&mut self, value: &str);
    /// JSON that nobody has looked into yet.
    fn json(&mut self, text: &str) -> Result<(), WalkError>;
    fn begin_array(&mut self);
    fn end_array(&mut self);
    fn begin_object(&mut self);
    fn key(&mut self, key: &str);
    fn end_object(&mut self);
}

/// A document that cannot be walked over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WalkError(pub String);

impl ser::Error for WalkError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Hands on what is read of `document`.
pub(crate) fn walk<T: Serialize, S: Sink>(document: &T, extent: Extent<'_>, sink: &mut S) -> Result<(), WalkError> {
    document.serialize(Walk { sink, extent })
}

/// Under this name serde_json hands out JSON that is carried as text.
const CARRIED_JSON: &str = "$serde_json::private::RawValue";

struct Walk<'s, 'r, S> {
    sink: &'s mut S,
    extent: Extent<'r>,
}

impl<'s, 'r, S: Sink> Walk<'s, 'r, S> {
    fn scalar(self, give: impl FnOnce(&mut S)) -> Result<(), WalkError> {
        give(self.sink);
        Ok(())
    }

    fn array(self) -> Result<Array<'s, S>, WalkError> {
        self.sink.begin_array();
        Ok(Array { sink: self.sink, variant: false })
    }

    fn object(self) -> Result<Object<'s, 'r, S>, WalkError> {
        self.sink.begin_object();
        Ok(Object { sink: self.sink, extent: self.extent, below: Extent::Nothing, ends: 1 })
    }

    /// An object whose only name is that of a variant. Without the name one variant would look like another.
    fn variant(self, name: &str) -> Self {
        self.sink.begin_object();
        self.sink.key(name);
        Self { extent: self.extent.below(name), sink: self.sink }
    }
}

impl<'s, 'r, S: Sink> ser::Serializer for Walk<'s, 'r, S> {
    type Ok = ();
    type Error = WalkError;
    type SerializeSeq = Array<'s, S>;
    type SerializeTuple = Array<'s, S>;
    type SerializeTupleStruct = Array<'s, S>;
    type SerializeTupleVariant = Array<'s, S>;
    type SerializeMap = Object<'s, 'r, S>;
    type SerializeStruct = Object<'s, 'r, S>;
    type SerializeStructVariant = Object<'s, 'r, S>;

    fn serialize_bool(self, value: bool) -> Result<(), WalkError> {
        self.scalar(|sink| sink.bool(value))
    }

    fn serialize_i8(self, value: i8) -> Result<(), WalkError> {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<(), WalkError> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), WalkError> {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<(), WalkError> {
        self.scalar(|sink| sink.signed(value))
    }

    fn serialize_u8(self, value: u8) -> Result<(), WalkError> {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), WalkError> {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), WalkError> {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result<(), WalkError> {
        self.scalar(|sink| sink.unsigned(value))
    }

    fn serialize_f32(self, value: f32) -> Result<(), WalkError> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), WalkError> {
        self.scalar(|sink| sink.float(value))
    }

    fn serialize_char(self, value: char) -> Result<(), WalkError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), WalkError> {
        self.scalar(|sink| sink.string(value))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), WalkError> {
        value.serialize(self)
    }

    fn serialize_none(self) -> Result<(), WalkError> {
        self.scalar(Sink::null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), WalkError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), WalkError> {
        self.scalar(Sink::null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), WalkError> {
        self.scalar(Sink::null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), WalkError> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), WalkError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), WalkError> {
        let Walk { sink, extent } = self.variant(variant);
        if extent.is_nothing() {
            sink.null();
        } else {
            value.serialize(Walk { sink: &mut *sink, extent })?;
        }
        sink.end_object();
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Array<'s, S>, WalkError> {
        self.array()
    }

    fn serialize_tuple(self, _: usize) -> Result<Array<'s, S>, WalkError> {
        self.array()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Array<'s, S>, WalkError> {
        self.array()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Array<'s, S>, WalkError> {
        Ok(Array { variant: true, ..self.variant(variant).array()? })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Object<'s, 'r, S>, WalkError> {
        self.object()
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Object<'s, 'r, S>, WalkError> {
        if name == CARRIED_JSON {
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
    ) -> Result<Object<'s, 'r, S>, WalkError> {
        Ok(Object { ends: 2, ..self.variant(variant).object()? })
    }
}

/// Of a list all is handed on: rules hardly ever read the third of something.
pub(crate) struct Array<'s, S> {
    sink: &'s mut S,
    variant: bool,
}

impl<S: Sink> Array<'_, S> {
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WalkError> {
        value.serialize(Walk { sink: &mut *self.sink, extent: Extent::Whole })
    }

    fn finish(self) -> Result<(), WalkError> {
        self.sink.end_array();
        if self.variant {
            self.sink.end_object();
        }
        Ok(())
    }
}

impl<S: Sink> ser::SerializeSeq for Array<'_, S> {
    type Ok = ();
    type Error = WalkError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WalkError> {
        self.element(value)
    }

    fn end(self) -> Result<(), WalkError> {
        self.finish()
    }
}

impl<S: Sink> ser::SerializeTuple for Array<'_, S> {
    type Ok = ();
    type Error = WalkError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WalkError> {
        self.element(value)
    }

    fn end(self) -> Result<(), WalkError> {
        self.finish()
    }
}

impl<S: Sink> ser::SerializeTupleStruct for Array<'_, S> {
    type Ok = ();
    type Error = WalkError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WalkError> {
        self.element(value)
    }

    fn end(self) -> Result<(), WalkError> {
        self.finish()
    }
}

impl<S: Sink> ser::SerializeTupleVariant for Array<'_, S> {
    type Ok = ();
    type Error = WalkError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WalkError> {
        self.element(value)
    }

    fn end(self) -> Result<(), WalkError> {
        self.finish()
    }
}

/// Of an object only the names that are read.
pub(crate) struct Object<'s, 'r, S> {
    sink: &'s mut S,
    extent: Extent<'r>,
    /// How much is read of the value whose key came last.
    below: Extent<'r>,
    /// How many objects end here; none where carried JSON stands in the place of one.
    ends: u8,
}

impl<S: Sink> Object<'_, '_, S> {
    fn entry<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), WalkError> {
        if self.ends == 0 {
            return self.sink.json(&text_of(value)?);
        }
        let extent = self.extent.below(key);
        if extent.is_nothing() {
            return Ok(());
        }
        self.sink.key(key);
        value.serialize(Walk { sink: &mut *self.sink, extent })
    }

    fn finish(self) -> Result<(), WalkError> {
        (0..self.ends).for_each(|_| self.sink.end_object());
        Ok(())
    }
}

impl<S: Sink> ser::SerializeStruct for Object<'_, '_, S> {
    type Ok = ();
    type Error = WalkError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), WalkError> {
        self.entry(key, value)
    }

    fn end(self) -> Result<(), WalkError> {
        self.finish()
    }
}

impl<S: Sink> ser::SerializeStructVariant for Object<'_, '_, S> {
    type Ok = ();
    type Error = WalkError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), WalkError> {
        self.entry(key, value)
    }

    fn end(self) -> Result<(), WalkError> {
        self.finish()
    }
}

impl<S: Sink> ser::SerializeMap for Object<'_, '_, S> {
    type Ok = ();
    type Error = WalkError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), WalkError> {
        let name = text_of(key)?;
        self.below = self.extent.below(&name);
        if !self.below.is_nothing() {
            self.sink.key(&name);
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WalkError> {
        if self.below.is_nothing() {
            return Ok(());
        }
        value.serialize(Walk { sink: &mut *self.sink, extent: self.below })
    }

    fn end(self) -> Result<(), WalkError> {
        self.finish()
    }
}

/// The text that a key or carried JSON consists of.
fn text_of<T: Serialize + ?Sized>(value: &T) -> Result<String, WalkError> {
    let mut text = Text(None);
    value.serialize(Walk { sink: &mut text, extent: Extent::Whole })?;
    text.0.ok_or_else(|| WalkError("a name in the job is not a text".to_owned()))
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

    fn json(&mut self, _: &str) -> Result<(), WalkError> {
        Ok(())
    }

    fn begin_array(&mut self) {}
    fn end_array(&mut self) {}
    fn begin_object(&mut self) {}
    fn key(&mut self, _: &str) {}
    fn end_object(&mut self) {}
}
