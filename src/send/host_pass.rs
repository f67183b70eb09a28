//! Waits for a host that has failed lately, and takes a pass of its circuit breaker before the connect.

use super::Outgoing;
use super::attempt_end::NotSent;
use crate::core::{Core, HostPass, HostWait};

impl Outgoing {
    /// Takes a pass of the breaker for the request's host, if one is available at once. The exchange must begin within
    /// a second. Returns whether there is a pass.
    pub(super) fn pass_host(&mut self, core: &Core) -> bool {
        let host = self.route.peer();
        self.host_pass = HostPass::take(&core.egress.hosts, &host, core.clock.now()).map(Box::new);
        if self.host_pass.as_ref().is_some_and(|pass| pass.begins_recovery()) {
            self.breaker(core, false);
        }
        self.host_pass.is_some()
    }

    /// Waits until the request's host may be connected to. A stored job gives up in time to leave its exchange the
    /// whole `attempt_timeout`.
    pub(super) async fn wait_for_host(&self, core: &Core) -> Result<(), NotSent> {
        let host = &*self.route.peer();
        let mut now = core.clock.now();
        if core.egress.hosts.ready_at(host, now) <= now {
            return Ok(());
        }
        let give_up = if self.stored.is_some() { self.give_up } else { self.deadline };
        let waiting = HostWait::new(&core.egress.hosts, host);
        loop {
            let (ready_at, is_known, changed) = waiting.look(now);
            if ready_at <= now {
                return Ok(());
            }
            if self.immediate || now >= give_up || (is_known && ready_at > give_up) {
                return Err(NotSent::HostShut { next: is_known.then(|| ready_at.since(now)) });
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(core.clock.instant(ready_at.min(give_up))) => {}
            }
            now = core.clock.now();
        }
    }
}
