//! Azure App Configuration by its REST interface:
//! <https://learn.microsoft.com/azure/azure-app-configuration/rest-api-key-value>, signed as
//! <https://learn.microsoft.com/azure/azure-app-configuration/rest-api-authentication-hmac> says.

use std::time::SystemTime;

use aws_lc_rs::{digest, hmac};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::Request;
use jiff::Timestamp;
use secrecy::ExposeSecret;
use serde::Deserialize;
use url::Url;

use super::found::Found;
use super::http::{Failed, Http, address};
use super::secret;

/// The most pages that are read. 64 MiB of values of 10 KB, 100 to a page, fill fewer.
const MAX_PAGES: usize = 100;

pub(super) struct Store {
    connection: String,
    prefix: String,
    /// The label of the keys to read; empty for keys without a label.
    pub(super) label: String,
}

struct Connection {
    endpoint: Url,
    id: String,
    key: hmac::Key,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    items: Vec<Item>,
    #[serde(rename = "@nextLink")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    key: String,
    value: Option<String>,
}

impl Store {
    pub(super) fn new(connection: &str, prefix: &str) -> Store {
        Store { connection: connection.to_owned(), prefix: prefix.to_owned(), label: String::new() }
    }

    pub(super) fn address(&self) -> [&str; 3] {
        [&self.connection, &self.prefix, &self.label]
    }

    pub(super) fn name(&self) -> String {
        format!("Azure App Configuration {}", self.prefix)
    }

    pub(super) async fn ask(&self, http: &Http, wall: SystemTime) -> Result<Found, Failed> {
        let text = secret::read(&self.connection).await?;
        let connection = Connection::parse(text.expose_secret())?;
        let mut url = connection.endpoint.clone();
        url.set_path("/kv");
        // In a filter a comma separates values and an asterisk is a wildcard; a backslash escapes either.
        let literal = |text: &str| text.replace('\\', "\\\\").replace('*', "\\*").replace(',', "\\,");
        let label = if self.label.is_empty() { "\0".to_owned() } else { literal(&self.label) };
        url.query_pairs_mut()
            .append_pair("key", &format!("{}*", literal(&self.prefix)))
            .append_pair("label", &label)
            .append_pair("api-version", "1.0");
        let mut found = Found { tag: None, texts: Vec::new() };
        for _ in 0..MAX_PAGES {
            let body = http.send(connection.signed(&url, wall)?).await?.ok()?;
            let page: Page = serde_json::from_slice(&body)
                .map_err(|error| Failed::new(format!("this is no answer of Azure App Configuration: {error}")))?;
            for Item { key, value } in page.items {
                found.texts.push((format!("azure:{key}"), value.unwrap_or_default()));
            }
            let Some(next) = page.next else {
                found.texts.sort();
                return Ok(found);
            };
            let next = url.join(&next).map_err(|_| Failed::new("the link to the next page is no address"))?;
            if next.origin() != url.origin() {
                return Err(Failed::new("the link to the next page leads to another server"));
            }
            url = next;
        }
        Err(Failed::new(format!("the answer has more than {MAX_PAGES} pages; use a longer prefix")))
    }
}

impl Connection {
    fn parse(text: &str) -> Result<Connection, Failed> {
        let part = |name: &str| {
            let parts = text.trim().split(';').filter_map(|part| part.split_once('='));
            let found = parts.into_iter().find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty()).ok_or_else(|| {
                Failed::new(format!(
                    "the connection string states no {name}; its form is Endpoint=https://…;Id=…;Secret=…"
                ))
            })
        };
        let key = BASE64_STANDARD
            .decode(part("Secret")?)
            .map_err(|_| Failed::new("the Secret of the connection string is not base64"))?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        Ok(Connection { endpoint: address(part("Endpoint")?)?, id: part("Id")?.to_owned(), key })
    }

    /// A request signed over its method, path with query, date, host and body.
    fn signed(&self, url: &Url, wall: SystemTime) -> Result<Request<Vec<u8>>, Failed> {
        let date = Timestamp::try_from(wall).unwrap_or_default().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let host = url.host_str().unwrap_or_default();
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let body = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, b""));
        let target = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let signature = hmac::sign(&self.key, format!("GET\n{target}\n{date};{host};{body}").as_bytes());
        let authorization = format!(
            "HMAC-SHA256 Credential={}&SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature={}",
            self.id,
            BASE64_STANDARD.encode(signature)
        );
        Request::get(url.as_str())
            .header("x-ms-date", date)
            .header("x-ms-content-sha256", body)
            .header("authorization", authorization)
            .header("accept", "application/vnd.microsoft.appconfig.kvset+json")
            .body(Vec::new())
            .map_err(|error| Failed::new(error.to_string()))
    }
}

#[cfg(test)]
mod tests;
