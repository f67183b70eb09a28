//! Decides what to write to a store that can compare and swap: a value is written only if the stored value is still the
//! one that was read. Pure; `redis.rs` reads and writes.
//!
//! Such a store may lose its values, or return to earlier ones, without an error: when it is emptied, restarted from a
//! snapshot, or when a replica is promoted. So all ledgers carry the name of an *era*, which is stored beside them
//! under its own key. A new era begins when that key is missing or names another run of the server. Ledgers of another
//! era count as lost.

use serde::{Deserialize, Serialize};

use super::call::{Call, Reading, Root};
use super::ledger::Got;

/// How long a server may have gone on answering after another took its place, in microseconds: the time that
/// `min-replicas-max-lag` and a failover take if both are set as the guide says.
const SPLIT_US: u64 = 3_000_000;
/// How much longer than it matters a ledger is kept, in milliseconds: the server deletes it by its own clock, which may
/// step.
const KEEP_MS: u64 = 3_600_000;

/// The time since the store last lost its ledgers, or may have lost them.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Era {
    name: String,
    /// The run of the server in which the era began.
    run: String,
    root: Root,
}

/// What was read at one moment. An empty text means that the key is missing.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Identifies the run of the server. It changes with each start, and differs between servers.
    pub(super) run: String,
    pub(super) clock_us: u64,
    /// The time from the making of the call to just before the read ([`Reading::waited_us`]).
    pub(super) waited_us: u64,
    pub(super) era: String,
    /// The ledgers of the lines that were asked for.
    pub(super) kept: Vec<String>,
}

/// What to write, provided that nothing of what was read has changed.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) era: String,
    /// One for each ledger that was read.
    pub(super) writes: Vec<Write>,
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) text: String,
    pub(super) keep_ms: u64,
    /// The answer to this line, valid if the write succeeds.
    pub(super) got: Option<Got>,
}

/// Answers the lines `asked` of a call from the ledgers in `seen`. `fresh` is the name of the new era, if one begins.
pub(super) fn round(call: &Call, asked: &[usize], seen: &Seen, fresh: u64) -> Round {
    let (era, text) = era(call, seen, fresh);
    let reading = Reading { clock_us: seen.clock_us, waited_us: seen.waited_us };
    let writes = asked.iter().zip(&seen.kept).filter_map(|(line, kept)| {
        let entry = call.lines.get(*line)?;
        let kept = kept.strip_prefix(era.name.as_str()).and_then(|rest| rest.strip_prefix(' ')).unwrap_or_default();
        let answered = call.answer(entry, kept, &era.root, reading);
        let keep_ms = (answered.matters_for_us / 1_000).saturating_add(KEEP_MS);
        Some(Write { text: format!("{} {}", era.name, answered.text), keep_ms, got: answered.got })
    });
    Round { writes: writes.collect(), era: text }
}

/// The era in force, and its text. A new era begins if the stored one is missing or of another run.
fn era(call: &Call, seen: &Seen, fresh: u64) -> (Era, String) {
    if let Ok(era) = serde_json::from_str::<Era>(&seen.era)
        && era.run == seen.run
    {
        return (era, seen.era.clone());
    }
    let root = Root::new(true, seen.clock_us, call.lease_us).later(SPLIT_US);
    tracing::warn!(
        learning_for = ?std::time::Duration::from_micros(root.learning_until_us.saturating_sub(seen.clock_us)),
        "the store of shared limits is empty or another one than before: who holds what is learnt before anything is \
         given, and what no process holds is withheld for a window more"
    );
    let era = Era { name: format!("{fresh:x}"), run: seen.run.clone(), root };
    let text = serde_json::to_string(&era).unwrap_or_default();
    (era, text)
}
