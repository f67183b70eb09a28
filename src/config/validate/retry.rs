//! Validates `[vendors.NAME.retry]`.

use std::time::Duration;

use super::fields::{choice, duration, integer};
use crate::config::format::{RetryEntry, VendorEntry};
use crate::config::report::{Path, Report, at};
use crate::config::retry::{OnAmbiguous, RetryPolicy};

const MAX_RETRIES: i64 = 20;

/// The retry policy of `vendor`; problems go to `report`.
pub(super) fn retry(vendor: &VendorEntry, report: &mut Report) -> RetryPolicy {
    let mut policy = RetryPolicy::default();
    let Some(entry) = &vendor.retry else { return policy };
    let path = at(&[], "retry");
    let retries = integer(entry.max_retries, 0..=MAX_RETRIES, "max_retries", at(&path, "max_retries"), report);
    if let Some(retries) = retries.and_then(|retries| u32::try_from(retries).ok()) {
        policy.max_retries = retries;
    }
    waits(entry, &mut policy, &path, report);
    let action = entry.on_ambiguous.as_deref();
    let (names, parse, default) = (OnAmbiguous::NAMES, OnAmbiguous::parse, OnAmbiguous::default());
    policy.on_ambiguous = choice(action, "on_ambiguous", names, parse, default, &path, report);
    policy.unavailable_is_safe = entry.unavailable_is_safe.unwrap_or(policy.unavailable_is_safe);
    policy.unprocessed_is_safe = entry.unprocessed_is_safe.unwrap_or(policy.unprocessed_is_safe);
    let bytes = entry.max_replay_bytes;
    let bytes = integer(bytes, 0..=1 << 40, "max_replay_bytes", at(&path, "max_replay_bytes"), report);
    if let Some(bytes) = bytes {
        policy.max_replay_bytes = bytes.unsigned_abs();
    }
    policy
}

fn waits(entry: &RetryEntry, policy: &mut RetryPolicy, path: &Path, report: &mut Report) {
    let before = report.problems.len();
    let mut read = |text: &Option<String>, field: &str, value: &mut Duration| {
        if let Some(stated) = duration(text.as_deref(), at(path, field), report) {
            *value = stated;
        }
    };
    read(&entry.first_wait, "first_wait", &mut policy.first_wait);
    read(&entry.longest_wait, "longest_wait", &mut policy.longest_wait);
    let (mut default_wait, mut max_age) = (Duration::ZERO, Duration::ZERO);
    read(&entry.default_wait, "default_wait", &mut default_wait);
    policy.default_wait = entry.default_wait.is_some().then_some(default_wait);
    read(&entry.max_age, "max_age", &mut max_age);
    policy.max_age = entry.max_age.is_some().then_some(max_age);
    read(&entry.max_hold, "max_hold", &mut policy.max_hold);
    read(&entry.max_pause, "max_pause", &mut policy.max_pause);
    read(&entry.max_shared_pause, "max_shared_pause", &mut policy.max_shared_pause);
    if policy.first_wait > policy.longest_wait && report.problems.len() == before {
        // Points to the field that the file states: the other may be a default.
        let field = if entry.longest_wait.is_some() { "longest_wait" } else { "first_wait" };
        let message = format!(
            "first_wait {:?} is longer than longest_wait {:?}; state both, the first no longer than the longest",
            policy.first_wait, policy.longest_wait
        );
        report.problem(at(path, field), message);
    }
    if let Some(wait) = policy.default_wait.filter(|wait| *wait > policy.max_hold)
        && report.problems.len() == before
    {
        let message = format!(
            "default_wait {wait:?} is longer than max_hold {:?}, so that each refusal without a stated wait would be handed \
             back; shorten it, or raise max_hold",
            policy.max_hold
        );
        report.problem(at(path, "default_wait"), message);
    }
}
