//! The facts of all lanes at one moment, for all who look: however many there are, lanes are walked over once.
//!
//! A snapshot is kept for a second, and for fifty times as long as it took to make: looking never costs more than a fiftieth
//! of one processor. Between two parts the task gives way, so that a walk over a hundred thousand lanes delays no request
//! by more than one part of 64.

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
/// Answers that are kept with a snapshot. All who look at the same page get the same bytes.
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
    /// The answer to a call, made once for all who make it.
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
    /// The latest snapshot, or a new one where it is too old.
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

    /// The next look is a new one: something was changed by those who look.
    pub(super) fn forget(&self) {
        *self.last.lock() = None;
    }

    /// Frees a snapshot that nobody has looked at for a while.
    pub(super) fn tidy(&self, now: Time) {
        self.last.lock().take_if(|last| now.since(last.made) > Duration::from_secs(60));
    }
}
