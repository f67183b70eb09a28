//! The summary at the end of `run`: which lines were not delivered, grouped by reason.

use std::collections::{BTreeMap, BTreeSet};

use integration_client::IntegrationClient;
use integration_client::dead_letter::Reason;
use integration_client::outbox::Numbers;

use super::keys::{Lane, credential, redrive};
use crate::notes;

/// Line numbers that are shown for each reason.
const NAMED: usize = 5;

/// Letters that are grouped: a user with more dead letters must look at them anyway.
const GROUPED: usize = 1_000;

/// Reports how many dead letters there are, why, and which commands show them or send them again. `options` select the
/// run's letters in these commands. A command for a refused key that the run's last message `last` holds is left out.
pub(super) async fn say(client: &IntegrationClient, numbers: Numbers, dead: u64, options: &str, last: &str) {
    let Ok(letters) = client.outbox().dead_letters() else { return };
    let mut reasons: BTreeMap<String, (u64, Vec<u64>)> = BTreeMap::new();
    let mut again: BTreeSet<String> = BTreeSet::new();
    let mut refused: BTreeSet<(u16, Lane)> = BTreeSet::new();
    let mut is_redirected = false;
    let kept = letters.list(None, GROUPED).await.unwrap_or_default();
    let are_all = kept.len() < GROUPED;
    for kept in kept {
        let Some(line) = numbers.of(&kept.letter.id) else { continue };
        let status = kept.letter.attempts.last().and_then(|last| last.status);
        let reason = match status {
            Some(status) => format!("{} ({status})", kept.letter.reason),
            None => kept.letter.reason.to_string(),
        };
        // The vendor would reject the same request again, unless it refused the credential, which can be corrected.
        if let (Reason::Rejected, Some(status)) = (kept.letter.reason, status) {
            let lane = (kept.letter.tenant.clone(), kept.letter.vendor.clone());
            is_redirected |= (300..400).contains(&status);
            if matches!(status, 401 | 403) && !last.contains(&redrive("rejected", Some((status, &lane)), options)) {
                refused.insert((status, lane));
            }
        } else if kept.letter.reason != Reason::Rejected {
            again.insert(kept.letter.reason.to_string());
        }
        let (count, lines) = reasons.entry(reason).or_default();
        *count += 1;
        if lines.len() < NAMED {
            lines.push(line);
        }
    }
    let letters = match dead {
        1 => "1 dead letter".to_owned(),
        _ => format!("{dead} dead letters"),
    };
    let first = if are_all { "" } else { "; of the first 1,000 in the store:" };
    notes::say(&format!("run: {letters}{first}"));
    for (reason, (count, lines)) in reasons {
        let mut lines: Vec<String> = lines.iter().map(u64::to_string).collect();
        if count > NAMED as u64 {
            lines.push("…".to_owned());
        }
        notes::say(&format!("  {count} {reason}: line {}", lines.join(", ")));
    }
    notes::say(&format!("  see them:   integration-client dead-letters list{options}"));
    if is_redirected {
        notes::say(
            "  redirects are not followed: look whether the vendor acted, and correct its base_url or the paths",
        );
    }
    for reason in &again {
        let first = match reason.as_str() {
            "ambiguous" => " (ask the vendor first: it may have acted, and may have forgotten the keys)",
            _ => "",
        };
        notes::say(&format!("  once more:  {}{first}", redrive(reason, None, options)));
    }
    for (status, lane) in refused.iter().take(NAMED) {
        let key = credential(client, &lane.0, &lane.1);
        notes::say(&format!(
            "  once more:  correct {key}, then: {}",
            redrive("rejected", Some((*status, lane)), options)
        ));
    }
    if let Some(more) = refused.len().checked_sub(NAMED).filter(|more| *more > 0) {
        notes::say(&format!("              and in the same way for {more} more tenants"));
    }
    if !again.is_empty() || !refused.is_empty() {
        notes::say("              and the same run again");
    }
}
