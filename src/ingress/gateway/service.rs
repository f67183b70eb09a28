//! One request through the gateway: authentication, the choice of the lane, sending, and the response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{ACCEPT, HeaderMap};
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode, Uri};
use http_body::Body;

use super::aim::Aim;
use super::answer::{Forget, GatewayBody, OnCut};
use super::callers::{self, Allowed};
use super::door::Door;
use super::framing::{self, take_flag};
use super::links::Back;
use super::problem::Problem;
use super::repeats::{Fingerprint, MOST, Mark};
use super::reply::{fits, is_needed_whole, isolate, of_error, of_vendor, open_outcome, rewrite_json};
use super::shared::Shared;
use super::{mounted, path};
use crate::clock::Time;
use crate::config::{AuthScheme, May, OnAmbiguous};
use crate::error::{BoxError, Delivery, Error};
use crate::ingress::{Accepted, SendOptions, accept, set_delivery, without_credential};
use crate::retry;
use crate::send::key;
use crate::telemetry::Outcome;

const SEND_AGAIN: &str = "integration-send-again";
const ASYNC: &str = "integration-async";
/// Bytes of a body that are buffered for retries. A larger body is streamed, and sent only once.
const BUFFER: usize = 1 << 20;

/// The headers of a request that are meant only for the gateway.
struct GatewayOptions {
    /// `Integration-Send-Again`: send a request even though an earlier one like it had an unknown outcome.
    again: bool,
    /// `Integration-Async`: store the request; the caller does not wait for the response.
    later: bool,
}

impl Shared {
    /// Serves a request that arrived through `door`.
    pub(super) async fn answer<B>(self: &Arc<Self>, mut request: http::Request<B>, door: &Door) -> Response<GatewayBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        framing::as_over_http1(&mut request);
        if let Some(console) = self.console.as_ref().filter(|_| door.lane.is_none())
            && let Some(mounted) = mounted::below(request.uri())
        {
            return mounted::answer(&**console, mounted, request, door.peer, &self.callers).await;
        }
        let accept = request.headers().get(ACCEPT).cloned();
        // For a lane listener and for a forward proxy's request, the whole path is the vendor's, even below `/~/`.
        let is_own = door.lane.is_none() && request.uri().scheme().is_none();
        let answered = match is_own && request.uri().path().starts_with(path::CONTROL) {
            true => self.control(&request.into_parts().0, door).await,
            // Boxed: hyper keeps the memory of a request's future as long as the connection, even while it is idle.
            false => {
                let mut passed = Box::pin(self.pass(request, door)).await;
                if self.console.is_some()
                    && let Ok(answer) = &mut passed
                {
                    isolate(answer.headers_mut());
                }
                let outcome = passed.as_ref().map_or_else(Problem::outcome, |_| Outcome::Answered);
                self.client.core().telemetry.gateway.ended(outcome);
                passed
            }
        };
        answered.unwrap_or_else(|problem| problem.answer(accept.as_ref()).map(GatewayBody::own))
    }

    async fn pass<B>(
        self: &Arc<Self>,
        mut request: http::Request<B>,
        door: &Door,
    ) -> Result<Response<GatewayBody>, Problem>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if !self.sends {
            let why = "nothing is sent through this server: it has the paths below /~/ alone";
            return Err(Problem::refused(StatusCode::NOT_FOUND, "no_such_path", why));
        }
        framing::check(request.method(), request.headers())?;
        if !self.asks_for_tokens {
            door.refuse_browsers(request.headers(), request.uri())?;
        }
        let (allowed, token) = self.authenticate(request.headers(), request.uri(), door).await?;
        let asked = GatewayOptions {
            again: take_flag(request.headers_mut(), SEND_AGAIN)?,
            later: take_flag(request.headers_mut(), ASYNC)?,
        };
        let right = if asked.later { May::Async } else { May::Send };
        let mut aim = self.aim(request.headers(), request.uri(), door, &allowed, right)?;
        // If the vendor's key goes into the query, the caller's token took its place there: remove it.
        aim.path = without_credential(&aim.path, &aim.route.vendor.auth).into_owned();
        if let Some(token) = &token {
            if callers::stands_in(aim.path.as_bytes(), token) {
                let why = "the path holds the caller's token, which must not reach the vendor; send it in a header";
                return Err(Problem::refused(StatusCode::BAD_REQUEST, "invalid_request", why));
            }
            callers::remove(request.headers_mut(), token);
            self.callers.remove_all(self.client.core(), request.headers_mut()).await;
        }
        request.headers_mut().remove(callers::TOKEN);
        let path: PathAndQuery = aim.path.parse().map_err(|_| {
            Problem::refused(StatusCode::BAD_REQUEST, "invalid_request", "the path holds a byte that no path can hold")
        })?;
        *request.uri_mut() = Uri::from(path);
        self.send(request, aim, &allowed, &asked, door).await
    }

    /// Finds the caller of a request by its token. Returns what the caller may do, and the token.
    pub(super) async fn authenticate(
        &self,
        headers: &HeaderMap,
        uri: &Uri,
        door: &Door,
    ) -> Result<(Allowed, Option<Vec<u8>>), Problem> {
        if !self.asks_for_tokens {
            return Ok((Allowed::All, None));
        }
        let core = self.client.core();
        let tokens = self.tokens(headers, uri, door);
        let has_some = !tokens.is_empty();
        for token in tokens {
            if let Some(allowed) = self.callers.find(core, &token).await {
                return Ok((allowed, Some(token)));
            }
        }
        let is_proxied = uri.scheme().is_some();
        let status = if is_proxied { StatusCode::PROXY_AUTHENTICATION_REQUIRED } else { StatusCode::UNAUTHORIZED };
        if !has_some {
            let why = "the request has no token; give the SDK the token of one of the gateway's [[callers]] as its API key, or \
                       send it as Integration-Token";
            return Err(Problem::refused(status, "unauthorized", why));
        }
        let wait = self.guesses.lock().wrong(core.clock.now(), door.peer);
        tracing::warn!(peer = ?door.peer, "a request with a wrong token was refused");
        tokio::time::sleep(wait).await;
        let why = "no caller of the gateway has this token; state it in [[callers]], or correct the SDK's API key";
        Err(Problem::refused(status, "unauthorized", why))
    }

    /// The values of a request that may be its caller's token.
    fn tokens(&self, headers: &HeaderMap, uri: &Uri, door: &Door) -> Vec<Vec<u8>> {
        let registry = &self.client.core().registry;
        let named = match &door.lane {
            Some((tenant, vendor)) => Some((Some(&**tenant), &**vendor)),
            None => path::by_path(uri.path()).ok().map(|named| (named.tenant, named.vendor)),
        };
        let route = named.and_then(|(tenant, vendor)| registry.routes.find(tenant?, vendor));
        let config = registry.config.load_full();
        // The vendor's environments may take keys in different places. Without a known tenant it may be any of them.
        let mut auths: Vec<&AuthScheme> = match (&route, named) {
            (Some(route), _) => vec![&route.vendor.auth],
            (None, Some((_, vendor))) => {
                config.vendors().iter().filter(|known| *known.name == *vendor).map(|known| &known.auth).collect()
            }
            (None, None) => Vec::new(),
        };
        auths.dedup();
        callers::tokens(headers, uri.query().unwrap_or_default(), &auths)
    }

    async fn send<B>(
        self: &Arc<Self>,
        request: http::Request<B>,
        aim: Aim,
        allowed: &Allowed,
        asked: &GatewayOptions,
        door: &Door,
    ) -> Result<Response<GatewayBody>, Problem>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let core = self.client.core();
        let began = core.clock.now();
        let method = request.method().clone();
        let defaults = SendOptions::new().deadline(self.deadline);
        // Held until the request has ended.
        let length = request.body().size_hint().exact().and_then(|length| u32::try_from(length).ok());
        let length = length.filter(|length| *length as usize <= BUFFER);
        let memory = length.and_then(|length| self.body_memory.clone().try_acquire_many_owned(length).ok());
        if asked.later && length.is_some() && memory.is_none() {
            return Err(Problem::no_memory());
        }
        let buffer_up_to = if memory.is_some() { BUFFER } else { 0 };
        // For a body that is streamed. Set once the vendor's response has begun.
        let answered = memory.is_none().then(Arc::<AtomicBool>::default);
        let accepted = accept(request, &aim.route, &defaults, buffer_up_to, answered.clone(), core.clock).await;
        let accepted = accepted.map_err(|error| Problem::of(&error, true))?;
        let Accepted { mut request, priority, immediate, stated_deadline } = accepted;
        let priority = allowed.capped(priority);
        let may_resend = request.parts.on_ambiguous.unwrap_or(aim.route.vendor.retry.on_ambiguous);
        // The store recognises a repetition by a key that the caller states, even if the vendor reads none.
        let has_own_key = || request.parts.notes.as_ref().is_some_and(|notes| notes.idempotency_key.is_some());
        let may_act_twice = retry::idempotent(&method, || key::is_covered(&request, &aim.route), false)
            || may_resend == OnAmbiguous::Resend
            || (asked.later && has_own_key())
            || key::is_stated(&request, &aim.route);
        let (tenant, vendor) = (aim.route.id.clone(), aim.route.vendor.name.clone());
        let mark = request.body_bytes().filter(|_| !may_act_twice).map(|body| Mark {
            caller: allowed.name().into(),
            lane: (tenant.clone(), vendor.clone()),
            method: method.clone(),
            path: aim.path.as_str().into(),
            body: body.clone(),
        });
        if let Some(mark) = &mark
            && !asked.again
            && let Some(why) = self.repeated(began, mark)
        {
            return Err(Problem::repeated(&why));
        }
        // The store may accept a request whose caller has gone away meanwhile.
        let begun = Arc::new(AtomicBool::new(asked.later));
        let mut guard = Guard { shared: self, mark, begun: &begun, is_stored: asked.later };
        if asked.later {
            // The gateway's default deadline is for callers that wait for the response: a stored request has only the
            // one it states.
            request.parts.deadline = stated_deadline;
            let left = self.leave(request, priority, &aim, may_act_twice).await;
            match (&left, guard.mark.take()) {
                (Err(problem), Some(mark)) if problem.delivery == Delivery::Ambiguous => {
                    self.remember(mark.fingerprint(), problem.detail.to_string());
                }
                _ => {}
            }
            return left;
        }
        request.parts.begun = Some(begun.clone());
        let sent = async {
            // Boxed: the enclosing futures are moved several times, and the send makes up most of their size.
            match immediate {
                true => Box::pin(self.client.try_send(&tenant, priority, request)).await,
                false => Box::pin(self.client.send(&tenant, priority, request)).await,
            }
        };
        let mut over = door.shutdown.over.subscribe();
        let result = tokio::select! {
            result = sent => result,
            _ = over.wait_for(|over| *over) => {
                if !begun.load(Ordering::Relaxed) {
                    guard.mark = None;
                    return Err(Problem::closing());
                }
                let why = "the gateway ended while the vendor had the request";
                let error = Error::new(crate::ErrorKind::Shutdown, Delivery::Ambiguous, why);
                return Err(Problem::of(&error, may_act_twice));
            }
        };
        if let Some(answered) = &answered {
            answered.store(result.is_ok(), Ordering::Relaxed);
        }
        let base = aim.route.base().map_err(|error| Problem::of(&error, true))?.into_owned();
        let back = Back { base: &base, path: &aim.path, auth: &aim.route.vendor.auth, own: &aim.own };
        match result.and_then(|answer| fits(answer, &method, &aim.route)) {
            Ok(answer) => {
                let took = core.clock.now().since(began);
                let mut mark = guard.mark.take();
                // A response may follow an attempt with an unknown outcome if the client has made a key. The SDK's
                // repetition would get another key, so that the vendor may act again.
                let open = if may_act_twice { None } else { open_outcome(&answer, &aim.route) };
                if let Some(error) = &open
                    && let Some(mark) = mark.take()
                {
                    self.remember(mark.fingerprint(), error.to_string());
                }
                // A response that has arrived completely cannot break off any more, and hyper takes it with its head.
                let on_cut = mark.filter(|_| !answer.is_whole()).map(|mark| {
                    let (shared, mark) = (self.clone(), mark.fingerprint());
                    let remember: OnCut = Box::new(move |why| {
                        let why: Arc<str> = why.into();
                        shared.remember(mark, why.clone());
                        let is_same = move |kept: &Arc<str>| Arc::ptr_eq(kept, &why);
                        let forget: Forget = Box::new(move || shared.repeats.lock().forget_if(&mark, is_same));
                        forget
                    });
                    remember
                });
                let minds_leaving = is_needed_whole(answer.status(), answer.headers());
                // A stream may last as long as data keeps coming, and until the deadline that the caller stated for the
                // whole response. The time for an attempt is for its head.
                let answer = answer.idle_timeout(self.deadline);
                let answer = match stated_deadline {
                    Some(deadline) => answer.until(core.clock.instant(began + deadline)),
                    None => answer,
                };
                let mut answer = of_vendor(answer, &back, took).map(|body| body.watched(on_cut, minds_leaving));
                if let Some(error) = &open {
                    set_delivery(answer.headers_mut(), error.delivery(), may_act_twice);
                }
                Ok(with_links(answer, &back, &method, allowed))
            }
            Err(error) => {
                let is_open = matches!(error.delivery(), Delivery::Ambiguous | Delivery::Delivered);
                match guard.mark.take() {
                    Some(mark) if is_open => self.remember(mark.fingerprint(), error.to_string()),
                    _ => {}
                }
                let answer = of_error(&error, &back, may_act_twice);
                let answer = answer.map(|answer| with_links(answer, &back, &method, allowed));
                answer.ok_or_else(|| Problem::of(&error, may_act_twice))
            }
        }
    }

    /// The outcome of an earlier request with the same fingerprint, if one is remembered.
    fn repeated(&self, now: Time, mark: &Mark) -> Option<Arc<str>> {
        if self.repeats.lock().is_empty() {
            return None;
        }
        // Hash outside the lock: a body may be long.
        let fingerprint = mark.fingerprint();
        self.repeats.lock().find(now, &fingerprint)
    }

    pub(super) fn remember(&self, mark: Fingerprint, why: impl Into<Arc<str>>) {
        let is_first_lost = self.repeats.lock().remember(self.client.core().clock.now(), mark, why.into());
        if is_first_lost {
            let message = "more requests with unknown outcome than the gateway remembers: repetitions of some are sent";
            tracing::warn!(remembered = MOST, "{message}");
        }
    }
}

/// Rewrites the URLs in a JSON response if the caller's configuration asks for it.
fn with_links(
    answer: Response<GatewayBody>,
    back: &Back<'_>,
    method: &Method,
    allowed: &Allowed,
) -> Response<GatewayBody> {
    // The response to HEAD has no body; its `Content-Length` describes the vendor's body and must stay.
    match allowed.rewrites_json() && method != Method::HEAD {
        true => rewrite_json(answer, back),
        false => answer,
    }
}

/// When dropped after the exchange may have begun, remembers the request: its caller disconnected while the vendor or
/// the store may have had it, and the SDK is likely to send it again.
struct Guard<'s> {
    shared: &'s Shared,
    mark: Option<Mark>,
    begun: &'s AtomicBool,
    /// Whether the request goes to the store, and not to the vendor.
    is_stored: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(mark) = self.mark.take()
            && self.begun.load(Ordering::Relaxed)
        {
            let has_it = if self.is_stored { "the store" } else { "the vendor" };
            self.shared.remember(mark.fingerprint(), format!("its caller went away while {has_it} had it"));
        }
    }
}
