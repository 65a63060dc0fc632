//! Reads the records of several objects at once. An unreadable one harms only its object: an operation that
//! returns [`Loaded`] fails only with transient errors, one for a single object also with `Corrupt` or
//! `WrongType`.

use std::ops::Deref;

use redis::{Cmd, Value, cmd};

use crate::{Store, StoreError};

const RECORDS_PER_READ: usize = 1000;

/// The objects in the order of their names.
#[derive(Debug)]
pub struct Loaded<T>(Vec<Result<Option<T>, StoreError>>);

impl<T> Loaded<T> {
    pub fn found(self) -> Vec<T> {
        self.options().flatten().collect()
    }

    /// `names` are all that were asked for.
    pub fn separate<N: Clone>(self, names: &[N]) -> (Vec<T>, Vec<(N, StoreError)>) {
        let (mut found, mut unreadable) = (Vec::with_capacity(names.len()), Vec::new());
        for (name, object) in names.iter().zip(self) {
            match object {
                Ok(object) => found.extend(object),
                Err(error) => unreadable.push((name.clone(), error)),
            }
        }
        (found, unreadable)
    }

    /// `names` are all that were asked for.
    pub fn missing<N: Clone>(&self, names: &[N]) -> Vec<N> {
        let missing = names.iter().zip(&self.0).filter(|(_, object)| matches!(object, Ok(None)));
        missing.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn options(self) -> impl Iterator<Item = Option<T>> {
        self.0.into_iter().map(|object| object.ok().flatten())
    }

    pub(crate) fn only(mut self) -> Result<Option<T>, StoreError> {
        self.0.pop().unwrap_or(Ok(None))
    }
}

impl<T> Deref for Loaded<T> {
    type Target = [Result<Option<T>, StoreError>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> IntoIterator for Loaded<T> {
    type Item = Result<Option<T>, StoreError>;
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

pub(crate) fn all_fields(key: String) -> Cmd {
    cmd("HGETALL").arg(key).to_owned()
}

pub(crate) fn field(key: String, field: &str) -> Cmd {
    cmd("HGET").arg(key).arg(field).to_owned()
}

pub(crate) fn fields(key: String, fields: &[&str]) -> Cmd {
    cmd("HMGET").arg(key).arg(fields).to_owned()
}

impl Store {
    /// # Errors
    /// Only transient errors, see [`StoreError::is_transient`].
    pub(crate) async fn load<N, T>(
        &self,
        names: &[N],
        get: impl Fn(&N) -> Cmd,
        read: impl Fn(&N, Value) -> Result<Option<T>, StoreError>,
    ) -> Result<Loaded<T>, StoreError> {
        let mut loaded = Vec::with_capacity(names.len());
        for chunk in names.chunks(RECORDS_PER_READ) {
            let mut pipe = redis::pipe();
            for name in chunk {
                pipe.add_command(get(name));
            }
            let replies = self.link.pipeline_each(pipe).await?;
            loaded.extend(chunk.iter().zip(replies).map(|(name, reply)| read(name, reply?)));
        }
        Ok(Loaded(loaded))
    }
}
