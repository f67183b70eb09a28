//! `check`: reports the problems of a configuration, and shows what is enforced by it.

mod effective;
mod findings;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use integration_client::config::{Config, Finding, Sources, Vendor};
use serde_json::{Value, json};

use crate::connect::{self, Configuration};
use crate::key_files::lacks_credential;
use crate::output::{self, ERROR, Failure, GOOD, Outcome, Screen, WARNING, headed};
use crate::sources::{NamedSources, Text};
use crate::text::{count, duration};

const EXAMPLES: &str = "\
Examples:
  integration-client check vendors.toml
  integration-client check vendors.toml --tenants tenants.toml
  integration-client check config.toml --resolver vault   # \"vault:acme-key\"
  integration-client check vendors.toml --json | jq -r '.problems[].message'

Exit codes: 0 nothing is wrong (there may be warnings), 1 something is wrong,
2 a file or a server could not be read.";

/// Checks a file of vendors and tenants, and shows what is enforced for each limit.
///
/// The file extends the shipped catalogue: an entry with `extends = "catalogue"` changes one of its vendors, and tenants
/// may use all of them. Each problem is shown with its place and what to do. The command sends nothing and reads no
/// credential.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file with vendors, tenants, or both, or its URL (https://…, consul+https://…, etcd+https://…,
    /// azure-app-configuration:PREFIX).
    #[arg(required_unless_present = "vendors")]
    file: Option<PathBuf>,

    /// The same file, as other commands name it; FILE takes precedence.
    #[arg(long, value_name = "FILE", env = connect::VENDORS, hide_env_values = true)]
    vendors: Option<PathBuf>,

    /// A file with tenants, if the tenants are in a file of their own, or its URL.
    #[arg(long, value_name = "FILE", env = connect::TENANTS, hide_env_values = true)]
    tenants: Option<PathBuf>,

    /// The mean time between a request and its response. The longer it is, the less of a short window can be used.
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = duration)]
    round_trip: Duration,

    /// The name of a credential resolver that your program registers. May be repeated.
    #[arg(long, value_name = "NAME")]
    resolver: Vec<String>,

    /// Prints one JSON object: whether the file is valid, and every problem and warning with its place.
    #[arg(long)]
    json: bool,

    /// Shows every environment of a vendor, also those that none of its tenants uses.
    #[arg(long)]
    all: bool,

    /// Checks the file without the catalogue, as a program reads it that calls `without_catalogue`.
    #[arg(long)]
    without_catalogue: bool,
}

pub(crate) fn run(args: &Args, screen: Screen, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let file = args.file.as_ref().or(args.vendors.as_ref());
    let configuration = Configuration { vendors: file.cloned(), tenants: args.tenants.clone(), config_copy: None };
    let mut read = NamedSources::read(&configuration)?;
    if let Some(empty) = read.files.iter().find(|file| file.text.trim_ascii().is_empty()) {
        // A client refuses an empty file too: a program that is just about to write a file leaves it empty for a
        // moment.
        let message = "the file is empty; put a comment into it if nothing is what it means";
        if args.json {
            let problem = json!({ "file": empty.name, "message": message });
            return output::found(writeln!(out, "{}", json!({ "good": false, "problems": [problem] })));
        }
        let printed = writeln!(out, "{ERROR}error:{ERROR:#} {}: {message}\n\n{ERROR}1 problem{ERROR:#}", empty.name);
        return output::found(printed);
    }
    let mut base = Sources::new();
    if args.without_catalogue {
        base = base.without_catalogue();
    }
    for name in &args.resolver {
        base = base.resolver(name);
    }
    let sources = connect::runtime()?.block_on(read.onto(base.clone()))?;
    let config = match Config::check(&sources) {
        Ok(config) => config,
        Err(found) if args.json => {
            let problem = |finding: &Finding| {
                let Finding { file, line, column, place, message, .. } = finding;
                json!({ "file": file, "line": line, "column": column, "place": place, "message": message })
            };
            let problems: Vec<Value> = found.iter().map(problem).collect();
            return output::found(writeln!(out, "{}", json!({ "good": false, "problems": problems })));
        }
        Err(found) => return output::found(findings::show(&found, &read.files, screen, out)),
    };
    // Only the vendors that the configuration states and those of its tenants are shown, not the whole catalogue.
    let mut vendors: BTreeSet<String> = read.files.iter().flat_map(stated).collect();
    vendors.extend(config.tenants().map(|tenant| tenant.vendor.name.to_string()));
    if read.has_servers() {
        vendors.extend(differing(&config, &base)?);
    }
    let mut warnings = config.warnings().to_vec();
    warnings.extend(without_credential(&config));
    if args.json {
        let tenants = config.tenants().len();
        let good = json!({ "good": true, "vendors": vendors, "tenants": tenants, "warnings": warnings });
        writeln!(out, "{good}")?;
        return Ok(Outcome::Fine);
    }
    effective::show(&config, &vendors, (args.round_trip, args.all), screen, out)?;
    for warning in &warnings {
        writeln!(out, "{}", headed(screen, WARNING, "warning:", warning))?;
    }
    if !warnings.is_empty() {
        writeln!(out)?;
    }
    writeln!(
        out,
        "{}: {} ({}, {}, {})",
        read.names.join(", "),
        verdict(warnings.len()),
        count(vendors.len(), "vendor"),
        count(config.tenants().len(), "tenant"),
        count(warnings.len(), "warning"),
    )?;
    Ok(Outcome::Fine)
}

/// The last line's verdict. It must not be "nothing is wrong" if there are warnings: a file that was cut in half may be
/// valid, and then only a warning says so.
fn verdict(warnings: usize) -> String {
    match warnings {
        0 => format!("{GOOD}nothing is wrong{GOOD:#}"),
        _ => format!("{WARNING}it can be used, but read what it warns of{WARNING:#}"),
    }
}

/// One warning for each vendor whose `auth` needs a credential and that has tenants without one. It is no error: a program
/// may have a source of tokens for the vendor.
fn without_credential(config: &Config) -> Vec<String> {
    let mut by_vendor = BTreeMap::<&str, Vec<&str>>::new();
    for tenant in config.tenants().filter(|tenant| lacks_credential(tenant)) {
        by_vendor.entry(&tenant.vendor.name).or_default().push(&tenant.id);
    }
    let warning = |(vendor, tenants): (&str, Vec<&str>)| {
        format!(
            "vendor `{vendor}`: no credential is configured for {}, and the vendor's `auth` needs one; state `credential` or \
             `oauth`, unless your program has a `token_source` for the vendor",
            effective::named(&tenants)
        )
    };
    by_vendor.into_iter().map(warning).collect()
}

/// The names under `[vendors]` of a file that was checked before.
fn stated(file: &Text) -> Vec<String> {
    let table: toml::Table = file.text.parse().unwrap_or_default();
    let vendors = table.get("vendors").and_then(toml::Value::as_table);
    vendors.map(|vendors| vendors.keys().cloned().collect()).unwrap_or_default()
}

/// The names of vendors that `base` does not have, or has with other figures. The texts of a server are not known here.
fn differing(config: &Config, base: &Sources) -> Result<Vec<String>, Failure> {
    let before = Config::load(base, 1)?;
    let differs = |vendor: &&Arc<Vendor>| {
        let known = before.vendor(&vendor.name, &vendor.environment);
        known.ok().is_none_or(|known| known != **vendor)
    };
    Ok(config.vendors().iter().filter(differs).map(|vendor| vendor.name.to_string()).collect())
}
