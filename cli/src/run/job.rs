//! Parses a line of a file of jobs.

use std::time::SystemTime;

use integration_client::outbox::Line;
use integration_client::{Priority, Request};

/// A job that was read from a line.
pub(super) struct Job {
    pub(super) tenant: String,
    pub(super) vendor: String,
    pub(super) priority: Priority,
    pub(super) request: Request,
}

/// Parses the line `number`. An error says what is wrong with the line.
pub(super) fn parse(number: u64, text: &[u8], now: SystemTime) -> Result<Job, String> {
    let Line { tenant, priority, request, .. } = Line::parse(text, now).map_err(|error| error.to_string())?;
    let request = request.metadata("line", number.to_string());
    Ok(Job { tenant, vendor: request.vendor().unwrap_or_default().to_owned(), priority, request })
}
