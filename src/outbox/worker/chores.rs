//! The worker's periodic chores; each run is a task of its own.

use std::time::Duration;

use super::{CHORES, CLAIM_BYTES, Chore, Done, Worker};
use crate::clock::Time;
use crate::error::Error;
use crate::outbox::OutboxState;
use crate::outbox::queues;
use crate::store::batches;
use crate::store::jobs::{self, Most};
use crate::store::owners::{self, Beat};
use crate::store::purge::{self, Retention};
use crate::store::{LaneTier, millis_of};

/// Expired jobs that one run of the chore takes.
const EXPIRED: usize = 500;
/// How far a look overlaps the previous one: a row may be committed some time after its due time was set.
const OVERLAP_MS: i64 = 2_000;
/// Lanes and tiers in one page of a look at all of them.
const PAGE: i64 = 2_048;

/// Looks at all lanes page by page, so that the worker learns of the first ones at once, however many there are.
/// Returns the lanes of the last page, and the time of the first page.
async fn look_at_all(outbox: &OutboxState) -> Result<(Vec<LaneTier>, i64), Error> {
    let (mut after, mut began) = (None, None);
    loop {
        let page = outbox.store.read((after, PAGE), jobs::all_due).await?;
        let at = *began.get_or_insert(page.at);
        after = page.more;
        if after.is_none() {
            return Ok((page.lanes, at));
        }
        outbox.lanes_have_jobs(page.lanes);
    }
}

impl Worker {
    /// Starts the chores that are due. Returns when the next one is due.
    pub(super) fn begin_chores(&mut self, now: Time, stopping: bool) -> Time {
        let mut next = now + Duration::from_secs(1);
        for chore in CHORES {
            let (at, runs) = self.chores[chore as usize];
            let wanted = match chore {
                Chore::Beat => true,
                Chore::Recover => !stopping && self.recovers,
                Chore::Tell => !stopping && self.outbox.tell_every.is_some(),
                // The release of unknown claims would take the jobs of this claim for unknown ones.
                Chore::Expire => !stopping && !self.unclaiming,
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
            let most = Most { owner, lease_ms, jobs: most(free.jobs, EXPIRED), bytes: most(free.bytes, CLAIM_BYTES) };
            let said = match chore {
                Chore::Tell => self.core.upgrade().map(|core| queues::status_as_json(&core, self.lanes.all())),
                _ => None,
            };
            self.tasks.spawn(async move {
                let store = &outbox.store;
                match chore {
                    Chore::Tell => Done::Chore(chore, store.write((owner, said), batches::tell).await),
                    // Before the first full look there is no time to start from.
                    Chore::Look if seen <= 0 => Done::Looked(chore, now, Ok((Vec::new(), 0))),
                    Chore::Look => Done::Looked(chore, now, store.read(seen, jobs::due).await),
                    Chore::LookAtAll => Done::Looked(chore, now, look_at_all(&outbox).await),
                    Chore::Beat => Done::Beaten(now, store.beat(Beat { owner, number: beat, lease_ms }).await),
                    Chore::Recover => Done::Chore(chore, store.write(owner, owners::recover).await),
                    Chore::Expire if most.jobs == 0 || most.bytes == 0 => Done::Expired(Ok(Vec::new())),
                    Chore::Expire => Done::Expired(store.write_once(most, jobs::expired).await),
                    Chore::Purge => {
                        let limits = &store.limits;
                        let keep = Retention {
                            done_ms: millis_of(limits.keep_done),
                            dead_ms: millis_of(limits.keep_dead),
                            most_dead: i64::try_from(limits.max_dead).unwrap_or(i64::MAX),
                        };
                        Done::Chore(chore, purge::run(store, keep).await)
                    }
                }
            });
        }
        next
    }
}
