//! What a simulation is given, and its result.

use std::time::Duration;

use super::SECOND;
use crate::config::SharingFloor;

/// Which processes have requests to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Demand {
    All,
    First,
    /// Process n, counted from 0, in one of n + 1 turns of ten seconds.
    Skewed,
    /// One process at a time, another one every ten windows, or six times in a run that is too short for that.
    Moving,
    /// All tiers in every second process, and the low tier alone in the others.
    Tiers,
    /// Each process and each tier for some seconds, then not for some seconds.
    Bursts,
}

/// The kind of store that keeps the ledgers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StoreKind {
    /// A server with a clock, which answers a whole call.
    Server,
    /// A server that counts time by the latest moment that any process claims, which is a mistake to be found.
    TrustsProcesses,
    /// A store that can compare and swap. Its servers date their answers by clocks that are up to 8 s apart. The clocks
    /// of the processes are up to 10 s apart, and up to 200 millionths too fast or too slow.
    Swaps,
    /// The same store, with processes that take their own clock for the store's, which is the mistake to be found.
    SwapsByOwnClock,
}

impl StoreKind {
    /// Whether a server with a clock answers whole calls. Otherwise the processes compute the answers.
    pub(super) fn is_server(self) -> bool {
        matches!(self, StoreKind::Server | StoreKind::TrustsProcesses)
    }
}

/// What a process does wrong, to show that the simulation finds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mistake {
    /// A process goes on using the units that it returns until the store has answered.
    ReturnsAfterTheCall,
    /// A process does not say which of the store's answers it knows, so a restored backup is not recognized.
    KnowsNoAnswer,
}

/// A limit as a process is configured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) limit: u32,
    pub(crate) window: Duration,
    pub(crate) safety: f64,
}

impl Figures {
    /// The table of vendors of a process.
    pub(super) fn vendors(&self) -> String {
        format!(
            "[vendors.v]\nbase_url = \"https://v.test\"\nconnect_timeout = \"1s\"\nmax_transit = \"1600ms\"\n\
             auth = {{ scheme = \"bearer\" }}\n[[vendors.v.limits]]\nname = \"requests\"\nlimit = {}\nwindow = \"{}ms\"\n\
             safety = {:?}\nalgorithm = \"sliding_window\"\n",
            self.limit,
            self.window.as_millis(),
            self.safety,
        )
    }
}

/// A disturbance. A `usize` is the number of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Trouble {
    Kill(usize),
    /// The process stands still for this time.
    Stop(usize, Duration),
    Leave(usize),
    /// The process cannot reach the store for this time.
    Cut(usize, Duration),
    /// The process is configured anew.
    Configure(usize, Figures),
    /// The store answers no process for this time.
    Stall(Duration),
    /// The store loses all of its ledgers, and knows that it has.
    Lose,
    /// The store returns to its state of a second ago.
    Rewind,
    /// The store's clock steps by this many milliseconds.
    Step(i64),
    /// The store's clock gains this many millionths for this time.
    Slew(i64, Duration),
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// What the vendor allows. All processes begin with these figures.
    pub(crate) figures: Figures,
    pub(crate) processes: usize,
    pub(crate) store_kind: StoreKind,
    pub(crate) mistake: Option<Mistake>,
    /// Whether the invariants are asserted. Otherwise only the vendor judges.
    pub(crate) is_checked: bool,
    /// The time between two calls of a process.
    pub(crate) every: Duration,
    /// How long each of the five round trips of a call takes beyond a millisecond or two. A server reads its clock in the
    /// third.
    pub(crate) trip: Duration,
    /// Whether the processes share the limit. Otherwise each of them uses all of it.
    pub(crate) shares: bool,
    pub(crate) demand: Demand,
    pub(crate) troubles: Vec<(Duration, Trouble)>,
    /// The percentage of calls that are lost on the way to the store, that of answers lost on the way back, and that of
    /// calls that arrive twice.
    pub(crate) lost: u32,
    pub(crate) lease: Duration,
    /// The part of the limit with which processes go on when they cannot reach the store.
    pub(crate) floor: Option<SharingFloor>,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
}

impl Case {
    fn turn(&self) -> Duration {
        (10 * self.figures.window).min(self.time / 6)
    }

    /// Whether a process has requests of a tier to send at `after_ns` from the beginning.
    pub(super) fn has_demand(&self, after_ns: u64, process: usize, tier: usize) -> bool {
        const NORMAL: usize = 1;
        const LOW: usize = 2;
        match self.demand {
            Demand::All => tier == NORMAL,
            Demand::First => process == 0 && tier == NORMAL,
            Demand::Skewed => {
                tier == NORMAL && (after_ns / (10 * SECOND) + process as u64).is_multiple_of(process as u64 + 1)
            }
            Demand::Moving => {
                let lasts = self.turn().as_nanos().max(1);
                tier == NORMAL && process == (u128::from(after_ns) / lasts) as usize % self.processes
            }
            Demand::Tiers => process.is_multiple_of(2) || tier == LOW,
            Demand::Bursts => {
                let lasts = (1 + (process as u64 + self.seed) % 7) * SECOND;
                let burst = (after_ns / lasts) ^ self.seed ^ ((process as u64) << 32) ^ ((tier as u64) << 48);
                burst.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 62 == 0
            }
        }
    }
}

/// The result of a simulation.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Arrivals above the limit.
    pub(crate) refused: u32,
    pub(crate) by_process: Vec<u32>,
    pub(crate) by_tier: [u32; 3],
    pub(crate) calls: u32,
    /// Arrivals in each second.
    pub(crate) seconds: Vec<u32>,
    /// The units held under leases at the end, by the ledgers of a server.
    pub(crate) held: u32,
}

impl Outcome {
    pub(crate) fn arrived(&self) -> u32 {
        self.by_process.iter().sum()
    }

    pub(crate) fn jain(&self) -> f64 {
        let (sum, squares) = self.by_process.iter().fold((0.0, 0.0), |(sum, squares), n| {
            let n = f64::from(*n);
            (sum + n, squares + n * n)
        });
        sum * sum / (self.by_process.len() as f64 * squares).max(1.0)
    }
}
