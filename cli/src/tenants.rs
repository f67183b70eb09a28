//! `tenants`: lists the tenants of files and of a store, and sets or retires those of a store.

mod elsewhere;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use integration_client::config::TenantEntry;
use integration_client::{ErrorKind, IntegrationClient};
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::elsewhere::Elsewhere;
use crate::connect::{self, Configuration, Named, StoreOption, in_words};
use crate::consent::Consent;
use crate::notes;
use crate::output::{self, Failure, Outcome, Screen};
use crate::text::count;

const EXAMPLES: &str = "\
Examples:
  integration-client tenants list --vendors vendors.toml
  integration-client tenants set acme github --credential env:ACME_TOKEN \\
      --store app.sqlite
  integration-client tenants set acme parcels --var region=eu \\
      --credential file:/run/secrets/acme --limit minute=1200 --store …
  integration-client tenants retire acme --store …
  integration-client tenants cleanup --active ids.txt --dry-run --store …

A credential is a reference to where the secret is (env:NAME, file:PATH), never
the secret. A tenant in the store is in use within 2 s in every process that
reads it (`run`, `serve` and `intake` do; programs say `config_in_store`).

`retire` and `cleanup` remove tenants from the store alone. With --vendors and
--tenants they say which of these are stated in a file or on a server too, and
are still served.

Exit codes: 0 it was done, 1 a tenant is not there, or is still served, 2 it
could not be done, or was not confirmed.";

/// Lists tenants, and sets or retires those in a store.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,

    #[command(flatten)]
    configuration: Global,
}

/// Options that may stand before and behind the subcommand.
#[derive(clap::Args)]
struct Global {
    /// A file with vendors, tenants or both, or its URL.
    #[arg(long, value_name = "FILE", global = true, display_order = 101, env = connect::VENDORS, hide_env_values = true)]
    vendors: Option<PathBuf>,
    /// A file with tenants, if the tenants are in a file of their own, or its URL.
    #[arg(long, value_name = "FILE", global = true, display_order = 102, env = connect::TENANTS, hide_env_values = true)]
    tenants: Option<PathBuf>,
    /// The store: a SQLite file, `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    #[arg(long, value_name = "URL", global = true, display_order = 103, env = connect::STORE, hide_env_values = true, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    store: Option<String>,
    /// Prints JSON.
    #[arg(long, global = true, display_order = 104)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Lists the tenants of the files and of the store.
    List,
    /// Adds a tenant to the store, or replaces it.
    ///
    /// The whole row of the tenant at the vendor is replaced: what the command does not state is not kept from the row
    /// before. State all options again.
    Set(Set),
    /// Removes a tenant from the store, at one vendor or at all vendors.
    Retire {
        /// The tenant's id.
        id: String,
        /// The vendor [default: all vendors].
        vendor: Option<String>,
        /// Shows what the command would do, and changes nothing.
        #[arg(long, display_order = 90)]
        dry_run: bool,
    },
    /// Removes every tenant from the store whose id is not in a list.
    Cleanup {
        /// The file with the ids of the tenants that stay, one per line; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        active: PathBuf,
        #[command(flatten)]
        consent: Consent,
    },
}

#[derive(clap::Args)]
struct Set {
    /// The tenant's id.
    id: String,
    /// The vendor.
    vendor: String,
    /// Where the secret is: `env:NAME` or `file:PATH`.
    #[arg(long, value_name = "REFERENCE")]
    credential: Option<String>,
    /// A header with a secret beside the credential, and where the secret is. May be repeated.
    #[arg(long, value_name = "NAME=REFERENCE", value_parser = pair)]
    secret_header: Vec<(String, String)>,
    /// The vendor account, when several tenants use one credential.
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// The vendor's environment or plan.
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,
    /// A variable of the vendor's base URL. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    var: Vec<(String, String)>,
    /// A limit that differs for this tenant. May be repeated.
    #[arg(long, value_name = "NAME=UNITS", value_parser = pair)]
    limit: Vec<(String, String)>,
    /// The part of the vendor's limits that this process may use, above 0 and at most 1.
    #[arg(long)]
    share: Option<f64>,
    /// The tenant's weight in limits that several tenants share, from 1 to 1000.
    #[arg(long)]
    weight: Option<u32>,
}

/// Refuses a name that an option states twice: the first value would silently be dropped.
fn refuse_twice(option: &str, pairs: &[(String, String)], is_same: fn(&str, &str) -> bool) -> Result<(), Failure> {
    for (number, (name, _)) in pairs.iter().enumerate() {
        if pairs.iter().take(number).any(|(before, _)| is_same(before, name)) {
            return Err(Failure::Input(format!("{option}: {name} is stated twice; state it once")));
        }
    }
    Ok(())
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The content of a row in the store's configuration, as this command writes it.
#[derive(Serialize, Deserialize)]
struct Row {
    tenants: Vec<TenantEntry>,
}

const WHICH: &str = "which store? Name it with --store; tenants in files are changed in their files";

/// The name of the row for a tenant at a vendor.
fn row(id: &str, vendor: &str) -> String {
    format!("tenant {id} at {vendor}")
}

pub(crate) fn run(args: &Args, screen: Screen, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let runtime = connect::runtime()?;
    runtime.block_on(async {
        match &args.what {
            What::List => list(&args.configuration, screen, out).await,
            What::Set(set) => args.configuration.set(set, out).await,
            What::Retire { id, vendor, dry_run } => {
                args.configuration.retire(id, vendor.as_deref(), *dry_run, out).await
            }
            What::Cleanup { active, consent } => args.configuration.cleanup(active, *consent, out).await,
        }
    })
}

impl Global {
    fn configuration(&self) -> Configuration {
        Configuration { vendors: self.vendors.clone(), tenants: self.tenants.clone(), config_copy: None }
    }

    /// A client with the configuration of the files and the store, which sends nothing. With `make`, a store that does
    /// not exist is created.
    async fn client(&self, make: bool) -> Result<IntegrationClient, Failure> {
        let mut builder = self.configuration().builder()?;
        if let Some(store) = &self.store {
            let named = Named::new(store);
            if !make {
                named.must_be_there()?;
            }
            builder = builder.store(named.store()).config_in_store();
        }
        builder.without_watching().build().await.map_err(|error| {
            let about = in_words(&error);
            match (error.kind(), &self.vendors) {
                (ErrorKind::Config, None) => {
                    Failure::Input(format!("{about} (--vendors names the file of your vendors)"))
                }
                _ => Failure::Input(about),
            }
        })
    }

    /// A client that reads and changes the store's rows without validating them.
    async fn rows_alone(&self) -> Result<IntegrationClient, Failure> {
        let store = self.store.clone().ok_or_else(|| Failure::Input(WHICH.to_owned()))?;
        StoreOption { store }.open().await
    }

    async fn set(&self, set: &Set, out: &mut dyn Write) -> Result<Outcome, Failure> {
        if self.store.is_none() {
            return Err(Failure::Input(WHICH.to_owned()));
        }
        // The names of headers have no case.
        refuse_twice("--secret-header", &set.secret_header, str::eq_ignore_ascii_case)?;
        refuse_twice("--var", &set.var, |one, other| one == other)?;
        refuse_twice("--limit", &set.limit, |one, other| one == other)?;
        let client = self.client(true).await?;
        let mut entry = TenantEntry::new(&set.id, &set.vendor);
        if let Some(credential) = &set.credential {
            entry = entry.credential(credential);
        }
        for (name, reference) in &set.secret_header {
            entry = entry.secret_header(name, reference);
        }
        if let Some(account) = &set.account {
            entry = entry.account(account);
        }
        if let Some(environment) = &set.environment {
            entry = entry.environment(environment);
        }
        for (name, value) in &set.var {
            entry = entry.variable(name, value);
        }
        for (name, units) in &set.limit {
            let number =
                units.parse().map_err(|_| Failure::Input(format!("--limit {name}={units}: {units} is no number")))?;
            entry = entry.limit(name, number);
        }
        if let Some(share) = set.share {
            entry = entry.share(share);
        }
        if let Some(weight) = set.weight {
            entry = entry.weight(weight);
        }
        // Validates the tenant before it is written to the store.
        client.tenants().set(entry.clone())?;
        let text = toml::to_string(&Row { tenants: vec![entry] })
            .map_err(|error| Failure::Input(format!("the tenant cannot be written as TOML: {error}")))?;
        client.config().set_stored(&row(&set.id, &set.vendor), Some(&text)).await?;
        match self.json {
            true => writeln!(out, "{}", json!({ "set": { "id": set.id, "vendor": set.vendor } }))?,
            false => {
                writeln!(out, "{} at {} is set; processes that read the store use it within 2 s", set.id, set.vendor)?
            }
        }
        Ok(Outcome::Fine)
    }

    /// The names and the tenants of the rows that this command wrote.
    async fn rows(&self, client: &IntegrationClient) -> Result<Vec<(String, TenantEntry)>, Failure> {
        let rows = client.config().stored().await?;
        let ours = rows.into_iter().filter_map(|(name, text)| {
            let mut row: Row = toml::from_str(&text).ok().filter(|_| name.starts_with("tenant "))?;
            Some((name, row.tenants.pop()?))
        });
        Ok(ours.collect())
    }

    /// Removes rows, or with `really` false says what that would do. The outcome is `Found` if a tenant is still served,
    /// or may be.
    async fn remove(
        &self,
        client: &IntegrationClient,
        gone: Vec<(String, TenantEntry)>,
        really: bool,
        out: &mut dyn Write,
    ) -> Result<Outcome, Failure> {
        let mut outcome = Outcome::Fine;
        let elsewhere = elsewhere::find(&self.configuration(), client, &gone).await.unwrap_or_else(|failure| {
            // Rows can be removed all the same, because that may be what makes the configuration valid again.
            notes::say(&format!("whether tenants are stated elsewhere too, and still served, is unknown: {failure}"));
            outcome = Outcome::Found;
            BTreeMap::new()
        });
        if !elsewhere.is_empty() {
            outcome = Outcome::Found;
        }
        let (mut removed, mut failed) = (Vec::new(), None);
        // All rows are removed before a word is written: a reader that goes away must not end the work.
        for (name, entry) in gone {
            if really && let Err(error) = client.config().set_stored(&name, None).await {
                failed = Some(error);
                break;
            }
            removed.push(entry);
        }
        let said = self.say_removed(&removed, &elsewhere, really, out);
        match failed {
            Some(error) => Err(error.into()),
            None => said.map(|()| outcome),
        }
    }

    fn say_removed(
        &self,
        removed: &[TenantEntry],
        elsewhere: &BTreeMap<(String, String), Elsewhere>,
        really: bool,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let still = |entry: &TenantEntry| elsewhere.get(&(entry.id().to_owned(), entry.vendor().to_owned()));
        if self.json {
            let id = |entry: &TenantEntry| {
                let mut shown = json!({ "id": entry.id(), "vendor": entry.vendor() });
                if let Some(still) = still(entry) {
                    shown["stated_in"] = still.place.as_str().into();
                    shown["credential"] = still.credential.as_deref().into();
                }
                shown
            };
            let ids: Vec<_> = removed.iter().map(id).collect();
            writeln!(out, "{}", json!({ if really { "retired" } else { "would_retire" }: ids }))?;
            return Ok(());
        }
        for entry in removed {
            let tenant = format!("{} at {}", entry.id(), entry.vendor());
            let Some(Elsewhere { place, credential }) = still(entry) else {
                writeln!(out, "{tenant} {}", if really { "is retired" } else { "would be retired" })?;
                continue;
            };
            let (was, states, is) = match really {
                true => ("was", "still states", "is"),
                false => ("would be", "states", "would be"),
            };
            let how =
                credential.as_deref().map_or("as stated there".to_owned(), |reference| format!("with {reference}"));
            writeln!(
                out,
                "{tenant} {was} removed from the store, but {place} {states} it: it {is} served {how}. \
                 Remove it there too."
            )?;
        }
        Ok(())
    }

    /// Retires a named tenant. Does not ask for consent, because the tenant was named.
    async fn retire(
        &self,
        id: &str,
        vendor: Option<&str>,
        dry_run: bool,
        out: &mut dyn Write,
    ) -> Result<Outcome, Failure> {
        let client = self.rows_alone().await?;
        let fits = |entry: &TenantEntry| entry.id() == id && vendor.is_none_or(|vendor| entry.vendor() == vendor);
        let gone: Vec<_> = self.rows(&client).await?.into_iter().filter(|(_, entry)| fits(entry)).collect();
        if gone.is_empty() {
            notes::say(&format!("{id}: the store has no such tenant; `tenants list` shows where it is stated"));
            return Ok(Outcome::Found);
        }
        self.remove(&client, gone, !dry_run, out).await
    }

    async fn cleanup(&self, active: &PathBuf, consent: Consent, out: &mut dyn Write) -> Result<Outcome, Failure> {
        let text = match active.as_os_str() == "-" {
            true => std::io::read_to_string(std::io::stdin()),
            false => std::fs::read_to_string(active),
        };
        let text = text.map_err(|error| Failure::reading(active, &error))?;
        let ids: BTreeSet<&str> = text.lines().map(str::trim).filter(|id| !id.is_empty()).collect();
        if ids.is_empty() {
            let shown = active.display();
            let why = format!("{shown}: no id is in it, and so everybody would be retired; was the list made?");
            return Err(Failure::Input(why));
        }
        let client = self.rows_alone().await?;
        let gone: Vec<_> =
            self.rows(&client).await?.into_iter().filter(|(_, entry)| !ids.contains(entry.id())).collect();
        let what = count(gone.len(), "tenant");
        if !consent.dry_run && !gone.is_empty() {
            consent.ask(&format!("this would retire {what}"))?;
        }
        let outcome = self.remove(&client, gone, !consent.dry_run, out).await?;
        if !self.json {
            let done = match (consent.dry_run, outcome) {
                (true, _) => "would go",
                (false, Outcome::Fine) => "retired",
                (false, _) => "removed from the store",
            };
            writeln!(out, "{what} {done}")?;
        }
        Ok(outcome)
    }
}

async fn list(global: &Global, screen: Screen, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let client = global.client(false).await?;
    let stored: BTreeSet<(String, String)> = match global.store {
        Some(_) => {
            let rows = global.rows(&client).await?;
            rows.into_iter().map(|(_, entry)| (entry.id().to_owned(), entry.vendor().to_owned())).collect()
        }
        None => BTreeSet::new(),
    };
    let config = client.config().current();
    let mut tenants: Vec<_> = config.tenants().cloned().collect();
    tenants.sort_by(|a, b| (&a.id, &a.vendor.name).cmp(&(&b.id, &b.vendor.name)));
    let place = |id: &str, vendor: &str| {
        if stored.contains(&(id.to_owned(), vendor.to_owned())) { "store" } else { "file" }
    };
    if global.json {
        for tenant in &tenants {
            let mut entry = serde_json::to_value(tenant.entry()).unwrap_or_default();
            entry["stated_in"] = place(&tenant.id, &tenant.vendor.name).into();
            writeln!(out, "{entry}")?;
        }
        return Ok(Outcome::Fine);
    }
    if tenants.is_empty() {
        writeln!(out, "no tenants; name their file with --vendors or --tenants, or their store with --store")?;
        return Ok(Outcome::Fine);
    }
    let rows = tenants.iter().map(|tenant| {
        let credential = tenant.credential.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        let account = if tenant.account == tenant.id { "-" } else { &*tenant.account };
        vec![
            tenant.id.to_string(),
            tenant.vendor.name.to_string(),
            tenant.vendor.environment.to_string(),
            account.to_owned(),
            credential,
            place(&tenant.id, &tenant.vendor.name).to_owned(),
        ]
    });
    let header = ["tenant", "vendor", "environment", "account", "credential", "stated in"];
    write!(out, "{}", output::table(screen, &header, rows.collect(), &[]))?;
    Ok(Outcome::Fine)
}
