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
    let mut before: Option<String> = None;
    loop {
        tokio::time::sleep(every).await;
        // A request that hangs must not delay the next round, or all held messages would become visible meanwhile.
        let problem = match tokio::time::timeout(every, extend_old(&shared)).await {
            Ok(answer) => answer.err(),
            Err(_) => Some(format!("no answer within {every:?}")),
        };
        // A problem that lasts is said once.
        if let Some(problem) = problem.as_ref().filter(|problem| before.as_ref() != Some(*problem)) {
            tracing::warn!(source = name, problem, "messages could not be kept back; they may be delivered again");
        }
        before = problem;
    }
}

async fn extend_old(shared: &Shared) -> Result<(), String> {
    let _changing = shared.changing.lock().await;
    let (mut numbers, mut receipts) = (Vec::new(), Vec::new());
    shared.unsettled.for_each(|number, delivery| {
        if std::mem::replace(&mut delivery.is_old, true) {
            numbers.push(number);
            receipts.push(delivery.receipt().to_owned());
        }
    });
    let failed = change(shared, &receipts, shared.invisible_s).await?;
    // A message that was settled meanwhile is deleted.
    let is_held = |place: usize| numbers.get(place).is_some_and(|number| shared.unsettled.holds(*number));
    match failed.into_iter().find(|(place, _)| is_held(*place)) {
        Some((_, code)) => Err(format!(
            "the server does not extend their visibility timeout ({code}); SQS keeps no message back for more than 12 hours"
        )),
        None => Ok(()),
    }
}

/// Makes messages visible again after the time `after`. The caller has removed them from the unsettled deliveries, so
/// that nothing extends them afterwards.
pub(super) async fn give_back(shared: &Shared, receipts: &[String], after: Duration) -> Result<(), String> {
    let after_s = after.as_millis().div_ceil(1000).min(MAX_INVISIBLE_S as u128) as i32;
    let _changing = shared.changing.lock().await;
    change(shared, receipts, after_s).await.map(drop)
}

/// Sets the visibility timeout of messages. Returns the places of those for which that failed, and the server's codes:
/// they were deleted, or became visible, meanwhile, or are older than SQS keeps messages back.
async fn change(shared: &Shared, receipts: &[String], invisible_s: i32) -> Result<Vec<(usize, String)>, String> {
    let requests = receipts.chunks(BATCH).enumerate().map(|(number, batch)| async move {
        let entries = batch.iter().enumerate().map(|(place, receipt)| {
            let entry = Change::builder().id((number * BATCH + place).to_string()).receipt_handle(receipt);
            entry.visibility_timeout(invisible_s).build()
        });
        let entries = entries.collect::<Result<Vec<Change>, _>>().map_err(|error| error.to_string())?;
        let request = shared.client.change_message_visibility_batch().queue_url(&shared.queue_url);
        let told = request.set_entries(Some(entries)).send().await.map_err(|error| problem::text(&error))?;
        let failed = told.failed().iter();
        let failed = failed.filter_map(|failed| Some((failed.id().parse::<usize>().ok()?, failed.code().to_owned())));
        Ok::<Vec<(usize, String)>, String>(failed.collect())
    });
    let told = join_all(requests).await.into_iter().collect::<Result<Vec<_>, String>>()?;
    Ok(told.into_iter().flatten().collect())
}
