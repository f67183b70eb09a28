//! What a text states at its top, whether or not the rest of it is valid.

use std::collections::BTreeSet;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::source::Sources;

/// The tables of a text, and the tenants in it.
#[derive(Debug)]
pub(crate) struct Outline {
    /// The keys at the top, known or not.
    pub(crate) keys: Vec<String>,
    pub(crate) tenants: Vec<TenantName>,
}

/// The id and the vendor of a tenant's table; `None` for one that is missing or no text.
#[derive(Debug)]
pub(crate) struct TenantName {
    pub(crate) id: Option<String>,
    pub(crate) vendor: Option<String>,
}

impl Outline {
    /// Reads a text. Returns `None` if it is no TOML.
    pub(crate) fn of(text: &str) -> Option<Outline> {
        let document = DeTable::parse(text).ok()?;
        let document = document.get_ref();
        let tables: Vec<&DeValue<'_>> = match document.get("tenants").map(Spanned::get_ref) {
            Some(DeValue::Array(tables)) => tables.iter().map(Spanned::get_ref).collect(),
            // `[tenants]` in place of `[[tenants]]`.
            other => other.into_iter().collect(),
        };
        let text_of = |table: &DeValue<'_>, key: &str| {
            let value = table.as_table().and_then(|table| table.get(key))?;
            value.get_ref().as_str().map(str::to_owned)
        };
        let tenants = tables.into_iter();
        let tenants = tenants.map(|table| TenantName { id: text_of(table, "id"), vendor: text_of(table, "vendor") });
        let keys = document.iter().map(|(key, _)| key.get_ref().to_string()).collect();
        Some(Outline { keys, tenants: tenants.collect() })
    }
}

impl Sources {
    /// The ids of the tenants that texts and program state.
    pub(crate) fn tenant_ids(&self) -> BTreeSet<String> {
        let texts = self.files.iter().chain(&self.over).chain(&self.rows);
        let in_texts = texts.filter_map(|text| Outline::of(&text.text)).flat_map(|outline| outline.tenants);
        let of_program = self.tenants.iter().map(|entry| entry.id.clone());
        in_texts.filter_map(|tenant| tenant.id).chain(of_program).collect()
    }
}

#[cfg(test)]
mod tests;
