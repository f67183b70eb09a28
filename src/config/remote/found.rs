//! The texts that a configuration server returns.

/// A name and a text in the format of `vendors.toml`.
pub(super) type Text = (String, String);

/// A response that holds texts.
pub(super) struct Found {
    /// The entity tag, if the server states one.
    pub(super) tag: Option<String>,
    pub(super) texts: Vec<Text>,
}
