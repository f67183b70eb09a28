//! One request through the gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode, Uri};
use http_body::Body;

use super::answer::GatewayBody;
use super::callers::{self, Allowed};
use super::door::Door;
use super::links::Back;
use super::problem::{Problem, never_repeat};
use super::repeats::{Fingerprint, fingerprint};
use super::shared::Shared;
use super::{links, mounted, route};
use crate::config::OnAmbiguous;
use crate::error::{BoxError, Delivery, Error};
use crate::ingress::{Accepted, SendOptions, accept, without_credential};
use crate::request::Response as Answer;
use crate::route::Route;
use crate::send::key;

const SEND_AGAIN: &str = "integration-send-again";
const NOT_FOUND: &str = "there is no such path of the gateway's own; there are /~/livez and /~/readyz";
/// A larger body is sent as it comes, and once.
const BUFFER: usize = 1 << 20;

/// Where a request goes, and how its caller wrote that.
struct Aim {
    route: Arc<Route>,
    path: String,
    /// The caller's form of the vendor's base URL, without a slash at its end.
    own: String,
}

impl Shared {
    /// Answers a request that came in by `door`.
    pub(super) async fn answer<B>(&self, request: http::Request<B>, door: &Door) -> Response<GatewayBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if let Some(console) = self.console.as_ref().filter(|_| door.lane.is_none())
            && let Some(mounted) = mounted::below(request.uri())
        {
            return mounted::answer(&**console, mounted, request, door.peer, &self.callers).await;
        }
        if let Some(control) = request.uri().path().strip_prefix(route::CONTROL).filter(|_| door.lane.is_none()) {
            return self.control(request.method(), control);
        }
        let asked = request.headers().clone();
        match self.pass(request, door).await {
            Ok(answer) => answer,
            Err(problem) => problem.answer(&asked).map(GatewayBody::own),
        }
    }

    /// The gateway's own paths.
    fn control(&self, method: &Method, path: &str) -> Response<GatewayBody> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let problem = Problem::refused(StatusCode::METHOD_NOT_ALLOWED, "method", "write GET");
            return problem.answer(&HeaderMap::new()).map(GatewayBody::own);
        }
        let is_draining = self.draining.load(Ordering::Relaxed);
        let (status, text) = match path {
            "livez" => (StatusCode::OK, "{\"status\":\"ok\"}".to_owned()),
            "readyz" if is_draining => (StatusCode::SERVICE_UNAVAILABLE, "{\"status\":\"draining\"}".to_owned()),
            "readyz" => {
                let problem = self.client.config().problem();
                (StatusCode::OK, serde_json::json!({"status": "ok", "config_problem": problem}).to_string())
            }
            _ => {
                let problem = Problem::refused(StatusCode::NOT_FOUND, "not_found", NOT_FOUND);
                return problem.answer(&HeaderMap::new()).map(GatewayBody::own);
            }
        };
        let mut answer = Response::new(GatewayBody::own(text.into()));
        *answer.status_mut() = status;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        answer
    }

    async fn pass<B>(&self, mut request: http::Request<B>, door: &Door) -> Result<Response<GatewayBody>, Problem>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if request.method() == Method::CONNECT {
            let why = "a tunnel cannot be paced from outside, because its TLS hides the requests; use http:// as the SDK's base \
                       URL, or the base URL of the gateway";
            return Err(Problem::refused(StatusCode::METHOD_NOT_ALLOWED, "connect", why));
        }
        if !self.asks_for_tokens {
            door.refuse_browsers(request.headers(), request.uri())?;
        }
        let (allowed, token) = self.authenticate(request.headers(), request.uri(), door).await?;
        let mut aim = self.aim(request.headers(), request.uri(), door, &allowed)?;
        // Where the vendor's key stands in the query, the caller's token stood in its place.
        aim.path = without_credential(&aim.path, &aim.route.vendor.auth).into_owned();
        if token.as_ref().is_some_and(|token| memchr::memmem::find(aim.path.as_bytes(), token).is_some()) {
            let why = "the path holds the caller's token, which must not reach the vendor; send it in a header";
            return Err(Problem::refused(StatusCode::BAD_REQUEST, "invalid_request", why));
        }
        if let Some(token) = &token {
            callers::remove(request.headers_mut(), token);
        }
        request.headers_mut().remove(callers::TOKEN);
        let is_wanted = request.headers_mut().remove(SEND_AGAIN).is_some_and(|value| value == "true");
        let path: PathAndQuery = aim.path.parse().map_err(|_| {
            Problem::refused(StatusCode::BAD_REQUEST, "invalid_request", "the path holds a byte that no path can hold")
        })?;
        *request.uri_mut() = Uri::from(path);
        self.send(request, aim, &allowed, is_wanted).await
    }

    /// Who calls, and with which token.
    async fn authenticate(
        &self,
        headers: &HeaderMap,
        uri: &Uri,
        door: &Door,
    ) -> Result<(Allowed, Option<Vec<u8>>), Problem> {
        if !self.asks_for_tokens {
            return Ok((Allowed::All, None));
        }
        let core = self.client.core();
        let vendor = match &door.lane {
            Some((_, vendor)) => Some(&**vendor),
            None => route::by_path(uri.path()).ok().map(|named| named.vendor),
        };
        let config = core.registry.config.load_full();
        let known = vendor.and_then(|name| config.vendor(name, "live").ok());
        let tokens = callers::tokens(headers, uri.query().unwrap_or_default(), known.as_ref().map(|known| &known.auth));
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

    /// Where the request goes.
    fn aim(&self, headers: &HeaderMap, uri: &Uri, door: &Door, allowed: &Allowed) -> Result<Aim, Problem> {
        let bad = |why: String| Problem::refused(StatusCode::BAD_REQUEST, "invalid_request", why);
        let not_allowed = |error: Error| Problem::of(&error, true);
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or(&door.host);
        let whole = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let tenant_of = |named: Option<&str>| match named.or_else(|| allowed.only_tenant()) {
            Some(tenant) => Ok(tenant.to_owned()),
            None => Err(bad("the token stands for several tenants; name one: /TENANT/VENDOR/…".to_owned())),
        };
        let check = |tenant: &str, vendor: &str| match allowed.may(tenant, vendor) {
            true => Ok(()),
            false => {
                let why =
                    "the caller may not send on behalf of this tenant to this vendor; [[callers]] says what it may";
                Err(Problem::refused(StatusCode::FORBIDDEN, "forbidden", why))
            }
        };
        let registry = &self.client.core().registry;
        if uri.scheme().is_some() && door.lane.is_some() {
            return Err(bad(
                "this address is one tenant's lane to one vendor, and no forward proxy; use the gateway's own"
                    .to_owned(),
            ));
        }
        if uri.scheme().is_some() {
            let user = callers::proxy_user(headers).filter(|user| !user.is_empty() && user != "@");
            let tenant = tenant_of(user.as_deref())?;
            let route = self.proxied(&tenant, uri)?;
            check(&tenant, &route.vendor.name)?;
            let base = route.base().map_err(not_allowed)?.into_owned();
            let (path, _) = route::below(&base, whole).map_err(|why| bad(why.into_owned()))?;
            let own = format!("http://{}{}", uri.authority().map_or("", |authority| authority.as_str()), base.path());
            return Ok(Aim { path: path.into_owned(), own: own.trim_end_matches('/').to_owned(), route });
        }
        let (tenant, vendor, rest, form) = match &door.lane {
            Some((tenant, vendor)) => (tenant.to_string(), &**vendor, whole, String::new()),
            None => {
                let named = route::by_path(whole).map_err(|why| bad(why.to_owned()))?;
                let form = format!("/{}/{}", named.tenant.unwrap_or("@"), named.vendor);
                (tenant_of(named.tenant)?, named.vendor, named.rest, form)
            }
        };
        check(&tenant, vendor)?;
        let route = registry.route(&tenant, vendor).map_err(not_allowed)?;
        let base = route.base().map_err(not_allowed)?.into_owned();
        let (path, had_base) = route::below(&base, rest).map_err(|why| bad(why.into_owned()))?;
        let of_base = if had_base { base.path().trim_end_matches('/') } else { "" };
        Ok(Aim { path: path.into_owned(), own: format!("http://{host}{form}{of_base}"), route })
    }

    /// The route whose base URL the URL of a forward proxy's request is below: it says `http` where the vendor has `https`.
    fn proxied(&self, tenant: &str, uri: &Uri) -> Result<Arc<Route>, Problem> {
        let registry = &self.client.core().registry;
        let text = uri.to_string();
        let find = |text: &str| {
            let url =
                reqwest::Url::parse(text).ok().filter(|url| url.username().is_empty() && url.password().is_none())?;
            registry.route_for_url(tenant, &url).ok()
        };
        let secure = || text.strip_prefix("http://").and_then(|rest| find(&format!("https://{rest}")));
        find(&text).or_else(secure).ok_or_else(|| {
            let why = "the tenant has no vendor at this host and path; the gateway is no open proxy";
            Problem::refused(StatusCode::FORBIDDEN, "forbidden", why)
        })
    }

    async fn send<B>(
        &self,
        request: http::Request<B>,
        aim: Aim,
        allowed: &Allowed,
        is_wanted: bool,
    ) -> Result<Response<GatewayBody>, Problem>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let core = self.client.core();
        let began = core.clock.now();
        let method = request.method().clone();
        let defaults = SendOptions::new().deadline(self.deadline);
        let accepted = accept(request, &aim.route, &defaults, BUFFER, core.clock).await;
        let Accepted { mut request, priority, immediate } = accepted.map_err(|error| Problem::of(&error, true))?;
        let priority = allowed.capped(priority);
        let may_resend = request.parts.on_ambiguous.unwrap_or(aim.route.vendor.retry.on_ambiguous);
        let has_key = key::is_stated(&request, &aim.route);
        let may_act_twice =
            has_key || may_resend == OnAmbiguous::Resend || !matches!(method, Method::POST | Method::PATCH);
        let (tenant, vendor) = (aim.route.id.clone(), aim.route.vendor.name.clone());
        let mark = request.body_bytes().filter(|_| !may_act_twice).map(|body| {
            let names = [allowed.name(), &tenant, &vendor, method.as_str(), &aim.path];
            let [caller, tenant, vendor, method, path] = names.map(str::as_bytes);
            fingerprint(&[caller, tenant, vendor, method, path, body])
        });
        if let Some(mark) = &mark
            && !is_wanted
            && let Some(why) = self.repeats.lock().find(began, mark)
        {
            return Err(Problem::repeated(&why));
        }
        let begun = Arc::new(AtomicBool::new(false));
        request.parts.begun = Some(begun.clone());
        let mut guard = Guard { shared: self, mark, begun: &begun };
        let sent = async {
            match immediate {
                true => self.client.try_send(&tenant, priority, request).await,
                false => self.client.send(&tenant, priority, request).await,
            }
        };
        let mut over = self.over.subscribe();
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
        let base = aim.route.base().map_err(|error| Problem::of(&error, true))?.into_owned();
        let back = Back { base: &base, path: &aim.path, auth: &aim.route.vendor.auth, own: &aim.own };
        match result.and_then(|answer| if method == Method::HEAD { Ok(answer) } else { fits(answer, &aim.route) }) {
            Ok(answer) => {
                guard.mark = None;
                let took = core.clock.now().since(began);
                Ok(of_vendor(answer, &back, took))
            }
            Err(error) => {
                let is_open = matches!(error.delivery(), Delivery::Ambiguous | Delivery::Delivered);
                match guard.mark.take() {
                    Some(mark) if is_open => self.remember(mark, error.to_string()),
                    _ => {}
                }
                Ok(of_error(&error, &back, may_act_twice).ok_or_else(|| Problem::of(&error, may_act_twice))?)
            }
        }
    }

    fn remember(&self, mark: Fingerprint, why: String) {
        self.repeats.lock().remember(self.client.core().clock.now(), mark, why.into());
    }
}

/// Remembers a request whose caller goes away while the vendor may have it: the SDK is about to send it again.
struct Guard<'s> {
    shared: &'s Shared,
    mark: Option<Fingerprint>,
    begun: &'s AtomicBool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(mark) = self.mark.take()
            && self.begun.load(Ordering::Relaxed)
        {
            self.shared.remember(mark, "its caller went away while the vendor had it".to_owned());
        }
    }
}

/// An answer that says itself that it is longer than the vendor's entry allows is an error from its head on: the connection would
/// break off without a word.
fn fits(answer: Answer, route: &Route) -> Result<Answer, Error> {
    let stated =
        answer.headers().get(http::header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    match stated.filter(|length: &u64| *length > route.vendor.max_response_bytes) {
        None => Ok(answer),
        Some(length) => {
            let most = route.vendor.max_response_bytes;
            let why = format!(
                "the answer has {length} bytes, and {most} are allowed; raise max_response_bytes of the vendor"
            );
            let (tenant, vendor) = (&route.id, &route.vendor.name);
            Err(Error::of_tenant(tenant, vendor, crate::ErrorKind::ResponseTooLarge, Delivery::Delivered, why))
        }
    }
}

/// The vendor's answer.
fn of_vendor(answer: Answer, back: &Back<'_>, took: Duration) -> Response<GatewayBody> {
    let mut out = Response::new(());
    *out.status_mut() = answer.status();
    *out.headers_mut() = answer.headers().clone();
    let headers = out.headers_mut();
    prepare(headers, back);
    let millis = |time: Duration| format!("{}.{:03}", time.as_millis(), time.subsec_micros() % 1000);
    let (waited, rest) = (answer.waited(), took.saturating_sub(answer.waited()));
    let timing = format!("wait;dur={}, vendor;dur={}", millis(waited), millis(rest));
    for (name, value) in [
        ("server-timing", timing),
        ("integration-attempts", answer.attempts().to_string()),
        ("integration-request-id", answer.request_id().to_string()),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.append(name, value);
        }
    }
    out.map(|()| GatewayBody::of_vendor(answer.into_body()))
}

/// The vendor's last answer, where retries ended with one: that is what a direct call would have got.
fn of_error(error: &Error, back: &Back<'_>, may_act_twice: bool) -> Option<Response<GatewayBody>> {
    let is_last = matches!(error.kind(), crate::ErrorKind::Exhausted | crate::ErrorKind::Status);
    let last = error.response().filter(|_| is_last)?;
    let mut out = Response::new(GatewayBody::own(last.body().clone()));
    *out.status_mut() = last.status();
    let headers = out.headers_mut();
    *headers = last.headers().clone();
    prepare(headers, back);
    // Of a long body the beginning is there.
    headers.remove(http::header::CONTENT_LENGTH);
    headers.insert("integration-delivery", HeaderValue::from_static(error.delivery().as_str()));
    headers.insert("integration-attempts", error.attempts().into());
    if !may_act_twice && error.delivery() == Delivery::Ambiguous {
        never_repeat(headers);
    }
    Some(out)
}

/// Takes out what belongs to the connection to the vendor, and leads the URLs back.
fn prepare(headers: &mut HeaderMap, back: &Back<'_>) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let ours: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("integration-")).cloned().collect();
    let fixed = [CONNECTION, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];
    for name in named.into_iter().chain(ours).chain(fixed) {
        headers.remove(name);
    }
    links::rewrite(headers, back);
}
