//! What a server of configuration said.

/// A name and a text in the format of `vendors.toml`.
pub(super) type Text = (String, String);

/// An answer that holds texts.
pub(super) struct Found {
    /// The entity tag, where the server states one.
    pub(super) tag: Option<String>,
    pub(super) texts: Vec<Text>,
}
