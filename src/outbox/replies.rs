//! Replies: the outcome of a stored request as JSON, for senders that want it, in the table `ic_reply` of the store.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::Outbox;
use crate::clock::as_some_seconds;
use crate::dead_letter::{Content, DeadLetter, KeptHeaders};
use crate::error::Error;
use crate::store::{records, replies};

/// Largest body, in bytes, that a reply includes.
const MAX_BODY: usize = 256 * 1024;

/// The outcome of a stored request that asked for a reply ([`Request::reply`](crate::Request::reply)).
///
/// A reply is written in the transaction in which its job is delivered or given up. It is handed out until
/// [`Outbox::replies_taken`] is called with it: at least once, and its number identifies repetitions. A job may end
/// twice, with two replies of the same id: a letter that is sent again, and one with the reason `ambiguous` whose
/// outcome was learnt later. The last reply counts. A job that is [cancelled](crate::outbox::Receipt::cancel), or
/// whose row cannot be read, has no reply.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reply {
    /// The number of the reply in the store; never used twice.
    pub number: i64,
    /// The id of the job, as in its receipt or dead letter.
    pub id: String,
    /// The reply: a JSON object.
    ///
    /// | field | |
    /// |---|---|
    /// | `id`, `tenant`, `vendor` | those of the job |
    /// | `reply_to` | the place that the request named ([`Request::reply_to`](crate::Request::reply_to)); missing where it named none |
    /// | `metadata` | the request's metadata; `null` if the vendor's entry states `at_rest`, or the request was stored
    /// sealed |
    /// | `outcome` | `done`: the vendor answered with a 2xx, 303 or 304, or with a response that the program's classifier takes for a success; `dead`: given up |
    /// | `attempts` | exchanges that the job took; for `dead` the attempts that its letter lists |
    /// | `status` | the status of the last response; `null` if there was none |
    /// | `headers` | the [headers](KeptHeaders) of the last response, as pairs of name and value; for `dead` those that its letter keeps, and missing where it keeps none |
    /// | `body` | of the answer: a text, or `{"base64": …}` where it is no UTF-8; only for `done`. `null` where it is longer than 256 KiB or broke off, or as for `metadata` |
    /// | `body_bytes` | the length of the body; only for `done`, and `null` if the body broke off |
    /// | `reason`, `error` | why it was given up; only for `dead`, without `error` as for `metadata` |
    pub json: String,
}

/// The replies in a store that were neither taken nor delivered ([`Outbox::untaken_replies`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct UntakenReplies {
    /// Their number.
    pub count: u64,
    /// The age of the oldest one; `None` if there are none.
    #[serde(rename = "oldest_s", serialize_with = "as_some_seconds")]
    pub oldest: Option<Duration>,
}

#[derive(Serialize)]
struct Written<'a> {
    id: &'a str,
    tenant: &'a str,
    vendor: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<&'a str>,
    metadata: Option<&'a BTreeMap<String, String>>,
    outcome: &'static str,
    attempts: u32,
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<&'a KeptHeaders>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Option<Content>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_bytes: Option<Option<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// The response to a delivered job.
#[derive(Clone, Copy)]
pub(super) struct Answered<'a> {
    pub(super) id: &'a str,
    pub(super) tenant: &'a str,
    pub(super) vendor: &'a str,
    pub(super) metadata: &'a BTreeMap<String, String>,
    pub(super) attempts: u32,
    pub(super) status: u16,
    pub(super) headers: &'a KeptHeaders,
    /// `None` if the body broke off.
    pub(super) body: Option<&'a Bytes>,
    pub(super) wanted: &'a Wanted,
}

/// The reply that the sender of a request wants.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The place for the reply that the request named.
    pub(super) to: Option<String>,
    /// Whether metadata, headers, body and errors may be stored in plain text.
    pub(super) is_plain: bool,
}

impl Answered<'_> {
    /// Renders the reply as JSON.
    pub(super) fn reply(&self) -> String {
        let is_plain = self.wanted.is_plain;
        let shown = self.body.filter(|body| is_plain && body.len() <= MAX_BODY);
        json(&Written {
            id: self.id,
            tenant: self.tenant,
            vendor: self.vendor,
            reply_to: self.wanted.to.as_deref(),
            metadata: is_plain.then_some(self.metadata),
            outcome: "done",
            attempts: self.attempts,
            status: Some(self.status),
            headers: is_plain.then_some(self.headers),
            body: Some(shown.cloned().map(Content::from)),
            body_bytes: Some(self.body.map(Bytes::len)),
            reason: None,
            error: None,
        })
    }
}

/// Renders the reply to a job that was given up.
pub(super) fn given_up(letter: &DeadLetter, wanted: &Wanted) -> String {
    let last = letter.attempts.last().filter(|_| wanted.is_plain);
    let answered = letter.attempts.iter().rev().find(|attempt| attempt.status.is_some());
    let headers = answered.filter(|_| wanted.is_plain).map(|attempt| &attempt.headers);
    json(&Written {
        id: &letter.id,
        tenant: &letter.tenant,
        vendor: &letter.vendor,
        reply_to: wanted.to.as_deref(),
        metadata: wanted.is_plain.then_some(&letter.metadata),
        outcome: "dead",
        attempts: u32::try_from(letter.attempts.len()).unwrap_or(u32::MAX),
        status: answered.and_then(|attempt| attempt.status),
        headers: headers.filter(|headers| !headers.is_empty()),
        body: None,
        body_bytes: None,
        reason: Some(letter.reason.as_str()),
        error: last.and_then(|last| last.error.as_deref()),
    })
}

/// Serialization cannot fail: all map keys are strings.
fn json(reply: &Written<'_>) -> String {
    serde_json::to_string(reply).unwrap_or_default()
}

impl Outbox {
    /// Returns the oldest replies in the store, at most `most`. They stay there until
    /// [`replies_taken`](Self::replies_taken), or for a week. Programs in other languages read the table `ic_reply`
    /// itself.
    ///
    /// ```no_run
    /// # async fn run(client: integration_client::IntegrationClient) -> Result<(), integration_client::Error> {
    /// let replies = client.outbox().replies(100).await?;
    /// for reply in &replies {
    ///     println!("{}: {}", reply.id, reply.json);
    /// }
    /// client.outbox().replies_taken(&replies).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The client has no store, or it cannot be read.
    pub async fn replies(self, most: usize) -> Result<Vec<Reply>, Error> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let found = self.state()?.store.read(most, replies::read).await?;
        Ok(found.into_iter().map(|kept| Reply { number: kept.seq, id: kept.id, json: kept.reply }).collect())
    }

    /// Counts the replies in the store that were neither [taken](Self::replies_taken) nor delivered to a target. A
    /// number that grows means that no program takes replies, or that their target does not accept them.
    ///
    /// # Errors
    /// The client has no store, or it cannot be read.
    pub async fn untaken_replies(self) -> Result<UntakenReplies, Error> {
        let records::UntakenReplies { count, oldest } = self.state()?.store.read((), records::untaken_replies).await?;
        Ok(UntakenReplies { count, oldest })
    }

    /// Deletes replies whose receiver has them. Replies that have been deleted already are ignored.
    ///
    /// # Errors
    /// The client has no store, or it cannot be written.
    pub async fn replies_taken(self, taken: &[Reply]) -> Result<(), Error> {
        let numbers = replies::Taken(taken.iter().map(|reply| reply.number).collect());
        self.state()?.store.write(numbers, replies::delete).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
