//! Who calls: the token of a request, and the caller of `[[callers]]` that has it.
//!
//! An SDK insists on an API key and sends it where the vendor's would stand. So that is where the caller's token is looked
//! for, and from where it is taken away: no token reaches a vendor.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use percent_encoding::{percent_decode, percent_decode_str};
use secrecy::ExposeSecret as _;

use crate::Priority;
use crate::clock::Time;
use crate::config::{AuthScheme, Caller, May, Rewrite};
use crate::core::Core;

pub(crate) const TOKEN: &str = "integration-token";
/// Tokens are read again after this, and when the configuration changes.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// A shorter token is no token: a variable that is empty, or a placeholder.
const SHORTEST: usize = 16;

/// What a request may do.
#[derive(Clone, Debug)]
pub(crate) enum Allowed {
    /// Everything: no tokens are asked for, or it is the gateway's own.
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

    /// Whether URLs in JSON bodies are rewritten for it.
    pub(super) fn rewrites_json(&self) -> bool {
        matches!(self, Allowed::Caller(caller) if caller.rewrite == Rewrite::Json)
    }

    /// Whether it may see what concerns all tenants.
    pub(super) fn may_view(&self) -> bool {
        match self {
            Allowed::All => true,
            Allowed::Caller(caller) => {
                caller.is_for_all() && [May::View, May::Operate].iter().any(|right| caller.may.contains(right))
            }
        }
    }

    /// `asked`, or the highest that it may ask for.
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

/// The callers and their tokens, as digests.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    table: ArcSwapOption<Table>,
    reading: tokio::sync::Mutex<()>,
    /// The digest of a token that the gateway made itself.
    own: ArcSwapOption<[u8; 32]>,
}

#[derive(Debug)]
struct Table {
    version: u64,
    read_at: Time,
    entries: Vec<([u8; 32], Arc<Caller>)>,
}

pub(crate) fn digest_of(token: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, token).as_ref());
    out
}

impl Callers {
    /// From now on this token may do everything.
    pub(super) fn add_own(&self, token: &str) {
        self.own.store(Some(Arc::new(digest_of(token.as_bytes()))));
    }

    /// Who has this token.
    pub(crate) async fn find(&self, core: &Core, token: &[u8]) -> Option<Allowed> {
        self.find_digest(core, digest_of(token)).await
    }

    /// Who has the token with this digest. All are compared, each in constant time.
    pub(crate) async fn find_digest(&self, core: &Core, wanted: [u8; 32]) -> Option<Allowed> {
        let mut found = None;
        if self.own.load().as_ref().is_some_and(|own| verify_slices_are_equal(&**own, &wanted).is_ok()) {
            found = Some(Allowed::All);
        }
        for (known, caller) in &self.table(core).await.entries {
            if verify_slices_are_equal(known, &wanted).is_ok() {
                found = Some(Allowed::Caller(caller.clone()));
            }
        }
        found
    }

    /// Takes every header away that is a caller's token, whoever's: an SDK of a vendor without a credential of ours keeps
    /// what stands where its own would, and that may be another caller's.
    pub(super) async fn remove_all(&self, core: &Core, headers: &mut HeaderMap) {
        let (table, own) = (self.table(core).await, self.own.load_full());
        let is_known = |part: &[u8]| {
            let wanted = digest_of(part);
            let mut known = table.entries.iter().map(|(known, _)| known).chain(own.as_deref());
            part.len() >= SHORTEST && known.any(|known| verify_slices_are_equal(known, &wanted).is_ok())
        };
        // Of a header of another name nobody expects a credential.
        let may_be =
            |name: &HeaderName| ["auth", "key", "token", "secret"].iter().any(|part| name.as_str().contains(part));
        remove_where(headers, |name, value| {
            may_be(name) && (is_known(value.as_bytes()) || in_authorization(value).iter().any(|part| is_known(part)))
        });
    }

    async fn table(&self, core: &Core) -> Arc<Table> {
        let fresh = |now: Time, version: u64| {
            let table = self.table.load_full()?;
            (table.version == version && now.since(table.read_at) < READ_AGAIN).then_some(table)
        };
        if let Some(table) = fresh(core.clock.now(), core.registry.config.load().version()) {
            return table;
        }
        let _reading = self.reading.lock().await;
        let config = core.registry.config.load_full();
        if let Some(table) = fresh(core.clock.now(), config.version()) {
            return table;
        }
        let mut entries = Vec::new();
        for caller in config.callers() {
            match core.egress.credentials.reference(&caller.token).await {
                Ok(token) if token.expose_secret().len() >= SHORTEST => {
                    entries.push((digest_of(token.expose_secret().as_bytes()), caller.clone()));
                }
                Ok(_) => tracing::warn!(
                    caller = &*caller.name,
                    "the token has fewer than {SHORTEST} bytes, and the caller can do nothing; make one with `openssl rand -hex 16`"
                ),
                Err(error) => {
                    tracing::warn!(caller = &*caller.name, %error, "the token cannot be read, and the caller can do nothing");
                }
            }
        }
        let table = Arc::new(Table { version: config.version(), read_at: core.clock.now(), entries });
        self.table.store(Some(table.clone()));
        table
    }
}

/// The tokens that a request may have meant, the likeliest first; at most five.
pub(super) fn tokens(headers: &HeaderMap, query: &str, auth: Option<&AuthScheme>) -> Vec<Vec<u8>> {
    let value = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    if let Some(token) = value(TOKEN) {
        return vec![token.to_vec()];
    }
    if let Some(proxy) = headers.get(PROXY_AUTHORIZATION) {
        return in_authorization(proxy).into_iter().last().into_iter().collect();
    }
    let mut found = Vec::new();
    match auth {
        Some(AuthScheme::Header { name, prefix }) => {
            let value = value(name).unwrap_or_default();
            found.push(value.strip_prefix(prefix.as_bytes()).unwrap_or(value).to_vec());
        }
        Some(AuthScheme::Query { name }) => {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let own = pairs.filter(|(own, _)| percent_decode_str(own).eq(name.bytes()));
            found.extend(own.map(|(_, value)| percent_decode_str(value).collect()).take(1));
        }
        _ => {}
    }
    found.extend(headers.get(AUTHORIZATION).into_iter().flat_map(in_authorization));
    found.extend(value("x-api-key").map(<[u8]>::to_vec));
    found.retain(|token| !token.is_empty());
    found
}

/// The tenant that the user name of `Proxy-Authorization` is.
pub(super) fn proxy_user(headers: &HeaderMap) -> Option<String> {
    let user = in_authorization(headers.get(PROXY_AUTHORIZATION)?).into_iter().next()?;
    String::from_utf8(user).ok()
}

/// `Bearer TOKEN`, `token TOKEN`, or both parts of `Basic`.
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

/// Takes the token away from wherever it stands.
pub(super) fn remove(headers: &mut HeaderMap, token: &[u8]) {
    headers.remove(TOKEN);
    headers.remove(PROXY_AUTHORIZATION);
    let holds = |_: &HeaderName, value: &HeaderValue| {
        stands_in(value.as_bytes(), token) || in_authorization(value).iter().any(|part| stands_in(part, token))
    };
    remove_where(headers, holds);
}

/// Whether the token stands in what goes to the vendor, as it is or percent-encoded.
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
            let found = tokens(&headers(&given), in_query, auth);
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
