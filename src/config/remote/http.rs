//! Requests to configuration servers: bounded in time and size, without redirects and proxies.

use std::time::Duration;

use http::{HeaderMap, Request, StatusCode};
use url::Url;

use super::super::base_url::is_loopback;
use super::super::source::MAX_BYTES;
use crate::error::http_client::in_words;

const CONNECT: Duration = Duration::from_secs(5);
/// The longest time between two pieces of a response.
const PIECE: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(super) struct Http {
    client: reqwest::Client,
    allows_http: bool,
}

/// Why a request failed, and the wait that the server asks for.
#[derive(Debug, PartialEq)]
pub(super) struct Failed {
    pub(super) why: String,
    pub(super) wait: Option<Duration>,
}

impl Failed {
    pub(super) fn new(why: impl Into<String>) -> Failed {
        Failed { why: why.into(), wait: None }
    }
}

pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Http {
    pub(super) fn new(allows_http: bool) -> Result<Http, Failed> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            // A proxy that the environment names could read tokens, and answer in place of a server on this machine.
            .no_proxy()
            .connect_timeout(CONNECT)
            .read_timeout(PIECE)
            .timeout(WHOLE)
            .build()
            .map_err(|error| Failed::new(format!("no HTTP client can be made: {error}")))?;
        Ok(Http { client, allows_http })
    }

    /// Sends a request and reads the response, whatever its status.
    pub(super) async fn send(&self, request: Request<Vec<u8>>) -> Result<Reply, Failed> {
        let request = reqwest::Request::try_from(request).map_err(|error| Failed::new(in_words(&error)))?;
        if !self.allows_http && request.url().scheme() == "http" && !is_loopback(request.url()) {
            return Err(Failed::new(
                "the address is http, on which anybody under way can change what is read; use https, or call `allow_http`",
            ));
        }
        let mut response = self.client.execute(request).await.map_err(|error| Failed::new(in_words(&error)))?;
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| Failed::new(in_words(&error)))? {
            if body.len() + piece.len() > MAX_BYTES as usize {
                return Err(Failed::new(format!("the answer is larger than {} MiB", MAX_BYTES >> 20)));
            }
            body.extend_from_slice(&piece);
        }
        Ok(Reply { status, headers, body })
    }
}

impl Reply {
    /// The body of a response with status 200.
    pub(super) fn ok(self) -> Result<Vec<u8>, Failed> {
        match self.status {
            StatusCode::OK => Ok(self.body),
            _ => Err(self.refused()),
        }
    }

    pub(super) fn refused(&self) -> Failed {
        let status = self.status;
        let what = match status.as_u16() {
            301 | 302 | 303 | 307 | 308 => {
                let to =
                    self.headers.get(http::header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
                let to: String = shown(to).chars().filter(|c| !c.is_control()).take(200).collect();
                format!("it leads to {to}, and redirects are not followed: state that address if it is right")
            }
            401 | 403 => "it does not accept the token or key that is stated, or misses one".to_owned(),
            404 => "there is nothing at this address".to_owned(),
            429 | 503 => "it asks to be left alone for a while".to_owned(),
            _ => "that is no configuration".to_owned(),
        };
        Failed { why: format!("the server answered {status}: {what}"), wait: retry_after(&self.headers) }
    }
}

/// Reads a `Retry-After` in seconds. Dates are ignored, because the longest wait here is only minutes anyway.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// Parses a server's address: `https` or `http`, without user or password.
pub(super) fn address(url: &str) -> Result<Url, Failed> {
    let parsed = Url::parse(url).map_err(|error| Failed::new(format!("this is no address of a server: {error}")))?;
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host().is_none() {
        return Err(Failed::new("the address must begin with https://"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(Failed::new(
            "the address holds a user or a password; state the secret by `bearer` or `header` instead",
        ));
    }
    Ok(parsed)
}

/// An address without the parts that may be secret: user, password, query.
pub(super) fn shown(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut url) if url.host().is_some() => {
            url.set_query(None);
            url.set_fragment(None);
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.to_string()
        }
        // What stands before an `@` may be a password with any character.
        _ => {
            let scheme = ["https://", "http://"].into_iter().find(|scheme| url.starts_with(scheme)).unwrap_or_default();
            let rest = &url[scheme.len()..];
            let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
            format!("{scheme}{}", place.split(['?', '#']).next().unwrap_or_default())
        }
    }
}
