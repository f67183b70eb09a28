//! Puts back the pauses that vendors asked earlier processes for.

use std::sync::Arc;
use std::time::Duration;

use super::super::OutboxState;
use super::super::pauses::{Looked, holders_of, place_of, stated};
use crate::clock::Time;
use crate::core::Core;
use crate::engine::Waits;
use crate::route::Route;
use crate::send;
use crate::signals::{MAX_WAIT, Scope};
use crate::store::pauses::{Holder, Stored};

/// The holders of the limits of these lanes, each once.
pub(super) fn wanted(routes: &[Arc<Route>]) -> Vec<Holder> {
    let mut holders: Vec<Holder> = routes.iter().flat_map(|route| holders_of(route)).collect();
    holders.sort_unstable();
    holders.dedup();
    holders
}

/// Restores the pauses of a lane, of its account and of its vendor among those that were `read` at `now` of the holders
/// `wanted`, but for those that an operator has ended. Returns whether it could: if the tenant is gone, it cannot.
pub(super) fn restore(
    core: &Core,
    outbox: &OutboxState,
    route: &Arc<Route>,
    (wanted, read): (&[Holder], &[Stored]),
    now: Time,
) -> bool {
    if read.is_empty() {
        return true;
    }
    let holders = holders_of(route);
    for who in [Waits::Lane, Waits::Account, Waits::Vendor] {
        let holder = &holders[place_of(who)];
        for stored in read.iter().filter(|stored| wanted.get(stored.holder) == Some(holder)) {
            let left = Duration::from_millis(u64::try_from(stored.left_ms).unwrap_or(0));
            let (until, paused) = (now + left, &stored.paused);
            // Another lane has restored the pause that they share. A lane's own may be gone with the lane.
            if who != Waits::Lane && outbox.pauses.is_known(holder, paused, until) {
                continue;
            }
            let resumed = outbox.pauses.resumed();
            if resumed.contains(holder) {
                let Ok(place) = core.registry.place(route) else { return false };
                // The next comparison finds a row without a pause, and ends it.
                outbox.pauses.is_restored((holder, paused, until), Some(Looked::new(route, place.clone())), now);
                outbox.pauses.changed(route, place);
                continue;
            }
            // A store whose clock was wrong must stop nobody for longer than a vendor can. The row is then shortened, because
            // the pause ends earlier than the row says.
            let pause = stated(who, paused, until.min(now + MAX_WAIT));
            let Ok(place) = core.registry.place(route) else { return false };
            let scope = match (&pause.limit, who) {
                (None, Waits::Account) => Some(Scope::Account),
                (None, Waits::Vendor) => Some(Scope::Vendor),
                _ => None,
            };
            if let Some(scope) = scope {
                core.registry.dispatch.restore_group(route, scope, pause.until);
                outbox.pauses.is_restored((holder, paused, until), Some(Looked::new(route, place)), now);
                continue;
            }
            let told = place.shard.decide(|engine, now| engine.restore_pause(now, place.lane, &pause));
            // The configuration may no longer have the limit.
            let Some(notices) = told else { continue };
            outbox.pauses.is_restored((holder, paused, until), Some(Looked::new(route, place)), now);
            drop(resumed);
            let series = core.telemetry.metrics.series(&route.id, &route.vendor.name);
            notices.into_iter().for_each(|noticed| send::tell(core, route, &series, None, noticed));
        }
    }
    true
}
