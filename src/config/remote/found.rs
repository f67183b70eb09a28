//! What a server of configuration said.

/// A name and a text in the format of `vendors.toml`.
pub(super) type Text = (String, String);

/// Texts, with what changes when they do.
pub(super) struct Found {
    pub(super) mark: String,
    pub(super) texts: Vec<Text>,
}
