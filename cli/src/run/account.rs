//! The summary at the end of `run`: which lines were not delivered, grouped by reason.

use std::collections::{BTreeMap, BTreeSet};

use integration_client::IntegrationClient;
use integration_client::dead_letter::Reason;
use integration_client::outbox::Numbers;

use crate::connect::Named;
use crate::notes;

/// Line numbers that are shown for each reason.
const NAMED: usize = 5;

/// Reports how many dead letters there are, why, and which commands show them or send them again.
pub(super) async fn say(client: &IntegrationClient, numbers: Numbers, dead: u64, named: &Named) {
    let Ok(letters) = client.outbox().dead_letters() else { return };
    let mut reasons: BTreeMap<String, (u64, Vec<u64>)> = BTreeMap::new();
    let mut again: BTreeSet<String> = BTreeSet::new();
    // Only the first thousand are grouped: a user with more dead letters must look at them anyway.
    for kept in letters.list(None, 1_000).await.unwrap_or_default() {
        let Some(line) = numbers.of(&kept.letter.id) else { continue };
        let status = kept.letter.attempts.last().and_then(|last| last.status);
        let reason = match status {
            Some(status) => format!("{} ({status})", kept.letter.reason),
            None => kept.letter.reason.to_string(),
        };
        // The vendor would reject the same request again, unless it refused the credential, which can be corrected.
        if kept.letter.reason != Reason::Rejected || matches!(status, Some(401 | 403)) {
            again.insert(kept.letter.reason.to_string());
        }
        let (count, lines) = reasons.entry(reason).or_default();
        *count += 1;
        if lines.len() < NAMED {
            lines.push(line);
        }
    }
    let store = named.shown();
    let letters = match dead {
        1 => "1 dead letter".to_owned(),
        _ => format!("{dead} dead letters"),
    };
    notes::say(&format!("run: {letters}"));
    for (reason, (count, lines)) in reasons {
        let mut lines: Vec<String> = lines.iter().map(u64::to_string).collect();
        if count > NAMED as u64 {
            lines.push("…".to_owned());
        }
        notes::say(&format!("  {count} {reason}: line {}", lines.join(", ")));
    }
    notes::say(&format!("  see them:   integration-client dead-letters list --store {store}"));
    for reason in &again {
        let first = match reason.as_str() {
            "ambiguous" => " (ask the vendor first: it may have acted, and may have forgotten the keys)",
            _ => "",
        };
        let command = format!("integration-client dead-letters redrive --all --reason {reason} --store {store}");
        notes::say(&format!("  once more:  {command}{first}"));
    }
    if !again.is_empty() {
        notes::say("              and the same run again");
    }
}
