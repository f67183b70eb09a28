//! Tools for tests (feature `testing`).
//!
//! - [`FakeVendor`]: an HTTP server on loopback that enforces limits and keeps a log, for real time and sockets.
//! - [`ScriptedVendor`] and [`limit`]: vendors' limits and failures as pure functions, for simulated time.
//! - [`saturation`]: the share of a limit that a lane uses if it always has more to send, and the number of refusals.
//! - [`walk`]: every limit of the shipped catalogue, enforced and announced by a simulated vendor as the entry says,
//!   with a client that uses it.
//! - [`checker`]: judges a log of arrivals by a limit's definition, independently of the above.
//! - [`fuzz`]: properties that must hold for any bytes from outside.
//! - [`FakeTransport`]: a script in place of a network, for [`VirtualClock`].

pub mod checker;
pub mod fuzz;
pub mod limit;
pub mod saturation;
mod scripted;
mod transport;
mod vendor;
mod virtual_clock;
pub mod walk;
mod world;

pub use scripted::{Call, ForeignCall, Notice, Outage, Refusal, ScriptedVendor, Stated, VendorLimit, Verdict};
pub use transport::{FakeAnswer, FakeCall, FakeOutcome, FakeTransport};
pub use vendor::{Arrival, Delay, FakeVendor, FakeVendorBuilder, Fault, HeaderStyle, Reply, Summary, When};
pub use virtual_clock::VirtualClock;
pub use world::{Arrival as WorldArrival, End, Granted, Job, Network, World};

/// A credential resolver for tests that takes the reference itself as the secret: the secret of `literal:s3cr3t` is
/// `s3cr3t`.
///
/// ```
/// use integration_client::config::TenantEntry;
/// use integration_client::{IntegrationClient, testing};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let client = IntegrationClient::builder()
///     .credential_resolver("literal", testing::literal)
///     .tenant(TenantEntry::new("acme", "github").credential("literal:s3cr3t"))
///     .build()
///     .await?;
/// # drop(client); Ok::<(), integration_client::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// None; its type is that of a [`CredentialResolver`](crate::transport::CredentialResolver).
pub async fn literal(key: String) -> Result<crate::transport::SecretString, crate::BoxError> {
    Ok(key.into())
}

/// Steps the wall clock that clients of this process read by `by_ms` milliseconds: forwards, or backwards if negative.
/// The monotonic clock, which all waits use, does not change.
pub fn step_wall_clock(by_ms: i64) {
    crate::clock::step_wall(by_ms);
}

/// The [dialects](crate::signals::Dialect) in the tables `[vendors.NAME.dialect]` of `toml`, by vendor. For tests of
/// what a dialect reads from a response; the vendors need no other configuration.
///
/// # Errors
/// [`ErrorKind::Config`](crate::ErrorKind::Config), as [`Config::load`](crate::config::Config::load).
pub fn dialects(
    toml: &str,
) -> Result<std::collections::BTreeMap<String, std::sync::Arc<crate::signals::Dialect>>, crate::Error> {
    crate::config::dialects("dialects.toml", toml)
}
