//! `dead-letters`: lists and shows the dead letters of a store, sends them again, or deletes them.

use std::io::Write;

use clap::{Subcommand, ValueEnum};
use integration_client::dead_letter::{AttemptRecord, LetterRequest, Reason};
use integration_client::outbox::{DeadLetters, KeptLetter};
use serde_json::{Value, json};

use crate::connect::{self, StoreOption};
use crate::consent::Consent;
use crate::notes;
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
        /// The most letters to list.
        #[arg(long, value_name = "N", default_value_t = 50)]
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
        /// Prints JSON.
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
        /// All letters that match the other options.
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

/// Letters that are read from the store at once.
const PAGE: usize = 500;

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let runtime = connect::runtime()?;
    runtime.block_on(async {
        match &args.what {
            What::List { which, most, json } => list(&which.letters().await?, *most, *json, out).await,
            What::Show { store, id, json } => show(&store.open().await?.outbox().dead_letters()?, id, *json, out).await,
            What::Redrive { ids, all: false, .. } if ids.is_empty() => {
                Err(Failure::Input("which letters? Name their ids, as `list` shows them, or --all".to_owned()))
            }
            What::Redrive { which, all: true, consent, json, .. } => {
                redrive_all(&which.letters().await?, *consent, *json, out).await
            }
            What::Redrive { which, ids, consent, json, .. } => {
                redrive(&which.letters().await?, ids, consent.dry_run, *json, out).await
            }
            What::Purge { which, consent, json } => purge(&which.letters().await?, *consent, *json, out).await,
        }
    })
}

async fn list(letters: &DeadLetters, most: usize, json: bool, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let (mut after, mut shown) = (None, 0);
    while shown < most {
        // Reads one letter more than is shown, to find out whether there are more.
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
    let Some(kept) = find(letters, id).await? else { return Ok(missing(id)) };
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
        let took = span(std::time::Duration::from_millis(attempt.took_ms));
        writeln!(out, "{:.0}  {}, after {took}", attempt.at, result(attempt))?;
        for line in attempt.answer.iter().flat_map(|answer| answer.lines()) {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(Outcome::Fine)
}

/// The result of an attempt, in words.
pub(crate) fn result(attempt: &AttemptRecord) -> String {
    match (attempt.status, &attempt.error) {
        (Some(status), _) => format!("answered {status}"),
        (None, Some(error)) => error.clone(),
        (None, None) => format!("{:?}", attempt.phase),
    }
}

/// Ids that the error names at most if several begin with the given text.
const NAMED: usize = 10;

/// The letter with this id, or the only letter whose id begins with it.
async fn find(letters: &DeadLetters, id: &str) -> Result<Option<KeptLetter>, Failure> {
    if let Some(kept) = letters.show(id).await? {
        return Ok(Some(kept));
    }
    let (mut found, mut after): (Vec<KeptLetter>, _) = (Vec::new(), None);
    loop {
        let page = letters.list(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.place);
        found.extend(page.into_iter().filter(|kept| kept.letter.id.starts_with(id)));
        if found.len() > NAMED {
            break;
        }
    }
    if found.len() > 1 {
        let more = if found.len() > NAMED { " …" } else { "" };
        let ids: Vec<&str> = found.iter().take(NAMED).map(|kept| kept.letter.id.as_str()).collect();
        let why =
            format!("{id}: several ids begin so; write more of the one that is meant:\n  {}{more}", ids.join("\n  "));
        return Err(Failure::Input(why));
    }
    Ok(found.pop())
}

/// Reports an unknown id on standard error, because a program may read standard output as JSON.
fn missing(id: &str) -> Outcome {
    notes::say(&format!("{id}: no dead letter has this id; `dead-letters list` shows those that there are"));
    Outcome::Found
}

/// The number of letters that match, and how many of those can be sent again.
async fn counted(letters: &DeadLetters) -> Result<(usize, usize), Failure> {
    let (mut after, mut found, mut can_be_sent) = (None, 0, 0);
    loop {
        let page = letters.list(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok((found, can_be_sent)) };
        after = Some(last.place);
        found += page.len();
        can_be_sent += page.iter().filter(|kept| kept.can_be_sent).count();
    }
}

/// Sends the named letters again. Does not ask for consent, because each letter was named.
async fn redrive(
    letters: &DeadLetters,
    ids: &[String],
    dry_run: bool,
    json: bool,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let mut found = Vec::new();
    let mut outcome = Outcome::Fine;
    // All ids are looked up first, so that an ambiguous id fails the command before anything is changed.
    for id in ids {
        match find(letters, id).await? {
            Some(kept) => found.push(kept),
            None => outcome = missing(id),
        }
    }
    let (mut again, mut skipped) = (0, 0);
    for kept in found {
        if dry_run {
            if kept.can_be_sent {
                again += 1
            } else {
                skipped += 1
            }
            continue;
        }
        match letters.redrive(&kept.letter.id).await {
            Ok(true) => again += 1,
            // Another process redrove or deleted the letter meanwhile.
            Ok(false) => outcome = missing(&kept.letter.id),
            Err(error) if error.kind() == integration_client::ErrorKind::InvalidRequest => {
                notes::say(&error.to_string());
                skipped += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
    print_redriven(again, skipped, dry_run, json, out)?;
    Ok(if skipped > 0 { Outcome::Found } else { outcome })
}

async fn redrive_all(
    letters: &DeadLetters,
    consent: Consent,
    json: bool,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let (found, can_be_sent) = counted(letters).await?;
    let skipped = found - can_be_sent;
    let what = format!("this would send {} again", count(can_be_sent, "dead letter"));
    let mut again = can_be_sent;
    if !consent.dry_run && can_be_sent > 0 {
        if !consent.given(&what)? {
            return Ok(Outcome::Fine);
        }
        again = letters.redrive_all(usize::MAX).await?.jobs;
    }
    print_redriven(again, skipped, consent.dry_run, json, out)?;
    Ok(if skipped > 0 { Outcome::Found } else { Outcome::Fine })
}

/// Prints how many letters were made jobs again, and how many could not be.
fn print_redriven(again: usize, skipped: usize, dry_run: bool, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if json {
        let done = if dry_run { "would_redrive" } else { "redriven" };
        return Ok(writeln!(out, "{}", json!({ done: again, "skipped": skipped }))?);
    }
    if skipped > 0 {
        writeln!(out, "{} cannot be sent again: no more than an outline was kept", count(skipped, "letter"))?;
    }
    match (again, dry_run) {
        (0, _) => writeln!(out, "no letter {} made a job again", if dry_run { "would be" } else { "was" })?,
        (1, true) => writeln!(out, "1 letter would be a job again")?,
        (_, true) => writeln!(out, "{again} letters would be jobs again")?,
        (_, false) => {
            let are = if again == 1 {
                "1 letter is a job again".to_owned()
            } else {
                format!("{again} letters are jobs again")
            };
            writeln!(out, "{are}; whoever works on this store sends what it holds (`run` with the same file)")?;
        }
    }
    Ok(())
}

async fn purge(letters: &DeadLetters, consent: Consent, json: bool, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let (found, _) = counted(letters).await?;
    let what = count(found, "dead letter");
    let mut gone = found as u64;
    if !consent.dry_run && found > 0 {
        if !consent.given(&format!("this would delete {what} for good, requests and all"))? {
            return Ok(Outcome::Fine);
        }
        gone = letters.purge(usize::MAX).await?;
    }
    match (json, consent.dry_run) {
        (true, true) => writeln!(out, "{}", json!({ "would_delete": gone }))?,
        (true, false) => writeln!(out, "{}", json!({ "deleted": gone }))?,
        (false, _) if found == 0 => writeln!(out, "no dead letters fit: there is nothing to delete")?,
        (false, true) => writeln!(out, "{what} would be deleted for good")?,
        (false, false) => {
            writeln!(out, "{} deleted", count(usize::try_from(gone).unwrap_or(usize::MAX), "dead letter"))?
        }
    }
    Ok(Outcome::Fine)
}
