//! A local HTTP server through which programs in any language call: an SDK gets its base URL in place of the vendor's, and
//! its calls keep to the limits, wait their turn and are tried again as those of [`send`](crate::IntegrationClient::send).
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
//! The [`[[callers]]`](crate::config) of the configuration, each by its token: in `Integration-Token`, in
//! `Proxy-Authorization`, or where the vendor's key would stand, since every SDK insists on an API key. No token reaches a
//! vendor.
//!
//! # Requests that nobody waits for
//! With `Integration-Async: true` a request is left in the client's store: 202 once it is on the disk, with the path of a
//! receipt, `/~/receipts/ID`. GET says what has become of it, and has the vendor's answer; DELETE takes it back, where no
//! process has it yet. The caller needs the right `async`, and should state an idempotency key: then the same request is
//! accepted once.
//!
//! # How long an answer may take
//! The [deadline](GatewayBuilder::deadline) is for an answer's head, and then for each piece of its body: a stream may go
//! on for hours. A deadline that the caller states (`Integration-Deadline`) is for the whole answer.
//!
//! # What it speaks
//! HTTP/1.1 without TLS, on loopback or behind a mesh. Errors of its own are RFC 9457 problem documents with
//! `Proxy-Status` (RFC 9209). A POST or PATCH without an idempotency key of which nobody knows whether the vendor acted is
//! 422, and its repetition within ten minutes is not sent.

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
mod wire;

pub use answer::GatewayBody;
pub use entry::{Gateway, GatewayBuilder};
pub use listen::Listen;
pub use serve::Serving;
