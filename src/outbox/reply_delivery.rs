//! Delivers replies to the place where their senders wait: a queue, a subject, a topic, a webhook.
//!
//! A reply is in the store from the transaction that ended its job until its target has it. A process claims replies
//! for a limited time, delivers them, and deletes those that the target has. If it is killed in between, the replies
//! are delivered again under the same id.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::replies::Reply;
use super::reply_pace::{Attempted, Outcome, Pace};
use super::{Outbox, OutboxState};
use crate::error::{Error, ErrorKind};
use crate::store::is_down;
use crate::store::replies::{self, Settled, ToDeliver};
use crate::{BoxError, BoxFuture};

/// How often the store is checked while no replies are due.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The wait after a failure of the store.
const AWAY: Duration = Duration::from_secs(1);

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
    /// A reply that was never tried does not wait for replies that the target refuses: half of each call's replies are
    /// new ones. While the target accepts none at all, it is called after 1, 2, 4 … s, at most 10 s with new replies and
    /// 30 s with others.
    ///
    /// Do not take replies by [`replies`](Self::replies), or by SQL, at the same time: both receivers would get them.
    ///
    /// # Errors
    /// An error of the store that is not temporary, and [`ErrorKind::Shutdown`] if the client had been shut down before.
    pub async fn deliver_replies(self, target: &dyn ReplyTarget) -> Result<u64, Error> {
        let outbox = self.state()?.clone();
        outbox.check_open()?;
        let (mut stop, mut delivered, mut pace) = (outbox.stop.subscribe(), 0, Pace::default());
        // Results that could not be written to the store yet.
        let mut unsettled = None;
        loop {
            let is_last = *stop.borrow();
            let wait = match round(&outbox, target, &mut pace, &mut unsettled).await {
                Ok(Outcome { settled, is_full, .. }) => {
                    delivered += settled.delivered.len() as u64;
                    if is_full && !settled.delivered.is_empty() { Duration::ZERO } else { LOOK_EVERY }
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

/// Claims replies, delivers them, and writes the results.
async fn round(
    outbox: &Arc<OutboxState>,
    target: &dyn ReplyTarget,
    pace: &mut Pace,
    unsettled: &mut Option<Settled>,
) -> Result<Outcome, Error> {
    if let Some(settled) = &*unsettled {
        outbox.store.write(settled.clone(), replies::settle).await?;
        *unsettled = None;
    }
    let patience = target.patience();
    let Some(claim) = pace.claim(outbox.clock.now(), patience.saturating_add(patience / 2)) else {
        return Ok(Outcome::default());
    };
    if !outbox.store.read(claim.clone(), replies::is_any_due).await? {
        return Ok(Outcome::default());
    }
    let claimed = outbox.store.write(claim, replies::claim).await?;
    let attempted: Vec<Attempted> = claimed.iter().map(Attempted::from).collect();
    let reply = |ToDeliver { kept, .. }| Reply { number: kept.seq, id: kept.id, json: kept.reply };
    let to_deliver: Vec<Reply> = claimed.into_iter().map(reply).collect();
    let results = tokio::time::timeout(patience, target.deliver(&to_deliver)).await;
    let outcome = Outcome::of(attempted, results.unwrap_or_default(), fastrand::f64);
    pace.after(outbox.clock.now(), &outcome, fastrand::f64());
    let failed = outcome.settled.later.len();
    if failed > 0 {
        tracing::warn!(
            target = target.name(),
            replies = failed,
            why = outcome.why.as_deref().unwrap_or("no answer in time"),
            "replies could not be delivered; they are tried again"
        );
    }
    // Kept until it is written, so that a failing store does not cause replies to be delivered again.
    *unsettled = Some(outcome.settled.clone());
    outbox.store.write(outcome.settled.clone(), replies::settle).await?;
    *unsettled = None;
    Ok(outcome)
}

#[cfg(test)]
mod tests;
