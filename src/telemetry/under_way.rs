//! The list of attempts in flight, from which [`IntegrationClient::under_way`](crate::IntegrationClient::under_way)
//! reads.
//!
//! Each attempt is added when its exchange begins and removed when it has ended. The list has sixteen parts with a lock
//! each, so that two attempts rarely need the same lock.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::Priority;
use crate::clock::Time;
use crate::engine::plan::EndpointId;
use crate::route::Route;

const PARTS: usize = 16;
/// The most attempts that each part lists. Further attempts are sent too, and are missing from the list.
const MOST: usize = 4_096;

/// An attempt in the list.
pub(crate) struct Listed<'a> {
    all: &'a UnderWay,
    place: Option<ListSlot>,
}

impl<'a> Listed<'a> {
    /// Lists an attempt until the returned guard is dropped.
    pub(crate) fn new(all: &'a UnderWay, entry: Entry) -> Listed<'a> {
        Listed { all, place: all.begins(entry) }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.all.ends(place);
        }
    }
}

/// The listed facts about an attempt.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) request: u64,
    pub(crate) tenant: Arc<Route>,
    pub(crate) endpoint: EndpointId,
    pub(crate) priority: Priority,
    pub(crate) attempt: u32,
    pub(crate) since: Time,
}

/// All attempts in flight.
pub(crate) struct UnderWay {
    parts: [Mutex<Part>; PARTS],
}

#[derive(Default)]
struct Part {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
}

/// The position of an attempt in the list.
#[derive(Clone, Copy, Debug)]
struct ListSlot {
    part: u32,
    at: u32,
}

impl UnderWay {
    pub(crate) fn new() -> UnderWay {
        UnderWay { parts: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Adds an attempt. `None` if its part of the list is full.
    fn begins(&self, entry: Entry) -> Option<ListSlot> {
        let part = entry.request as usize % PARTS;
        let mut inside = self.parts[part].lock();
        let at = match inside.free.pop() {
            Some(at) => {
                inside.entries[at as usize] = Some(entry);
                at
            }
            None if inside.entries.len() < MOST => {
                inside.entries.push(Some(entry));
                inside.entries.len() as u32 - 1
            }
            None => return None,
        };
        Some(ListSlot { part: part as u32, at })
    }

    /// Removes an attempt.
    fn ends(&self, place: ListSlot) {
        let mut inside = self.parts[place.part as usize].lock();
        let entry = inside.entries[place.at as usize].take();
        inside.free.push(place.at);
        drop(inside);
        // Dropped after the lock is released: this may be the last reference to a tenant, and so to a version of the
        // configuration, whose memory is then freed.
        drop(entry);
    }

    /// At most `most` attempts, those that have been in flight longest first.
    pub(crate) fn oldest(&self, most: usize) -> Vec<Entry> {
        let mut found: Vec<Entry> = Vec::new();
        for part in &self.parts {
            found.extend(part.lock().entries.iter().flatten().cloned());
            found.sort_by_key(|entry| (entry.since, entry.request));
            found.truncate(most);
        }
        found
    }
}
