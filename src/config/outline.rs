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
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn outline_survives_invalid_values() {
        let text = "[[tenants]]\nid = \"a\"\nvendor = 5\nweigth = 0\n[[tenants]]\nvendor = \"v\"\n[vendor.v]\nx = 1\n";
        let outline = Outline::of(text).unwrap();
        assert_eq!(outline.keys, ["tenants", "vendor"]);
        let names: Vec<_> =
            outline.tenants.iter().map(|tenant| (tenant.id.as_deref(), tenant.vendor.as_deref())).collect();
        assert_eq!(names, [(Some("a"), None), (None, Some("v"))]);
        let single = Outline::of("[tenants]\nid = \"a\"\n").unwrap();
        assert_eq!(single.tenants.first().and_then(|tenant| tenant.id.as_deref()), Some("a"));
        assert!(Outline::of("[[tenants]\n").is_none());
    }

    #[test]
    fn tenant_ids_come_from_all_texts() {
        let table = |id: &str| format!("[[tenants]]\nid = \"{id}\"\nvendor = \"v\"\n");
        let sources = Sources::new().file("f", table("a")).over("o", table("b")).row("r", table("c"));
        let sources = sources.tenant(crate::config::TenantEntry::new("d", "v"));
        assert_eq!(sources.tenant_ids().into_iter().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }
}
