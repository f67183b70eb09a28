//! What a command that ends without a response knows of its request.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use integration_client::IntegrationClient;
use integration_client::events::{EventKind, Events};
use integration_client::outbox::{Receipt, Status};

use crate::connect::Named;

/// The time for the exchange of a job that is under way when the command ends.
const GRACE: Duration = Duration::from_secs(10);

/// The state of a request that has no response yet, to report if the command is interrupted or fails.
#[derive(Default)]
pub(super) struct Known(Mutex<Stage>);

#[derive(Default)]
pub(super) enum Stage {
    /// There is no client, or no job yet.
    #[default]
    Unsent,
    /// This process sends the request. The events of its client tell what has happened.
    AtOnce(Events),
    /// The request is being written as a job of the store with this name.
    Accepting(String),
    /// The request is a job of a store, or may be one.
    Job(IntegrationClient, Receipt, Named),
}

impl Known {
    pub(super) fn set(&self, stage: Stage) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    /// Whether the request is a job of a store, or may be one, so that it may be sent although the command fails.
    pub(super) fn is_job(&self) -> bool {
        matches!(&*self.0.lock().unwrap_or_else(PoisonError::into_inner), Stage::Job(..))
    }

    /// Describes the state to the user, in words that follow those about the end of the command.
    pub(super) async fn said(&self) -> String {
        let stage = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        match stage {
            Stage::Unsent => "nothing was sent".to_owned(),
            Stage::Accepting(store) => format!(
                "the request may have been written as a job of {store}, and is then sent by whoever works on that store. \
                 Look there before you send it again"
            ),
            Stage::AtOnce(mut events) => {
                let (mut left, mut refused) = (0_u32, 0_u32);
                while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
                    match event.kind {
                        EventKind::Dispatched { .. } => left += 1,
                        EventKind::Refused { .. } => refused += 1,
                        _ => {}
                    }
                }
                match left {
                    0 => "nothing was sent".to_owned(),
                    _ if left == refused => {
                        format!("exchanges: {left}. The vendor refused the request each time, and did not act on it")
                    }
                    _ => "the request was sent and there is no response yet: the vendor may have acted on it. Ask the \
                         vendor before you send it again, unless sending it twice does no harm"
                        .to_owned(),
                }
            }
            Stage::Job(client, receipt, named) => {
                let store = named.shown();
                // The shutdown waits for an exchange under way. A job that waits for its permit goes back into the
                // store.
                client.shutdown(GRACE).await;
                let id = receipt.id();
                match receipt.status().await {
                    Ok(Status::Waiting { .. }) => format!(
                        "it waits as job {id} in {store}, and is sent by whoever works on that store next (`run`, \
                         `serve --store` or `intake`)"
                    ),
                    Ok(Status::Delivered { status, .. }) => {
                        format!("job {id} of {store} was sent, and the vendor answered {status}")
                    }
                    Ok(Status::Dead { .. }) => format!(
                        "job {id} of {store} was given up: integration-client dead-letters show {id}{}",
                        named.option()
                    ),
                    Ok(Status::UnderWay) => format!("job {id} of {store} is under way"),
                    Ok(_) | Err(_) => format!(
                        "nobody knows what became of job {id} of {store}: it may have been sent, or may be sent later. Look \
                         there before you send it again"
                    ),
                }
            }
        }
    }
}
