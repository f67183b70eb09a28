//! The pool in etcd: one key per limit, below a prefix, read and written through etcd's JSON gateway, `/v3/kv/range`
//! and `/v3/kv/txn`: <https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/>. Reads are linearizable, and a write
//! compares the key's revision.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::StatusCode;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;
use url::Url;

use super::clockless::{Answered, Clockless, Found, Swaps, date};
use crate::clock::{Clock, Time};
use crate::error::Error;
use crate::error::http_client::in_words;

/// The prefix of all keys, unless the URL has a path.
const PREFIX: &str = "integration-client";
/// The longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(1);
/// The longest wait for an answer. A server that takes longer counts as unreachable.
const WHOLE: Duration = Duration::from_secs(2);
/// The largest answer that is read: none of the pool's answers is larger.
const MAX_BYTES: usize = 16 << 20;
/// The statuses with which a server refuses a token that it no longer knows: gRPC's `UNAUTHENTICATED`, and what etcd
/// 3.4 makes of it.
const NO_TOKEN: [StatusCode; 2] = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
/// How often the server is asked how large its database is, and the longest wait for the answer.
const LOOKS: Duration = Duration::from_secs(3_600);
const LOOK: Duration = Duration::from_millis(250);
/// The quota of a database, in bytes, unless the server states another. It keeps all versions of a key until it compacts
/// them, and refuses all writes at the quota.
const QUOTA: u64 = 2 << 30;
/// Part of the error that refuses a write at the quota.
const NO_SPACE: &str = "database space exceeded";
/// Part of the error that refuses a token if users or roles were changed after it was issued.
const OLD_TOKEN: &str = "auth store is old";

/// The pool in etcd.
pub(crate) type Etcd = Clockless<Server>;

pub(crate) struct Server {
    http: reqwest::Client,
    /// The server's URL, without path, user and password.
    server: Url,
    prefix: String,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    clock: Clock,
    /// When the size of the database is looked at next; `None` once the log has warned of it.
    next_look: Mutex<Option<Time>>,
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Pair {
    #[serde(default)]
    value: String,
    mod_revision: String,
}

/// etcd leaves fields that are false or empty out of its answers.
#[derive(Deserialize)]
struct Txn {
    #[serde(default)]
    succeeded: bool,
}

/// How large the database is, in bytes. Servers before 3.6 do not state its quota.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    db_size: String,
    db_size_quota: String,
}

/// An answer with its date in seconds since 1970.
struct Dated<T>(T, Option<u64>);

#[derive(Deserialize)]
struct Token {
    token: String,
}

/// Opens the pool at `etcd://[user:password@]host:port[/prefix]`, or `etcds://` for TLS.
pub(super) async fn open(url: &str) -> Result<Etcd, Error> {
    let failed = |why: String| Error::config(format!("sharing through etcd: {why}"));
    let etcd = Server::new(url).map_err(failed)?;
    // Fails now if the server is unreachable, the password is wrong or rights are missing.
    let probe = "probe";
    let Answered { found, .. } = etcd.read(probe).await.map_err(failed)?;
    let version = found.as_ref().map(|found| found.version.as_str());
    etcd.write(probe, String::new(), version).await.map_err(failed)?;
    Ok(Clockless::new(etcd))
}

impl Server {
    fn new(url: &str) -> Result<Server, String> {
        let rest = url.strip_prefix("etcd").filter(|rest| rest.starts_with("://") || rest.starts_with("s://"));
        let rest = rest.ok_or("the URL begins with etcd:// or etcds://")?;
        // The text is rewritten, because `Url::set_scheme` cannot change a scheme like `etcd` to `http`.
        let mut server =
            Url::parse(&format!("http{rest}")).map_err(|_| "the URL is etcd://host:2379 or etcds://host:2379")?;
        if server.query().is_some() {
            return Err("the URL has no query: etcd://host:2379/prefix".to_owned());
        }
        let prefix = server.path().trim_matches('/');
        let prefix = if prefix.is_empty() { PREFIX.to_owned() } else { prefix.to_owned() };
        server.set_path("");
        if server.port().is_none() {
            server.set_port(Some(2_379)).map_err(|()| "the URL names no host")?;
        }
        let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = server.password().map(|password| (decoded(server.username()), decoded(password)));
        if user.is_none() && !server.username().is_empty() {
            return Err("the URL names a user without a password".to_owned());
        }
        let (_, _) = (server.set_username(""), server.set_password(None));
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            // A proxy that the environment names is for other addresses, and would read tokens and ledgers.
            .no_proxy()
            .connect_timeout(CONNECT)
            .timeout(WHOLE)
            .build()
            .map_err(|error| format!("no HTTP client can be made: {error}"))?;
        let next_look = Mutex::new(Some(Time::ZERO));
        Ok(Server { http, server, prefix, user, token: Mutex::default(), clock: Clock::system(), next_look })
    }

    fn key(&self, limit: &str) -> String {
        BASE64_STANDARD.encode(format!("{}/limit/{limit}", self.prefix))
    }

    fn is_look_due(&self) -> bool {
        let (now, mut next) = (self.clock.now(), self.next_look.lock());
        let is_due = next.is_some_and(|at| at <= now);
        if is_due {
            *next = Some(now + LOOKS);
        }
        is_due
    }

    /// Warns once if the database is filling up. A user without the right to see its size, and a server that does not
    /// answer in time, are no reason to fail.
    async fn look_at_size(&self) {
        if !self.is_look_due() {
            return;
        }
        let body = json!({});
        let Ok(Ok(Dated(status, _))) = timeout(LOOK, self.ask::<Status>("/v3/maintenance/status", &body)).await else {
            return;
        };
        if let Some((bytes, quota)) = status.filling() {
            *self.next_look.lock() = None;
            tracing::warn!(
                bytes,
                quota,
                "the database of the etcd of shared limits is above half of its quota, at which etcd refuses all \
                 writes; it needs --auto-compaction-mode=periodic and --auto-compaction-retention=10m"
            );
        }
    }

    /// Sends a request, with a token if the URL has a user. Logs in again if the server no longer knows the token.
    async fn ask<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<Dated<T>, String> {
        let Some((name, password)) = &self.user else {
            return self.post(path, body, None).await.map_err(|(_, why)| why);
        };
        let token = self.token.lock().clone();
        if let Some(token) = token {
            match self.post(path, body, Some(&token)).await {
                Err((Some(status), why)) if NO_TOKEN.contains(&status) || why.contains(OLD_TOKEN) => {}
                answered => return answered.map_err(|(_, why)| why),
            }
        }
        let login = json!({"name": name, "password": password});
        let Dated(Token { token }, _) =
            self.post("/v3/auth/authenticate", &login, None).await.map_err(|(_, why)| why)?;
        *self.token.lock() = Some(token.clone());
        self.post(path, body, Some(&token)).await.map_err(|(_, why)| why)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        token: Option<&str>,
    ) -> Result<Dated<T>, (Option<StatusCode>, String)> {
        let mut url = self.server.clone();
        url.set_path(path);
        let mut request = self.http.post(url).json(body);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let broken = |error: reqwest::Error| (None, in_words(&error));
        let mut response = request.send().await.map_err(broken)?;
        let (status, date) = (response.status(), date(response.headers()));
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(broken)? {
            if bytes.len().saturating_add(piece.len()) > MAX_BYTES {
                return Err((None, "the answer is too large to be one of etcd".to_owned()));
            }
            bytes.extend_from_slice(&piece);
        }
        if !status.is_success() {
            return Err((Some(status), refused(status, &bytes)));
        }
        let read = serde_json::from_slice(&bytes).map(|answer| Dated(answer, date));
        read.map_err(|_| (None, "the answer is none of etcd's JSON gateway".to_owned()))
    }
}

impl Swaps for Server {
    async fn read(&self, limit: &str) -> Result<Answered, String> {
        let Dated(range, date) = self.ask::<Range>("/v3/kv/range", &json!({"key": self.key(limit)})).await?;
        let Some(Pair { value, mod_revision }) = range.kvs.into_iter().next() else {
            return Ok(Answered { found: None, date });
        };
        let text = BASE64_STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        // A value that is not text is not a ledger: `?` makes the ledger count as lost.
        let text = text.unwrap_or_else(|| "?".to_owned());
        Ok(Answered { found: Some(Found { text, version: mod_revision }), date })
    }

    async fn write(&self, limit: &str, text: String, version: Option<&str>) -> Result<bool, String> {
        let key = self.key(limit);
        // Revision 0 means that the key does not exist.
        let same = json!({"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": version.unwrap_or("0")});
        let put = json!({"request_put": {"key": key, "value": BASE64_STANDARD.encode(text)}});
        let Dated(txn, _) = self.ask::<Txn>("/v3/kv/txn", &json!({"compare": [same], "success": [put]})).await?;
        self.look_at_size().await;
        Ok(txn.succeeded)
    }
}

impl Status {
    /// The size and the quota, if the size is above half of the quota.
    fn filling(&self) -> Option<(u64, u64)> {
        let bytes = self.db_size.parse::<u64>().ok()?;
        let quota = self.db_size_quota.parse::<u64>().ok().filter(|quota| *quota > 0).unwrap_or(QUOTA);
        (bytes > quota / 2).then_some((bytes, quota))
    }
}

/// The message of a refusal. etcd puts the reason into `error` or `message`.
fn refused(status: StatusCode, body: &[u8]) -> String {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let why = said.get("message").or_else(|| said.get("error")).and_then(Value::as_str).unwrap_or_default();
    let why: String = why.chars().filter(|c| !c.is_control()).take(200).collect();
    let help = match status {
        StatusCode::NOT_FOUND => "; is this etcd 3.4 or later, with its JSON gateway on (`--enable-grpc-gateway`)?",
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "; the user needs to read and write keys with the prefix integration-client/ or that of the URL"
        }
        _ if why.contains(NO_SPACE) => {
            "; its database has reached the quota (NOSPACE): run `etcdctl compact`, `etcdctl defrag` and `etcdctl alarm \
             disarm`, and start etcd with --auto-compaction-mode=periodic and --auto-compaction-retention=10m"
        }
        _ if why.contains("user name is empty") => "; the server wants a user: etcd://user:password@host:2379",
        _ => "",
    };
    format!("the server answered {status}: {why}{help}")
}

#[cfg(test)]
mod tests;
