//! From a file's text to what it states, with every mistake of form named at once.
//!
//! The deserializer stops at its first mistake. Here that one is noted and taken out of the parsed document, and the rest is
//! read again, so that one mistake does not hide the others. Only a file with a mistake pays for it.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::format::File;
use super::report::{Finding, Meant, Messages, Path, Step, Text, misspelt, syntax};
use super::source::MAX_BYTES;
use super::validate;

/// Mistakes of form that are looked for in one file: each costs a walk through it.
const MOST: usize = 100;

pub(super) fn too_large(name: &str) -> String {
    format!("{name}: larger than {} MiB; split it, or keep tenants in a database", MAX_BYTES / 1024 / 1024)
}

/// What a file states, without what has a mistake of form, which is then in `messages`. `None` where nothing can be read.
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
    // A text that is no TOML at all has no document.
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

/// Takes what `error` is about out of the document: a misspelt key gets the name that was meant, a key that is missing some
/// value, everything else goes. Returns the place of which nothing more can be said.
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

/// The table whose span this is, and its place.
fn table_at<'d, 'i>(table: &'d mut DeTable<'i>, span: &Range<usize>, path: &mut Path) -> Option<&'d mut DeTable<'i>> {
    let key = table.iter().find(|(_, value)| holds(value, span)).map(|(key, _)| key.get_ref().to_string())?;
    path.push(Step::Key(key.clone()));
    table_in(table.get_mut(key.as_str())?, span, path)
}

/// Like the above, for a value.
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

/// Whether a table with this span is the value, or in it.
fn holds(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    match value.get_ref() {
        DeValue::Table(table) => value.span() == *span || table.values().any(|value| holds(value, span)),
        DeValue::Array(items) => items.iter().any(|item| holds(item, span)),
        _ => false,
    }
}

/// The innermost table with a key that has this span, or whose value, or an item of it, has it; and the key's place.
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

/// Whether this value, or an item of it, has the span.
fn is_at(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    let items = value.get_ref().as_array();
    value.span() == *span || items.into_iter().flatten().any(|item| is_at(item, span))
}

/// Whether something in this value has the span.
fn within(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    is_at(value, span)
        || match value.get_ref() {
            DeValue::Table(table) => table.iter().any(|(key, value)| key.span() == *span || within(value, span)),
            DeValue::Array(items) => items.iter().any(|item| within(item, span)),
            _ => false,
        }
}

/// The step to an item: limits are known by their names.
fn step(index: usize, item: &Spanned<DeValue<'_>>) -> Step {
    let name = item.get_ref().as_table().and_then(|table| table.get("name")).and_then(|name| name.get_ref().as_str());
    match name {
        Some(name) if validate::check_id("a limit's name", name).is_ok() => Step::Named(name.to_owned()),
        _ => Step::Index(index),
    }
}
