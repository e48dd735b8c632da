//! Parameters of a block as given, with their text and its hash.

use serde::ser::{Serialize, Serializer};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
#[cfg(test)]
use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// SHA-256 of a text.
pub(super) type Hash = [u8; 32];

/// Parameters of a block as given. Clones share the values, and the text of each value once it was printed.
#[derive(Clone, Default)]
pub struct Parameters(Arc<Values>);

#[derive(Default)]
struct Values {
    values: Json,
    printed: OnceLock<Vec<Printed>>,
}

/// A parameter as JSON, a mapping with one entry, and the hash of this text.
#[derive(Clone)]
pub(crate) struct Printed {
    pub(super) name: Arc<str>,
    pub(super) text: Arc<str>,
    pub(super) hash: Hash,
}

impl Printed {
    fn new(name: &str, value: &Json) -> Self {
        let text = format!("{{{}:{value}}}", Json::from(name));
        #[cfg(test)]
        PRINTED.with(|bytes| bytes.set(bytes.get() + text.len()));
        Self { name: name.into(), hash: Sha256::digest(&text).into(), text: text.into() }
    }
}

impl Parameters {
    pub(super) fn printed(&self) -> &[Printed] {
        let entries = || self.0.values.as_object().into_iter().flatten();
        let print = || entries().map(|(name, value)| Printed::new(name, value)).collect();
        self.0.printed.get_or_init(print)
    }

    /// All `values`, of which only the parameters `names` differ from these.
    pub(crate) fn with(&self, values: Json, names: &[&str]) -> Self {
        let known = |name: &str| {
            let mut printed = self.printed().iter().filter(|_| !names.contains(&name));
            printed.find(|printed| *printed.name == *name).cloned()
        };
        let entries = values.as_object().into_iter().flatten();
        let printed: Vec<_> = entries
            .map(|(name, value)| known(name).unwrap_or_else(|| Printed::new(name, value)))
            .collect();
        Self(Arc::new(Values { values, printed: OnceLock::from(printed) }))
    }

    /// Printed parameters, of which those of the names in `changes` are those of the parameters beside the names.
    pub(crate) fn printed_with<'a>(
        &self,
        changes: impl Iterator<Item = (&'a [&'static str], &'a Self)>,
    ) -> Vec<Printed> {
        let mut printed = self.printed().to_vec();
        for (names, parameters) in changes {
            printed.retain(|printed| !names.contains(&&*printed.name));
            let changed = parameters.printed().iter();
            printed.extend(changed.filter(|one| names.contains(&&*one.name)).cloned());
        }
        printed
    }

    /// Hash of the parameter `name` and its value, in hexadecimal; `None` if it is not given.
    pub(crate) fn hash_of(&self, name: &str) -> Option<String> {
        let printed = self.printed().iter().find(|printed| *printed.name == *name)?;
        let mut text = String::new();
        for byte in printed.hash {
            let _ = write!(text, "{byte:02x}");
        }
        Some(text)
    }

    /// Length of their text in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.printed().iter().map(|printed| printed.text.len()).sum()
    }
}

impl From<Json> for Parameters {
    fn from(values: Json) -> Self {
        Self(Arc::new(Values { values, printed: OnceLock::new() }))
    }
}

impl Deref for Parameters {
    type Target = Json;

    fn deref(&self) -> &Json {
        &self.0.values
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.values.fmt(f)
    }
}

impl PartialEq for Parameters {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.values == other.0.values
    }
}

impl PartialEq<Json> for Parameters {
    fn eq(&self, other: &Json) -> bool {
        self.0.values == *other
    }
}

impl Serialize for Parameters {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.values.serialize(to)
    }
}

#[cfg(test)]
thread_local! {
    /// Bytes of parameters that this thread has printed.
    pub(super) static PRINTED: Cell<usize> = const { Cell::new(0) };
}
