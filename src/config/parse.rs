//! Parses a configuration file, and reports all its syntax and type errors at once.
//!
//! The deserializer stops at the first error. This module reports that error, removes its cause from the parsed
//! document, and deserializes the document again, so that one error does not hide the others. Only a file with errors
//! pays for it.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::format::File;
use super::report::{Finding, Meant, Messages, Path, Step, Text, misspelt, syntax};
use super::source::MAX_BYTES;
use super::validate;

/// The most errors that are reported for one file: each costs a walk through the file.
const MOST: usize = 100;

pub(super) fn too_large(name: &str) -> String {
    format!("{name}: larger than {} MiB; split it, or keep tenants in a database", MAX_BYTES / 1024 / 1024)
}

/// Parses a file. Adds its errors to `messages` and returns the file without the values that caused them; `None` if the
/// file is too large or no TOML, or has too many errors.
pub(super) fn parse<'a>(name: &'a str, text: &'a str, messages: &mut Messages<'a>) -> Option<(Text<'a>, File)> {
    let source = Text { name, text };
    if text.len() as u64 > MAX_BYTES {
        messages.push(Finding::plain(too_large(name)));
        return None;
    }
    let mut error = match toml::from_str::<File>(text) {
        Ok(file) => return Some((source, file)),
        Err(error) => error,
    };
    messages.push(syntax(source, &error));
    // This fails if the text is not TOML at all.
    let mut document = DeTable::parse(text).ok()?;
    for _ in 1..MOST {
        let unread = take_out(document.get_mut(), &error)?;
        messages.leave_out(source, unread);
        match File::deserialize(toml::de::Deserializer::from(document.clone())) {
            Ok(file) => {
                messages.read_as(source, document);
                return Some((source, file));
            }
            Err(next) => error = next,
        }
        messages.push(syntax(source, &error));
    }
    messages.push(Finding::plain(format!("{name}: there may be more; mend these first")));
    None
}

/// Removes the cause of `error` from the document: renames a misspelt key to the key that was meant, adds a missing key
/// with a placeholder value, and removes any other key. Returns the path of the value, for which further problems must
/// not be reported.
fn take_out(document: &mut DeTable<'_>, error: &toml::de::Error) -> Option<Path> {
    let span = error.span()?;
    let mut path = Path::new();
    if let Some(missing) = error.message().strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        let table = table_at(document, &span, &mut path)?;
        let some = DeValue::String("unread".into());
        table.insert(Spanned::new(span.clone(), missing.to_owned().into()), Spanned::new(span, some));
        path.push(missing.into());
        return Some(path);
    }
    let (table, key) = key_at(document, &span, &mut path)?;
    let value = table.remove(key.as_str())?;
    if let Some((_, Meant::One(meant))) = misspelt(error.message())
        && !table.contains_key(meant)
    {
        table.insert(Spanned::new(span, meant.to_owned().into()), value);
    }
    Some(path)
}

/// Finds the table with this span, and adds its path to `path`.
fn table_at<'d, 'i>(table: &'d mut DeTable<'i>, span: &Range<usize>, path: &mut Path) -> Option<&'d mut DeTable<'i>> {
    let key = table.iter().find(|(_, value)| holds(value, span)).map(|(key, _)| key.get_ref().to_string())?;
    path.push(Step::Key(key.clone()));
    table_in(table.get_mut(key.as_str())?, span, path)
}

/// Like [`table_at`], but searches one value.
fn table_in<'d, 'i>(
    value: &'d mut Spanned<DeValue<'i>>,
    span: &Range<usize>,
    path: &mut Path,
) -> Option<&'d mut DeTable<'i>> {
    let is_it = value.span() == *span;
    match value.get_mut() {
        DeValue::Table(table) => {
            if is_it {
                Some(table)
            } else {
                table_at(table, span, path)
            }
        }
        DeValue::Array(items) => {
            let index = items.iter().position(|item| holds(item, span))?;
            let item = items.get_mut(index)?;
            path.push(step(index, item));
            table_in(item, span, path)
        }
        _ => None,
    }
}

/// Whether the value is, or contains, a table with this span.
fn holds(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    match value.get_ref() {
        DeValue::Table(table) => value.span() == *span || table.values().any(|value| holds(value, span)),
        DeValue::Array(items) => items.iter().any(|item| holds(item, span)),
        _ => false,
    }
}

/// Finds the innermost table with a key such that the key, its value or an item of its value has this span. Returns the
/// table and the key, and adds the key's path to `path`.
fn key_at<'d, 'i>(
    table: &'d mut DeTable<'i>,
    span: &Range<usize>,
    path: &mut Path,
) -> Option<(&'d mut DeTable<'i>, String)> {
    let found = table.iter().find(|(key, value)| key.span() == *span || within(value, span));
    let (key, is_here) =
        found.map(|(key, value)| (key.get_ref().to_string(), key.span() == *span || is_at(value, span)))?;
    path.push(Step::Key(key.clone()));
    if is_here {
        return Some((table, key));
    }
    match table.get_mut(key.as_str())?.get_mut() {
        DeValue::Table(table) => key_at(table, span, path),
        DeValue::Array(items) => {
            let index = items.iter().position(|item| within(item, span))?;
            let item = items.get_mut(index)?;
            path.push(step(index, item));
            let DeValue::Table(table) = item.get_mut() else { return None };
            key_at(table, span, path)
        }
        _ => None,
    }
}

/// Whether this value, or an item of this array, has the span.
fn is_at(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    let items = value.get_ref().as_array();
    value.span() == *span || items.into_iter().flatten().any(|item| is_at(item, span))
}

/// Whether this value, or a key or value inside it, has the span.
fn within(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    is_at(value, span)
        || match value.get_ref() {
            DeValue::Table(table) => table.iter().any(|(key, value)| key.span() == *span || within(value, span)),
            DeValue::Array(items) => items.iter().any(|item| within(item, span)),
            _ => false,
        }
}

/// The step to an item of an array: its valid `name`, if it has one, else its index.
fn step(index: usize, item: &Spanned<DeValue<'_>>) -> Step {
    let name = item.get_ref().as_table().and_then(|table| table.get("name")).and_then(|name| name.get_ref().as_str());
    match name {
        Some(name) if validate::check_id("a limit's name", name).is_ok() => Step::Named(name.to_owned()),
        _ => Step::Index(index),
    }
}
