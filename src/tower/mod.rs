//! The client as a service, and as a layer around another service, for SDKs that take one.
//!
//! | | [`LaneService`] | [`Paced`], by [`LaneLayer`] |
//! |---|---|---|
//! | who sends | the client | the service inside |
//! | credential, signatures | the tenant's, by the vendor's entry | those of the service inside: the request is not changed |
//! | retries, dead letters | the client's | none; the SDK's own stay |
//! | limits, priorities, turns | yes | yes |
//! | what answers say of limits | read, bodies too where the entry wants it | status and headers are read |
//! | for | octocrab, async-openai, reqwest-middleware | signed requests (AWS), client certificates (kube), gRPC (tonic) |
//!
//! Both are always ready: a permit that is taken in `poll_ready` would have an unknown cost and priority, and a buffer in
//! front would keep it while nothing is sent. The bound is on what waits:
//! [`ErrorKind::QueueFull`](crate::ErrorKind::QueueFull).

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
