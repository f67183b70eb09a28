//! `dead-letters redrive` and `dead-letters purge`.

use std::io::Write;

use integration_client::ErrorKind;
use integration_client::outbox::DeadLetters;
use serde_json::json;

use super::find::{counted, find, missing, present};
use crate::consent::Consent;
use crate::notes;
use crate::output::{Failure, Outcome};
use crate::text::count;

/// Sends the named letters again. Does not ask for consent, because each letter was named.
pub(super) async fn redrive(
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
            Err(error) if error.kind() == ErrorKind::InvalidRequest => {
                notes::say(&error.to_string());
                skipped += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
    print_redriven(again, skipped, dry_run, json, out)?;
    Ok(if skipped > 0 { Outcome::Found } else { outcome })
}

/// Sends all letters again that `letters` selects. `is_narrowed` says whether it leaves letters out.
pub(super) async fn redrive_all(
    letters: &DeadLetters,
    is_narrowed: bool,
    consent: Consent,
    json: bool,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let letters = present(letters).await?;
    let (found, can_be_sent) = counted(&letters).await?;
    if found == 0 {
        // Said on standard error, also with `--json`: a misspelt tenant or vendor would look like success.
        notes::say(match is_narrowed {
            true => "no dead letter matches the options; `dead-letters list` without them shows those that there are",
            false => "there are no dead letters in this store",
        });
    }
    let skipped = found - can_be_sent;
    let what = format!("this would send {} again", count(can_be_sent, "dead letter"));
    let mut again = can_be_sent;
    if !consent.dry_run && can_be_sent > 0 {
        consent.ask(&what)?;
        again = letters.redrive_all(can_be_sent).await?.jobs;
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
        let why = "no more than an outline was kept, or no seal key opens them";
        writeln!(out, "{} cannot be sent again: {why}", count(skipped, "letter"))?;
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

/// Deletes all letters that `letters` selects.
pub(super) async fn purge(
    letters: &DeadLetters,
    consent: Consent,
    json: bool,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let letters = present(letters).await?;
    // The list would leave out rows that hold no readable letter, which are deleted too.
    let found = usize::try_from(letters.count_matching().await?).unwrap_or(usize::MAX);
    let what = count(found, "dead letter");
    let mut gone = found as u64;
    if !consent.dry_run && found > 0 {
        consent.ask(&format!("this would delete {what} for good, requests and all"))?;
        gone = letters.purge(found).await?;
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
