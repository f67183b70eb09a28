//! Reads dialects alone, for tests, from files that are not complete configurations. `validate/dialect.rs` checks the
//! rules of each dialect.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::File;
use super::report::{Layer, Messages, Report, Text, at, syntax};
use super::validate;
use crate::Error;
use crate::signals::Dialect;

/// The dialects of the vendors in `text`, by vendor. Other fields of the vendors are not checked.
pub(crate) fn dialects(name: &str, text: &str) -> Result<BTreeMap<String, Arc<Dialect>>, Error> {
    let source = Text { name, text };
    let mut messages = Messages::default();
    let file = toml::from_str::<File>(text).map_err(|error| Error::config(syntax(source, &error).to_string()))?;
    let mut found = BTreeMap::new();
    for (vendor, entry) in &file.vendors {
        let mut report = Report::default();
        let costs = validate::costs(&entry.costs, &mut report);
        let dialect = validate::dialect(entry.dialect.as_ref(), &costs, &at(&[], "dialect"), &mut report);
        let layer = Layer { file: Some(source), base: vec!["vendors".into(), vendor.as_str().into()] };
        report.problems.iter().for_each(|problem| messages.add(std::slice::from_ref(&layer), problem));
        found.insert(vendor.clone(), Arc::new(dialect));
    }
    if messages.is_empty() { Ok(found) } else { Err(messages.into_error()) }
}
