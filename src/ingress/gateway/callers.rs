//! Authentication: finds the token of a request, and the caller of `[[callers]]` that it belongs to.
//!
//! An SDK insists on an API key and sends it in the place of the vendor's key. So the gateway looks for the caller's
//! token there, and removes it from there: no token reaches a vendor.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use parking_lot::Mutex;
use percent_encoding::{percent_decode, percent_decode_str};
use secrecy::ExposeSecret as _;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;

use crate::Priority;
use crate::clock::Time;
use crate::config::{AuthScheme, Caller, Config, CredentialRef, May, Rewrite};
use crate::core::Core;

pub(crate) const TOKEN: &str = "integration-token";
/// Tokens are read again after this time, and when the configuration changes.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// Requests wait for tokens that were read this long ago to be read again. Younger ones are used meanwhile, so that a
/// resolver that hangs delays no caller whose token is known.
const TOO_OLD: Duration = Duration::from_secs(75);
/// How long one token may take to be read.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most tokens that are read at once: a vault may limit requests.
const AT_ONCE: usize = 64;
/// How often a request waits for tokens to be read, because the configuration has changed meanwhile.
const READINGS: usize = 3;
/// Least length of a token in bytes. A shorter one is taken for an empty variable or a placeholder, and is ignored.
const SHORTEST: usize = 16;

/// What the sender of a request may do.
#[derive(Clone, Debug)]
pub(crate) enum Allowed {
    /// Everything: the gateway asks for no tokens, or the request has the token that the gateway generated.
    All,
    Caller(Arc<Caller>),
}

impl Allowed {
    pub(crate) fn name(&self) -> &str {
        match self {
            Allowed::All => "",
            Allowed::Caller(caller) => &caller.name,
        }
    }

    pub(super) fn may(&self, right: May, tenant: &str, vendor: &str) -> bool {
        match self {
            Allowed::All => true,
            Allowed::Caller(caller) => {
                caller.may_act_for(tenant) && caller.may_call(vendor) && caller.may.contains(&right)
            }
        }
    }

    /// Whether URLs in JSON responses to this caller are rewritten.
    pub(super) fn rewrites_json(&self) -> bool {
        matches!(self, Allowed::Caller(caller) if caller.rewrite == Rewrite::Json)
    }

    /// Whether the caller may see data of all tenants.
    pub(super) fn may_view(&self) -> bool {
        match self {
            Allowed::All => true,
            Allowed::Caller(caller) => {
                caller.is_for_all() && [May::View, May::Operate].iter().any(|right| caller.may.contains(right))
            }
        }
    }

    /// Returns `asked`, but at most the caller's highest priority.
    pub(super) fn capped(&self, asked: Priority) -> Priority {
        match self {
            Allowed::Caller(caller) if caller.priority.rank() > asked.rank() => caller.priority,
            _ => asked,
        }
    }

    pub(super) fn only_tenant(&self) -> Option<&str> {
        match self {
            Allowed::All => None,
            Allowed::Caller(caller) => caller.only_tenant(),
        }
    }
}

/// The callers and the digests of their tokens.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    table: Arc<ArcSwapOption<Table>>,
    /// Held while tokens are read.
    reading: Arc<tokio::sync::Mutex<()>>,
    /// The task that reads tokens. No request reads them itself, because the end of its connection would end the
    /// reading too.
    reader: Mutex<JoinSet<()>>,
    /// The digests of the tokens that the gateway generated, one each time that it began to listen.
    own: ArcSwap<Vec<[u8; 32]>>,
}

/// What was read last.
#[derive(Debug)]
struct Table {
    version: u64,
    read_at: Time,
    /// The callers of the configuration of that version, each with the digest of its token if there is one.
    entries: Vec<(Option<[u8; 32]>, Arc<Caller>)>,
}

impl Table {
    /// Finds the caller whose token has this digest. Compares it with every known digest, each in constant time, so
    /// that the time taken does not reveal which one matched.
    fn find(&self, config: &Config, wanted: &[u8; 32]) -> Option<Arc<Caller>> {
        let mut found = None;
        for (known, caller) in &self.entries {
            if known.as_ref().is_some_and(|known| verify_slices_are_equal(known, wanted).is_ok()) {
                found = Some(caller);
            }
        }
        let found = found?;
        if self.version == config.version() {
            return Some(found.clone());
        }
        // The configuration has changed since: it may have removed the caller, or changed its reference or its rights.
        config.callers().iter().rfind(|caller| caller.token == found.token).cloned()
    }

    /// Whether the tokens of all callers of this configuration have been read.
    fn covers(&self, config: &Config) -> bool {
        if self.version == config.version() {
            return true;
        }
        let read: HashSet<&CredentialRef> = self.entries.iter().map(|(_, caller)| &caller.token).collect();
        config.callers().iter().all(|caller| read.contains(&caller.token))
    }

    /// The digest of the token behind this reference.
    fn digest(&self, reference: &CredentialRef) -> Option<[u8; 32]> {
        self.entries.iter().filter(|(_, caller)| caller.token == *reference).find_map(|(known, _)| *known)
    }
}

pub(crate) fn digest_of(token: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, token).as_ref());
    out
}

impl Callers {
    /// Accepts a token, generated by the gateway, that may do everything.
    pub(super) fn add_own(&self, token: &str) {
        let digest = digest_of(token.as_bytes());
        self.own.rcu(|own| own.iter().copied().chain([digest]).collect::<Vec<_>>());
    }

    /// Finds the caller with this token.
    pub(crate) async fn find(&self, core: &Arc<Core>, token: &[u8]) -> Option<Allowed> {
        self.find_digest(core, digest_of(token)).await
    }

    /// Finds the caller whose token has this digest. Waits for tokens to be read only if it is none of those that are
    /// known.
    pub(crate) async fn find_digest(&self, core: &Arc<Core>, wanted: [u8; 32]) -> Option<Allowed> {
        let is_own = self.own.load().iter().any(|own| verify_slices_are_equal(own, &wanted).is_ok());
        let mut found = self.recent(core).and_then(|table| table.find(&core.registry.config.load_full(), &wanted));
        if found.is_none() && !is_own {
            let table = self.latest(core).await;
            found = table.find(&core.registry.config.load_full(), &wanted);
        }
        found.map(Allowed::Caller).or(is_own.then_some(Allowed::All))
    }

    /// Removes every header that holds any caller's token. If the client has no credential for the vendor, an SDK's
    /// own credential headers pass through, and one may hold another caller's token.
    pub(super) async fn remove_all(&self, core: &Arc<Core>, headers: &mut HeaderMap) {
        let recent = self.recent(core).filter(|table| table.covers(&core.registry.config.load_full()));
        let table = match recent {
            Some(table) => table,
            None => self.latest(core).await,
        };
        let own = self.own.load_full();
        let is_known = |part: &[u8]| {
            let wanted = digest_of(part);
            let mut known = table.entries.iter().filter_map(|(known, _)| known.as_ref()).chain(own.iter());
            part.len() >= SHORTEST && known.any(|known| verify_slices_are_equal(known, &wanted).is_ok())
        };
        // Headers with other names are not expected to hold credentials.
        let may_be =
            |name: &HeaderName| ["auth", "key", "token", "secret"].iter().any(|part| name.as_str().contains(part));
        remove_where(headers, |name, value| {
            may_be(name) && (is_known(value.as_bytes()) || in_authorization(value).iter().any(|part| is_known(part)))
        });
    }

    /// What was read last, if it is of the configuration in use and not to be read again yet.
    fn up_to_date(&self, core: &Core) -> Option<Arc<Table>> {
        let table = self.table.load_full()?;
        let is_current = table.version == core.registry.config.load().version();
        (is_current && core.clock.now().since(table.read_at) < READ_AGAIN).then_some(table)
    }

    /// What was read last, unless it is too old. Has it read again in time, and does not wait for that.
    fn recent(&self, core: &Arc<Core>) -> Option<Arc<Table>> {
        if let Some(table) = self.up_to_date(core) {
            return Some(table);
        }
        let table = self.table.load_full()?;
        if core.clock.now().since(table.read_at) >= TOO_OLD {
            return None;
        }
        if let Ok(held) = self.reading.clone().try_lock_owned()
            && self.up_to_date(core).is_none()
        {
            self.begin_reading(core, held);
        }
        Some(table)
    }

    /// What is up to date; reads the tokens and waits for them if necessary.
    async fn latest(&self, core: &Arc<Core>) -> Arc<Table> {
        if let Some(table) = self.up_to_date(core) {
            return table;
        }
        let mut held = self.reading.clone().lock_owned().await;
        for _ in 0..READINGS {
            if let Some(table) = self.up_to_date(core) {
                return table;
            }
            self.begin_reading(core, held);
            held = self.reading.clone().lock_owned().await;
        }
        drop(held);
        // The configuration changes all the time, and `Table::find` asks the one in use.
        let nothing = || Arc::new(Table { version: 0, read_at: Time::ZERO, entries: Vec::new() });
        self.table.load_full().unwrap_or_else(nothing)
    }

    fn begin_reading(&self, core: &Arc<Core>, held: OwnedMutexGuard<()>) {
        let (core, table) = (core.clone(), self.table.clone());
        let mut reader = self.reader.lock();
        // Earlier tasks that have ended are kept until they are taken out.
        while reader.try_join_next().is_some() {}
        reader.spawn(async move {
            let before = table.load_full();
            let read = read(&core, before.as_deref()).await;
            table.store(Some(Arc::new(read)));
            drop(held);
        });
    }
}

/// Reads the tokens of all callers.
async fn read(core: &Arc<Core>, before: Option<&Table>) -> Table {
    let config = core.registry.config.load_full();
    let callers = config.callers();
    let mut results = vec![Err("its resolver panicked".to_owned()); callers.len()];
    let (mut tasks, mut waiting) = (JoinSet::new(), callers.iter().cloned().enumerate());
    loop {
        while tasks.len() < AT_ONCE {
            let Some((at, caller)) = waiting.next() else { break };
            let core = core.clone();
            tasks.spawn(async move { (at, read_one(&core, &caller).await) });
        }
        match tasks.join_next().await {
            Some(Ok((at, result))) => results[at] = result,
            Some(Err(_)) => {}
            None => break,
        }
    }
    let known = |(caller, result): (&Arc<Caller>, Result<Option<[u8; 32]>, String>)| {
        let digest = result.unwrap_or_else(|error| kept(caller, &error, before));
        (digest, caller.clone())
    };
    let entries = callers.iter().zip(results).map(known).collect();
    Table { version: config.version(), read_at: core.clock.now(), entries }
}

/// Reads a caller's token, and returns its digest; `None` if the token is too short.
async fn read_one(core: &Core, caller: &Caller) -> Result<Option<[u8; 32]>, String> {
    let secret = match tokio::time::timeout(PATIENCE, core.egress.credentials.reference(&caller.token)).await {
        Ok(secret) => secret.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("it did not come within {} s", PATIENCE.as_secs())),
    };
    let token = secret.expose_secret().as_bytes();
    if token.len() < SHORTEST {
        tracing::warn!(
            caller = &*caller.name,
            "the token has fewer than {SHORTEST} bytes, and the caller can do nothing; \
             make one with `openssl rand -hex 16`"
        );
        return Ok(None);
    }
    Ok(Some(digest_of(token)))
}

/// The digest of a caller whose token cannot be read: that of the token that its reference led to before, because a
/// vault that is away for a moment must not lock callers out.
fn kept(caller: &Caller, error: &str, before: Option<&Table>) -> Option<[u8; 32]> {
    let digest = before.and_then(|before| before.digest(&caller.token));
    let (name, reference) = (&*caller.name, &caller.token);
    match digest {
        Some(_) => tracing::warn!(
            caller = name, %reference, error,
            "the token cannot be read again; the one that was read last stays in force until the caller is removed"
        ),
        None => {
            tracing::warn!(caller = name, %reference, error, "the token cannot be read, and the caller can do nothing");
        }
    }
    digest
}

/// The values of a request that may be its caller's token, likeliest first. `auths` say where vendors' keys stand.
pub(super) fn tokens(headers: &HeaderMap, query: &str, auths: &[&AuthScheme]) -> Vec<Vec<u8>> {
    let value = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    if let Some(token) = value(TOKEN) {
        return vec![token.to_vec()];
    }
    if let Some(proxy) = headers.get(PROXY_AUTHORIZATION) {
        return in_authorization(proxy).into_iter().last().into_iter().collect();
    }
    let mut found = Vec::new();
    for auth in auths {
        match auth {
            AuthScheme::Header { name, prefix } => {
                let value = value(name).unwrap_or_default();
                found.push(value.strip_prefix(prefix.as_bytes()).unwrap_or(value).to_vec());
            }
            AuthScheme::Query { name } => {
                let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                let own = pairs.filter(|(own, _)| percent_decode_str(own).eq(name.bytes()));
                found.extend(own.map(|(_, value)| percent_decode_str(value).collect()).take(1));
            }
            _ => {}
        }
    }
    found.extend(headers.get(AUTHORIZATION).into_iter().flat_map(in_authorization));
    found.extend(value("x-api-key").map(<[u8]>::to_vec));
    found.retain(|token| !token.is_empty());
    found
}

/// The user name of `Proxy-Authorization`, which names the tenant.
pub(super) fn proxy_user(headers: &HeaderMap) -> Option<String> {
    let user = in_authorization(headers.get(PROXY_AUTHORIZATION)?).into_iter().next()?;
    String::from_utf8(user).ok()
}

/// The credentials in an authorization header: the token of `Bearer TOKEN` or `token TOKEN`, user name and password of
/// `Basic`, or the whole value if it names no scheme.
fn in_authorization(value: &HeaderValue) -> Vec<Vec<u8>> {
    let Ok(text) = value.to_str() else { return Vec::new() };
    match text.split_once(' ') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("basic") => {
            let plain = STANDARD.decode(rest.trim()).unwrap_or_default();
            plain.splitn(2, |b| *b == b':').map(<[u8]>::to_vec).collect()
        }
        Some((_, rest)) => vec![rest.trim().as_bytes().to_vec()],
        None => vec![text.as_bytes().to_vec()],
    }
}

/// Removes every header that holds the token.
pub(super) fn remove(headers: &mut HeaderMap, token: &[u8]) {
    headers.remove(TOKEN);
    headers.remove(PROXY_AUTHORIZATION);
    let holds = |_: &HeaderName, value: &HeaderValue| {
        stands_in(value.as_bytes(), token) || in_authorization(value).iter().any(|part| stands_in(part, token))
    };
    remove_where(headers, holds);
}

/// Whether these bytes contain the token, plain or percent-encoded.
pub(super) fn stands_in(bytes: &[u8], token: &[u8]) -> bool {
    let found = |bytes: &[u8]| memchr::memmem::find(bytes, token).is_some();
    found(bytes) || memchr::memchr(b'%', bytes).is_some_and(|_| found(&percent_decode(bytes).collect::<Vec<u8>>()))
}

fn remove_where(headers: &mut HeaderMap, holds: impl Fn(&HeaderName, &HeaderValue) -> bool) {
    let found = headers.iter().filter(|(name, value)| holds(name, value));
    let names: Vec<HeaderName> = found.map(|(name, _)| name.clone()).collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn tokens_are_found_where_sdks_put_keys() {
        let basic = format!("Basic {}", STANDARD.encode("tok:pass"));
        let own = AuthScheme::Header { name: "x-key".into(), prefix: "Key ".into() };
        let query = AuthScheme::Query { name: "key".into() };
        for (given, in_query, auth, expected) in [
            (vec![("authorization", "Bearer tok")], "", None, vec!["tok"]),
            (vec![("authorization", "token tok")], "", None, vec!["tok"]),
            (vec![("authorization", &*basic)], "", None, vec!["tok", "pass"]),
            (vec![("x-api-key", "tok")], "", None, vec!["tok"]),
            (vec![("x-key", "Key tok")], "", Some(&own), vec!["tok"]),
            (vec![("x-key", "tok")], "", Some(&own), vec!["tok"]),
            (vec![], "a=b&key=tok", Some(&query), vec!["tok"]),
            (vec![], "k%65y=t%2Fo%3D%3D", Some(&query), vec!["t/o=="]),
            (vec![("integration-token", "tok"), ("authorization", "Bearer x")], "", None, vec!["tok"]),
            (vec![("proxy-authorization", &*basic), ("authorization", "AWS4 x")], "", None, vec!["pass"]),
            (vec![("authorization", "")], "", None, vec![]),
            (vec![("authorization", "Basic %%%")], "", None, vec![]),
        ] {
            let found = tokens(&headers(&given), in_query, auth.as_slice());
            let found: Vec<_> = found.iter().map(|token| String::from_utf8_lossy(token)).collect();
            assert_eq!(found, expected, "{given:?}");
        }
        assert_eq!(proxy_user(&headers(&[("proxy-authorization", &basic)])).as_deref(), Some("tok"));
    }

    #[test]
    fn token_is_taken_away_everywhere() {
        let basic = format!("Basic {}", STANDARD.encode("user:the-token"));
        let mut given = headers(&[
            ("authorization", &basic),
            ("x-api-key", "the-token"),
            ("x-any", "prefix the-token suffix"),
            ("integration-token", "another"),
            ("proxy-authorization", "Basic x"),
            ("accept", "*/*"),
        ]);
        remove(&mut given, b"the-token");
        assert_eq!(given.keys().collect::<Vec<_>>(), ["accept"]);
        for (path, expected) in
            [("/x?a=the-token", true), ("/th%65-token", true), ("/x?a=the%2Dtoken", true), ("/the/token%", false)]
        {
            assert_eq!(stands_in(path.as_bytes(), b"the-token"), expected, "{path}");
        }
    }
}
