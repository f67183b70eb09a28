//! Headers that carry secrets beside the credential: as an entry states them, and validated.

use std::collections::BTreeMap;
use std::fmt;

use http::HeaderName;
use serde::{Deserialize, Deserializer, Serialize};

use super::credential::CredentialRef;
use super::reference::reference;

/// `secret_headers = { NAME = "env:…" }`: the names of headers, and where their secrets are.
#[derive(Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct SecretHeaders(BTreeMap<String, String>);

/// A reference as written.
#[derive(Deserialize)]
#[serde(transparent)]
struct Written(#[serde(deserialize_with = "reference")] Option<String>);

impl<'de> Deserialize<'de> for SecretHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = BTreeMap::<String, Written>::deserialize(deserializer)?;
        // The validation reports an empty reference.
        let stated = written.into_iter().map(|(name, Written(reference))| (name, reference.unwrap_or_default()));
        Ok(SecretHeaders(stated.collect()))
    }
}

impl SecretHeaders {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The names as written, each with its reference.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, reference)| (name.as_str(), reference.as_str()))
    }

    /// Sets the reference of a header, in place of one whose name differs only in case.
    pub(super) fn set(&mut self, name: impl Into<String>, reference: impl Into<String>) {
        let name = name.into();
        self.0.retain(|known, _| !known.eq_ignore_ascii_case(&name));
        self.0.insert(name, reference.into());
    }
}

impl fmt::Debug for SecretHeaders {
    /// Shows the names alone: while unchecked, a reference may be the secret itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A header that carries a secret beside the credential, such as Datadog's `dd-application-key`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecretHeader {
    /// The header's name.
    pub name: HeaderName,
    /// Where the secret is, never the secret.
    pub secret: CredentialRef,
}

/// The headers as a program or a row states them.
pub(super) fn as_written(headers: &[SecretHeader]) -> SecretHeaders {
    SecretHeaders(headers.iter().map(|header| (header.name.to_string(), header.secret.to_string())).collect())
}

#[cfg(test)]
mod tests;
