//! Calls the HTTP APIs of vendors for many tenants at once, and keeps to the vendors' rate limits.
//!
//! ```no_run
//! use integration_client::config::TenantEntry;
//! use integration_client::{IntegrationClient, Priority, Request};
//!
//! # async fn run() -> Result<(), integration_client::Error> {
//! let client = IntegrationClient::builder()
//!     .tenant(TenantEntry::new("acme", "github").credential("env:ACME_GITHUB_TOKEN"))
//!     .build()
//!     .await?;
//! let response = client.send("acme", Priority::High, Request::get("github", "/user")).await?;
//! println!("{} after {:?}", response.status(), response.waited());
//! # Ok(()) }
//! ```
//!
//! # The life of a request
//! 1. [`IntegrationClient::send`] finds the tenant at the vendor in the [configuration](config), joins the path to the
//!    base URL, and finds the endpoint by name or path.
//! 2. The tenant's lane is asked for a permit. It is granted at once if no request waits for any of the request's
//!    limits and all of them have room; otherwise the request waits for its turn: high, normal and low
//!    [priority](Priority) share 60 / 30 / 10, and tenants that share a limit take turns.
//! 3. The caller's own future performs the exchange through a [`Transport`](transport::Transport): exactly one request
//!    per permit.
//! 4. One window after the vendor's response the request no longer counts in the rate limits. Once the [`Response`] is
//!    read or dropped, the request's slot of the concurrency limits is free. Response headers about limits may slow the
//!    lane down.
//! 5. A refusal pauses the lane, and the request is sent again after the pause. A failed request is sent again if a
//!    repetition is safe. A request that is given up becomes a [dead letter](dead_letter).
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `tls` | HTTPS, on by default; without it (`default-features = false`) only plain HTTP can be called |
//! | `sqlite` | [`store`]: the outbox and dead letters in one SQLite file |
//! | `postgres` | the same in PostgreSQL, for several processes |
//! | `oauth` | access tokens by OAuth 2.0: refresh tokens, client credentials, JWTs |
//! | `remote-config` | vendors and tenants from a URL, Azure App Configuration, Consul or etcd |
//! | `redis` | limits that processes share through Redis or Valkey |
//! | `etcd`, `object-store`, `zookeeper` | the same for windows of a minute and more, through etcd, S3 or Azure Blob Storage, ZooKeeper |
//! | `metrics` | [`metrics`]: counts, waits, queue depths and headroom through the facade of the crate `metrics` |
//! | `tower` | [`tower`]: the client as a tower service, and as a layer around a service of yours |
//! | `reqwest-api` | converts a `reqwest::Request` to a [`Request`], and builds a transport from a `reqwest::ClientBuilder` of yours; ties your program to reqwest 0.13 |
//! | `reqwest-middleware` | the service and the layer of [`tower`] as middleware of the crate `reqwest-middleware` |
//! | `gateway` | [`gateway`]: a local HTTP server through which programs in any language send requests |
//! | `console` | [`console`]: a console for operators in the browser |
//! | `testing` | [`testing`]: vendors that enforce limits on loopback or in virtual time, an offline checker, a scripted transport, a simulator |
#![forbid(unsafe_code)]
// Lets docs.rs show at each item which feature the item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod capacity;
mod client;
pub mod clock;
pub mod config;
mod core;
pub mod dead_letter;
mod dispatch;
mod error;
#[cfg(any(feature = "tower", feature = "gateway"))]
#[cfg_attr(not(feature = "tower"), allow(dead_code, unused_imports, reason = "the gateway uses a part of it"))]
mod ingress;
pub mod outbox;
mod request;
mod retry;
mod route;
mod send;
pub mod signals;
pub mod store;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transport;

use integration_client_engine as engine;

pub use self::core::OnRemove;
#[doc(inline)]
pub use self::core::status::types as status;
pub use self::core::status::types::DeadLetterCounts;
pub use capacity::status::{SharedLimit, SharingMode, SharingStatus};
pub use client::{ActiveTenants, IntegrationClient, IntegrationClientBuilder, Lane, LiveConfig, Permit, Tenants};
pub use config::priority::Priority;
pub use error::{BoxError, Delivery, Error, ErrorKind, LastResponse, Result};
pub use futures_core::future::BoxFuture;
#[cfg(any(feature = "tower", feature = "gateway"))]
pub use ingress::SendOptions;
#[cfg(feature = "console")]
#[doc(inline)]
pub use ingress::console;
#[cfg(feature = "gateway")]
#[doc(inline)]
pub use ingress::gateway;
#[cfg(feature = "tower")]
#[doc(inline)]
pub use ingress::tower;
pub use request::{Body, Headroom, Method, Request, WaitReason};
pub use retry::{Class, Classifier};
pub use send::PermitFeedback;
pub use send::response::{Response, ResponseBody, ResponseInfo};
#[doc(inline)]
pub use telemetry::events;
#[cfg(feature = "metrics")]
#[doc(inline)]
pub use telemetry::metrics;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../docs/GUIDE.md")]
struct Guide;

#[cfg(all(doctest, feature = "tower"))]
#[doc = include_str!("../docs/SDKS.md")]
struct Sdks;
