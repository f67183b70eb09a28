//! Writes the catalogue as a page of Markdown: docs/VENDORS.md.

use std::collections::BTreeMap;
use std::io::{self, Write};

use integration_client::config::Limit;

use super::entry::Entry;
use crate::text;

pub(super) fn write(entries: &[Entry], out: &mut dyn Write) -> io::Result<()> {
    let mut sure: BTreeMap<String, usize> = BTreeMap::new();
    for limit in entries.iter().flat_map(figures) {
        let confidence = limit.source.as_ref().map_or("without a source", |source| &source.confidence);
        *sure.entry(confidence.to_owned()).or_default() += 1;
    }
    let figures: usize = sure.values().sum();
    let sure: Vec<String> = sure.iter().map(|(confidence, number)| format!("{number} {confidence}")).collect();
    let unpublished = entries.iter().filter(|entry| entry.live.unpublished).count();
    writeln!(
        out,
        "# The catalogue\n\n\
         <!-- Made from vendors.toml by `cargo run -p integration-client-cli -- vendors --markdown > docs/VENDORS.md`. -->\n\n\
         {} vendors and {figures} figures: {}. {unpublished} vendors state no figure that our sources know.\n\n\
         A figure is what a source says and no promise: vendors change theirs, and grant others by plan. What is `from \
         memory` nobody has confirmed: check it against your contract before you rely on it. *Shared by*: `account` is \
         whoever uses one credential or organisation, `vendor` everybody in this process, `endpoint` one tenant's requests \
         to these paths. Another environment's rows show what differs there; a tenant uses it with `environment = \"…\"`. \
         The format, and how to state figures of your own: [vendors.toml](../vendors.toml).\n",
        entries.len(),
        sure.join(", "),
    )?;
    let links: Vec<String> =
        entries.iter().map(|entry| format!("[{0}](#{1})", entry.live.name, anchor(&entry.live.name))).collect();
    writeln!(out, "{}", links.join(" · "))?;
    entries.iter().try_for_each(|entry| vendor(entry, out))
}

/// Every limit of an entry once: those of `live`, and those that differ in other environments.
pub(super) fn figures(entry: &Entry) -> impl Iterator<Item = &Limit> {
    let others = entry.others.iter().flat_map(|other| entry.differing(other).map(|(_, limit)| limit));
    text::limits(&entry.live).map(|(_, limit)| limit).chain(others)
}

/// The anchor that GitHub makes from a heading.
fn anchor(name: &str) -> String {
    name.to_lowercase().chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

fn vendor(entry: &Entry, out: &mut dyn Write) -> io::Result<()> {
    let live = &entry.live;
    writeln!(out, "\n## {}\n\n`{}`, credential: {}", live.name, live.base_url, text::auth(&live.auth))?;
    if !live.also.is_empty() {
        writeln!(out, "· also: {}", live.also.join(", "))?;
    }
    for other in entry.others.iter().filter(|other| other.base_url != live.base_url) {
        writeln!(out, "· `{}`: `{}`", other.environment, other.base_url)?;
    }
    let live_rows = text::limits(live).map(|(endpoint, limit)| (String::new(), text::name(endpoint, limit), limit));
    let other_rows = entry.others.iter().flat_map(|other| {
        entry.differing(other).map(|(name, limit)| (format!("`{}` ", other.environment), name, limit))
    });
    let rows: Vec<(String, String, &Limit)> = live_rows.chain(other_rows).collect();
    if !rows.is_empty() {
        writeln!(out, "\n| limit | allows | counted by | shared by | how sure | source |\n|---|---|---|---|---|---|")?;
    }
    for (environment, name, limit) in rows {
        let (sure, source) = limit.source.as_ref().map_or(("-", "-".to_owned()), |source| {
            let read = if source.as_of.is_empty() { String::new() } else { format!(" ({})", source.as_of) };
            (source.confidence.as_str(), cell(&links(&source.reference)) + &read)
        });
        let (allows, algorithm, scope) = (text::allows(limit), text::algorithm(limit), limit.scope.name());
        writeln!(out, "| {environment}{name} | {allows} | {algorithm} | {scope} | {sure} | {source} |")?;
    }
    if !live.quirks.is_empty() {
        writeln!(out)?;
    }
    live.quirks.iter().try_for_each(|quirk| writeln!(out, "- {}", escaped(quirk)))
}

/// Escapes a text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Puts URLs into angle brackets. Without them, the semicolon after a URL would become part of the link.
fn links(text: &str) -> String {
    let linked = |part: &str| match part.split_once(' ') {
        _ if !part.starts_with("https://") => escaped(part),
        Some((address, rest)) => format!("<{address}> {}", escaped(rest)),
        None => format!("<{part}>"),
    };
    text.split("; ").map(linked).collect::<Vec<_>>().join("; ")
}

/// Escapes characters that have a meaning in Markdown, except in code.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    let mut code = false;
    for c in text.chars() {
        code ^= c == '`';
        if !code && matches!(c, '*' | '_' | '<' | '>' | '[' | ']') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
