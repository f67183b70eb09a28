//! `dead-letters list` and `dead-letters show`.

use std::io::Write;

use integration_client::dead_letter::{AttemptRecord, LetterRequest};
use integration_client::outbox::KeptLetter;
use serde_json::Value;

use super::find::{PAGE, Selected, missing};
use crate::notes;
use crate::output::{FAINT, Failure, Outcome, TITLE};
use crate::text::{count, span};

/// Lists letters, oldest first.
pub(super) async fn list(
    selected: &Selected,
    most: usize,
    json: bool,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let (mut after, mut shown) = (None, 0);
    // Reads one letter more than is shown, to find out whether there are more. With a status or a run, a small page may
    // hold none of the letters that are shown.
    let size = |shown: usize| if selected.compares_letters() { PAGE } else { (most + 1 - shown).min(PAGE) };
    while let Some(page) = selected.page(&mut after, size(shown)).await? {
        for kept in &page {
            if shown == most {
                match json {
                    true => notes::say("there are more letters: --most N shows them"),
                    false => writeln!(out, "{FAINT}… and more: --most N shows them{FAINT:#}")?,
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

/// Shows one letter with all attempts.
pub(super) async fn show(selected: &Selected, id: &str, json: bool, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let Some(kept) = selected.find(id).await? else { return Ok(missing(id)) };
    if json {
        writeln!(out, "{:#}", as_json(&kept))?;
        return Ok(Outcome::Fine);
    }
    let letter = &kept.letter;
    let again = if kept.can_be_sent { "yes" } else { "no: no more than an outline was kept, or no seal key opens it" };
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
        for (name, value) in attempt.headers.iter() {
            writeln!(out, "    {name}: {value}")?;
        }
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
