//! The calls about dead letters, which list, count, show, resend and delete them.
//!
//! An action on all letters that match a filter affects the letters whose number the user has seen, or none at all: the
//! call states that number, and the position of the newest letter at the time. Letters that came later are left alone.
//! Ambiguous letters are sent again only if the filter names their reason: the vendor may have acted on them, and may
//! act twice. The stated number is that of all letters that match, with those that are left out.
//!
//! A letter that is named may have been sent again since the user looked at it, and have become another one, on which the
//! vendor may have acted. So an ambiguous letter is sent again only if the call states its version, and no letter is if it
//! has another version than the call states.

use std::collections::HashMap;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::{Action, Who};
use super::query;
use super::reply::{self, Failed, Reply};
use super::shared::Shared;
use crate::dead_letter::{AttemptRecord, DeadLetter, LetterRequest, Reason};
use crate::error::{Delivery, Error, ErrorKind};
use crate::outbox::{DeadLetters, KeptLetter};

/// The number of letters in a page, unless the call states another.
const PAGE: usize = 50;
/// The most letters that one call may name. Such a call fits into the longest body that is read.
const NAMED: usize = 1_000;
/// The number of letters that are deleted between two counts of those that an action has deleted: a purge deletes as
/// many in one transaction.
const STEP: usize = 200;

/// A filter that selects letters.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Wanted {
    tenant: Option<String>,
    vendor: Option<String>,
    reason: Option<String>,
    /// Only letters of requests that were given up before this time.
    before: Option<String>,
}

impl Wanted {
    fn letters(&self, shared: &Shared) -> Result<DeadLetters, Failed> {
        let mut letters = shared.client.outbox().dead_letters().map_err(|error| Failed::of(&error))?;
        let bad = |why: String| Failed::new(StatusCode::BAD_REQUEST, why);
        if let Some(tenant) = &self.tenant {
            letters = letters.tenant(tenant);
        }
        if let Some(vendor) = &self.vendor {
            letters = letters.vendor(vendor);
        }
        if let Some(reason) = &self.reason {
            let reason: Reason = serde_json::from_value(Value::from(reason.as_str()))
                .map_err(|_| bad("there is no such reason".to_owned()))?;
            letters = letters.reason(reason);
        }
        if let Some(before) = &self.before {
            let at =
                before.parse().map_err(|_| bad("`before` is no moment such as 2026-01-31T12:00:00Z".to_owned()))?;
            letters = letters.before(at);
        }
        Ok(letters)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Listed {
    tenant: Option<String>,
    vendor: Option<String>,
    reason: Option<String>,
    before: Option<String>,
    /// Only letters after this position.
    after_place: Option<i64>,
    limit: Option<usize>,
}

pub(super) async fn list(shared: &Shared, text: &str) -> Result<Reply, Failed> {
    let Listed { tenant, vendor, reason, before, after_place, limit } = query::read(text)?;
    let letters = Wanted { tenant, vendor, reason, before }.letters(shared)?;
    let limit = limit.unwrap_or(PAGE).clamp(1, 200);
    let failed = |error| Failed::of(&error);
    // The newest letter is found before the letters are counted, so that letters that come in between are not counted.
    let upto = letters.newest().await.map_err(failed)?.unwrap_or(0);
    let letters = letters.upto(upto);
    let total = letters.count_matching().await.map_err(failed)?;
    let mut found = letters.list(after_place, limit + 1).await.map_err(failed)?;
    found.retain(|kept| kept.place <= upto);
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| has_more).map(|kept| kept.place);
    let found: Vec<Value> = found.iter().map(outline).collect();
    Ok(reply::value(&json!({ "total": total, "upto": upto, "letters": found, "next": next })))
}

/// What a list shows of a letter. It leaves out all fields that could hold a credential or a customer's data.
fn outline(kept: &KeptLetter) -> Value {
    let letter = &kept.letter;
    let request = match &letter.request.redacted() {
        LetterRequest::Redacted { method, path, body_bytes } => {
            json!({ "method": method, "path": path, "body_bytes": body_bytes })
        }
        // A redacted request is never whole.
        LetterRequest::Whole { .. } => Value::Null,
    };
    json!({
        "id": letter.id,
        "place": kept.place,
        "version": kept.version(),
        "at": letter.at,
        "tenant": letter.tenant,
        "vendor": letter.vendor,
        "endpoint": letter.endpoint,
        "priority": letter.priority,
        "reason": letter.reason,
        "request": request,
        "attempts": letter.attempts.len(),
        "last": letter.attempts.last().map(attempt),
        "can_be_sent": kept.can_be_sent,
        "in_doubt": kept.is_in_doubt(),
    })
}

/// An attempt, without the text of the vendor's response.
fn attempt(record: &AttemptRecord) -> Value {
    json!({
        "at": record.at,
        "phase": record.phase,
        "status": record.status,
        "retry_after_ms": record.retry_after_ms,
        "error": record.error,
        "took_ms": record.took_ms,
    })
}

pub(super) async fn show(shared: &Shared, id: &str) -> Result<Reply, Failed> {
    let letters = Wanted::default().letters(shared)?;
    let found = letters.show(id).await.map_err(|error| Failed::of(&error))?;
    let kept = found.ok_or_else(|| Failed::new(StatusCode::NOT_FOUND, "there is no such letter, or not any more"))?;
    let DeadLetter { attempts, metadata, .. } = &kept.letter;
    let mut shown = outline(&kept);
    shown["all_attempts"] = attempts.iter().map(attempt).collect();
    shown["metadata"] = json!(metadata);
    Ok(reply::value(&shown))
}

/// The letters that an action affects: those that are named, or all that match a filter and were counted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chosen {
    #[serde(default)]
    ids: Vec<String>,
    /// The versions of the named letters, by their ids, as the list told them.
    #[serde(default)]
    versions: HashMap<String, String>,
    filter: Option<Wanted>,
    /// The number of letters that the user expects. If the number is another, nothing is done.
    expect: u64,
    /// The position of the newest letter when the letters were counted.
    upto: Option<i64>,
}

/// The letters that were chosen: by their ids, or all that match a filter.
enum Choice {
    Named(DeadLetters, Vec<String>, HashMap<String, String>),
    All(DeadLetters),
}

async fn choice(shared: &Shared, chosen: Chosen) -> Result<Result<Choice, Reply>, Failed> {
    let bad = |why: &str| Err(Failed::new(StatusCode::BAD_REQUEST, why));
    let Chosen { mut ids, versions, filter, expect, upto } = chosen;
    ids.sort_unstable();
    ids.dedup();
    let Some(filter) = filter else {
        if ids.is_empty() || ids.len() > NAMED {
            return bad("name 1 to 1,000 letters in `ids`, or state a `filter`");
        }
        let count = ids.len() as u64;
        if count != expect {
            return Ok(Err(reply::conflict("`expect` is not the number of letters that are named", count)));
        }
        if versions.keys().any(|id| ids.binary_search(id).is_err()) {
            return bad("`versions` are those of letters that are named in `ids`");
        }
        return Ok(Ok(Choice::Named(Wanted::default().letters(shared)?, ids, versions)));
    };
    let (true, Some(upto)) = (ids.is_empty() && versions.is_empty(), upto) else {
        return bad("state a `filter` with `upto`, which the list of letters told, and no `ids` or `versions`");
    };
    let letters = filter.letters(shared)?.upto(upto);
    let count = letters.count_matching().await.map_err(|error| Failed::of(&error))?;
    if count != expect {
        return Ok(Err(reply::conflict("the number of letters that match is another; nothing was done", count)));
    }
    Ok(Ok(Choice::All(letters)))
}

pub(super) async fn redrive(shared: &Shared, who: &Who, chosen: Chosen) -> Result<Reply, Failed> {
    let matching = chosen.expect;
    let leaves_ambiguous = chosen.filter.as_ref().is_some_and(|filter| filter.reason.is_none());
    let choice = match choice(shared, chosen).await? {
        Ok(choice) => choice,
        Err(conflict) => return Ok(conflict),
    };
    let left_out = match &choice {
        Choice::All(letters) if leaves_ambiguous => {
            let ambiguous = letters.clone().reason(Reason::Ambiguous);
            ambiguous.count_matching().await.map_err(|error| Failed::of(&error))?
        }
        _ => 0,
    };
    let expect = matching.saturating_sub(left_out);
    let mut action = Action::begin(who, "redrive", expect);
    let result = redrive_chosen(&choice, leaves_ambiguous, (expect, left_out), &mut action.changed).await;
    let done = action.end(result).map_err(|error| Failed::of(&error))?;
    Ok(reply::value(&json!({ "redriven": done, "left": expect.saturating_sub(done), "left_out": left_out })))
}

/// Makes `expect` of the chosen letters jobs again, and counts them in `changed`. With `leaves_ambiguous` the
/// `left_out` ambiguous ones stay letters.
async fn redrive_chosen(
    choice: &Choice,
    leaves_ambiguous: bool,
    (expect, left_out): (u64, u64),
    changed: &mut Option<u64>,
) -> Result<(), Error> {
    let (letters, ids, versions) = match choice {
        Choice::Named(letters, ids, versions) => (letters, ids, versions),
        Choice::All(letters) => {
            // Unknown until the call returns.
            *changed = None;
            let most = usize::try_from(expect).unwrap_or(usize::MAX);
            let result = letters.redrive_present(most, leaves_ambiguous).await;
            *changed = match &result {
                Ok(redriven) => Some(redriven.jobs as u64),
                // The letters before the error are jobs, and no longer match.
                Err(_) => {
                    let left = letters.count_matching().await.ok();
                    left.and_then(|left| (expect + left_out).checked_sub(left))
                }
            };
            return result.map(drop);
        }
    };
    let mut done = 0;
    for id in ids {
        done += match redrive_named(letters, id, versions.get(id)).await {
            Ok(done) => u64::from(done),
            // The request of this letter was not kept, or another has its key. The loop goes on with the other letters.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::KeyReused) => 0,
            Err(error) => {
                forget_if_in_doubt(&error, changed);
                return Err(error);
            }
        };
        *changed = Some(done);
    }
    Ok(())
}

/// Makes a letter a job again, if it has the stated version. Returns whether it did.
async fn redrive_named(letters: &DeadLetters, id: &str, version: Option<&String>) -> Result<bool, Error> {
    let Some(kept) = letters.show(id).await? else { return Ok(false) };
    let is_meant = match version {
        Some(version) => *version == kept.version(),
        None => kept.letter.reason != Reason::Ambiguous,
    };
    if is_meant { letters.redrive_seen(&kept).await } else { Ok(false) }
}

pub(super) async fn purge(shared: &Shared, who: &Who, chosen: Chosen) -> Result<Reply, Failed> {
    let expect = chosen.expect;
    if !chosen.versions.is_empty() {
        return Err(Failed::new(StatusCode::BAD_REQUEST, "`versions` are for `redrive`: state none"));
    }
    let choice = match choice(shared, chosen).await? {
        Ok(choice) => choice,
        Err(conflict) => return Ok(conflict),
    };
    let mut action = Action::begin(who, "purge", expect);
    let result = purge_chosen(&choice, expect, &mut action.changed).await;
    let done = action.end(result).map_err(|error| Failed::of(&error))?;
    Ok(reply::value(&json!({ "purged": done })))
}

/// After an error that leaves open whether letters were changed, their number is not known.
fn forget_if_in_doubt(error: &Error, changed: &mut Option<u64>) {
    if error.delivery() == Delivery::Ambiguous {
        *changed = None;
    }
}

/// Deletes the chosen letters, and counts them in `changed`.
async fn purge_chosen(choice: &Choice, expect: u64, changed: &mut Option<u64>) -> Result<(), Error> {
    let mut done = 0;
    match choice {
        Choice::Named(letters, ids, _) => {
            for id in ids {
                done += u64::from(letters.remove(id).await.inspect_err(|error| forget_if_in_doubt(error, changed))?);
                *changed = Some(done);
            }
        }
        Choice::All(letters) => {
            while done < expect {
                let step = usize::try_from(expect - done).unwrap_or(usize::MAX).min(STEP);
                let gone = letters.purge(step).await.inspect_err(|error| forget_if_in_doubt(error, changed))?;
                done += gone;
                *changed = Some(done);
                if gone < step as u64 {
                    break;
                }
            }
        }
    }
    Ok(())
}
