//! The client as a tower service, and as a layer around another service, for SDKs that accept one.
//!
//! | | [`LaneService`] | [`Paced`], by [`LaneLayer`] |
//! |---|---|---|
//! | sender | the client | the inner service |
//! | credential, signatures | the tenant's, by the vendor's entry | those of the inner service: the request is not changed |
//! | retries, dead letters | the client's | none; the SDK's own stay |
//! | limits, priorities, turns | yes | yes |
//! | limits stated in responses | read, in bodies too if the entry says so | read from status and headers |
//! | for | octocrab, async-openai, reqwest-middleware | signed requests (AWS), client certificates (kube), gRPC (tonic) |
//!
//! Both services are always ready: `poll_ready` cannot take a permit, because cost and priority of the request are
//! unknown there, and a service that buffers calls would keep such a permit while it sends nothing. Instead the number
//! of waiting requests is bounded: see [`ErrorKind::QueueFull`](crate::ErrorKind::QueueFull).

mod answering;
#[cfg(feature = "reqwest-middleware")]
mod middleware;
mod paced;
mod service;

pub use answering::{AnsweredBody, AnsweringService};
#[cfg(feature = "reqwest-middleware")]
pub use middleware::{LaneMiddleware, PacingMiddleware};
pub use paced::{LaneLayer, Paced, PacedBody};
pub use service::LaneService;
