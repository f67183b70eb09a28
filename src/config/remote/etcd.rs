//! etcd by its JSON gateway: <https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/>.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use serde::Deserialize;
use serde_json::json;

use super::found::Found;
use super::http::{Failed, Http, Reply, address, shown};
use super::secret::{Secret, add_to, user_of};

pub(super) struct Prefix {
    url: String,
    prefix: String,
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Pair {
    key: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

impl Prefix {
    pub(super) fn new(url: &str, prefix: &str) -> Prefix {
        Prefix { url: url.to_owned(), prefix: prefix.to_owned() }
    }

    pub(super) fn address(&self) -> [&str; 3] {
        [&self.url, &self.prefix, ""]
    }

    pub(super) fn name(&self) -> String {
        format!("{} {}", shown(&self.url), self.prefix)
    }

    /// Reads the texts. `session` holds the token of an earlier login. etcd forgets tokens after minutes: if it refuses
    /// this one, logs in again.
    pub(super) async fn ask(
        &self,
        http: &Http,
        secrets: &[Secret],
        session: &mut Option<String>,
    ) -> Result<Found, Failed> {
        let (key, end) = (BASE64_STANDARD.encode(&self.prefix), BASE64_STANDARD.encode(end_of(self.prefix.as_bytes())));
        let range = json!({"key": key, "range_end": end});
        if let Some(token) = session {
            let reply = self.post(http, "/v3/kv/range", &range, secrets, Some(token)).await?;
            if reply.status.is_success() {
                return read(&reply.ok()?);
            }
            *session = None;
        }
        *session = match user_of(secrets).await? {
            Some((name, password)) => {
                let user = json!({"name": name, "password": password});
                let reply = self.post(http, "/v3/auth/authenticate", &user, secrets, None).await?;
                let token: Token = serde_json::from_slice(&reply.ok()?)
                    .map_err(|_| Failed::new("the server's answer to the log-in holds no token"))?;
                Some(token.token)
            }
            None => None,
        };
        let reply = self.post(http, "/v3/kv/range", &range, secrets, session.as_deref()).await?;
        read(&reply.ok()?)
    }

    async fn post(
        &self,
        http: &Http,
        path: &str,
        body: &serde_json::Value,
        secrets: &[Secret],
        token: Option<&str>,
    ) -> Result<Reply, Failed> {
        let mut url = address(&self.url)?;
        let stem = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{stem}{path}"));
        let request = Request::post(url.as_str()).header("content-type", "application/json");
        let mut request =
            request.body(body.to_string().into_bytes()).map_err(|error| Failed::new(error.to_string()))?;
        add_to(&mut request, secrets).await?;
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(token).map_err(|_| Failed::new("the server's token is no header"))?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        http.send(request).await
    }
}

/// The first key after all keys that begin with `prefix`: the end of etcd's range. A zero byte means no end.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

fn read(body: &[u8]) -> Result<Found, Failed> {
    let range: Range =
        serde_json::from_slice(body).map_err(|error| Failed::new(format!("this is no answer of etcd: {error}")))?;
    let decode = |text: &str| BASE64_STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let mut found = Found { tag: None, texts: Vec::new() };
    for Pair { key, value } in range.kvs {
        let key = decode(&key).ok_or_else(|| Failed::new("a key with this prefix is no UTF-8 text"))?;
        let text = decode(&value).ok_or_else(|| Failed::new(format!("the value of {key} is no UTF-8 text")))?;
        found.texts.push((format!("etcd:{key}"), text));
    }
    found.texts.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
