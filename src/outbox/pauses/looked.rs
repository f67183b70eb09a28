//! A lane of which pauses are written, and what the engine says of it, in the words of the store's rows.

use std::sync::Arc;

use crate::clock::Time;
use crate::config::Tenant;
use crate::core::Core;
use crate::dispatch::LaneRef;
use crate::engine::{Group, Only, StatedPause, Waits};
use crate::store::pauses::{Holder, Paused};

/// All requests, in a row.
const ALL: &str = "*";

/// A tenant and its vendor.
pub(super) type Lane = (Arc<str>, Arc<str>);
/// A pause: whose it is, and what is paused.
pub(super) type Key = (Holder, Paused);

/// A lane to look at.
#[derive(Clone)]
pub(in crate::outbox) struct Looked {
    pub(super) lane: Lane,
    /// Those whose limits it counts in: itself, its account and its vendor.
    pub(super) holders: Arc<[Holder; 3]>,
    pub(super) place: LaneRef,
}

/// What the engine says of a lane.
pub(super) enum Seen {
    /// The pauses that stand, each with its end.
    Pauses(Vec<(Key, Time)>),
    /// A reload has not come to the lane yet: its pauses are those of its earlier account.
    Earlier,
    /// There is no such lane.
    Gone,
}

impl Looked {
    pub(in crate::outbox) fn new(tenant: &Tenant, place: LaneRef) -> Looked {
        let lane = (tenant.id.clone(), tenant.vendor.name.clone());
        Looked { lane, holders: Arc::new(holders_of(tenant)), place }
    }

    /// The lane as it is now: it may have moved, and its tenant may have changed. One that was evicted is made anew, without
    /// pauses of its own. Without the tenant or the client it is where it was, if it is still there.
    pub(super) fn at_present(&self, core: Option<&Core>) -> Looked {
        let found = core.and_then(|core| {
            let route = core.registry.routes.find(&self.lane.0, &self.lane.1)?;
            let place = core.registry.place(&route).ok()?;
            Some(Looked::new(&route, place))
        });
        found.unwrap_or_else(|| self.clone())
    }

    /// What the engine says of the lane.
    pub(super) fn see(&self) -> Seen {
        let found = self.place.shard.look(|engine, now| {
            let pauses = engine.stated_pauses(now, self.place.lane)?;
            Some((pauses, engine.counts_in(self.place.lane, account_of(&self.holders))))
        });
        let key = |pause: &StatedPause| (self.holders[place_of(pause.who)].clone(), paused(pause));
        match found {
            None => Seen::Gone,
            Some((_, false)) => Seen::Earlier,
            Some((pauses, true)) => Seen::Pauses(pauses.iter().map(|pause| (key(pause), pause.until)).collect()),
        }
    }
}

/// The lane's tenant, its account and its vendor, in this order.
pub(in crate::outbox) fn holders_of(tenant: &Tenant) -> [Holder; 3] {
    let vendor = &tenant.vendor;
    let holder = |scope, name: &str| Holder {
        vendor: (*vendor.name).to_owned(),
        environment: (*vendor.environment).to_owned(),
        scope,
        name: name.to_owned(),
    };
    [holder("tenant", &tenant.id), holder("account", &tenant.account), holder("vendor", "")]
}

/// The index of who waits in what [`holders_of`] returns.
fn place_of(who: Waits) -> usize {
    match who {
        Waits::Lane => 0,
        Waits::Account => 1,
        Waits::Vendor => 2,
    }
}

/// The account among what [`holders_of`] returns.
pub(in crate::outbox) fn account_of(holders: &[Holder; 3]) -> Group<'_> {
    let account = &holders[place_of(Waits::Account)];
    Group { vendor: &account.vendor, environment: &account.environment, account: Some(&account.name) }
}

fn in_row(only: &Only) -> String {
    only.as_deref().unwrap_or(ALL).to_owned()
}

fn from_row(text: &str) -> Only {
    (text != ALL).then(|| text.into())
}

/// A pause as the store keeps it.
fn paused(pause: &StatedPause) -> Paused {
    let endpoint = in_row(&pause.endpoint);
    match &pause.limit {
        Some((name, of)) => Paused { limit: (**name).to_owned(), limit_of: in_row(of), endpoint },
        None => Paused { limit: String::new(), limit_of: ALL.to_owned(), endpoint },
    }
}

/// A stored pause as the engine knows it.
pub(in crate::outbox) fn stated(who: Waits, paused: &Paused, until: Time) -> StatedPause {
    let limit = (!paused.limit.is_empty()).then(|| (paused.limit.as_str().into(), from_row(&paused.limit_of)));
    StatedPause { who, limit, endpoint: from_row(&paused.endpoint), until }
}

#[cfg(test)]
mod tests;
