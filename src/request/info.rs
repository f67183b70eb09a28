//! The conversion of a [`Response`] to an `http::Response`, which other crates accept.

use std::time::Duration;

use super::response::{Headroom, Response, ResponseBody};

/// Waits and attempts before a response. Found in the extensions of the `http::Response` that a [`Response`] is
/// converted to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ResponseInfo {
    /// The same as [`Response::waited`].
    pub waited: Duration,
    /// The same as [`Response::attempts`].
    pub attempts: u32,
    /// The same as [`Response::request_id`].
    pub request_id: u64,
    /// The same as [`Response::headroom`].
    pub headroom: Option<Headroom>,
}

impl From<Response> for http::Response<ResponseBody> {
    /// Status, version, headers and body are kept; [`ResponseInfo`] is in the extensions.
    fn from(mut response: Response) -> http::Response<ResponseBody> {
        let info = ResponseInfo {
            waited: response.waited(),
            attempts: response.attempts(),
            request_id: response.request_id(),
            headroom: response.headroom(),
        };
        let (status, version) = (response.status(), response.version());
        let headers = response.take_headers();
        let mut converted = http::Response::new(response.into_body());
        *converted.status_mut() = status;
        *converted.version_mut() = version;
        *converted.headers_mut() = headers;
        converted.extensions_mut().insert(info);
        converted
    }
}
