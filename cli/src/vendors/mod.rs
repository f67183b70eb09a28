//! `vendors`: shows the vendors of the catalogue with their limits.

mod entry;
mod json;
mod one;
mod page;
mod summary;

use std::io::Write;
use std::path::PathBuf;

use self::entry::Entry;
use crate::connect::{self, Configuration};
use crate::output::{FAINT, Failure, Outcome, Screen, table};
use crate::{sources, text};

const EXAMPLES: &str = "\
Examples:
  integration-client vendors
  integration-client vendors shopify
  integration-client vendors gmail
  integration-client vendors --json | jq '.[] | select(.unpublished)'

Exit codes: 0 shown, 2 there is no such vendor.";

/// Lists the vendors of the catalogue, or shows one with its limits, their sources, and what to know about it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A vendor: its name, another name of it (gmail), or a part of either. All vendors that match are listed.
    name: Option<String>,

    /// Prints one JSON document: an array, or an object if NAME names one vendor.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Prints the page docs/VENDORS.md.
    #[arg(long, conflicts_with = "name")]
    markdown: bool,

    /// Prints how many figures have which source, and which figures were read more than nine months ago.
    #[arg(long, conflicts_with_all = ["name", "json", "markdown"])]
    summary: bool,

    /// A file with vendors of your own, in addition to the catalogue, or its URL (https://…, consul+https://…, etcd+https://…,
    /// azure-app-configuration:PREFIX).
    #[arg(long, value_name = "FILE", alias = "vendors-file", env = connect::VENDORS, hide_env_values = true)]
    vendors: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, screen: Screen, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let configuration = Configuration { vendors: args.vendors.clone(), tenants: None, config_copy: None };
    let config = sources::load(&configuration)?;
    let entries = match &args.name {
        None => Entry::all(&config),
        Some(name) => named(name, Entry::all(&config)),
    };
    if let (Some(name), true) = (&args.name, entries.is_empty()) {
        let error = config.vendor(name, "live").err().map_or_else(String::new, |error| error.to_string());
        return Err(Failure::Input(unknown(name, &error)));
    }
    match entries.as_slice() {
        [entry] if args.name.is_some() && args.json => writeln!(out, "{:#}", json::entry(entry))?,
        entries if args.json => {
            writeln!(out, "{:#}", serde_json::Value::Array(entries.iter().map(json::entry).collect()))?
        }
        entries if args.markdown => page::write(entries, out)?,
        entries if args.summary => {
            summary::write(entries, jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date(), screen, out)?
        }
        [entry] if args.name.is_some() => one::show(entry, screen, out)?,
        entries => list(entries, screen, out)?,
    }
    Ok(Outcome::Fine)
}

/// The entries that `name` matches: the entry with this name, else those with this further name, else those with a name
/// that contains it.
fn named(name: &str, entries: Vec<Entry>) -> Vec<Entry> {
    /// The shortest part of a name that is searched for: a shorter one would match too many.
    const PART: usize = 3;
    let wanted = name.to_lowercase();
    let exact = |entry: &Entry| *entry.live.name == *wanted;
    let also = |entry: &Entry| entry.live.also.contains(&wanted);
    let part = |entry: &Entry| {
        let names = entry.live.also.iter().map(String::as_str).chain([&*entry.live.name]);
        wanted.len() >= PART && names.into_iter().any(|name| name.contains(&wanted))
    };
    let ways: [&dyn Fn(&Entry) -> bool; 3] = [&exact, &also, &part];
    match ways.into_iter().find(|way| entries.iter().any(way)) {
        Some(way) => entries.into_iter().filter(|entry| way(entry)).collect(),
        None => Vec::new(),
    }
}

/// The error message for a name that no vendor has.
fn unknown(name: &str, error: &str) -> String {
    match error.contains("did you mean") {
        true => error.to_owned(),
        false => format!("vendor {name:?} is not configured; `integration-client vendors` lists those that are"),
    }
}

fn list(entries: &[Entry], screen: Screen, out: &mut dyn Write) -> std::io::Result<()> {
    let rows = entries.iter().map(|entry| {
        let mut limits = text::limits(&entry.live);
        let first = limits.next().map_or("not known".to_owned(), |(_, limit)| text::allows(limit));
        let first = match limits.count() {
            0 => first,
            more => format!("{first}, {more} more"),
        };
        let others: Vec<&str> = entry.others.iter().map(|vendor| &*vendor.environment).collect();
        vec![entry.live.name.to_string(), first, others.join(", ")]
    });
    write!(out, "{}", table(screen, &["vendor", "limits", "environments"], rows.collect(), &[]))?;
    let vendors = text::count(entries.len(), "vendor");
    writeln!(out, "\n{FAINT}{vendors}. All about one: integration-client vendors NAME, or a part of it{FAINT:#}")
}
