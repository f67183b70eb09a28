//! `dead-letters`: lists and shows the dead letters of a store, sends them again, or deletes them.

mod change;
mod find;
mod show;

use std::io::Write;

use clap::{Subcommand, ValueEnum};
use integration_client::dead_letter::Reason;

use self::change::All;
use self::find::Selected;
pub(crate) use self::show::result;
use crate::connect::{self, StoreOption};
use crate::consent::Consent;
use crate::output::{Failure, Outcome};

const EXAMPLES: &str = "\
Examples:
  integration-client dead-letters list --store jobs.jsonl.sqlite
  integration-client dead-letters list --json --store … | jq .reason
  integration-client dead-letters redrive --all --reason exhausted --store …
  integration-client dead-letters redrive --all --status 401 --store …
  integration-client dead-letters purge --before 2026-01-01T00:00:00Z --store …

A letter that is sent again is a job again: whoever works on the store sends it,
for example the `run` that it comes from. Bodies, header values and queries are
never shown.

The vendor may have acted on a letter with the reason `ambiguous`. So
`redrive --all` leaves these out, and says how many; after you have asked the
vendor, `--reason ambiguous` selects them, or name their ids.

Vendors forget idempotency keys after some minutes to some days (`keeps` in the
vendor's entry). If the vendor may have acted on another letter, and may have
forgotten its key, the job is not sent: it ends as a letter `ambiguous`.
`redrive` says on how many letters the vendor may have acted.

Exit codes: 0 it was done, or no letter matches, 1 a letter is not there or
cannot be sent again, 2 the store cannot be used, or the change was not
confirmed.";

/// Lists, shows, sends again or deletes the dead letters of a store.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Lists letters, oldest first.
    List {
        #[command(flatten)]
        which: Which,
        /// The most letters to list: 1 to 1,000,000.
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = most)]
        most: usize,
        /// Prints one JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Shows a letter with all attempts to send it.
    Show {
        #[command(flatten)]
        store: StoreOption,
        /// The letter's id, as `list` shows it, or the beginning of it.
        id: String,
        /// Prints one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Makes jobs of letters again, with the same ids and idempotency keys and with new attempts.
    Redrive {
        #[command(flatten)]
        which: Which,
        /// The ids of letters, as `list` shows them, or the beginnings of ids.
        #[arg(conflicts_with = "all")]
        ids: Vec<String>,
        /// All letters that match the other options; ambiguous ones only with --reason ambiguous.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        consent: Consent,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Deletes letters for good.
    Purge {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        consent: Consent,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Options that select letters; without any, all letters are selected.
#[derive(clap::Args)]
struct Which {
    #[command(flatten)]
    store: StoreOption,
    /// Only letters of this tenant.
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// Only letters to this vendor.
    #[arg(long, value_name = "NAME")]
    vendor: Option<String>,
    /// Only letters with this reason.
    #[arg(long, value_name = "REASON")]
    reason: Option<Why>,
    /// Only letters whose last attempt got a response with this status.
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(100..=999))]
    status: Option<u16>,
    /// Only letters of this run: the beginning of their ids, as `run` prints it at its end.
    #[arg(long, value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    run: Option<String>,
    /// Only letters from before this time (2026-01-15T10:00:00Z).
    #[arg(long, value_name = "MOMENT", value_parser = moment)]
    before: Option<jiff::Timestamp>,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Why {
    Exhausted,
    Ambiguous,
    Rejected,
    Expired,
    Poison,
    NotConfigured,
}

/// The most letters that can be listed at once.
const MOST: usize = 1_000_000;

fn most(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| format!("write a number from 1 to {MOST}"))
}

fn moment(text: &str) -> Result<jiff::Timestamp, String> {
    text.parse().map_err(|_| "write 2026-01-15T10:00:00Z".to_owned())
}

impl Which {
    /// Whether options leave letters out.
    fn is_narrowed(&self) -> bool {
        self.tenant.is_some()
            || self.vendor.is_some()
            || self.reason.is_some()
            || self.status.is_some()
            || self.run.is_some()
            || self.before.is_some()
    }

    async fn selected(&self) -> Result<Selected, Failure> {
        let mut letters = self.store.open().await?.outbox().dead_letters()?;
        if let Some(tenant) = &self.tenant {
            letters = letters.tenant(tenant);
        }
        if let Some(vendor) = &self.vendor {
            letters = letters.vendor(vendor);
        }
        if let Some(reason) = self.reason {
            letters = letters.reason(match reason {
                Why::Exhausted => Reason::Exhausted,
                Why::Ambiguous => Reason::Ambiguous,
                Why::Rejected => Reason::Rejected,
                Why::Expired => Reason::Expired,
                Why::Poison => Reason::Poison,
                Why::NotConfigured => Reason::NotConfigured,
            });
        }
        if let Some(before) = self.before {
            letters = letters.before(before);
        }
        Ok(Selected { letters, status: self.status, run: self.run.clone() })
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let runtime = connect::runtime()?;
    runtime.block_on(async {
        match &args.what {
            What::List { which, most, json } => show::list(&which.selected().await?, *most, *json, out).await,
            What::Show { store, id, json } => {
                let letters = store.open().await?.outbox().dead_letters()?;
                show::show(&Selected { letters, status: None, run: None }, id, *json, out).await
            }
            What::Redrive { ids, all: false, .. } if ids.is_empty() => {
                Err(Failure::Input("which letters? Name their ids, as `list` shows them, or --all".to_owned()))
            }
            What::Redrive { which, all: true, consent, json, .. } => {
                let all = All { is_narrowed: which.is_narrowed(), leaves_ambiguous: which.reason.is_none() };
                change::redrive_all(&which.selected().await?, all, *consent, *json, out).await
            }
            What::Redrive { which, ids, consent, json, .. } => {
                change::redrive(&which.selected().await?, ids, consent.dry_run, *json, out).await
            }
            What::Purge { which, consent, json } => change::purge(&which.selected().await?, *consent, *json, out).await,
        }
    })
}
