//! Snapshots of the facts about all lanes. All viewers share a snapshot, so that the lanes are walked over once,
//! however many viewers there are.
//!
//! A snapshot is kept for a second or for fifty times as long as it took to make, whichever is longer. A call in the
//! second half of that time asks the console's background task for the next snapshot, so that viewers who poll do not wait
//! for a walk that takes long. Viewers wait for the first walk, and for the walk after a change by a user. Without
//! changes, snapshots never cost more than a twenty-fifth of one processor. The task yields after each of the 64 parts of a
//! walk, so that a walk over a hundred thousand lanes delays no request by more than one part.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Time;
use crate::core::Core;
use crate::core::status::survey::{Surveyed, parts, survey_part};

const KEPT: Duration = Duration::from_secs(1);
const SHARE: u32 = 50;
/// The most answers that are kept with a snapshot. All viewers of a page get the same bytes.
const ANSWERS: usize = 64;

/// All lanes at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) lanes: Vec<Surveyed>,
    made: Time,
    renew_at: Time,
    until: Time,
    answers: Mutex<HashMap<String, Bytes>>,
}

impl Snapshot {
    /// Returns the answer to a call, which is made once for all viewers.
    pub(super) fn answer(&self, call: &str, make: impl FnOnce() -> Bytes) -> Bytes {
        if let Some(known) = self.answers.lock().get(call) {
            return known.clone();
        }
        let made = make();
        let mut answers = self.answers.lock();
        if answers.len() < ANSWERS {
            answers.insert(call.to_owned(), made.clone());
        }
        made
    }
}

#[derive(Debug, Default)]
pub(super) struct Snapshots {
    last: Mutex<Option<Arc<Snapshot>>>,
    making: tokio::sync::Mutex<()>,
    wanted: Notify,
    /// How often [`forget`](Snapshots::forget) was called.
    changes: AtomicU64,
}

impl Snapshots {
    /// Returns the latest snapshot, or a new one if the latest is too old.
    pub(super) async fn get(&self, core: &Core) -> Arc<Snapshot> {
        let now = core.clock.now();
        let last = self.last.lock().clone().filter(|last| now < last.until);
        match last {
            Some(last) => {
                if now >= last.renew_at {
                    self.wanted.notify_one();
                }
                last
            }
            None => self.make(core, |last| core.clock.now() < last.until).await,
        }
    }

    /// Waits until a call asks for the next snapshot.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Makes the next snapshot, unless it exists.
    pub(super) async fn renew(&self, core: &Core) {
        self.make(core, |last| core.clock.now() < last.renew_at).await;
    }

    /// Makes a snapshot, unless the latest is good enough. Only one walk takes place at a time.
    async fn make(&self, core: &Core, suffices: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let _making = self.making.lock().await;
        let last = self.last.lock().clone().filter(|last| suffices(last));
        if let Some(last) = last {
            return last;
        }
        let (made, changes) = (core.clock.now(), self.changes.load(Relaxed));
        let (mut lanes, mut busy) = (Vec::with_capacity(core.registry.routes.len()), Duration::ZERO);
        for part in 0..parts(core) {
            let at = core.clock.now();
            survey_part(core, part, &mut lanes);
            busy += core.clock.now().since(at);
            tokio::task::yield_now().await;
        }
        let mut last = self.last.lock();
        // A lane may have been read before a user changed it: such a snapshot is for the caller who made it alone.
        let is_valid = self.changes.load(Relaxed) == changes;
        let kept = if is_valid { KEPT.max(busy * SHARE) } else { Duration::ZERO };
        let (renew_at, until) = (made + kept / 2, made + kept);
        let made = Arc::new(Snapshot { lanes, made, renew_at, until, answers: Mutex::default() });
        *last = Some(made.clone());
        made
    }

    /// Drops the latest snapshot, so that the next call shows what a user has just changed.
    pub(super) fn forget(&self) {
        let mut last = self.last.lock();
        self.changes.fetch_add(1, Relaxed);
        *last = None;
    }

    /// Frees a snapshot that was made more than a minute ago.
    pub(super) fn tidy(&self, now: Time) {
        self.last.lock().take_if(|last| now.since(last.made) > Duration::from_secs(60));
    }
}
