//! Where requests come from that other programs hand over: message brokers, and a table.

mod feed;
mod fingerprint;
mod line;
mod room;
mod source;
mod table;

pub(in crate::outbox) use self::fingerprint::fingerprint;
pub use self::line::Line;
pub use self::source::{Intake, IntakeSource, MessageRef};
