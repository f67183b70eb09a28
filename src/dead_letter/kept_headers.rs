//! The headers of a vendor's response that are kept with the outcome of a request.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The headers of a vendor's response that are kept with a [response](crate::outbox::KeptResponse), a
/// [reply](crate::outbox::Reply) or the last [attempt](crate::dead_letter::AttemptRecord) of a dead letter.
///
/// Left out are headers of the connection, some that are for browsers alone, those whose names say that they carry a
/// credential (such as `Set-Cookie`), and values that are not UTF-8. Of the others 64 are kept, of 16 KiB in all, none
/// of them cut. `***` replaces the secrets of the request, unless a secret has fewer than six characters.
///
/// Their JSON is an array of pairs of name and value, names in lower case. Their `Debug` shows the names alone.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeptHeaders(Vec<(String, String)>);

impl KeptHeaders {
    pub(crate) fn new(pairs: Vec<(String, String)>) -> KeptHeaders {
        KeptHeaders(pairs)
    }

    /// The first value of a header; upper and lower case of the name do not matter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for KeptHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|(name, _)| name)).finish()
    }
}
