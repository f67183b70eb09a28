//! The pause that the vendor asked one process for, and that the other processes keep to.

use super::call::Line;
use super::ledger::Ledger;

impl Ledger {
    /// Records how long the vendor wants `process` to wait. A process can shorten only the pause that it has reported
    /// itself: the pause of another ends when that process reports so, by its time, or because an operator ends it when
    /// that process is gone.
    pub(super) fn pause(&mut self, now: u64, process: u64, line: &Line) {
        self.end_pause(now, process, line);
        let until = now.saturating_add(line.paused_us);
        if self.paused.is_none_or(|(by, before)| by == process || before < until) {
            self.paused = (line.paused_us > 0).then_some((process, until));
        }
    }

    /// Ends the pause if an operator of the caller wants it. The pause of another process that still calls goes on: the
    /// vendor may have told that process to wait because of another tenant.
    pub(super) fn end_pause(&mut self, now: u64, process: u64, line: &Line) {
        if !line.ends_pause {
            return;
        }
        let calls = |by: u64| self.holders.get(&by).is_some_and(|holder| !holder.has_ended && holder.is_heard(now));
        self.paused = self.paused.filter(|(by, _)| *by != process && calls(*by));
    }

    /// How long `process` has to wait because of a pause that another process has reported.
    pub(super) fn paused_for(&self, process: u64) -> u64 {
        let others = self.paused.filter(|(by, _)| *by != process);
        others.map_or(0, |(_, until)| until.saturating_sub(self.clock.now()))
    }
}
