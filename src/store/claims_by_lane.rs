//! Claims of many lanes at once, and how they proceed when the rows of one lane cannot be read.

use std::collections::HashSet;

use super::driver::{DbError, DbKind};
use super::jobs::{self, Claimed, LaneClaim, Wanted};
use super::problems::Work;
use super::{LaneTier, Opened, failed};
use crate::error::Error;

/// The most lanes that may fail one by one before a claim ends. Each costs a transaction, for which the other lanes may
/// have to wait.
const MAX_FAILED: usize = 8;

/// The result of a claim.
#[derive(Default)]
pub(crate) struct Claims {
    pub(crate) jobs: Vec<Claimed>,
    /// Lanes from which nothing was claimed, because their claim failed or was not tried.
    pub(crate) skipped: Vec<LaneTier>,
    /// The error that ended the claim before all lanes were tried. If the failed transaction may have been committed,
    /// this process may have claims that it does not know.
    pub(crate) error: Option<Error>,
}

/// Whether a failure may concern only one lane's rows, so that other lanes can be claimed.
fn may_be_of_one_lane(error: &DbError) -> bool {
    matches!(error.kind, DbKind::Damaged | DbKind::Nonsense | DbKind::Other)
}

impl Opened {
    /// Claims jobs. A claim of many lanes that fails is repeated lane by lane, so that one damaged page does not stop
    /// the jobs of all tenants. A lane that fails alone is skipped for a while, and is claimed on its own from then on.
    pub(crate) async fn claim(&self, wanted: Wanted) -> Claims {
        let (mut alone, together): (Vec<_>, Vec<_>) =
            wanted.lanes.iter().cloned().partition(|want| self.problems.is_suspect(&want.lane));
        let (mut claims, mut asked) = (Claims::default(), HashSet::new());
        if !together.is_empty() {
            match self.claim_of(&wanted, together.clone(), 0).await {
                Ok(jobs) => {
                    claims.jobs = jobs;
                    asked.extend(together.iter().map(|want| want.lane.clone()));
                }
                Err(error) if may_be_of_one_lane(&error) => alone.extend(together),
                Err(error) => return claims.ended(self, &wanted, &asked, Some(error)),
            }
        }
        let mut failing = Vec::new();
        for want in alone {
            let lane = want.lane.clone();
            let bytes = claims.jobs.iter().map(Claimed::bytes).sum();
            match self.claim_of(&wanted, vec![want], bytes).await {
                Ok(jobs) => {
                    self.problems.unpark(&lane);
                    claims.jobs.extend(jobs);
                    asked.insert(lane);
                }
                Err(error) if may_be_of_one_lane(&error) => {
                    failing.push((lane, error));
                    if failing.len() >= MAX_FAILED {
                        break;
                    }
                }
                Err(error) => return claims.ended(self, &wanted, &asked, Some(error)),
            }
        }
        // If every lane fails, the cause is the store and not the lanes, unless an error says that data is damaged.
        let is_the_store = asked.is_empty() && failing.iter().all(|(_, error)| error.kind != DbKind::Damaged);
        match failing.pop() {
            Some((_, error)) if is_the_store => return claims.ended(self, &wanted, &asked, Some(error)),
            last => failing.extend(last),
        }
        failing.iter().for_each(|(lane, error)| self.problems.park(lane, error));
        claims.ended(self, &wanted, &asked, None)
    }

    /// Claims jobs of `lanes`. The `bytes` that were claimed already count towards the limit of `wanted`.
    async fn claim_of(&self, wanted: &Wanted, lanes: Vec<LaneClaim>, bytes: usize) -> Result<Vec<Claimed>, DbError> {
        let Wanted { owner, lease_ms, most_bytes, .. } = *wanted;
        let most_bytes = most_bytes.saturating_sub(bytes);
        self.writer.call(Wanted { owner, lease_ms, lanes, most_bytes }, jobs::claim, true).await
    }
}

impl Claims {
    fn ended(mut self, store: &Opened, wanted: &Wanted, asked: &HashSet<LaneTier>, error: Option<DbError>) -> Claims {
        store.problems.note(Work::Claim, &error.clone().map_or(Ok(()), Err));
        self.error = error.map(failed);
        if asked.len() < wanted.lanes.len() {
            let skipped = wanted.lanes.iter().map(|want| &want.lane).filter(|lane| !asked.contains(lane));
            self.skipped = skipped.cloned().collect();
        }
        self
    }
}
