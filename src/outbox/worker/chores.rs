//! The worker's periodic chores; each run is a task of its own.

use std::time::Duration;

use super::full_looks::{APART, LOOK};
use super::{CHORES, CLAIM_BYTES, Chore, Done, Worker};
use crate::clock::Time;
use crate::error::Error;
use crate::outbox::OutboxState;
use crate::outbox::queues;
use crate::store::batches;
use crate::store::jobs::{self, Found, Most, Named};
use crate::store::owners::{self, Beat};
use crate::store::purge::{self, Retention};
use crate::store::{Id, LaneTier, millis_of};

/// Expired jobs that one run of the chore takes.
const EXPIRED: usize = 500;
/// How far a look overlaps the previous one: a row may be committed some time after its due time was set.
const OVERLAP_MS: i64 = 2_000;
/// Lanes and tiers in one page of a look at all of them.
const PAGE: i64 = 2_048;

/// The store's time up to which looks have seen due jobs, after a look at the time `at`. If the store's clock went
/// forward and back, `seen` is in the future, and looks from `seen` on would find no job until the clock catches up.
fn seen_until(seen: i64, chore: Chore, at: i64) -> i64 {
    // Only `Look` moves the time back: `LookAtAll` states the time of its first page. 0 means that no look was made.
    let is_before = chore == Chore::Look && at > 0 && at < seen.saturating_sub(OVERLAP_MS);
    if is_before { at } else { seen.max(at) }
}

/// Looks at all lanes page by page, so that the worker learns of the first ones at once, however many there are.
/// Returns the lanes of the last page, and the time of the first page.
async fn look_at_all(outbox: &OutboxState) -> Result<Found, Error> {
    let (mut after, mut began) = (None, None);
    loop {
        let page = outbox.store.read((after, PAGE), jobs::all_due).await?;
        let at = *began.get_or_insert(page.at);
        after = page.more;
        if after.is_none() {
            return Ok(Found { lanes: page.lanes, at, is_cut: false });
        }
        outbox.lanes_have_jobs(page.lanes);
    }
}

impl Worker {
    /// The jobs of this client that may be claimed; `None` if the worker sends all jobs of the store.
    fn own_jobs(&self) -> Option<Vec<Id>> {
        let own = self.outbox.own.as_ref()?;
        let mut jobs: Vec<(Id, LaneTier)> = own.lock().iter().map(|(id, lane)| (*id, lane.clone())).collect();
        let core = self.core.upgrade();
        jobs.retain(|(id, lane)| {
            let route = core.as_ref().and_then(|core| core.registry.route(&lane.tenant, &lane.vendor).ok());
            // The lane's earlier usage must be read before its jobs are claimed.
            !self.in_hand.contains(id) && route.is_none_or(|tenant| self.outbox.is_recalled(&tenant))
        });
        Some(jobs.into_iter().map(|(id, _)| id).take(self.pool.free().jobs.min(EXPIRED)).collect())
    }

    /// Asks for a look at all lanes.
    pub(super) fn ask_for_full_look(&mut self, at: Time) {
        self.full_looks.ask(at, &mut self.chores[Chore::LookAtAll as usize]);
    }

    /// Handles a look, or its failure.
    pub(super) fn looked(&mut self, chore: Chore, began: Time, result: Result<Found, Error>) {
        let now = self.outbox.clock.now();
        let every = match chore {
            Chore::LookAtAll => self.full_looks.end(began, now, result.is_ok()),
            _ => LOOK.max(now.since(began).saturating_mul(APART)),
        };
        self.over(chore, every);
        if let Ok(Found { lanes, at, is_cut }) = result {
            lanes.into_iter().for_each(|(lane, from)| self.lanes.due(lane, from));
            self.seen = seen_until(self.seen, chore, at);
            if is_cut {
                // The next look begins at `at`, so that the jobs that this one left out are found by a full look only.
                self.ask_for_full_look(self.full_looks.soonest());
            }
        }
        if chore == Chore::LookAtAll {
            self.lanes.forget();
            self.blocked.forget(now);
        }
    }

    /// Starts the chores that are due. Returns when the next one is due.
    pub(super) fn begin_chores(&mut self, now: Time, stopping: bool) -> Time {
        let mut next = now + Duration::from_secs(1);
        for chore in CHORES {
            let (at, runs) = self.chores[chore as usize];
            let wanted = match chore {
                Chore::Beat => true,
                // No other process works on the file of a SQLite store.
                Chore::FindOwners => !stopping && !self.outbox.store.is_alone,
                Chore::Recover => !stopping && self.recovers,
                Chore::Tell => !stopping && self.outbox.tell_every.is_some(),
                // Other processes send the other jobs.
                Chore::Look | Chore::LookAtAll if self.outbox.own.is_some() => false,
                // Nearly always there are none, and then nothing is written.
                Chore::FindExpired => !stopping && self.outbox.own.is_none(),
                // The release of unknown claims would take the jobs of this claim for unknown ones.
                Chore::Expire => !stopping && !self.unclaiming && (self.passed.is_some() || self.outbox.own.is_some()),
                _ => !stopping,
            };
            if runs || !wanted {
                continue;
            }
            if at > now {
                next = next.min(at);
                continue;
            }
            self.chores[chore as usize].1 = true;
            let (outbox, seen) = (self.outbox.clone(), self.seen.saturating_sub(OVERLAP_MS));
            let lease_ms = millis_of(outbox.store.limits.lease);
            let owner = outbox.store.owner;
            let beat = if chore == Chore::Beat { self.leases.next_beat() } else { 0 };
            let free = self.pool.free();
            let most = |count: usize, most: usize| i64::try_from(count.min(most)).unwrap_or(i64::MAX);
            let most = Most {
                owner,
                lease_ms,
                jobs: most(free.jobs, EXPIRED),
                bytes: most(free.bytes, CLAIM_BYTES),
                from: self.passed.unwrap_or(i64::MIN),
            };
            let own = if chore == Chore::Expire { self.own_jobs() } else { None };
            let own_bytes = free.bytes.min(CLAIM_BYTES);
            let said = match chore {
                Chore::Tell => self.core.upgrade().map(|core| queues::status_as_json(&core, self.lanes.all())),
                _ => None,
            };
            self.tasks.spawn(async move {
                let store = &outbox.store;
                match chore {
                    Chore::Tell => Done::Chore(chore, now, store.write((owner, said), batches::tell).await),
                    // Before the first full look there is no time to start from.
                    Chore::Look if seen <= 0 => Done::Looked(chore, now, Ok(Found::default())),
                    Chore::Look => Done::Looked(chore, now, store.read(seen, jobs::due).await),
                    Chore::LookAtAll => Done::Looked(chore, now, look_at_all(&outbox).await),
                    Chore::Beat => Done::Beaten(now, store.beat(Beat { owner, number: beat, lease_ms }).await),
                    Chore::FindOwners => Done::OwnersFound(now, store.read(owner, owners::unregistered).await),
                    Chore::Recover => Done::Chore(chore, now, store.write(owner, owners::recover).await),
                    Chore::FindExpired => Done::ExpiredFound(now, store.read((), jobs::passed_deadline).await),
                    Chore::Expire if most.jobs == 0 || most.bytes == 0 => Done::Expired(Ok(Vec::new())),
                    Chore::Expire => Done::Expired(match own {
                        None => store.write_once(most, jobs::expired).await,
                        Some(ids) if ids.is_empty() => Ok(Vec::new()),
                        Some(ids) => {
                            let named = Named { owner, lease_ms, ids, bytes: own_bytes };
                            let claimed = store.write_once(named, jobs::claim_named).await;
                            claimed.map(|(jobs, gone)| {
                                // They were cancelled, or another process has ended them.
                                gone.iter().for_each(|id| outbox.forget_own(id));
                                jobs
                            })
                        }
                    }),
                    Chore::Purge => {
                        let limits = &store.limits;
                        let keep = match outbox.own {
                            None => Retention {
                                done_ms: millis_of(limits.keep_done),
                                dead_ms: millis_of(limits.keep_dead),
                                most_dead: i64::try_from(limits.max_dead).unwrap_or(i64::MAX),
                            },
                            // How long results and letters are kept is for the processes to say that send all jobs.
                            Some(_) => Retention::UNLIMITED,
                        };
                        Done::Chore(chore, now, purge::run(store, keep).await)
                    }
                }
            });
        }
        next
    }
}

#[cfg(test)]
mod tests;
