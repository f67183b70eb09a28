//! One send, from a request to the vendor's answer.
//!
//! What needs no waiting is done when `send` is called, so that its future, of which thousands may wait, holds the
//! request once and in the form in which it will leave. The size of that future is what a send costs most by: at a few
//! hundred at once it decides whether they stay in the processor's cache.

use std::sync::Arc;
use std::time::Duration;

use crate::Priority;
use crate::client::Inner;
use crate::clock::Time;
use crate::config::Tenant;
use crate::dispatch::Grant;
use crate::engine::Ask;
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::error::{Error, ErrorKind};
use crate::refusal;
use crate::request::{Request, Target};
use crate::response::{Headroom, Response, ResponseBody, WaitReason};
use crate::transport::exchange::{Attempt, Prepared};
use crate::transport::{Exchange, Secret, Sent};

/// A request that was found good, and what is to become of it.
pub(crate) struct Job {
    prepared: Prepared,
    tenant: Arc<Tenant>,
    priority: Priority,
    endpoint: EndpointId,
    cost: u32,
    /// Now or not at all.
    immediate: bool,
    /// When it must have ended.
    deadline: Time,
    /// When it must have begun.
    give_up: Time,
    attempt_timeout: Duration,
}

impl Job {
    /// Everything about a send that needs no waiting.
    pub(crate) fn new(
        inner: &Inner,
        tenant: &str,
        priority: Priority,
        request: Request,
        immediate: bool,
    ) -> Result<Job, Error> {
        let now = inner.clock.now();
        let deadline = now + request.deadline.unwrap_or(inner.default_deadline);
        let give_up = request.max_wait.map_or(deadline, |wait| deadline.min(now + wait));

        // Whose limits, and where to.
        let tenant = match &request.target {
            Target::Path { vendor, .. } => inner.tenant(tenant, vendor)?,
            Target::Url(url) => inner.tenant_for_url(tenant, url)?,
        };
        let vendor = &tenant.vendor;
        let attempt_timeout = request.attempt_timeout.unwrap_or(vendor.attempt_timeout);
        let base = tenant.base()?;
        let endpoint = match &request.endpoint {
            Some(name) => Some(vendor.endpoint(name)?),
            None if vendor.endpoints.is_empty() => None,
            None => vendor.match_endpoint(request.method.as_str(), request.path(&base)?),
        };
        let cost = request.cost.or(endpoint.map(|(_, endpoint)| endpoint.cost)).unwrap_or(1).max(1);
        let endpoint = endpoint.map_or(NO_ENDPOINT, |(number, _)| number as EndpointId);
        let prepared = Prepared::new(request, tenant.clone(), &base)?;
        drop(base);
        Ok(Job { prepared, tenant, priority, endpoint, cost, immediate, deadline, give_up, attempt_timeout })
    }

    /// Waits for a permit and makes the exchange.
    pub(crate) async fn run(&mut self, inner: &Inner) -> Result<Response, Error> {
        // Before the permit: getting a secret may take a while.
        let secret = match inner.credentials.at_hand(&self.tenant, inner.clock.now()) {
            Some(secret) => secret,
            // Boxed: few requests come here, and all would carry its state.
            None => Box::pin(self.secret(inner)).await?,
        };
        let Grant { held, waited, reason } = self.permit(inner).await?;
        let exchange = match self.exchange(inner, secret.as_ref()) {
            Ok(exchange) => exchange,
            Err(error) => {
                held.not_sent();
                return Err(error);
            }
        };
        drop(secret);
        match inner.transport.execute(exchange).await {
            Ok(answer) => {
                let headroom = held.answered(self.endpoint);
                Ok(Response {
                    status: answer.status,
                    version: answer.version,
                    headers: answer.headers,
                    body: ResponseBody::new(answer.body, held, self.tenant.clone()),
                    attempts: 1,
                    waited,
                    reason: reason.map(WaitReason::new),
                    headroom: headroom.map(Headroom::of),
                })
            }
            Err(error) => {
                match (error.sent(), error.kind()) {
                    (Sent::NotSent, _) => held.not_sent(),
                    // The request may still be on its way: it counts until the vendor must have had it.
                    (_, ErrorKind::Timeout) => drop(held),
                    _ => held.finish(),
                }
                Err(error.into_error(&self.tenant))
            }
        }
    }

    async fn secret(&self, inner: &Inner) -> Result<Option<Secret>, Error> {
        let secret = inner.credentials.secret(&self.tenant);
        match tokio::time::timeout_at(inner.clock.instant(self.deadline), secret).await {
            Ok(secret) => {
                let secret = secret?;
                inner.credentials.keep_at_hand(&self.tenant, secret.as_ref(), inner.clock.now());
                Ok(secret)
            }
            Err(_) => Err(refusal::credential_timeout(&self.tenant)),
        }
    }

    async fn permit(&self, inner: &Inner) -> Result<Grant, Error> {
        let refused = |why| refusal::error(&self.tenant, self.priority, inner.clock.now(), why);
        let place = inner.place(&self.tenant).map_err(refused)?;
        let ask = inner.ask(self.priority, self.endpoint, self.cost, self.give_up, self.attempt_timeout);
        let ask = Ask { immediate: self.immediate, ..ask };
        inner.acquire(&self.tenant, place, ask).await.map_err(refused)
    }

    fn exchange(&mut self, inner: &Inner, secret: Option<&Secret>) -> Result<Exchange, Error> {
        let ends = self.deadline.min(inner.clock.now() + self.attempt_timeout);
        let signer = inner.signers.get(&*self.tenant.vendor.name).map(|signer| &**signer);
        self.prepared.exchange(Attempt {
            secret,
            signer,
            // Read for whoever signs by it.
            wall: signer.map_or(std::time::SystemTime::UNIX_EPOCH, |_| inner.clock.wall()),
            deadline: inner.clock.instant(ends),
        })
    }
}

/// The future of a send. It runs the job where it lies: handed on, it would be there twice.
pub(crate) fn send(
    inner: &Inner,
    job: Result<Job, Error>,
) -> impl Future<Output = Result<Response, Error>> + Send + use<'_> {
    let mut job = job;
    async move {
        match job {
            Ok(ref mut job) => job.run(inner).await,
            Err(error) => Err(error),
        }
    }
}
