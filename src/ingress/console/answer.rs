//! Answers a request to the console: finds out which call it is, refuses it if another site may have caused it, and
//! checks the rights of its user.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Request, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::access::Access;
use super::call::{Call, NoCall, call};
use super::caller::Who;
use super::reply::{self, Failed, Reply};
use super::shared::Shared;
use super::stream::{self, Alive};
use super::{lanes, letters, origin, overview, query, sessions};
use crate::ingress::gateway::callers::{Allowed, Callers, TOKEN, digest_of};

/// Answers a request whose path is below the console's.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    request: Request<Bytes>,
    peer: Option<IpAddr>,
    callers: &Callers,
) -> Reply {
    let (parts, body) = request.into_parts();
    match attempt(shared, &parts, body, peer, callers).await {
        Ok(reply) => reply,
        Err(failed) => reply::failed(&failed),
    }
}

async fn attempt(
    shared: &Arc<Shared>,
    parts: &Parts,
    body: Bytes,
    peer: Option<IpAddr>,
    callers: &Callers,
) -> Result<Reply, Failed> {
    let call = match call(&parts.method, parts.uri.path()) {
        Ok(call) => call,
        Err(NoCall::Path) => return Err(Failed::new(StatusCode::NOT_FOUND, "there is no such call")),
        Err(NoCall::Method(allowed)) => return Ok(reply::method(allowed)),
    };
    match &call {
        Call::Slash => return Ok(reply::slash()),
        // Files are served to requests from other sites too, because a user may follow a link to the page.
        Call::File(file) => return Ok(reply::of_file(*file)),
        _ => {}
    }
    // Only the scheme Bearer counts as a token: a browser sends the scheme Basic by itself if a link holds a name and a
    // password.
    let by_browser = call == Call::Login || token(parts).is_none() || shared.decides.is_some();
    if !origin::is_own(&parts.method, &parts.headers, by_browser) {
        let why =
            "the request does not come from the console's own page; send a program's token as Authorization: Bearer";
        return Err(Failed::new(StatusCode::FORBIDDEN, why));
    }
    if call == Call::Login {
        return login(shared, parts, &body, peer, callers).await;
    }
    if call == Call::Logout {
        return Ok(logout(shared, parts));
    }
    let who = who(shared, parts, peer, callers).await?;
    if call == Call::Session {
        return Ok(session(shared, who.as_ref()));
    }
    let Some(who) = who else {
        return Err(Failed::new(
            StatusCode::UNAUTHORIZED,
            "log in with the token of a caller, or send it as Authorization: Bearer",
        ));
    };
    if call.needs().is_none_or(|needed| who.access < needed) {
        let why = match shared.read_only {
            true => "the console is read-only",
            false => "this needs the right `operate` of [[callers]]",
        };
        return Err(Failed::new(StatusCode::FORBIDDEN, why));
    }
    run(shared, parts, &body, call, &who).await
}

async fn run(shared: &Arc<Shared>, parts: &Parts, body: &Bytes, call: Call, who: &Who) -> Result<Reply, Failed> {
    let asked = parts.uri.query().unwrap_or_default();
    match call {
        Call::Overview => overview::overview(shared).await,
        Call::Lanes => lanes::list(shared, asked).await,
        Call::Lane(tenant, vendor) => lanes::show(shared, &tenant, &vendor).await,
        Call::Pause(tenant, vendor) => lanes::pause(shared, who, &tenant, &vendor),
        Call::Resume(tenant, vendor) => lanes::resume(shared, who, &tenant, &vendor),
        Call::Queues => overview::queues(shared).await,
        Call::Workers => overview::workers(shared).await,
        Call::Vendors => Ok(overview::vendors(shared).await),
        Call::Processes => Ok(overview::processes(shared)),
        Call::Letters => letters::list(shared, asked).await,
        Call::Letter(id) => letters::show(shared, &id).await,
        Call::Redrive => letters::redrive(shared, who, read(body)?).await,
        Call::Purge => letters::purge(shared, who, read(body)?).await,
        Call::Events => {
            let alive = match who.session {
                Some(id) => Alive::Session(id),
                None => Alive::Token,
            };
            stream::open(shared, query::read(asked)?, alive)
        }
        // `attempt` has answered these calls.
        Call::Slash | Call::File(_) | Call::Session | Call::Login | Call::Logout => {
            Err(Failed::new(StatusCode::NOT_FOUND, "there is no such call"))
        }
    }
}

/// Parses the JSON of a body.
fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failed> {
    serde_json::from_slice(body)
        .map_err(|error| Failed::new(StatusCode::BAD_REQUEST, format!("the body is not read: {error}")))
}

/// Returns the user who makes a request. `None` if the request has no token and no valid session, or if the program
/// gives it no access. A wrong token is an error.
async fn who(shared: &Shared, parts: &Parts, peer: Option<IpAddr>, callers: &Callers) -> Result<Option<Who>, Failed> {
    if let Some(decides) = &shared.decides {
        let access = decides(parts).map(|access| access.capped(shared.read_only));
        return Ok(access.map(|access| Who { name: "of the program".to_owned(), access, session: None }));
    }
    if let Some(token) = token(parts) {
        return of_token(shared, peer, callers, token).await.map(Some);
    }
    let core = shared.client.core();
    let Some(id) = sessions::id_in(&parts.headers).map(|id| digest_of(id.as_bytes())) else { return Ok(None) };
    let Some(token) = shared.sessions.lock().find(core.clock.now(), &id) else { return Ok(None) };
    let allowed = callers.find_digest(core, token).await;
    Ok(allowed.and_then(|allowed| of_allowed(shared, &allowed)).map(|who| Who { session: Some(id), ..who }))
}

fn token(parts: &Parts) -> Option<&[u8]> {
    let bearer = |value: &'_ [u8]| value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
    match parts.headers.get(TOKEN) {
        Some(token) => Some(token.as_bytes()),
        None => parts
            .headers
            .get(AUTHORIZATION)
            .map(|value| value.as_bytes())
            .filter(|value| bearer(value))
            .map(|value| &value[7..]),
    }
}

async fn of_token(shared: &Shared, peer: Option<IpAddr>, callers: &Callers, token: &[u8]) -> Result<Who, Failed> {
    let core = shared.client.core();
    match callers.find(core, token).await {
        Some(allowed) => of_allowed(shared, &allowed).ok_or_else(|| {
            let why = "this caller has no right to the console; add `view` or `operate` to its `may`";
            Failed::new(StatusCode::FORBIDDEN, why)
        }),
        None => {
            let wait = shared.guesses.lock().wrong(core.clock.now(), peer);
            tracing::warn!(?peer, "a wrong token was sent to the console");
            tokio::time::sleep(wait).await;
            Err(Failed::new(StatusCode::UNAUTHORIZED, "no caller has this token"))
        }
    }
}

fn of_allowed(shared: &Shared, allowed: &Allowed) -> Option<Who> {
    let access = match allowed {
        Allowed::All => Some(Access::Operate),
        Allowed::Caller(caller) => Access::of_caller(caller),
    };
    let name = if allowed.name().is_empty() { "the gateway's own token" } else { allowed.name() };
    access.map(|access| Who { name: name.to_owned(), access: access.capped(shared.read_only), session: None })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

async fn login(
    shared: &Shared,
    parts: &Parts,
    body: &Bytes,
    peer: Option<IpAddr>,
    callers: &Callers,
) -> Result<Reply, Failed> {
    if shared.decides.is_some() {
        return Err(Failed::new(StatusCode::NOT_FOUND, "the program that serves the console has a login of its own"));
    }
    let Login { token } = read(body)?;
    let who = of_token(shared, peer, callers, token.trim().as_bytes()).await?;
    let mut random = [0; 16];
    aws_lc_rs::rand::fill(&mut random)
        .map_err(|_| Failed::new(StatusCode::SERVICE_UNAVAILABLE, "the system has no random numbers for a session"))?;
    let id = format!("{:032x}", u128::from_be_bytes(random));
    let now = shared.client.core().clock.now();
    let mut open = shared.sessions.lock();
    // A session that the browser had before ends, because it may belong to another user.
    if let Some(before) = sessions::id_in(&parts.headers) {
        open.end(&digest_of(before.as_bytes()));
    }
    open.add(now, digest_of(id.as_bytes()), digest_of(token.trim().as_bytes()));
    drop(open);
    tracing::info!(caller = who.name, ?peer, "logged in to the console");
    let mut reply = session(shared, Some(&who));
    reply::set_session(&mut reply, &id, !origin::is_loopback(&parts.headers));
    Ok(reply)
}

fn logout(shared: &Shared, parts: &Parts) -> Reply {
    if let Some(id) = sessions::id_in(&parts.headers) {
        shared.sessions.lock().end(&digest_of(id.as_bytes()));
    }
    let mut reply = session(shared, None);
    reply::set_session(&mut reply, "", !origin::is_loopback(&parts.headers));
    reply
}

/// What the page needs to know about its user.
fn session(shared: &Shared, who: Option<&Who>) -> Reply {
    reply::value(&json!({
        "name": who.map(|who| &who.name),
        "access": who.map(|who| who.access.as_str()),
        "read_only": shared.read_only,
        "has_login": shared.decides.is_none(),
        "has_store": shared.client.outbox().dead_letters().is_ok(),
    }))
}
