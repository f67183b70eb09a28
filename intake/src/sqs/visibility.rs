//! Changes the visibility timeouts of received messages: extends them while the source holds a message, and shortens
//! them for messages that are given back.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::ChangeMessageVisibilityBatchRequestEntry as Change;
use futures_util::future::join_all;

use super::{BATCH, MAX_INVISIBLE_S, Shared, problem};

impl Shared {
    /// The interval between two rounds of extensions, a third of the visibility timeout. A round extends only messages
    /// that the round before found too: their timeout has not run out yet, and messages that are settled soon cost no
    /// request.
    pub(super) fn extends_every(&self) -> Duration {
        Duration::from_secs(self.invisible_s.unsigned_abs().into()) / 3
    }
}

/// Extends the visibility timeouts of all messages that the source holds. Runs until it is aborted.
pub(super) async fn extend(shared: Arc<Shared>, name: String) {
    let every = shared.extends_every();
    loop {
        tokio::time::sleep(every).await;
        // A request that hangs must not delay the next round, or all held messages would become visible meanwhile.
        let problem = match tokio::time::timeout(every, extend_old(&shared)).await {
            Ok(answer) => answer.err(),
            Err(_) => Some(format!("no answer within {every:?}")),
        };
        if let Some(problem) = problem {
            tracing::warn!(source = name, problem, "messages could not be kept back; they may be delivered again");
        }
    }
}

async fn extend_old(shared: &Shared) -> Result<(), String> {
    let _changing = shared.changing.lock().await;
    let mut old = Vec::new();
    shared.unsettled.for_each(|_, delivery| {
        if std::mem::replace(&mut delivery.is_old, true) {
            old.push(delivery.receipt().to_owned());
        }
    });
    change(shared, &old, shared.invisible_s).await
}

/// Makes messages visible again after the time `after`. The caller has removed them from the unsettled deliveries, so
/// that nothing extends them afterwards.
pub(super) async fn give_back(shared: &Shared, receipts: &[String], after: Duration) -> Result<(), String> {
    let after_s = after.as_millis().div_ceil(1000).min(MAX_INVISIBLE_S as u128) as i32;
    let _changing = shared.changing.lock().await;
    change(shared, receipts, after_s).await
}

/// Sets the visibility timeout of messages. Failures of single messages are ignored: they were deleted, or became
/// visible, meanwhile.
async fn change(shared: &Shared, receipts: &[String], invisible_s: i32) -> Result<(), String> {
    let requests = receipts.chunks(BATCH).map(|batch| async {
        let entries = batch.iter().enumerate().map(|(number, receipt)| {
            let entry = Change::builder().id(number.to_string()).receipt_handle(receipt);
            entry.visibility_timeout(invisible_s).build()
        });
        let entries = entries.collect::<Result<Vec<Change>, _>>().map_err(|error| error.to_string())?;
        let request = shared.client.change_message_visibility_batch().queue_url(&shared.queue_url);
        request.set_entries(Some(entries)).send().await.map_err(|error| problem::text(&error))
    });
    join_all(requests).await.into_iter().find_map(Result::err).map_or(Ok(()), Err)
}
