//! Measures how headers, other users and other clients of the same key affect a client, and states the bounds that the
//! figures must keep.

use std::fmt;
use std::time::Duration;

use super::{Case, Counting, LimitScope, Other, Reset, SharedKey, StatedHeaders, Travel, Usage};
use crate::Error;

/// The users of the key, and what the vendor announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Scene {
    /// One client alone, with headers on every answer. The share is in percent of its share without headers.
    Alone,
    /// Another user takes half of the limit for a while, and headers show it. The share is in percent of the rest.
    Beside,
    /// Two clients, with headers. The share is that of both together, in percent of `safety` times the limit.
    Two,
    /// As `Beside`, but the vendor announces only how long to wait, in refusals.
    BesideRetryAfter,
    /// As `Beside`, but the vendor announces nothing.
    BesideSilent,
}

/// The first window in which another user takes half, the first in which this user no longer does, and the number of
/// windows of the whole run.
const TAKEN: (u64, u64, u64) = (5, 25, 32);
/// As [`TAKEN`], for scenes that take longer to settle.
const TAKEN_LONG: (u64, u64, u64) = (5, 65, 75);
/// Windows that a client has to find out about a change.
const FINDS_OUT: u64 = 3;
/// Windows that two clients have to find out about each other, and that one client has without headers.
const SETTLES: [u64; 2] = [5, 10];

impl Scene {
    /// All of them.
    pub const ALL: [Scene; 5] = [Scene::Alone, Scene::Beside, Scene::Two, Scene::BesideRetryAfter, Scene::BesideSilent];

    /// The name in a line of output.
    pub fn name(self) -> &'static str {
        match self {
            Scene::Alone => "alone",
            Scene::Beside => "beside",
            Scene::Two => "two",
            Scene::BesideRetryAfter => "retry_after",
            Scene::BesideSilent => "silent",
        }
    }

    fn stated_headers(self) -> &'static [StatedHeaders] {
        const HEADERS: [StatedHeaders; 3] = [
            StatedHeaders::Windows(Reset::Exact),
            StatedHeaders::Windows(Reset::RoundedUp),
            StatedHeaders::Windows(Reset::Truncated),
        ];
        match self {
            Scene::Alone | Scene::Beside | Scene::Two => &HEADERS,
            Scene::BesideRetryAfter => &[StatedHeaders::RetryAfter],
            Scene::BesideSilent => &[StatedHeaders::Nothing],
        }
    }
}

/// One line of the results: all latencies, all forms of headers, and some phases of the vendor's windows.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The users of the key.
    pub scene: Scene,
    /// How the vendor counts.
    pub counting: Counting,
    /// Whose limit it is.
    pub scope: LimitScope,
    /// The limit's window, in seconds. The limit is 100 in one second, and 1,000 in any other window.
    pub window_s: u64,
    /// The client's `throttle`.
    pub throttle: &'static str,
    /// The number of phases of the vendor's windows.
    pub phases: u64,
}

/// One run of a [`Cell`].
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Run {
    /// The latency.
    pub travel: Travel,
    /// The share of the limit that clients use.
    pub safety: f64,
    /// The number of the phase of the vendor's windows.
    pub phase: u64,
    /// What the vendor announces.
    pub stated: StatedHeaders,
    /// The result.
    pub figures: Figures,
}

/// The worst figures of all runs of a [`Cell`].
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Figures {
    /// The smallest used share, in percent.
    pub least: f64,
    /// The mean used share, in percent.
    pub mean: f64,
    /// The most refusals: in a whole run of one client alone; for one change of the other user's rate; otherwise in a
    /// minute.
    pub refused: f64,
    /// The smaller client's part of what two clients used, in percent; 50 for one client.
    pub split: f64,
}

impl Figures {
    /// The worst of all runs, figure by figure.
    pub fn of(runs: &[Run]) -> Figures {
        let best = Figures { least: f64::INFINITY, mean: 0.0, refused: 0.0, split: 50.0 };
        runs.iter().map(|run| run.figures).fold(best, |worst, run| Figures {
            least: worst.least.min(run.least),
            mean: worst.mean + run.mean / runs.len() as f64,
            refused: worst.refused.max(run.refused),
            split: worst.split.min(run.split),
        })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { least, mean, refused, split } = self;
        write!(f, "least={least:.1} mean={mean:.1} refused={refused:.1} split={split:.1}")
    }
}

impl Cell {
    /// The algorithms in the results. The others differ only in what the client knows, which makes no difference here.
    pub const COUNTINGS: [Counting; 9] = [
        Counting::FixedWindow,
        Counting::SlidingWindow,
        Counting::SlidingCounter,
        Counting::TokenBucket,
        Counting::LeakyBucket,
        Counting::LumpedRefill,
        Counting::UnknownCounter,
        Counting::UnknownWindow,
        Counting::UnknownBucket,
    ];
    const TRAVELS: [Travel; 3] = [Travel::Instant, Travel::EachWay, Travel::Bimodal];
    const SAFETIES: [f64; 2] = [0.8, 1.0];

    /// The figures that the line must reach; `None` for a line that is only reported.
    pub fn bound(&self) -> Option<Figures> {
        let bound = |least: f64, refused: f64, split: f64| Some(Figures { least, mean: least, refused, split });
        match self.scene {
            Scene::Alone => bound(97.0, 0.0, 50.0),
            Scene::Beside => bound(95.0, 1.0, 50.0),
            Scene::Two => bound(90.0, 2.0, 40.0),
            Scene::BesideRetryAfter | Scene::BesideSilent => None,
        }
    }

    /// Whether the figures comply with the bound.
    pub fn holds(&self, figures: &Figures) -> bool {
        self.bound().is_none_or(|bound| {
            figures.least >= bound.least && figures.refused <= bound.refused && figures.split >= bound.split
        })
    }

    /// Runs the cell with all latencies, shares of the limit, forms of headers and phases.
    ///
    /// # Errors
    /// The figures are not a valid configuration.
    pub fn runs(&self) -> Result<Vec<Run>, Error> {
        self.runs_with(&Self::TRAVELS)
    }

    /// As [`runs`](Self::runs), with these latencies.
    ///
    /// # Errors
    /// As `runs`.
    pub fn runs_with(&self, travels: &[Travel]) -> Result<Vec<Run>, Error> {
        let mut runs = Vec::new();
        for travel in travels.iter().copied() {
            for safety in Self::SAFETIES {
                for phase in 0..self.phases {
                    let alone = self.baseline(travel, safety, phase)?;
                    for stated in self.scene.stated_headers().iter().copied() {
                        let figures = self.run_once(travel, safety, phase, stated, alone)?;
                        runs.push(Run { travel, safety, phase, stated, figures });
                    }
                }
            }
        }
        Ok(runs)
    }

    fn key(&self, travel: Travel, safety: f64, stated: StatedHeaders) -> SharedKey {
        let limit = if self.window_s == 1 { 100 } else { 1_000 };
        let window = Duration::from_secs(self.window_s);
        let case = Case::new(self.counting, limit, window, safety, travel).throttle(self.throttle).scope(self.scope);
        SharedKey { case, stated, clients: 1, other: None, change: None }
    }

    /// The admitted requests per window of one client alone that gets no announcements.
    fn baseline(&self, travel: Travel, safety: f64, phase: u64) -> Result<f64, Error> {
        if self.scene != Scene::Alone {
            return Ok(0.0);
        }
        let usage = self.key(travel, safety, StatedHeaders::Nothing).run(TAKEN.2, phase)?;
        Ok(per_window(&usage[0].admitted, 2..TAKEN.2))
    }

    fn run_once(
        &self,
        travel: Travel,
        safety: f64,
        phase: u64,
        stated: StatedHeaders,
        alone: f64,
    ) -> Result<Figures, Error> {
        let mut key = self.key(travel, safety, stated);
        let limit = f64::from(key.case.limit);
        let window_ns = self.window_s as f64 * 1e9;
        // A request in flight may arrive in either of two windows.
        let possible = window_ns / (window_ns + travel.mean_round_trip_ns() as f64);
        let minutes = |windows: u64| windows as f64 * self.window_s as f64 / 60.0;
        let one = |share: f64, refused: f64| Figures { least: share, mean: share, refused, split: 50.0 };
        let sum = |usage: &Usage, windows: std::ops::Range<u64>| -> u64 {
            usage.refused[windows.start as usize..windows.end as usize].iter().sum()
        };
        Ok(match self.scene {
            Scene::Alone => {
                let usage = key.run(TAKEN.2, phase)?;
                let share = per_window(&usage[0].admitted, 2..TAKEN.2);
                one(100.0 * share / alone, sum(&usage[0], 0..TAKEN.2) as f64)
            }
            Scene::Beside => {
                let (from, until, end) = TAKEN;
                key.other = Some(Other { share: 0.5, from, until });
                let usage = key.run(end, phase)?;
                let share = per_window(&usage[0].admitted, from + FINDS_OUT..until);
                let refused = sum(&usage[0], from..until).max(sum(&usage[0], until..end));
                one(100.0 * share / (0.5 * limit * possible), refused as f64)
            }
            Scene::Two => {
                key.clients = 2;
                let (settles, end) = (SETTLES[0], TAKEN_LONG.2);
                let usage = key.run(end, phase)?;
                let shares = [0, 1].map(|client: usize| per_window(&usage[client].admitted, settles..end));
                let refused = usage.iter().map(|usage| sum(usage, settles..end)).sum::<u64>() as f64;
                let all = shares[0] + shares[1];
                let split = 100.0 * shares[0].min(shares[1]) / all.max(1.0);
                let used = 100.0 * all / (safety * limit * possible);
                Figures { split, ..one(used, refused / minutes(end - settles)) }
            }
            Scene::BesideRetryAfter | Scene::BesideSilent => {
                let (from, until, end) = TAKEN_LONG;
                key.other = Some(Other { share: 0.5, from, until });
                let usage = key.run(end, phase)?;
                let share = per_window(&usage[0].admitted, from + FINDS_OUT..until);
                let refused = sum(&usage[0], from + SETTLES[1]..until) as f64;
                one(100.0 * share / (0.5 * limit * possible), refused / minutes(until - from - SETTLES[1]))
            }
        })
    }
}

fn per_window(counts: &[u64], windows: std::ops::Range<u64>) -> f64 {
    let among = &counts[windows.start as usize..windows.end as usize];
    among.iter().sum::<u64>() as f64 / among.len().max(1) as f64
}
