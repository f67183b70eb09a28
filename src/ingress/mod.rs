//! Requests that come in as `http::Request`s: from SDKs through a service, or from other programs through the gateway.
//!
//! An SDK knows nothing of this client, and sets what it would set for a direct call: a credential of its own, `Host`,
//! `Content-Length`. [`accept`] makes of its request one of ours: the headers that are the client's or the connection's
//! are dropped, options are taken out of extensions and headers, and the body is kept in memory, where it may be, so that
//! it can be sent again.

mod headers;
mod options;
mod problem;
mod request;

pub use options::SendOptions;
pub(crate) use options::callers_timeout;
pub(crate) use problem::{Problem, last_response};
pub(crate) use request::accept;
#[cfg(feature = "gateway")]
pub(crate) use request::{Accepted, without_credential};
