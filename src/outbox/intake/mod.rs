//! Where requests come from that other programs hand over: message brokers, and a table.

mod feed;
mod line;
mod room;
mod source;
mod table;

pub use self::line::Line;
pub use self::source::{Intake, IntakeSource, MessageRef};
