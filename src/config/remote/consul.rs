//! Consul's key-value store: <https://developer.hashicorp.com/consul/api-docs/kv>.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::{HeaderMap, Request};
use serde::Deserialize;

use super::found::Found;
use super::http::{Failed, Http, address, shown};
use super::secret::{Secret, add_to};

/// The header by which Consul says that it left out keys which the token may not read.
const FILTERED: &str = "x-consul-results-filtered-by-acls";

pub(super) struct Prefix {
    url: String,
    prefix: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Pair {
    key: String,
    value: Option<String>,
}

impl Prefix {
    pub(super) fn new(url: &str, prefix: &str) -> Prefix {
        Prefix { url: url.to_owned(), prefix: prefix.trim_start_matches('/').to_owned() }
    }

    pub(super) fn address(&self) -> [&str; 3] {
        [&self.url, &self.prefix, ""]
    }

    pub(super) fn name(&self) -> String {
        format!("{} {}", shown(&self.url), self.prefix)
    }

    pub(super) async fn ask(&self, http: &Http, secrets: &[Secret]) -> Result<Found, Failed> {
        let mut url = address(&self.url)?;
        let stem = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{stem}/v1/kv/{}", self.prefix));
        url.query_pairs_mut().append_pair("recurse", "true");
        let request = Request::get(url.as_str()).body(Vec::new());
        let mut request = request.map_err(|error| Failed::new(error.to_string()))?;
        add_to(&mut request, secrets).await?;
        let reply = http.send(request).await?;
        self.check_complete(&reply.headers)?;
        read(&reply.ok()?)
    }

    /// Refuses a response without some of the keys, because their tenants would count as removed.
    fn check_complete(&self, headers: &HeaderMap) -> Result<(), Failed> {
        match headers.get(FILTERED) {
            Some(filtered) if filtered == "true" => {
                let rule = format!("key_prefix \"{}\" {{ policy = \"read\" }}", self.prefix);
                Err(Failed::new(format!("Consul left out keys that the token may not read; give the token `{rule}`")))
            }
            _ => Ok(()),
        }
    }
}

fn read(body: &[u8]) -> Result<Found, Failed> {
    let pairs: Vec<Pair> =
        serde_json::from_slice(body).map_err(|error| Failed::new(format!("this is no answer of Consul: {error}")))?;
    let mut found = Found { tag: None, texts: Vec::new() };
    for Pair { key, value } in pairs {
        // A folder has no value.
        let Some(value) = value.filter(|_| !key.ends_with('/')) else { continue };
        let text = BASE64_STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| Failed::new(format!("the value of {key} is no UTF-8 text")))?;
        found.texts.push((format!("consul:{key}"), text));
    }
    found.texts.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
