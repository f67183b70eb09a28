//! `Integration-Async: true`: stores a request to be sent later, and serves its receipt to callers who ask for its
//! state.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{LOCATION, RETRY_AFTER};
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};

use super::aim::Aim;
use super::answer::GatewayBody;
use super::callers::Allowed;
use super::control;
use super::problem::Problem;
use super::shared::Shared;
use crate::Priority;
use crate::config::May;
use crate::ingress::Record;
use crate::outbox::{KeptResponse, Receipt, Status};
use crate::request::Request;

impl Shared {
    /// Accepts a request into the store, and responds 202 once it is on the disk. The vendor's response is kept with
    /// the receipt. `may_act_twice` says that a second job for the same request does no harm, or that there will be
    /// none.
    pub(super) async fn leave(
        &self,
        request: Request,
        priority: Priority,
        aim: &Aim,
        may_act_twice: bool,
    ) -> Result<Response<GatewayBody>, Problem> {
        let outbox = self.client.outbox();
        let left = outbox.enqueue(&aim.route.id, priority, request.keep_response()).await;
        let prefix = self.public_url.as_ref().map_or("", |url| url.path().trim_end_matches('/'));
        let path_of = |id: &str| format!("{prefix}/~/receipts/{id}");
        // A request that failed here may have been accepted all the same; its receipt says whether it was.
        let receipt = left.map_err(|error| Problem {
            record: error.job_id().map(|id| Box::new(Record::Receipt(path_of(id).into()))),
            ..Problem::of(&error, may_act_twice)
        })?;
        let path = path_of(&receipt.id());
        let said = json!({"id": receipt.id(), "receipt": path, "accepted_before": receipt.was_accepted_before()});
        let mut answer = control::json(StatusCode::ACCEPTED, &said);
        // For callers of a forward proxy or a lane listener the path would be one of the vendor's.
        if aim.is_by_path
            && let Ok(value) = HeaderValue::from_str(&path)
        {
            answer.headers_mut().insert(LOCATION, value);
        }
        Ok(answer)
    }

    /// Serves `/~/receipts/ID`: returns the state of a stored request or, for DELETE, cancels it.
    pub(super) async fn receipt(
        &self,
        method: &Method,
        id: &str,
        allowed: &Allowed,
    ) -> Result<Response<GatewayBody>, Problem> {
        if !matches!(*method, Method::GET | Method::HEAD | Method::DELETE) {
            return Err(Problem::method("GET, HEAD, DELETE", "method", "write GET or DELETE"));
        }
        let of = |error: &crate::Error| Problem::of(error, true);
        let receipt = self.client.outbox().receipt(id).map_err(|error| of(&error))?;
        let lane = receipt.lane().await.map_err(|error| of(&error))?;
        // The same message for unknown receipts and for those of other tenants, so that it does not reveal what others
        // have sent.
        if !lane.is_some_and(|(tenant, vendor)| allowed.may(May::Async, &tenant, &vendor)) {
            let why = "the store has no such request of this caller's tenants, or its record has been deleted by now";
            return Err(Problem::refused(StatusCode::NOT_FOUND, "not_found", why));
        }
        if *method == Method::DELETE {
            let mut is_cancelled = receipt.cancel().await.map_err(|error| of(&error))?;
            if !is_cancelled {
                // A DELETE may be repeated, for example because the answer to the first was lost.
                let status = receipt.status().await.map_err(|error| of(&error))?;
                is_cancelled = matches!(status, Status::Cancelled);
            }
            return match is_cancelled {
                true => Ok(control::json(StatusCode::OK, &json!({"id": receipt.id(), "state": "cancelled"}))),
                false => {
                    let why = "a process has the request, or it has ended; GET says which";
                    Err(Problem::refused(StatusCode::CONFLICT, "not_cancelled", why))
                }
            };
        }
        self.state_of(&receipt).await
    }

    async fn state_of(&self, receipt: &Receipt) -> Result<Response<GatewayBody>, Problem> {
        let status = receipt.status().await.map_err(|error| Problem::of(&error, true))?;
        let mut said = state(&status);
        said["id"] = receipt.id().into();
        let mut answer = control::json(StatusCode::OK, &said);
        if let Status::Waiting { due_in, .. } = status {
            answer.headers_mut().insert(RETRY_AFTER, due_in.as_secs().clamp(1, 60).into());
        }
        Ok(answer)
    }
}

fn state(status: &Status) -> Value {
    match status {
        Status::Waiting { due_in, .. } => json!({"state": "waiting", "due_in_s": due_in.as_secs_f64()}),
        Status::UnderWay => json!({"state": "under_way"}),
        Status::Delivered { status, attempts, response, .. } => {
            let response = response.as_ref().map(kept);
            json!({"state": "delivered", "status": status, "attempts": attempts, "response": response})
        }
        Status::Cancelled => json!({"state": "cancelled"}),
        Status::Dead { reason, .. } => json!({"state": "dead", "reason": reason}),
        Status::Unknown => json!({"state": "unknown"}),
    }
}

/// Returns the body as text if it is UTF-8, and otherwise as base64.
fn kept(response: &KeptResponse) -> Value {
    let (name, body) = match std::str::from_utf8(response.body()) {
        Ok(text) => ("body", text.to_owned()),
        Err(_) => ("body_base64", STANDARD.encode(response.body())),
    };
    json!({"content_type": response.content_type(), "headers": response.headers(), name: body})
}
