//! One attempt of a request: a permit, one exchange, and the result of the exchange.
//!
//! In this order: the wait until the host may be ready, the credential, the permit, the pass of the host's circuit
//! breaker (a stored job takes it before its record, in `stored_permit.rs`), the exchange. An attempt does not sleep until
//! the next one, and makes neither a dead letter nor a public error. Two drivers do that in different ways: `plain` for a caller who
//! waits for the response, `durable` for a job of the outbox.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Outgoing;
use super::attempt_end::{Answered, AttemptEnd, NotSent};
use crate::clock::{Moment, Time, nanos};
use crate::core::Core;
use crate::core::refusal;
use crate::dispatch::Grant;
use crate::error::{Delivery, Error, ErrorKind};
use crate::request::WaitReason;
use crate::retry::KEY_FORGOTTEN;
use crate::route::Authorization;
use crate::telemetry::{Entry, Listed};
use crate::transport::{Answer, TransportError};

impl Outgoing {
    pub(super) async fn attempt(&mut self, core: &Core) -> Result<AttemptEnd, NotSent> {
        if self.past.is_some() {
            self.renew(core)?;
            if !self.may_begin(core.clock.moment()) {
                return Err(NotSent::KeyForgotten);
            }
        }
        // Rarely taken branches are boxed: every send would carry their state, and thousands of sends may wait.
        if !core.egress.hosts.are_well() {
            Box::pin(core.sends.wait(self.wait_for_host(core))).await??;
            // The wait may have been long: the tenant may have another host, account or credential now.
            if !self.route.is_current() && self.renew(core)? {
                return Ok(AttemptEnd::AtOnce);
            }
        }
        // The credential comes before the permit, because reading a secret may take long.
        let mut now = core.clock.now();
        let mut authorization = match core.egress.credentials.cached_auth(&self.route, now) {
            Some(authorization) => authorization,
            // An operator may have paused the tenant because its credential is missing. Reading it would make the jobs
            // fail, and in the end give them up.
            None if self.stored.is_some() && self.is_paused(core) => {
                Box::pin(self.wait_for_turn(core, now)).await?;
                // The pause may have been for a correction of the tenant.
                self.renew(core)?;
                return Ok(AttemptEnd::AtOnce);
            }
            None => {
                let read = Box::pin(self.authorization_or_wait(core)).await?;
                if self.renew(core)? {
                    return Ok(AttemptEnd::AtOnce);
                }
                let Some(authorization) = read else { return Ok(AttemptEnd::AtOnce) };
                now = core.clock.now();
                authorization
            }
        };
        // The longest wait is for the limits alone, so its time begins here. An immediate request does not wait.
        if let Some(wait) = self.prepared.take_max_wait().filter(|_| !self.immediate) {
            self.give_up = self.deadline.min(now + wait);
        }
        let Grant { held, began, waited, reason } = match self.stored.is_some() {
            false => self.permit(core, now).await?,
            true => Box::pin(self.permit_of_job(core, now)).await?,
        };
        // A tenant that moved to another account before the grant has another credential. With the old one the vendor
        // would count the request in an account whose limits it has not taken. A grant without a wait may be one of the
        // new account too.
        if !self.route.is_current() {
            let renewed = self.renew(core);
            if !matches!(renewed, Ok(false)) {
                held.not_sent();
                self.host_pass = None;
                self.has_time_after(began);
                renewed?;
                return Ok(AttemptEnd::AtOnce);
            }
        }
        // An access token may have expired in the wait, for all requests that wait with it. A cached secret is looked up
        // again after a second, so a request that did not wait ends here.
        if let Some(used) =
            authorization.take_if(|used| began >= used.until && core.egress.credentials.expires(&self.route))
        {
            authorization = Box::pin(self.token_after_wait(core, used, began)).await;
            if authorization.is_none() {
                held.not_sent();
                self.host_pass = None;
                self.has_time_after(began);
                return Ok(AttemptEnd::AtOnce);
            }
        }
        // A stored job took its pass before its exchange was recorded.
        if !core.egress.hosts.are_well() && self.stored.is_none() && !self.pass_host(core) {
            held.not_sent();
            self.has_time_after_pause(began);
            return Ok(AttemptEnd::AtOnce);
        }
        let began = self.begins(core, began);
        // Without a stated deadline, an exchange that has begun gets its whole time.
        let before = self.deadline;
        if self.patience_ns > 0 {
            let whole = self.patience_ns.max(nanos(self.attempt_timeout));
            self.deadline = self.deadline.max(began.at.plus_nanos(whole));
        }
        let exchange = match self.exchange(core, authorization.as_deref(), began) {
            Ok(exchange) => exchange,
            Err(why) => {
                held.not_sent();
                return Err(why);
            }
        };
        if !core.egress.signers.is_empty() && self.was_signed_late(core, began.at) {
            self.prepared.take_back(exchange);
            held.not_sent();
            (self.host_pass, self.deadline) = (None, before);
            self.has_time_after_pause(began.at);
            return Ok(AttemptEnd::AtOnce);
        }
        if let Some(pass) = &mut self.host_pass {
            pass.leaves(self.route.vendor.connect_timeout);
        }
        if let Some(stored) = &mut self.stored {
            stored.authorization.clone_from(&authorization);
        }
        self.token_expired = false;
        self.dispatched(core, waited);
        if self.route.vendor.keeps_usage {
            self.remember(core, true);
        }
        let listed = Listed::new(&core.telemetry.under_way, self.entry(began.at));
        let result = self.in_span(core.egress.transport.execute(exchange), waited).await;
        drop(listed);
        let ended = core.clock.now();
        self.exchanged(core, &result, ended, began.at);
        self.tell_breaker(core, &result, ended);
        let reason = reason.map(WaitReason::new);
        let answer = match result {
            Ok(answer) => answer,
            Err(failure) => {
                return Ok(self.classify_failure(core, failure, held, began, authorization.is_some()));
            }
        };
        if let Some((word, besides)) = self.plain(core, &answer, &held) {
            // If the body states what the request cost, the permit stays open until the body has been read.
            let whole = answer.body.has_arrived() && !self.route.vendor.settles_by_body();
            let (heard, held) = match whole {
                true => (held.on_complete(ended, word, &besides), None),
                false => (held.on_response(ended, word, &besides), Some(held)),
            };
            let headroom = self.reader(core).effect(ended, heard);
            return Ok(AttemptEnd::Done(self.respond(core, answer, held, waited, reason, headroom)));
        }
        let answered = Answered { answer, held, waited, reason, began, authorization };
        Ok(Box::pin(self.classify_answer(core, answered)).await)
    }

    /// The authorization of the request. `None` if it is a stored job that has waited until its token URL may be asked
    /// again.
    async fn authorization_or_wait(&self, core: &Core) -> Result<Option<Option<Arc<Authorization>>>, NotSent> {
        match core.sends.wait(self.authorization(core)).await? {
            Err(NotSent::NoTokenNow(error)) => core.sends.wait(self.wait_for_token(core, error)).await?.map(|()| None),
            read => read.map(Some),
        }
    }

    /// Reads the tenant's secrets, from the same version of its configuration as the URL.
    async fn authorization(&self, core: &Core) -> Result<Option<Arc<Authorization>>, NotSent> {
        let secrets = core.egress.credentials.secrets(&self.route);
        match tokio::time::timeout_at(core.clock.instant(self.deadline), secrets).await {
            Ok(secrets) => {
                // An error of a token URL that may answer again states a wait, and no other does.
                let secrets = secrets.map_err(|error| match error.retry_after() {
                    Some(_) => NotSent::NoTokenNow(error),
                    None => NotSent::Credential(error),
                })?;
                let now = core.clock.now();
                Ok(secrets.map(|secrets| core.egress.credentials.cache(&self.route, secrets, now)))
            }
            Err(_) => {
                let error = refusal::credential_timeout(&self.route);
                Err(match core.egress.credentials.is_of_token_url(&self.route) {
                    true => NotSent::NoTokenNow(error),
                    false => NotSent::Credential(error),
                })
            }
        }
    }

    /// Without a stated deadline, a request that begins again after a wait for its permit has its time anew: the wait may
    /// have been a pause, which does not count, and longer than that time. A shorter `Request::max_wait` is not prolonged.
    fn has_time_after(&mut self, wait_ended: Time) {
        if self.patience_ns == 0 {
            return;
        }
        let until = self.deadline.max(wait_ended.plus_nanos(self.patience_ns));
        if self.give_up == self.deadline {
            self.give_up = until;
        }
        self.deadline = until;
    }

    /// As [`has_time_after`](Self::has_time_after), but only if the wait was longer than the request's time, as a pause of
    /// the vendor alone makes it. A host that stays shut or a signer that is always late would prolong a request for ever.
    fn has_time_after_pause(&mut self, wait_ended: Time) {
        if wait_ended >= self.deadline {
            self.has_time_after(wait_ended);
        }
    }

    /// The access token for a request that has waited with `used` for its permit. `None` if the request has to get another
    /// one first: once, because each wait may be longer than a token lives. Then the vendor decides.
    async fn token_after_wait(
        &mut self,
        core: &Core,
        used: Arc<Authorization>,
        now: Time,
    ) -> Option<Arc<Authorization>> {
        let known = core.egress.credentials.after_wait(&self.route, &used, now).await;
        if known.is_none() && !self.token_expired {
            self.token_expired = true;
            if let Some(token) = &used.secrets.credential {
                self.route.forget_authorization(token);
            }
            return None;
        }
        Some(known.unwrap_or(used))
    }

    /// Whether an operator has paused the tenant at the vendor.
    fn is_paused(&self, core: &Core) -> bool {
        let place = core.registry.place(&self.route);
        place.is_ok_and(|place| place.shard.look(|engine, now| engine.paused_until(now, place.lane)) == Some(Time::MAX))
    }

    /// The moment at which an exchange begins. Its wall clock is read only where the age of a key or a signature may
    /// need it.
    fn begins(&self, core: &Core, at: Time) -> Moment {
        let needs_wall = self.has_key || !core.egress.signers.is_empty();
        Moment { at, wall: if needs_wall { core.clock.wall() } else { SystemTime::UNIX_EPOCH } }
    }

    /// The attempt's entry in the list of exchanges in flight.
    fn entry(&self, since: Time) -> Entry {
        Entry {
            request: self.id,
            tenant: self.route.clone(),
            endpoint: self.endpoint,
            priority: self.priority,
            attempt: self.tries,
            since,
        }
    }

    /// Reports the outcome of the connection to the circuit breaker.
    fn tell_breaker(&mut self, core: &Core, result: &Result<Answer, TransportError>, ended: Time) {
        let opened = match (self.host_pass.take(), result) {
            (Some(pass), result) => pass.connected(result),
            (None, Err(error)) if error.is_connect() => {
                core.egress.hosts.failed(&self.route.peer(), ended).then_some(true)
            }
            _ => None,
        };
        if let Some(open) = opened {
            self.breaker(core, open);
        }
    }

    /// The public error of an attempt that ended before its exchange.
    pub(super) fn not_sent_error(&self, core: &Core, why: NotSent) -> Error {
        match why {
            NotSent::Refused(refusal) => refusal::error(&self.route, self.priority, core.clock.now(), refusal),
            NotSent::Credential(error)
            | NotSent::NoTokenNow(error)
            | NotSent::Invalid(error)
            | NotSent::NoLongerFits(error)
            | NotSent::Store(error) => error,
            NotSent::HostShut { next } => {
                let (text, wait) = match next {
                    Some(wait) => (format!("the next try is {} ms away", wait.as_millis()), wait),
                    None => ("one is being tried".to_owned(), Duration::from_secs(1)),
                };
                let why = format_args!("no connection could be made lately; {text}");
                self.route.not_sent(ErrorKind::Connect, why).with_retry_after(wait)
            }
            NotSent::KeyForgotten => self.route.error(ErrorKind::Exhausted, Delivery::Ambiguous, KEY_FORGOTTEN),
            NotSent::Taken => self.route.not_sent(ErrorKind::Store, "another process has taken over the job"),
            NotSent::Stopped => self.route.not_sent(ErrorKind::Shutdown, "the client is shutting down"),
        }
    }
}
