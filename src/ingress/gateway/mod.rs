//! A local HTTP server through which programs in any language call vendors. An SDK gets the gateway's base URL in
//! place of the vendor's; its calls then keep to the limits, wait for their turn and are retried like those of
//! [`send`](crate::IntegrationClient::send).
//!
//! ```no_run
//! use integration_client::IntegrationClient;
//! use integration_client::gateway::{Gateway, Listen};
//!
//! # async fn run() -> Result<(), integration_client::Error> {
//! let client = IntegrationClient::builder().vendors_file("vendors.toml").build().await?;
//! let serving = Gateway::builder(client).build().serve(Listen::loopback()).await?;
//! // For an SDK in this process, or in one that it starts:
//! println!("base URL {}, API key {:?}", serving.base_url("acme", "stripe"), serving.token());
//! # Ok(()) }
//! ```
//!
//! # How tenant and vendor are named
//! | way | form | for |
//! |---|---|---|
//! | path | `/TENANT/VENDOR/…` | SDKs that take a base URL |
//! | the token's tenant | `/@/VENDOR/…` | callers of one tenant |
//! | forward proxy | a request in absolute form, `http://` in place of the vendor's `https://`; the user name of `Proxy-Authorization` is the tenant, its password the token | SDKs that sign their `Host` |
//! | lane listener | [`Listen::lane`] | SDKs that take host and port alone |
//!
//! # Who may call
//! The [`[[callers]]`](crate::config) of the configuration, each identified by its token. The token comes in
//! `Integration-Token`, in `Proxy-Authorization`, or in the place of the vendor's key, since every SDK insists on an
//! API key. No token reaches a vendor.
//!
//! # Requests that nobody waits for
//! With `Integration-Async: true` a request is stored by the client and sent later. The gateway responds 202 once the
//! request is on the disk, with the path of a receipt, `/~/receipts/ID`. GET on the receipt returns the request's
//! state and the vendor's response; DELETE cancels the request unless a process has already taken it. The caller needs
//! the right `async`, and should state an idempotency key, so that the gateway accepts a repeated request only once.
//! Without one, a repetition of a request that may have been accepted is refused, as below.
//!
//! # How long an answer may take
//! The [deadline](GatewayBuilder::deadline) bounds the time until a response's head arrives, and then the wait for
//! each piece of its body, so that a stream may last hours. A deadline that the caller states (`Integration-Deadline`)
//! is for the whole response.
//!
//! # What it speaks
//! HTTP/1.1 without TLS, on loopback or behind a mesh. The gateway's own errors are RFC 9457 problem documents with
//! `Proxy-Status` (RFC 9209). A request may act twice if its method is none of GET, HEAD, OPTIONS, PUT and DELETE and
//! it has no idempotency key that the vendor reads. If such a request fails and it is unknown whether the vendor acted,
//! the caller gets the vendor's response, if one ended the request, and otherwise 422, both with
//! `x-should-retry: false`. The gateway does not send the same request again for ten minutes, nor one whose caller left
//! before it could have all of the vendor's response.

mod aim;
pub(crate) mod answer;
pub(crate) mod callers;
mod control;
mod door;
pub(crate) mod entry;
mod framing;
pub(crate) mod guesses;
mod json_links;
mod links;
mod listen;
pub(crate) mod mounted;
mod path;
mod problem;
mod receipts;
mod repeats;
mod reply;
mod serve;
mod service;
mod shared;
#[cfg(unix)]
mod socket_file;
mod token_table;
mod wire;

pub use answer::GatewayBody;
pub use entry::{Gateway, GatewayBuilder};
pub use listen::Listen;
pub use serve::Serving;
