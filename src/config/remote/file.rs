//! Reads a text behind a URL.

use http::header::{ETAG, IF_NONE_MATCH};
use http::{Request, StatusCode};

use super::found::Found;
use super::http::{Failed, Http, address, shown};
use super::secret::{Secret, add_to};

/// The text and its entity tag; `None` if the server says that the text with the tag `known` has not changed.
pub(super) async fn ask(
    http: &Http,
    url: &str,
    secrets: &[Secret],
    known: Option<&str>,
) -> Result<Option<Found>, Failed> {
    let url = address(url)?;
    let mut request = Request::get(url.as_str());
    if let Some(known) = known {
        request = request.header(IF_NONE_MATCH, known);
    }
    let mut request = request.body(Vec::new()).map_err(|error| Failed::new(error.to_string()))?;
    add_to(&mut request, secrets).await?;
    let reply = http.send(request).await?;
    if known.is_some() && reply.status == StatusCode::NOT_MODIFIED {
        return Ok(None);
    }
    let tag = reply.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let text = String::from_utf8(reply.ok()?).map_err(|error| {
        Failed::new(format!("byte {} is not UTF-8; store the text as UTF-8", error.utf8_error().valid_up_to()))
    })?;
    Ok(Some(Found { tag, texts: vec![(shown(url.as_str()), text)] }))
}
