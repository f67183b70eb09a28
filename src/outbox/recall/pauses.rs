//! Puts back the pauses that vendors asked earlier processes for.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::super::pauses::{Looked, Pauses, account_of, holders_of, stated};
use crate::clock::Time;
use crate::core::Core;
use crate::engine::Waits;
use crate::route::Route;
use crate::send;
use crate::signals::{MAX_WAIT, Scope};
use crate::store::pauses::{Holder, Stored};

/// The holders of the limits of these lanes, each once, in order.
pub(super) fn wanted(routes: &[Arc<Route>]) -> Vec<Holder> {
    let mut holders: Vec<Holder> = routes.iter().flat_map(|route| holders_of(route)).collect();
    holders.sort_unstable();
    holders.dedup();
    holders
}

/// Restores the pauses of a lane, of its account and of its vendor among those that were `read` at `now` of the holders
/// `wanted`, but for those that an operator has ended. Returns whether it could. If not, they are to be read again: the
/// tenant is gone, or has come or moved since, or a reload has not come to its lane yet.
pub(super) fn restore(
    core: &Core,
    pauses: &Mutex<Pauses>,
    route: &Arc<Route>,
    (wanted, read): &(Vec<Holder>, Vec<Stored>),
    now: Time,
) -> bool {
    let holders = holders_of(route);
    for (who, holder) in [Waits::Lane, Waits::Account, Waits::Vendor].into_iter().zip(&holders) {
        let Ok(number) = wanted.binary_search(holder) else { return false };
        for stored in read.iter().filter(|stored| stored.holder == number) {
            let left = Duration::from_millis(u64::try_from(stored.left_ms).unwrap_or(0));
            let (until, paused) = (now + left, &stored.paused);
            // Another lane has restored the pause that they share. A lane's own may be gone with the lane.
            if who != Waits::Lane && pauses.lock().is_known(holder, paused, until) {
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
            let mut is_current = true;
            let put_back = || match scope {
                Some(scope) => {
                    core.registry.dispatch.restore_group(route, scope, pause.until);
                    Some(Vec::new())
                }
                None => place.shard.decide(|engine, now| {
                    is_current = engine.counts_in(place.lane, account_of(&holders));
                    // The configuration may no longer have the limit.
                    if is_current { engine.restore_pause(now, place.lane, &pause) } else { None }
                }),
            };
            let looked = Looked::new(route, place.clone());
            // An operator who resumes the holder meanwhile waits for the lock, and then ends the pause.
            let told = pauses.lock().restore(looked, (holder, paused, until), now, put_back);
            if !is_current {
                return false;
            }
            let Some(notices) = told else { continue };
            let series = core.telemetry.metrics.series(&route.id, &route.vendor.name);
            notices.into_iter().for_each(|noticed| send::tell(core, route, &series, None, noticed));
        }
    }
    true
}

#[cfg(all(test, feature = "testing"))]
mod tests;
