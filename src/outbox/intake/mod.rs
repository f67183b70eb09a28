//! Accepts requests that other programs hand over: through message brokers, or a table.

pub(crate) mod deliveries;
mod feed;
mod fingerprint;
mod line;
mod parts;
mod report;
mod room;
mod source;
mod table;
mod write;

pub(in crate::outbox) use self::fingerprint::fingerprint;
pub use self::line::Line;
pub use self::source::{Intake, IntakeSource, MessageRef};
