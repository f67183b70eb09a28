//! The stored form of a job's history of attempts and of its dead letter; sealed if the vendor's entry says so.

use serde::Serialize;

use super::priority;
use super::receipt::reason_of;
use crate::dead_letter::{DeadLetter, LetterRequest, Reason};
use crate::retry::idempotent;
use crate::send::history::History;
use crate::store::dead::{DeadLetterRow, Version};
use crate::store::keys::KeyAndPrint;
use crate::store::{Id, Opened};

/// A dead letter in the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeptLetter {
    /// The content of the letter: the request as an outline, unless the vendor's entry says `dead_letters = "whole"`.
    /// Holds nothing of the request if the letter is sealed (`at_rest`) and this client has no key that opens it.
    pub letter: DeadLetter,
    /// Whether the whole request is kept, and this client can open it, so that it can be sent again.
    pub can_be_sent: bool,
    /// The position of the letter in the list, for [`DeadLetters::list`](crate::outbox::DeadLetters::list).
    pub place: i64,
    /// Whether the letter is sealed, and no key of the store opens it.
    pub(super) is_shut: bool,
    /// Whether the letter is sealed.
    pub(super) is_sealed: bool,
    pub(super) version: Version,
}

impl KeptLetter {
    /// Text that differs between the letters of one job: a job that is sent again and given up again has a letter with
    /// the same id and another version.
    pub fn version(&self) -> String {
        format!("{}-{}", self.version.fence, self.version.reason)
    }

    /// Whether the vendor may have acted on an attempt, so that the letter's job is not sent where the vendor may have
    /// forgotten the idempotency key ([`keeps`](crate::config::Idempotency::keeps)): it becomes a letter with
    /// [`Reason::Ambiguous`]. False for a letter with that reason, whose job is sent, and for methods that may be repeated.
    pub fn is_in_doubt(&self) -> bool {
        let (LetterRequest::Whole { method, .. } | LetterRequest::Redacted { method, .. }) = &self.letter.request;
        self.letter.may_have_acted_at.is_some()
            && self.letter.reason != Reason::Ambiguous
            && !method.parse::<http::Method>().is_ok_and(|method| idempotent(&method, || true, false))
    }
}

/// A letter as its row states it. Earlier versions ignore what they do not know.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    letter: &'a DeadLetter,
    #[serde(skip_serializing_if = "Option::is_none")]
    may_have_acted_at: Option<i64>,
}

/// The stored form of a letter. If it must be sealed and there is no key, it omits everything of the request.
pub(super) fn letter(store: &Opened, id: &Id, letter: &DeadLetter, seals: bool) -> Vec<u8> {
    letter_in_doubt(store, id, (letter, letter.may_have_acted_at), seals)
}

/// [`letter`] of a request on which the vendor may have acted at `may_have_acted_at` by the store's clock.
pub(super) fn letter_in_doubt(
    store: &Opened,
    id: &Id,
    (letter, may_have_acted_at): (&DeadLetter, Option<i64>),
    seals: bool,
) -> Vec<u8> {
    // Serialization cannot fail: all map keys are strings.
    let text = |letter: &DeadLetter| serde_json::to_vec(&Row { letter, may_have_acted_at }).unwrap_or_default();
    match seals {
        false => text(letter),
        true => store.seal(id, text(letter)).unwrap_or_else(|| text(&outline(letter))),
    }
}

/// The stored form of a history. If it must be sealed and there is no key, it holds only the counts.
pub(super) fn history(store: &Opened, id: &Id, history: &History, seals: bool) -> Vec<u8> {
    let text = |history: &History| serde_json::to_vec(history).unwrap_or_default();
    match seals {
        false => text(history),
        true => {
            store.seal(id, text(history)).unwrap_or_else(|| text(&History { attempts: Vec::new(), ..history.clone() }))
        }
    }
}

/// The two forms of the idempotency key of a request, with its fingerprint: the one in which it is stored, and the other.
/// A form is `None` without a key, or if the store has no key for hashes.
pub(super) fn keys(
    store: &Opened,
    tenant: &str,
    vendor: &str,
    plain: Option<KeyAndPrint>,
    seals: bool,
) -> (Option<KeyAndPrint>, Option<KeyAndPrint>) {
    // A plain hash of a short key or body could be guessed by trying all values, so the hash is keyed.
    let mark = |what: &str, text: &str| store.mark(&[what, tenant, vendor, text]);
    let marked = plain.as_ref().and_then(|(key, print)| mark("key", key).zip(mark("fingerprint", print)));
    if seals { (marked, plain) } else { (plain, marked) }
}

/// A letter without anything of the request: only what the columns of its row hold in plain text.
fn outline(letter: &DeadLetter) -> DeadLetter {
    let mut outline =
        DeadLetter::new(letter.at, &letter.tenant, &letter.vendor, letter.priority, letter.reason, nothing());
    outline.id.clone_from(&letter.id);
    outline
}

fn nothing() -> LetterRequest {
    LetterRequest::Redacted { method: String::new(), path: String::new(), body_bytes: None }
}

/// The public form of a stored letter. If no key opens the letter, only its columns are shown, and it cannot be sent
/// again, because its attempts would be lost. A row that holds no letter is logged and skipped.
pub(super) fn open(store: &Opened, kept: DeadLetterRow) -> Option<KeptLetter> {
    let (is_sealed, version) = (store.is_sealed(&kept.letter), kept.version());
    let shown = |letter, is_shut: bool| {
        let can_be_sent = kept.can_be_sent && !is_shut;
        Some(KeptLetter { letter, can_be_sent, place: kept.seq, is_shut, is_sealed, version })
    };
    // The id of the row is used, not that in the letter: all other statements use the row's.
    let id = kept.id.simple().to_string();
    let Some(text) = store.unseal(&kept.id, &kept.letter) else {
        let at = jiff::Timestamp::from_millisecond(kept.died_at).unwrap_or_default();
        let reason = reason_of(&kept.reason).unwrap_or(Reason::Exhausted);
        let lane = &kept.lane;
        let letter = DeadLetter::new(at, &lane.tenant, &lane.vendor, priority(lane.tier), reason, nothing());
        return shown(DeadLetter { id, ..letter }, true);
    };
    match serde_json::from_slice::<DeadLetter>(&text) {
        Ok(letter) => shown(DeadLetter { id, ..letter }, false),
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            tracing::error!(id, line, column, "a row of the dead letters holds no letter; was it edited by hand?");
            None
        }
    }
}
