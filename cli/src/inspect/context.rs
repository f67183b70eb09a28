//! What applies to every response of one run of `inspect`.

use std::sync::Arc;
use std::time::SystemTime;

use integration_client::clock::Clock;
use integration_client::config::{Config, Vendor};

/// The options that apply to every response of one run.
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) vendor: Option<String>,
    pub(super) environment: String,
    pub(super) status: Option<u16>,
    pub(super) now: Option<SystemTime>,
    pub(super) clock: Clock,
}

impl Context {
    /// The time that `--now` states, or the present time.
    pub(super) fn now(&self) -> SystemTime {
        self.now.unwrap_or_else(|| self.clock.wall())
    }

    /// The entry of the vendor that a response names, or else that of `--vendor`. `None` without either: headers are then
    /// read by their shape.
    ///
    /// # Errors
    /// The configuration has no vendor of that name. Reading the headers by their shape would mislead a user who named one.
    pub(super) fn vendor(&self, named: Option<&str>) -> Result<Option<Arc<Vendor>>, String> {
        let Some(name) = named.or(self.vendor.as_deref()) else { return Ok(None) };
        let known = self.config.vendor(name, &self.environment);
        known.map(Some).map_err(|error| format!("{error} (without a vendor, headers are read by their shape)"))
    }
}

/// Parses a time: seconds since 1970, or a timestamp like `2026-01-15T10:00:00Z`.
pub(super) fn moment(text: &str) -> Result<SystemTime, String> {
    let timestamp: Result<jiff::Timestamp, _> = match text.parse::<i64>() {
        Ok(seconds) => jiff::Timestamp::from_second(seconds),
        Err(_) => text.parse(),
    };
    timestamp.map(SystemTime::from).map_err(|_| "write 2026-01-15T10:00:00Z, or seconds since 1970".to_owned())
}
