//! Sends replies by HTTP, signed as Standard Webhooks specifies.
//!
//! All attempts of a reply have the same `webhook-id`. Each attempt has its own timestamp, which the signature covers,
//! so that a receiver can reject a request that an attacker recorded and replays later.

use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use integration_client::outbox::{Reply, ReplyTarget};
use integration_client::{BoxError, BoxFuture};
use reqwest::redirect::Policy;
use url::{Host, Url};

use crate::error::Error;

/// The timeout of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests under way at once.
const AT_ONCE: usize = 32;
/// The length of a key in bytes that Standard Webhooks allows.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A webhook as a target of replies, signed as [Standard Webhooks](https://www.standardwebhooks.com) specifies.
///
/// Each reply is a POST of its JSON with the headers `webhook-id` ([`Reply::message_id`]), `webhook-timestamp` and
/// `webhook-signature` (`v1,` and the HMAC-SHA256 in base64). A reply counts as delivered only after a 2xx response
/// within 10 s. Redirects are not followed.
pub struct Webhook {
    http: reqwest::Client,
    url: Url,
    name: String,
    /// Each key adds a signature to every request.
    keys: Vec<hmac::Key>,
}

impl Webhook {
    /// `url` is the receiver: `https`, or `http` to this machine. `secret` is `whsec_` and a key of 24 to 64 bytes in
    /// base64. Several secrets, separated by spaces, give each request one signature per secret, so that a receiver can
    /// change its secret.
    ///
    /// # Errors
    /// The URL or the secret is missing or not valid.
    pub fn new(url: &str, secret: Option<&str>) -> Result<Webhook, Error> {
        // The error of the parser does not hold the URL, which may hold a password.
        let url = Url::parse(url).map_err(|error| Error::new("webhook: the URL cannot be read").with_source(error))?;
        // The name shows the host only: the path and the query may hold a secret.
        let name = format!("webhook:{}", url.host_str().unwrap_or_default());
        let wrong = |why: &str| Error::new(format!("{name}: {why}"));
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("the URL must hold no user and no password"));
        }
        let is_here = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        };
        if url.scheme() != "https" && !is_here {
            return Err(wrong("the URL must begin with https://: what vendors answered would be sent as it is"));
        }
        let secret = secret.ok_or_else(|| wrong("it needs a secret: whsec_…"))?;
        let keys = secret.split_whitespace().map(key).collect::<Option<Vec<_>>>().filter(|keys| !keys.is_empty());
        let keys = keys.ok_or_else(|| wrong("the secret must be whsec_ and 24 to 64 bytes in base64"))?;
        let http = reqwest::Client::builder().timeout(PATIENCE).connect_timeout(PATIENCE / 2).redirect(Policy::none());
        let http = http.user_agent(concat!("integration-client/", env!("CARGO_PKG_VERSION"))).build();
        let http = http.map_err(|error| wrong("no connection can be made").with_source(error))?;
        Ok(Webhook { http, url, name, keys })
    }

    async fn post(&self, reply: &Reply) -> Result<(), BoxError> {
        let id = reply.message_id();
        #[expect(clippy::disallowed_methods, reason = "the receiver compares it with its own clock")]
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let request = self.http.post(self.url.clone()).header("content-type", "application/json");
        let request = request.header("webhook-signature", signature(&self.keys, &id, now, &reply.json));
        let request = request.header("webhook-id", id).header("webhook-timestamp", now);
        let answer = request.body(reply.json.clone()).send().await.map_err(reqwest::Error::without_url)?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("the receiver answered {}", status.as_u16()).into()),
        }
    }
}

fn key(secret: &str) -> Option<hmac::Key> {
    let bytes = STANDARD.decode(secret.strip_prefix("whsec_")?).ok()?;
    KEY_BYTES.contains(&bytes.len()).then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

/// The value of the header `webhook-signature`: one signature per key, separated by spaces.
fn signature(keys: &[hmac::Key], id: &str, time_s: u64, content: &str) -> String {
    let signed = format!("{id}.{time_s}.{content}");
    let signatures = keys.iter().map(|key| format!("v1,{}", STANDARD.encode(hmac::sign(key, signed.as_bytes()))));
    signatures.collect::<Vec<String>>().join(" ")
}

impl ReplyTarget for Webhook {
    fn name(&self) -> &str {
        &self.name
    }

    fn deliver<'a>(&'a self, replies: &'a [Reply]) -> BoxFuture<'a, Vec<Result<(), BoxError>>> {
        Box::pin(futures_util::stream::iter(replies).map(|reply| self.post(reply)).buffered(AT_ONCE).collect())
    }

    /// A call may hold more than `AT_ONCE` replies, so that two requests may follow each other; the third `PATIENCE` is
    /// a margin.
    fn patience(&self) -> Duration {
        3 * PATIENCE
    }
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_plJ3nmyCDGBKInavdOK15jslMfKQ9r8G";

    /// Uses the keys and the signature of the examples that Svix publishes for Standard Webhooks.
    #[test]
    fn signature_is_that_of_the_standard() {
        let bytes = STANDARD.decode("plJ3nmyCDGBKInavdOK15jsl").unwrap();
        let published = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        let content = r#"{"event_type":"ping","data":{"success":true}}"#;
        let header = signature(std::slice::from_ref(&published), "msg_loFOjxBNrRLzqYUf", 1_731_705_121, content);
        assert_eq!(header, "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=");
        let both = signature(&[published, key(SECRET).unwrap()], "msg_loFOjxBNrRLzqYUf", 1_731_705_121, content);
        assert!(both.starts_with(&header) && both.split(' ').count() == 2, "{both}");
    }

    #[test]
    fn missing_settings_are_named_without_secrets() {
        assert!(Webhook::new("https://h.example/hook?t=hunter2", Some(SECRET)).is_ok());
        assert!(Webhook::new("http://127.0.0.1:1/", Some(&format!("{SECRET} {SECRET}"))).is_ok());
        for (url, secret, expected) in [
            ("http://h.example/hunter2", Some(SECRET), "must begin with https://"),
            ("https://me:hunter2@h.example/", Some(SECRET), "no password"),
            ("https://h.example/?t=hunter2", None, "needs a secret"),
            ("https://h.example/", Some("hunter2"), "24 to 64 bytes"),
            ("https://h.example/", Some("whsec_aHVudGVyMg=="), "24 to 64 bytes"),
            ("https://h.example/", Some(" "), "24 to 64 bytes"),
            ("no url, hunter2", Some(SECRET), "cannot be read"),
        ] {
            let told = Webhook::new(url, secret).unwrap_err().to_string();
            assert!(told.contains(expected) && !told.contains("hunter2"), "{told}");
        }
        let shown = format!("{:?}", Webhook::new("https://h.example/hunter2", Some(SECRET)).unwrap());
        assert_eq!(shown, "Webhook { name: \"webhook:h.example\", .. }");
    }
}
