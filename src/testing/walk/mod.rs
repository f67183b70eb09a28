//! The catalogue walk: for every limit of every vendor in `vendors.toml`, runs a simulated vendor that enforces exactly
//! what the entry says and announces it in the real vendor's format, and a client that always has more to send. It runs
//! on virtual time, without sockets.
//!
//! The client is complete: requests go through [`IntegrationClient::send`](crate::IntegrationClient::send), and answers
//! through all the code that reads them. Only the transport belongs to the walk. Each case has several tenants, two of
//! them in one account, all priorities and several endpoints. Each case has one refusal that the client's own count
//! does not explain (the accident) and, for three of its eight spans, another user of the first account's key, who
//! takes half of the account's slowest limit.
//!
//! | file | content |
//! |---|---|
//! | `case.rs` | which limits are walked, and how the vendor counts |
//! | `announcements.toml`, `announce.rs`, `moment.rs` | how each vendor announces its limits |
//! | `plan.rs` | the requests of a case, and the times of its events |
//! | `vendor.rs` | the simulated vendor, and the transport to it |
//! | `drive.rs` | the client |
//! | `ideal.rs` | what an omniscient client could have sent |
//! | `judge.rs` | the judgement of a case |

mod announce;
mod case;
mod drive;
mod entry;
mod ideal;
mod judge;
mod moment;
mod plan;
mod vendor;

pub use case::{Case, Depth, Stranger, cases};
pub use judge::Outcome;

use std::collections::BTreeSet;

/// The figures of many cases.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    vendors: BTreeSet<String>,
    limits: BTreeSet<String>,
    refused: usize,
    unthrottled: BTreeSet<String>,
    below_90: BTreeSet<String>,
    requests: usize,
}

/// The percentage of what is possible to which a limit should be used.
pub const WANTED_SHARE: f64 = 90.0;

impl Sum {
    /// Adds the outcome of a case. Returns the shortcomings as a text, if there are any.
    pub fn add(&mut self, case: &Case, outcome: &Outcome) -> Option<String> {
        let key = case.limit_key().unwrap_or_else(|| case.title());
        self.vendors.insert(case.vendor().to_owned());
        if case.limit_key().is_some() {
            self.limits.insert(key.clone());
        }
        self.refused += outcome.refused;
        self.requests += outcome.requests;
        let mut short = outcome.unthrottled.clone();
        if !short.is_empty() {
            self.unthrottled.insert(key.clone());
        }
        if outcome.refused > 0 {
            short.insert(0, format!("refused: {} beyond what may be, of {}", outcome.refused, outcome.requests));
        }
        if let Some(share) = outcome.share.filter(|share| *share < WANTED_SHARE) {
            self.below_90.insert(key);
            let by_span: Vec<String> = outcome.by_span.iter().map(|share| format!("{share:.0}")).collect();
            short.push(format!("below 90: {share:.1} % of what was possible, by span {}", by_span.join(" ")));
        }
        let heard = if outcome.announced { "announced" } else { "silent" };
        (!short.is_empty()).then(|| format!("{} [{heard}]: {}", case.title(), short.join("; ")))
    }

    /// The number of vendors that were walked.
    pub fn vendors(&self) -> usize {
        self.vendors.len()
    }

    /// The number of limits that were walked.
    pub fn limits(&self) -> usize {
        self.limits.len()
    }

    /// The number of refusals beyond the allowed ones.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// The number of limits where the client did not slow down at a low quota, or did not pause after a refusal.
    pub fn unthrottled(&self) -> usize {
        self.unthrottled.len()
    }

    /// The number of limits that were used to less than [`WANTED_SHARE`].
    pub fn below_90(&self) -> usize {
        self.below_90.len()
    }

    /// The number of requests that left.
    pub fn requests(&self) -> usize {
        self.requests
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "catalogue-walk: vendors={} limits={} refused={} unthrottled={} below_90={}",
            self.vendors(),
            self.limits(),
            self.refused(),
            self.unthrottled(),
            self.below_90()
        )
    }
}
