//! Conversions to a [`Request`]: from requests of reqwest and of the crate `http`, and from URLs.

use http::{Method, Uri};
use url::Url;

use super::{Request, Target};
use crate::transport::Body;

#[cfg(feature = "reqwest-api")]
impl From<reqwest::Request> for Request {
    /// The [timeout](reqwest::RequestBuilder::timeout) of the reqwest request becomes the
    /// [deadline](Request::deadline).
    fn from(mut request: reqwest::Request) -> Request {
        let body = request.body_mut().take().map(Body::from).unwrap_or_default();
        let headers = std::mem::take(request.headers_mut());
        let mut converted = Request::with_target(request.method().clone(), Target::Url(request.url().clone()));
        converted.parts.headers = headers;
        converted.parts.body = body;
        converted.parts.deadline = request.timeout().copied();
        converted
    }
}

impl<T: Into<Body>> From<http::Request<T>> for Request {
    /// The URI must be a whole URL. Version and extensions are dropped.
    fn from(request: http::Request<T>) -> Request {
        let (parts, body) = request.into_parts();
        let mut converted = Request::at_url(parts.method, &parts.uri.to_string());
        converted.parts.headers = parts.headers;
        converted.parts.body = body.into();
        converted
    }
}

impl From<&str> for Request {
    /// A GET of a whole URL, which must lie below the base URL of one of the tenant's vendors.
    fn from(url: &str) -> Request {
        Request::at_url(Method::GET, url)
    }
}

impl Request {
    pub(crate) fn at_url(method: Method, text: &str) -> Request {
        let has_no_path = |url: &Url| url.path() == "/" && text.parse::<Uri>().is_ok_and(|uri| uri.path() == "/");
        match Url::parse(text) {
            // Parsing resolves dots and drops line ends. A URL that parsing changes is refused, not repaired.
            Ok(url) if url.as_str() == text || has_no_path(&url) => Request::with_target(method, Target::Url(url)),
            _ => {
                let nowhere = Target::Path { vendor: "".into(), path: String::new() };
                Request::with_target(method, nowhere)
                    .with_problem("the URL must be whole, with scheme and host, and in its plain form")
            }
        }
    }
}
