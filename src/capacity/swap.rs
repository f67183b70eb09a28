//! Decides what to write to a store that compares and swaps: it writes a value only if the value is still the one that was read. Pure;
//! `redis.rs` reads and writes.
//!
//! Such a store may lose its values, or return to earlier ones, without an error: after it was emptied, after a restart from a snapshot, or
//! after a replica was promoted. So all ledgers carry the name of an *era*, which is kept beside them under a key of its
//! own. A new era begins when that key is missing, or names another run of the server. Ledgers of another era do not count.

use serde::{Deserialize, Serialize};

use super::call::{Call, Root};
use super::ledger::Got;

/// For how long a server may have answered after another took its place, in microseconds: what `min-replicas-max-lag` and a
/// failover take where both are set as the guide says.
const SPLIT_US: u64 = 3_000_000;
/// A ledger is kept for so much longer than it matters, in milliseconds: the server deletes by its own clock, which may step.
const KEEP_MS: u64 = 3_600_000;

/// The time since the store lost, or may have lost, what it kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Era {
    name: String,
    /// The run of the server in which it began.
    run: String,
    root: Root,
}

/// What was read at one moment. A text that is empty is not there.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Names the run of the server: another after each start, and on each server.
    pub(super) run: String,
    pub(super) clock_us: u64,
    pub(super) era: String,
    /// The ledgers of the lines that were asked for.
    pub(super) kept: Vec<String>,
}

/// What is to be written, if all that was read is still there.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) era: String,
    /// For each ledger that was read.
    pub(super) writes: Vec<Write>,
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) text: String,
    pub(super) keep_ms: u64,
    /// What the call is told if this is written.
    pub(super) got: Option<Got>,
}

/// Answers the lines `asked` of a call by what was read of them. `fresh` names a new era, should one begin.
pub(super) fn round(call: &Call, asked: &[usize], seen: &Seen, fresh: u64) -> Round {
    let (era, text) = era(call, seen, fresh);
    let writes = asked.iter().zip(&seen.kept).filter_map(|(line, kept)| {
        let entry = call.lines.get(*line)?;
        let kept = kept.strip_prefix(era.name.as_str()).and_then(|rest| rest.strip_prefix(' ')).unwrap_or_default();
        let answered = call.answer(entry, kept, &era.root, seen.clock_us);
        let keep_ms = (answered.matters_for_us / 1_000).saturating_add(KEEP_MS);
        Some(Write { text: format!("{} {}", era.name, answered.text), keep_ms, got: answered.got })
    });
    Round { writes: writes.collect(), era: text }
}

/// The era in force and its text.
fn era(call: &Call, seen: &Seen, fresh: u64) -> (Era, String) {
    if let Ok(era) = serde_json::from_str::<Era>(&seen.era)
        && era.run == seen.run
    {
        return (era, seen.era.clone());
    }
    let root = Root::new(true, seen.clock_us, call.lease_us).later(SPLIT_US);
    tracing::warn!(
        learning_for = ?std::time::Duration::from_micros(root.learning_until_us.saturating_sub(seen.clock_us)),
        "the store of shared limits is empty or another one than before: who holds what is learnt before anything is given"
    );
    let era = Era { name: format!("{fresh:x}"), run: seen.run.clone(), root };
    let text = serde_json::to_string(&era).unwrap_or_default();
    (era, text)
}
