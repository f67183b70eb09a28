//! The ways in beside the client's own methods: services and layers of tower (`tower/`), the gateway for programs in any
//! language (`gateway/`), and the console of operators (`console/`). The files beside them convert the `http::Request`s of
//! SDKs.
//!
//! An SDK does not know this client and sets what it would set for a direct call: a credential of its own, `Host`,
//! `Content-Length`. [`accept`] converts its request to a [`Request`](crate::Request) of this client: it drops the
//! headers that the client or the connection sets, takes options from extensions and headers, and keeps a body of
//! known, small size in memory so that a retry can send it again.

#[cfg(feature = "console")]
pub mod console;
#[cfg(feature = "gateway")]
pub mod gateway;
mod headers;
mod options;
mod problem;
mod request;
#[cfg(feature = "tower")]
pub mod tower;

pub use options::SendOptions;
pub(crate) use options::callers_timeout;
#[cfg(feature = "gateway")]
pub(crate) use problem::Record;
pub(crate) use problem::{Problem, last_response, set_delivery};
pub(crate) use request::accept;
#[cfg(feature = "gateway")]
pub(crate) use request::{Accepted, without_credential};
