//! Upper bounds for the number of requests that a client could have sent.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;

use super::case::Case;
use crate::testing::limit::Limiter;

/// The number of requests that a vendor admits until `end` from a client without latency that sends each request as
/// soon as it fits.
pub(super) fn greedy(mut limiter: Limiter, end: u64) -> u64 {
    let (mut sent, mut at) = (0, 0);
    while let Some(next) = limiter.fits_at(at, 1).filter(|next| *next <= end) {
        at = next;
        limiter.count(at, 1);
        sent += 1;
    }
    sent
}

/// What a client with latency could reach, in percent of [`greedy`]. The client knows the vendor's state and phase, but
/// not how long the next request will travel, so a request in flight may arrive at any moment.
pub(super) fn oracle(case: &Case, seed: u64, requests: u64) -> f64 {
    let mut limiter = case.limiter(seed);
    let mut random = Rng::with_seed(seed);
    let mut under_way: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let (mut now, mut arrived, mut last) = (0, 0, 0);
    while arrived < requests {
        let wanted = under_way.len() as u32 + 1;
        let ready = limiter.fits_at(now, wanted);
        let lands = under_way.peek().map(|Reverse(at)| *at);
        match (ready, lands) {
            (Some(ready), lands) if lands.is_none_or(|lands| ready <= lands) => {
                now = now.max(ready);
                under_way.push(Reverse(now + case.travel.there(&mut random, now)));
            }
            (_, Some(lands)) => {
                under_way.pop();
                now = now.max(lands);
                limiter.count(now, 1);
                (arrived, last) = (arrived + 1, now);
            }
            (_, None) => return 0.0,
        }
    }
    100.0 * arrived as f64 / greedy(case.limiter(seed), last).max(1) as f64
}
