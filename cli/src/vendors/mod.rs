//! `vendors`: what the catalogue knows.

mod json;
mod one;
mod page;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use integration_client::config::{Config, Limit, Sources, Vendor};

use crate::output::{FAINT, Failure, Outcome, Screen, table};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  integration-client vendors
  integration-client vendors shopify
  integration-client vendors --json | jq '.[] | select(.unpublished)'

Exit codes: 0 shown, 2 there is no such vendor.";

/// Lists the vendors of the catalogue, or shows one with its limits, their sources, and what to know about it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// One vendor.
    name: Option<String>,

    /// As JSON.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// As the page docs/VENDORS.md.
    #[arg(long, conflicts_with = "name")]
    markdown: bool,

    /// A file with vendors of your own, beside the catalogue.
    #[arg(long, value_name = "FILE", alias = "vendors-file", env = crate::connect::VENDORS, hide_env_values = true)]
    vendors: Option<PathBuf>,
}

/// A vendor in its environments; the first one is `live`.
struct Entry {
    live: Arc<Vendor>,
    others: Vec<Arc<Vendor>>,
}

impl Entry {
    fn all(config: &Config) -> Vec<Entry> {
        let of = |name: &str| {
            let (live, others): (Vec<Arc<Vendor>>, Vec<Arc<Vendor>>) = config
                .vendors()
                .iter()
                .filter(|vendor| &*vendor.name == name)
                .cloned()
                .partition(|vendor| &*vendor.environment == "live");
            Some(Entry { live: live.into_iter().next()?, others })
        };
        config.vendors().names().filter_map(of).collect()
    }

    /// The limits of an environment that differ from those of `live`, with what they are called.
    fn differing<'e>(&'e self, other: &'e Vendor) -> impl Iterator<Item = (String, &'e Limit)> {
        let named =
            |vendor: &'e Vendor| text::limits(vendor).map(|(endpoint, limit)| (text::name(endpoint, limit), limit));
        named(other).filter(move |(name, limit)| {
            named(&self.live).find(|(other, _)| other == name).is_none_or(|(_, of_live)| of_live != *limit)
        })
    }
}

pub(crate) fn run(args: &Args, screen: Screen, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let mut sources = Sources::new();
    if let Some(path) = &args.vendors {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::reading(path, &error))?;
        sources = sources.file(path.display().to_string(), text);
    }
    let config = Config::load(&sources, 1).map_err(|error| Failure::Input(error.to_string()))?;
    if let Some(name) = &args.name {
        config.vendor(name, "live").map_err(|error| Failure::Input(unknown(name, &config, &error.to_string())))?;
    }
    let wanted = |entry: &Entry| args.name.as_deref().is_none_or(|name| name == &*entry.live.name);
    let entries: Vec<Entry> = Entry::all(&config).into_iter().filter(wanted).collect();
    match entries.as_slice() {
        [entry] if args.name.is_some() && args.json => writeln!(out, "{:#}", json::entry(entry))?,
        entries if args.json => {
            writeln!(out, "{:#}", serde_json::Value::Array(entries.iter().map(json::entry).collect()))?
        }
        entries if args.markdown => page::write(entries, out)?,
        [entry] if args.name.is_some() => one::show(entry, screen, out)?,
        entries => list(entries, screen, out)?,
    }
    Ok(Outcome::Fine)
}

/// What people call a vendor whom the catalogue has under another name.
const ALSO: [(&str, &str); 14] = [
    ("atlassian", "jira"),
    ("calendar", "google"),
    ("drive", "google"),
    ("facebook", "meta"),
    ("gmail", "google"),
    ("graph", "msgraph"),
    ("instagram", "meta"),
    ("microsoft", "msgraph"),
    ("office365", "msgraph"),
    ("outlook", "msgraph"),
    ("sharepoint", "msgraph"),
    ("sheets", "google"),
    ("twitter", "x"),
    ("youtube", "google"),
];

/// Nobody has this name: who may be meant.
fn unknown(name: &str, config: &Config, error: &str) -> String {
    let wanted = name.to_lowercase();
    let known = |vendor: &&str| config.vendors().names().any(|name| name == *vendor);
    let also = ALSO.iter().find(|(other, _)| *other == wanted).map(|(_, vendor)| *vendor);
    if let Some(vendor) = also.filter(known) {
        return format!("vendor {name:?}: the catalogue has it as `{vendor}`");
    }
    let parts: Vec<&str> = match wanted.len() {
        0..3 => Vec::new(),
        _ => config.vendors().names().filter(|vendor| vendor.contains(&wanted)).collect(),
    };
    if !parts.is_empty() && !error.contains("did you mean") {
        return format!("vendor {name:?} is not configured; did you mean `{}`?", parts.join("` or `"));
    }
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
