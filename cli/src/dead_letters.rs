//! `dead-letters`: what was given up, in a store: looked at, sent again, or thrown away.

use std::io::Write;

use clap::{Subcommand, ValueEnum};
use integration_client::dead_letter::{LetterRequest, Reason};
use integration_client::outbox::{DeadLetters, KeptLetter};
use serde_json::{Value, json};

use crate::connect::{self, StoreOption};
use crate::output::{FAINT, Failure, Outcome, TITLE};
use crate::text::{count, span};

const EXAMPLES: &str = "\
Examples:
  integration-client dead-letters list --store jobs.jsonl.sqlite
  integration-client dead-letters list --json --store … | jq .reason
  integration-client dead-letters redrive --all --reason exhausted --store …
  integration-client dead-letters purge --before 2026-01-01T00:00:00Z --store …

A letter that is sent again is a job again: whoever works on the store sends it,
for example the `run` that it comes from. Bodies, header values and queries are
never shown.

Exit codes: 0 it was done, 1 a letter is not there or cannot be sent again, 2
the store cannot be used, or nobody said --yes.";

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
        /// At most so many.
        #[arg(long, value_name = "N", default_value_t = 50)]
        most: usize,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Shows a letter with everything that was tried.
    Show {
        #[command(flatten)]
        store: StoreOption,
        /// The letter's id, as `list` shows it.
        id: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Makes letters jobs again, with their ids, their idempotency keys and fresh attempts.
    Redrive {
        #[command(flatten)]
        which: Which,
        /// Ids, as `list` shows them.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        ids: Vec<String>,
        /// All that fit what is asked for.
        #[arg(long)]
        all: bool,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Deletes letters for good.
    Purge {
        #[command(flatten)]
        which: Which,
        /// Does it; without it nothing is deleted, and it is said how many would be.
        #[arg(long)]
        yes: bool,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Which letters; all, unless something is asked for.
#[derive(clap::Args)]
struct Which {
    #[command(flatten)]
    store: StoreOption,
    /// Those of one tenant.
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// Those for one vendor.
    #[arg(long, value_name = "NAME")]
    vendor: Option<String>,
    /// Those with one reason.
    #[arg(long, value_name = "REASON")]
    reason: Option<Why>,
    /// Those of before a moment (2026-01-15T10:00:00Z).
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

fn moment(text: &str) -> Result<jiff::Timestamp, String> {
    text.parse().map_err(|_| "write 2026-01-15T10:00:00Z".to_owned())
}

impl Which {
    async fn letters(&self) -> Result<DeadLetters, Failure> {
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
        Ok(letters)
    }
}

/// Letters in one page.
const PAGE: usize = 500;

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let runtime = connect::runtime()?;
    runtime.block_on(async {
        match &args.what {
            What::List { which, most, json } => list(&which.letters().await?, *most, *json, out).await,
            What::Show { store, id, json } => show(&store.open().await?.outbox().dead_letters()?, id, *json, out).await,
            What::Redrive { which, ids, all, json } => {
                redrive(&which.letters().await?, if *all { None } else { Some(ids) }, *json, out).await
            }
            What::Purge { which, yes, json } => purge(&which.letters().await?, *yes, *json, out).await,
        }
    })
}

async fn list(letters: &DeadLetters, most: usize, json: bool, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let (mut after, mut shown) = (None, 0);
    while shown < most {
        // One more than is shown tells whether there are more.
        let page = letters.list(after, (most + 1 - shown).min(PAGE)).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.place);
        for kept in &page {
            if shown == most {
                if !json {
                    writeln!(out, "{FAINT}… and more: --most N shows them{FAINT:#}")?;
                }
                return Ok(Outcome::Fine);
            }
            shown += 1;
            if json { writeln!(out, "{}", as_json(kept))? } else { outline(kept, out)? }
        }
    }
    if shown == 0 && !json {
        writeln!(out, "no dead letters")?;
    }
    Ok(Outcome::Fine)
}

fn as_json(kept: &KeptLetter) -> Value {
    let mut letter = serde_json::to_value(kept.letter.redacted()).unwrap_or_default();
    letter["can_be_sent"] = kept.can_be_sent.into();
    letter
}

fn why(kept: &KeptLetter) -> String {
    match kept.letter.attempts.last().and_then(|last| last.status) {
        Some(status) => format!("{} ({status})", kept.letter.reason),
        None => kept.letter.reason.to_string(),
    }
}

fn request(kept: &KeptLetter) -> String {
    match kept.letter.request.redacted() {
        LetterRequest::Redacted { method, path, .. } => format!("{method} {path}"),
        _ => String::new(),
    }
}

fn outline(kept: &KeptLetter, out: &mut dyn Write) -> Result<(), Failure> {
    let letter = &kept.letter;
    writeln!(out, "{TITLE}{}{TITLE:#}  {:.0}  {}", letter.id, letter.at, why(kept))?;
    let line = letter.metadata.get("line").map(|line| format!("  line {line}")).unwrap_or_default();
    let attempts = count(letter.attempts.len(), "attempt");
    let mut about = format!("{} at {}  {}", letter.tenant, letter.vendor, request(kept));
    if about.chars().count() > 54 {
        about = about.chars().take(53).chain(['…']).collect();
    }
    writeln!(out, "    {about}{line}  {attempts}")?;
    Ok(())
}

async fn show(letters: &DeadLetters, id: &str, json: bool, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let Some(kept) = letters.show(id).await? else { return missing(id, out) };
    if json {
        writeln!(out, "{:#}", as_json(&kept))?;
        return Ok(Outcome::Fine);
    }
    let letter = &kept.letter;
    let again = if kept.can_be_sent { "yes" } else { "no: no more than an outline was kept" };
    for (name, value) in [
        ("id", letter.id.clone()),
        ("given up", format!("{:.0}", letter.at)),
        ("why", why(&kept)),
        ("tenant", letter.tenant.clone()),
        ("vendor", letter.vendor.clone()),
        ("endpoint", letter.endpoint.clone().unwrap_or_else(|| "-".to_owned())),
        ("priority", letter.priority.to_string()),
        ("request", request(&kept)),
        ("can be sent again", again.to_owned()),
    ] {
        writeln!(out, "{name:<18} {value}")?;
    }
    for (name, value) in &letter.metadata {
        writeln!(out, "{name:<18} {value}")?;
    }
    writeln!(out, "\n{TITLE}{}{TITLE:#}", count(letter.attempts.len(), "attempt"))?;
    for attempt in &letter.attempts {
        let came = match (attempt.status, &attempt.error) {
            (Some(status), _) => format!("answered {status}"),
            (None, Some(error)) => error.clone(),
            (None, None) => format!("{:?}", attempt.phase),
        };
        let took = span(std::time::Duration::from_millis(attempt.took_ms));
        writeln!(out, "{:.0}  {came}, after {took}", attempt.at)?;
        for line in attempt.answer.iter().flat_map(|answer| answer.lines()) {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(Outcome::Fine)
}

fn missing(id: &str, out: &mut dyn Write) -> Result<Outcome, Failure> {
    writeln!(out, "{id}: no dead letter has this id; `dead-letters list` shows those that there are")?;
    Ok(Outcome::Found)
}

async fn redrive(
    letters: &DeadLetters,
    ids: Option<&Vec<String>>,
    json: bool,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let (mut again, mut outcome) = (0, Outcome::Fine);
    match ids {
        None => again = letters.redrive_all(usize::MAX).await?,
        Some(ids) => {
            for id in ids {
                match letters.redrive(id).await {
                    Ok(true) => again += 1,
                    Ok(false) => outcome = missing(id, out)?,
                    Err(error) if error.kind() == integration_client::ErrorKind::InvalidRequest => {
                        writeln!(out, "{error}")?;
                        outcome = Outcome::Found;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    match json {
        true => writeln!(out, "{}", json!({ "redriven": again }))?,
        false if again > 0 => writeln!(
            out,
            "{}; whoever works on this store sends what it holds (`run` with the same file)",
            match again {
                1 => "1 letter is a job again".to_owned(),
                _ => format!("{again} letters are jobs again"),
            }
        )?,
        false => writeln!(out, "no letter was made a job again")?,
    }
    Ok(outcome)
}

async fn purge(letters: &DeadLetters, yes: bool, json: bool, out: &mut dyn Write) -> Result<Outcome, Failure> {
    if !yes {
        let (mut after, mut found) = (None, 0);
        loop {
            let page = letters.list(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            (after, found) = (Some(last.place), found + page.len());
        }
        if found == 0 {
            return match json {
                true => Ok(writeln!(out, "{}", json!({ "deleted": 0 })).map(|()| Outcome::Fine)?),
                false => Ok(writeln!(out, "no dead letters fit: there is nothing to delete").map(|()| Outcome::Fine)?),
            };
        }
        let what = count(found, "dead letter");
        return Err(Failure::Input(format!("this would delete {what} for good, requests and all: add --yes to do it")));
    }
    let gone = letters.purge(usize::MAX).await?;
    match json {
        true => writeln!(out, "{}", json!({ "deleted": gone }))?,
        false => writeln!(out, "{} deleted", count(usize::try_from(gone).unwrap_or(usize::MAX), "dead letter"))?,
    }
    Ok(Outcome::Fine)
}
