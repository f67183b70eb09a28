//! Delivers replies to the place where their senders wait: a queue, a subject, a topic, a webhook.
//!
//! A reply is in the store from the transaction that ended its job until its target has it. A process claims replies
//! for a limited time, delivers them, and deletes those that the target has. If it is killed in between, the replies
//! are delivered again under the same id.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::replies::Reply;
use super::{Outbox, OutboxState};
use crate::error::{Error, ErrorKind};
use crate::store::replies::{self, Claim, Settled, ToDeliver};
use crate::store::{is_down, millis_of};
use crate::transport::Cause;
use crate::{BoxError, BoxFuture};

/// The most replies in one claim.
const TOGETHER: usize = 64;
/// How often the store is checked while no replies are due.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The wait after a failure of the store.
const AWAY: Duration = Duration::from_secs(1);
/// The first and the longest wait before a reply is delivered again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));
/// The longest wait while the target accepts no reply at all.
const TARGET_AWAY: Duration = Duration::from_secs(30);

/// Where replies go: a queue, a topic, a webhook. See [`Outbox::deliver_replies`].
pub trait ReplyTarget: Send + Sync {
    /// The name of the target, for the log. Holds no secret.
    fn name(&self) -> &str;

    /// Delivers replies, and returns for each, in the same order, whether the target has stored it. A reply without a
    /// result counts as not delivered. A reply may be delivered again: [`Reply::message_id`] is the same each time,
    /// and should be sent with it, so that its receiver recognises repetitions.
    fn deliver<'a>(&'a self, replies: &'a [Reply]) -> BoxFuture<'a, Vec<Result<(), BoxError>>>;

    /// How long a call of [`deliver`](Self::deliver) may take before it is dropped and its replies are delivered
    /// again; 30 s unless implemented. No other process takes the same replies until half as long after that.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }
}

/// The fields of a reply that say where it goes.
#[derive(Deserialize)]
struct Routed {
    reply_to: Option<String>,
    metadata: Option<std::collections::BTreeMap<String, String>>,
}

impl Reply {
    /// The id under which the reply is delivered: the job's id and the reply's number, because a job may end twice.
    pub fn message_id(&self) -> String {
        format!("{}-{}", self.id, self.number)
    }

    /// The place that the request named for its reply ([`Request::reply_to`](crate::Request::reply_to)).
    pub fn reply_to(&self) -> Option<String> {
        self.routed().and_then(|routed| routed.reply_to)
    }

    /// A value of the request's [`metadata`](crate::Request::metadata), if it may be stored in plain text.
    pub fn metadata(&self, name: &str) -> Option<String> {
        self.routed().and_then(|routed| routed.metadata?.remove(name))
    }

    fn routed(&self) -> Option<Routed> {
        serde_json::from_str(&self.json).ok()
    }

    /// Returns [`json`](Self::json) in at most `bytes`, for targets with a size limit: without the body if it is
    /// longer. If it is still longer then, it is returned all the same.
    pub fn json_within(&self, bytes: usize) -> std::borrow::Cow<'_, str> {
        if self.json.len() <= bytes {
            return (&*self.json).into();
        }
        let without_body = || {
            let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&self.json).ok()?;
            fields.insert("body".to_owned(), serde_json::Value::Null);
            serde_json::to_string(&fields).ok()
        };
        without_body().map_or((&*self.json).into(), Into::into)
    }
}

impl Outbox {
    /// Delivers the replies in the store to a target until [`shutdown`](crate::IntegrationClient::shutdown). Runs in
    /// the caller's own task. Returns how many replies were delivered.
    ///
    /// A reply is deleted when the target has it, and delivered again until then: at least once, under the same
    /// [id](Reply::message_id) each time. Failed deliveries are repeated after 1 s, then at growing intervals of at
    /// most 10 minutes, for a week. A target that is unreachable delays nothing but its replies. Several processes may
    /// deliver: each reply is claimed by one process at a time. Replies are delivered in no particular order.
    ///
    /// The oldest replies are claimed first. Do not take replies by [`replies`](Self::replies), or by SQL, at the same
    /// time: both receivers would get them.
    ///
    /// # Errors
    /// An error of the store that is not temporary, and [`ErrorKind::Shutdown`] if the client had been shut down before.
    pub async fn deliver_replies(self, target: &dyn ReplyTarget) -> Result<u64, Error> {
        let outbox = self.state()?.clone();
        outbox.check_open()?;
        let (mut stop, mut delivered, mut failures) = (outbox.stop.subscribe(), 0, 0);
        // Results that could not be written to the store yet.
        let mut unsettled = None;
        loop {
            let is_last = *stop.borrow();
            let wait = match round(&outbox, target, &mut unsettled).await {
                Ok(Round { delivered: some, failed, is_full }) => {
                    delivered += some;
                    failures = if failed > 0 && some == 0 { failures + 1 } else { 0 };
                    match failures {
                        0 if is_full => Duration::ZERO,
                        0 => LOOK_EVERY,
                        failures => wait_after(failures, TARGET_AWAY, fastrand::f64()),
                    }
                }
                Err(error) if error.kind() == ErrorKind::Shutdown => break,
                Err(error) if is_down(&error) => AWAY,
                Err(error) => return Err(error),
            };
            if is_last {
                break;
            }
            if !wait.is_zero() {
                // Either the time is over or the client has been shut down.
                let _ = tokio::time::timeout(wait, stop.wait_for(|stop| *stop)).await;
            }
        }
        Ok(delivered)
    }
}

/// The result of one claim.
struct Round {
    delivered: u64,
    failed: usize,
    /// Whether further replies may be due.
    is_full: bool,
}

async fn round(
    outbox: &Arc<OutboxState>,
    target: &dyn ReplyTarget,
    unsettled: &mut Option<Settled>,
) -> Result<Round, Error> {
    if let Some(settled) = &*unsettled {
        outbox.store.write(settled.clone(), replies::settle).await?;
        *unsettled = None;
    }
    if !outbox.store.read((), replies::is_any_due).await? {
        return Ok(Round { delivered: 0, failed: 0, is_full: false });
    }
    let patience = target.patience();
    let claim = Claim { most: TOGETHER as i64, held_ms: millis_of(patience.saturating_add(patience / 2)) };
    let claimed = outbox.store.write(claim, replies::claim).await?;
    let (mut settled, mut why) = (Settled::default(), None);
    let is_full = claimed.len() == TOGETHER;
    let split = |ToDeliver { kept, tries }| (tries, Reply { number: kept.seq, id: kept.id, json: kept.reply });
    let (tried, to_deliver): (Vec<i64>, Vec<Reply>) = claimed.into_iter().map(split).unzip();
    let results = tokio::time::timeout(patience, target.deliver(&to_deliver)).await;
    let mut results = results.unwrap_or_default().into_iter();
    for (tries, Reply { number, .. }) in tried.into_iter().zip(&to_deliver) {
        match results.next() {
            Some(Ok(())) => settled.delivered.push(*number),
            failed => {
                why = failed.and_then(Result::err).map(|error| Cause::of(&*error).to_string()).or(why);
                let tries = u32::try_from(tries).unwrap_or(u32::MAX);
                settled.later.push((*number, millis_of(wait_after(tries, AGAIN.1, fastrand::f64()))));
            }
        }
    }
    let round = Round { delivered: settled.delivered.len() as u64, failed: settled.later.len(), is_full };
    if round.failed > 0 {
        let why = why.unwrap_or_else(|| "no answer in time".to_owned());
        tracing::warn!(
            target = target.name(),
            replies = round.failed,
            why,
            "replies could not be delivered; they are tried again"
        );
    }
    // Kept until it is written, so that a failing store does not cause replies to be delivered again.
    *unsettled = Some(settled.clone());
    outbox.store.write(settled, replies::settle).await?;
    *unsettled = None;
    Ok(round)
}

/// The wait after `failures` consecutive failures: doubled each time up to `longest`, less up to a quarter at random
/// (jitter).
fn wait_after(failures: u32, longest: Duration, random: f64) -> Duration {
    let doubled = AGAIN.0.saturating_mul(1 << (failures.clamp(1, 20) - 1)).min(longest);
    doubled.mul_f64(1.0 - 0.25 * random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(json: &str) -> Reply {
        Reply { number: 7, id: "job".to_owned(), json: json.to_owned() }
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let waits: Vec<u64> = (0..8).map(|failures| wait_after(failures, TARGET_AWAY, 0.0).as_secs()).collect();
        assert_eq!(waits, [1, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(wait_after(u32::MAX, AGAIN.1, 1.0), Duration::from_secs(450));
    }

    #[test]
    fn reply_says_where_it_goes() {
        let routed = reply(r#"{"id":"job","reply_to":"q","metadata":{"correlation_id":"c"}}"#);
        assert_eq!(
            (routed.reply_to().as_deref(), routed.metadata("correlation_id").as_deref()),
            (Some("q"), Some("c"))
        );
        assert_eq!(routed.message_id(), "job-7");
        for plain in ["{}", r#"{"metadata":null}"#, "not JSON"] {
            assert_eq!((reply(plain).reply_to(), reply(plain).metadata("correlation_id")), (None, None), "{plain}");
        }
    }

    #[test]
    fn long_reply_goes_without_its_body() {
        let long = reply(&format!(r#"{{"id":"job","body":"{}","body_bytes":1000}}"#, "x".repeat(1_000)));
        assert_eq!(long.json_within(2_000), long.json);
        assert_eq!(long.json_within(500), r#"{"body":null,"body_bytes":1000,"id":"job"}"#);
        assert_eq!(reply("not JSON, and long").json_within(3), "not JSON, and long");
    }
}
