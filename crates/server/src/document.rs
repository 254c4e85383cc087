//! A typed document of the store, changed by compare-and-set.

use std::marker::PhantomData;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use model::codec;
use store::{Store, Version};

use crate::error::Error;

/// A document with a fixed name. Absent, it has its default value. All methods block on the store.
pub(crate) struct SharedDocument<T> {
    store: Arc<dyn Store>,
    name: &'static str,
    value: PhantomData<fn() -> T>,
}

impl<T: Default + Encode<()> + for<'b> Decode<'b, ()>> SharedDocument<T> {
    pub fn new(store: Arc<dyn Store>, name: &'static str) -> Self {
        Self { store, name, value: PhantomData }
    }

    pub fn read(&self) -> Result<T, Error> {
        Ok(self.read_version()?.0)
    }

    fn read_version(&self) -> Result<(T, Version), Error> {
        match self.store.document(self.name)? {
            None => Ok((T::default(), Version::NONE)),
            Some(document) => {
                let unreadable = |source| Error::Document { name: self.name, source };
                Ok((codec::decode(&document.value).map_err(unreadable)?, document.version))
            }
        }
    }

    /// Applies a change to the newest value and stores it, again if another node was first. An error of `change` leaves
    /// the document as it is. Returns the new value with the result of the change.
    pub fn change<R, E: From<Error>>(&self, change: impl Fn(&mut T) -> Result<R, E>) -> Result<(T, R), E> {
        loop {
            let (mut value, version) = self.read_version()?;
            let result = change(&mut value)?;
            match self.store.put_document(self.name, version, Some(&codec::encode(&value))) {
                Ok(_) => return Ok((value, result)),
                Err(store::Error::DocumentChanged { .. }) => {}
                Err(error) => return Err(Error::from(error).into()),
            }
        }
    }
}
