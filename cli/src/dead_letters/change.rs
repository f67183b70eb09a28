//! `dead-letters redrive` and `dead-letters purge`.

use std::collections::HashSet;
use std::io::Write;

use integration_client::{Error, ErrorKind};
use serde_json::json;

use super::find::{Counted, PAGE, Selected, is_ambiguous, missing};
use crate::consent::Consent;
use crate::notes;
use crate::output::{Failure, Outcome};
use crate::text::count;

/// Letters that are in memory at once while all are sent again. Each may hold a whole request.
const TOGETHER: usize = 50;

/// Sends the named letters again. Does not ask for consent, because each letter was named.
pub(super) async fn redrive(
    selected: &Selected,
    ids: &[String],
    dry_run: bool,
    json: bool,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let mut found = Vec::new();
    let mut outcome = Outcome::Fine;
    // All ids are looked up first, so that an ambiguous id fails the command before anything is changed.
    for id in ids {
        match selected.find(id).await? {
            Some(kept) => found.push(kept),
            None => outcome = missing(id),
        }
    }
    say_in_doubt(found.iter().filter(|kept| kept.can_be_sent && kept.is_in_doubt()).count());
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
        match selected.letters.redrive_seen(&kept).await {
            Ok(true) => again += 1,
            // Another process redrove or deleted the letter meanwhile. One that the job has got since is another letter.
            Ok(false) => outcome = missing(&kept.letter.id),
            Err(error) if is_of_one_letter(&error) => {
                notes::say(&error.to_string());
                skipped += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
    print_redriven(again, skipped, dry_run, json, out)?;
    Ok(if skipped > 0 { Outcome::Found } else { outcome })
}

/// Says of how many letters the jobs may not be sent: this command does not know for how long their vendors keep keys.
fn say_in_doubt(letters: usize) {
    if letters > 0 {
        notes::say(&format!(
            "the vendor may have acted on {letters} of these letters: unless it certainly still knows the idempotency key \
             (`keeps` in its entry), the job is not sent, and ends as an ambiguous letter. Ask the vendor, then send that \
             letter again with --reason ambiguous"
        ));
    }
}

/// Whether the error says that one letter cannot be sent, and nothing of the others.
fn is_of_one_letter(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::KeyReused)
}

/// The options of `redrive --all`.
#[derive(Clone, Copy)]
pub(super) struct All {
    /// Whether options select fewer than all letters.
    pub(super) is_narrowed: bool,
    /// Whether ambiguous letters are left alone.
    pub(super) leaves_ambiguous: bool,
}

/// Sends all letters again that `selected` selects. Ambiguous letters must be asked for by their reason: the vendor may
/// have acted on them, and would act twice.
pub(super) async fn redrive_all(
    selected: &Selected,
    All { is_narrowed, leaves_ambiguous }: All,
    consent: Consent,
    json: bool,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let present = selected.present().await?;
    let Counted { can_be_sent, unsendable, left_out, in_doubt } = present.counted(leaves_ambiguous).await?;
    // Notices are on standard error, also with `--json`.
    if left_out > 0 {
        let (is, them) = if left_out == 1 { ("is", "it") } else { ("are", "them") };
        notes::say(&format!(
            "{} {is} left out, because the vendor may have acted on {them}: ask the vendor first, and add \
             --reason ambiguous to send {them} again",
            count(left_out, "ambiguous letter")
        ));
    } else if can_be_sent + unsendable == 0 {
        // A misspelt tenant or vendor would look like success.
        notes::say(match is_narrowed {
            true => "no dead letter matches the options; `dead-letters list` without them shows those that there are",
            false => "there are no dead letters in this store",
        });
    }
    say_in_doubt(in_doubt);
    let what = format!("this would send {} again", count(can_be_sent, "dead letter"));
    let (mut again, mut skipped) = (can_be_sent, unsendable);
    if !consent.dry_run && can_be_sent > 0 {
        consent.ask(&what)?;
        let (sent, refused) = redrive_present(&present, leaves_ambiguous, can_be_sent).await?;
        again = sent;
        skipped += refused;
    }
    print_redriven(again, skipped, consent.dry_run, json, out)?;
    Ok(if skipped > 0 { Outcome::Found } else { Outcome::Fine })
}

/// Sends `most` letters again, and each once: a letter that dies again meanwhile may get an earlier position. Returns
/// how many are jobs again, and how many could not be.
async fn redrive_present(present: &Selected, leaves_ambiguous: bool, most: usize) -> Result<(usize, usize), Failure> {
    let (mut sent, mut refused, mut after) = (HashSet::new(), 0, None);
    while let Some(page) = present.page(&mut after, TOGETHER).await? {
        for kept in page {
            if !kept.can_be_sent || (leaves_ambiguous && is_ambiguous(&kept)) || sent.contains(&kept.letter.id) {
                continue;
            }
            if sent.len() == most {
                return Ok((most, refused));
            }
            let redriven = present.letters.redrive_seen(&kept).await;
            match redriven {
                Ok(true) => {
                    sent.insert(kept.letter.id);
                }
                Ok(false) => {}
                Err(error) if is_of_one_letter(&error) => {
                    notes::say(&error.to_string());
                    refused += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok((sent.len(), refused))
}

/// Prints how many letters were made jobs again, and how many could not be.
fn print_redriven(again: usize, skipped: usize, dry_run: bool, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if json {
        let done = if dry_run { "would_redrive" } else { "redriven" };
        return Ok(writeln!(out, "{}", json!({ done: again, "skipped": skipped }))?);
    }
    if skipped > 0 {
        let why =
            "no more than an outline was kept, no seal key opens them, or later requests have their idempotency keys";
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

/// Deletes all letters that `selected` selects.
pub(super) async fn purge(
    selected: &Selected,
    consent: Consent,
    json: bool,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let present = selected.present().await?;
    let found = match present.compares_letters() {
        // The list would leave out rows that hold no readable letter, which are deleted too.
        false => usize::try_from(present.letters.count_matching().await?).unwrap_or(usize::MAX),
        true => {
            let Counted { can_be_sent, unsendable, .. } = present.counted(false).await?;
            can_be_sent + unsendable
        }
    };
    let what = count(found, "dead letter");
    let mut gone = found as u64;
    if !consent.dry_run && found > 0 {
        consent.ask(&format!("this would delete {what} for good, requests and all"))?;
        gone = match present.compares_letters() {
            false => present.letters.purge(found).await?,
            true => purge_one_by_one(&present).await?,
        };
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

/// Deletes letters with the wanted status or of the wanted run, which no statement of the store selects. Returns how many.
async fn purge_one_by_one(present: &Selected) -> Result<u64, Failure> {
    let (mut gone, mut after) = (0, None);
    while let Some(page) = present.page(&mut after, PAGE).await? {
        for kept in page {
            gone += u64::from(present.letters.remove(&kept.letter.id).await?);
        }
    }
    Ok(gone)
}
