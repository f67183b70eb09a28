//! The gateway's own paths, below `/~/`.

use std::sync::atomic::Ordering;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri};

use super::answer::GatewayBody;
use super::callers::Allowed;
use super::door::Door;
use super::path::CONTROL;
use super::problem::Problem;
use super::shared::Shared;
use crate::config::May;

const NOT_FOUND: &str =
    "there is no such path of the gateway's own; there are /~/livez, /~/readyz, /~/metrics and /~/receipts/ID";

impl Shared {
    /// Serves a request for one of the gateway's own paths.
    pub(super) async fn control(&self, request: &Parts, door: &Door) -> Result<Response<GatewayBody>, Problem> {
        let Parts { method, uri, headers, .. } = request;
        let path = uri.path().strip_prefix(CONTROL).unwrap_or_default();
        if let Some(id) = path.strip_prefix("receipts/") {
            let allowed = self.enter(headers, uri, door).await?;
            return self.receipt(method, id, &allowed).await;
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Problem::method("GET, HEAD", "method", "write GET"));
        }
        match path {
            "livez" => Ok(json(StatusCode::OK, &serde_json::json!({"status": "ok"}))),
            "readyz" => {
                let may_view = self.enter(headers, uri, door).await.is_ok_and(|allowed| allowed.may_view());
                Ok(self.readiness(door, may_view))
            }
            "metrics" => {
                let allowed = self.enter(headers, uri, door).await?;
                if !allowed.may_view() {
                    let why = "metrics show all tenants: the caller needs the right \"view\" (`may` of [[callers]])";
                    return Err(Problem::refused(StatusCode::FORBIDDEN, "forbidden", why));
                }
                self.metrics()
            }
            _ => Err(Problem::refused(StatusCode::NOT_FOUND, "not_found", NOT_FOUND)),
        }
    }

    /// Authenticates a request for a path that not everybody may see.
    async fn enter(&self, headers: &HeaderMap, uri: &Uri, door: &Door) -> Result<Allowed, Problem> {
        if !self.asks_for_tokens {
            door.refuse_browsers(headers, uri)?;
        }
        Ok(self.authenticate(headers, uri, door).await?.0)
    }

    /// The texts of problems may name files, hosts and tenants: they are for those who `may_view` them.
    fn readiness(&self, door: &Door, may_view: bool) -> Response<GatewayBody> {
        // A failing store does not stop direct sends; it matters only if callers may store requests, or if the process
        // has other work than sending for callers.
        let store_problem = self.client.outbox().problem();
        let status = match (door.shutdown.draining.load(Ordering::Relaxed), &store_problem) {
            (true, _) => "draining",
            (false, Some(_)) if !self.sends || self.takes_for_later() => "store",
            _ => "ok",
        };
        let code = if status == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut said = serde_json::json!({"status": status});
        if may_view {
            said["config_problem"] = self.client.config().problem().into();
            said["store_problem"] = store_problem.into();
        }
        json(code, &said)
    }

    /// Whether some caller may leave requests in the store.
    fn takes_for_later(&self) -> bool {
        let config = self.client.core().registry.config.load();
        config.callers().is_empty() || config.callers().iter().any(|caller| caller.may.contains(&May::Async))
    }

    fn metrics(&self) -> Result<Response<GatewayBody>, Problem> {
        let Some(render) = &self.metrics else {
            let why = "this gateway shows no metrics; `GatewayBuilder::metrics` says where they come from";
            return Err(Problem::refused(StatusCode::NOT_FOUND, "not_found", why));
        };
        let mut answer = Response::new(GatewayBody::own(render().into()));
        let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        answer.headers_mut().insert(CONTENT_TYPE, text);
        Ok(answer)
    }
}

/// Builds a JSON response of the gateway's own.
pub(super) fn json(status: StatusCode, body: &serde_json::Value) -> Response<GatewayBody> {
    let mut answer = Response::new(GatewayBody::own(body.to_string().into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
