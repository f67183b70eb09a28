//! Averages how much is left of a vendor's tightest limits, to advise a higher plan. Works without the feature `metrics`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Time;

/// The seconds over which the headroom is averaged.
const SECONDS: u64 = 300;
/// The number of seconds with a response that an average needs before it causes a warning.
const ENOUGH: usize = 30;
/// Thousandths of a limit, below which there is little headroom.
const LITTLE: u64 = 200;
const ADVICE_EVERY: Duration = Duration::from_secs(3_600);

/// Little headroom for minutes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Advice {
    pub(crate) average_pct: u64,
    /// The tenant that had the least left.
    pub(crate) tenant: Arc<str>,
}

/// The headroom of a vendor's last minutes.
#[derive(Debug, Default)]
pub(crate) struct RecentHeadroom {
    /// The present second with a response, the lowest headroom in it, in thousandths, and the tenant that had it.
    present: Option<(u64, u64, Arc<str>)>,
    /// The earlier seconds with a response, and the lowest headroom in each.
    past: VecDeque<(u64, u64)>,
    advised: Option<Time>,
}

impl RecentHeadroom {
    /// Counts a response to `tenant` at `now`, after which `left` of `limit` units are left. Returns the advice that is
    /// due, at most once an hour.
    pub(crate) fn seen(&mut self, now: Time, tenant: &Arc<str>, (left, limit): (u32, u32)) -> Option<Advice> {
        let second = now.as_nanos() / 1_000_000_000;
        let left = (u64::from(left) * 1_000 / u64::from(limit.max(1))).min(1_000);
        match &mut self.present {
            Some((at, lowest, of)) if *at >= second => {
                if left < *lowest {
                    (*lowest, *of) = (left, tenant.clone());
                }
                None
            }
            _ => {
                let (at, lowest, of) = self.present.replace((second, left, tenant.clone()))?;
                self.past.push_back((at, lowest));
                while self.past.pop_front_if(|(at, _)| second.saturating_sub(*at) > SECONDS).is_some() {}
                self.advice(now, of)
            }
        }
    }

    fn advice(&mut self, now: Time, tenant: Arc<str>) -> Option<Advice> {
        let seconds = self.past.len();
        let average = self.past.iter().map(|(_, lowest)| lowest).sum::<u64>() / (seconds as u64).max(1);
        let was_lately = self.advised.is_some_and(|at| now.since(at) < ADVICE_EVERY);
        if average >= LITTLE || was_lately || seconds < ENOUGH {
            return None;
        }
        self.advised = Some(now);
        Some(Advice { average_pct: average / 10, tenant })
    }
}

#[cfg(test)]
mod tests;
