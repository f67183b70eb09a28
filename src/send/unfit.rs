//! For how long a stored job waits that does not fit the configuration: a reload may correct the configuration, and
//! another process may have another one. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::millis;
use crate::retry::{OUTAGE, later};

/// For how long the configuration may lack what a job needs, if no other process and no corrected configuration may have
/// it: as long as a tenant may be missing.
pub(crate) const MISSING: Duration = Duration::from_secs(600);
/// The shortest and the longest wait of a job that does not fit the configuration. It is a tenth of the waits before.
const SHORTEST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(900);

/// For how long a job has waited since it last fitted the configuration. Its waits are added up, so that neither a step of
/// a clock nor a time in which no process worked gives the job up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Unfit {
    pub(crate) waited_ms: u64,
    /// The latest part of these waits, in which nobody but this process's configuration could know what the job needs.
    pub(crate) alone_ms: u64,
}

impl Unfit {
    /// Adds the next wait, and returns it. `None` if the job is given up: after as many days as an outage may last, or
    /// after [`MISSING`] if its process `is_alone` with a configuration that nothing is wrong with.
    pub(super) fn wait(&mut self, is_alone: bool, rng: &mut fastrand::Rng) -> Option<Duration> {
        let waited = Duration::from_millis(self.waited_ms);
        if waited >= OUTAGE || (is_alone && Duration::from_millis(self.alone_ms) >= MISSING) {
            return None;
        }
        let wait = later((waited / 10).clamp(SHORTEST, LONGEST), rng);
        self.waited_ms = self.waited_ms.saturating_add(millis(wait));
        self.alone_ms = if is_alone { self.alone_ms.saturating_add(millis(wait)) } else { 0 };
        Some(wait)
    }
}

#[cfg(test)]
mod tests;
