//! A response as other crates know responses.

use std::time::Duration;

use super::response::{Headroom, Response, ResponseBody};

/// What it took to get a response: in the extensions of the `http::Response` that a [`Response`] becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ResponseInfo {
    /// As [`Response::waited`].
    pub waited: Duration,
    /// As [`Response::attempts`].
    pub attempts: u32,
    /// As [`Response::request_id`].
    pub request_id: u64,
    /// As [`Response::headroom`].
    pub headroom: Option<Headroom>,
}

impl From<Response> for http::Response<ResponseBody> {
    /// Status, version, headers and body; [`ResponseInfo`] is in the extensions.
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
