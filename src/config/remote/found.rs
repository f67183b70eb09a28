//! The texts that a configuration server returns.

use super::super::source::Fnv;

/// A name and a text in the format of `vendors.toml`.
pub(super) type Text = (String, String);

/// A response that holds texts.
pub(super) struct Found {
    /// The entity tag, if the server states one.
    pub(super) tag: Option<String>,
    pub(super) texts: Vec<Text>,
}

/// The same for the same names and texts.
pub(super) fn fingerprint(texts: &[Text]) -> u64 {
    let mut hash = Fnv::default();
    for (name, text) in texts {
        hash.text(name);
        hash.text(text);
    }
    hash.0
}
