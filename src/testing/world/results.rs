//! The results of a simulation: grants, arrivals, refusals, the ends of jobs, and a hash.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::{Arrival, End, Granted, START, World};
use crate::engine::Until;

impl World {
    /// Every grant so far, in order.
    pub fn grants(&self) -> &[Granted] {
        &self.grants
    }

    /// Every request that reached the vendor so far, in order.
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// The number of requests that the vendor has refused.
    pub fn refused(&self) -> usize {
        self.arrivals.iter().filter(|arrival| !arrival.admitted).count()
    }

    /// The number of grants before the time that their callers were promised. Zero unless units were given back or a
    /// limit was raised meanwhile.
    pub fn early(&self) -> usize {
        self.early
    }

    /// The time that a job was promised when it began to wait, if only time was missing.
    pub fn promised(&self, job: usize) -> Option<Duration> {
        match self.jobs[job].promised {
            Some(Until::At(at)) => Some(at.since(START)),
            _ => None,
        }
    }

    /// How each job ended; `None` for one that has not ended.
    pub fn ends(&self) -> impl ExactSizeIterator<Item = Option<End>> {
        self.jobs.iter().map(|job| job.end)
    }

    /// The decisions of the engine so far: whether a request may go (submissions, polls, claims) and how one ended.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// The number of waiting requests, and of permits that have not ended.
    pub fn load(&self) -> (u32, usize) {
        (self.engine.waiting(), self.engine.in_flight())
    }

    /// A hash of all grants and arrivals: equal for equal seeds.
    pub fn trace(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.grants.hash(&mut hasher);
        for arrival in &self.arrivals {
            (arrival.event.at_ns, arrival.tenant, arrival.admitted).hash(&mut hasher);
        }
        hasher.finish()
    }
}
