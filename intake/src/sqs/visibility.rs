//! For how long received messages stay invisible to others: extended while they are held, and cut short for those that are given
//! back.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::ChangeMessageVisibilityBatchRequestEntry as Change;
use futures_util::future::join_all;

use super::{BATCH, MOST_INVISIBLE_S, Shared, problem};

impl Shared {
    /// What is held at two of these times in turn is extended: in time, and nothing that is settled soon.
    pub(super) fn extends_every(&self) -> Duration {
        Duration::from_secs(self.invisible_s.unsigned_abs().into()) / 3
    }
}

/// Keeps invisible what is held, for as long as it is held. Runs until it is aborted.
pub(super) async fn extend(shared: Arc<Shared>, name: String) {
    let every = shared.extends_every();
    loop {
        tokio::time::sleep(every).await;
        // One that hangs must not hold up the next round: in its time all that is held would become visible.
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
    shared.unsettled.for_each(|delivery| {
        if std::mem::replace(&mut delivery.is_old, true) {
            old.push(delivery.receipt().to_owned());
        }
    });
    change(shared, &old, shared.invisible_s).await
}

/// Makes messages visible after a while. They are not among the unsettled any more, so that nothing extends them after this.
pub(super) async fn give_back(shared: &Shared, receipts: &[String], after: Duration) -> Result<(), String> {
    let after_s = after.as_millis().div_ceil(1000).min(MOST_INVISIBLE_S as u128) as i32;
    let _changing = shared.changing.lock().await;
    change(shared, receipts, after_s).await
}

/// Of single messages it fails where they were deleted, or became visible, meanwhile; that is no error.
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
