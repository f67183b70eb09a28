//! Snapshots of the facts about all lanes. All viewers share a snapshot, so that the lanes are walked over once,
//! however many viewers there are.
//!
//! A snapshot is kept for a second or for fifty times as long as it took to make, whichever is longer: snapshots never
//! cost more than a fiftieth of one processor. The task yields after each of the 64 parts of a walk, so that a walk
//! over a hundred thousand lanes delays no request by more than one part.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

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
}

impl Snapshots {
    /// Returns the latest snapshot, or a new one if the latest is too old.
    pub(super) async fn get(&self, core: &Core) -> Arc<Snapshot> {
        let fresh = || self.last.lock().clone().filter(|last| core.clock.now() < last.until);
        if let Some(last) = fresh() {
            return last;
        }
        let _making = self.making.lock().await;
        if let Some(last) = fresh() {
            return last;
        }
        let began = core.clock.now();
        let (mut lanes, mut busy) = (Vec::with_capacity(core.registry.routes.len()), Duration::ZERO);
        for part in 0..parts(core) {
            let at = core.clock.now();
            survey_part(core, part, &mut lanes);
            busy += core.clock.now().since(at);
            tokio::task::yield_now().await;
        }
        let until = began + KEPT.max(busy * SHARE);
        let made = Arc::new(Snapshot { lanes, made: began, until, answers: Mutex::default() });
        *self.last.lock() = Some(made.clone());
        made
    }

    /// Drops the latest snapshot, so that the next call shows what a user has just changed.
    pub(super) fn forget(&self) {
        *self.last.lock() = None;
    }

    /// Frees a snapshot that was made more than a minute ago.
    pub(super) fn tidy(&self, now: Time) {
        self.last.lock().take_if(|last| now.since(last.made) > Duration::from_secs(60));
    }
}
