//! Which lanes' stored usage has been read, and which lane is read next.
//!
//! What was read has been counted, and the engine keeps counting it when the tenant goes: read again on the tenant's
//! return, it would count twice. So a lane that was read is remembered until none of the rows read can count any more.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Time;
use crate::store::usage::{Mark, Table};

/// A tenant and its vendor.
pub(super) type Lane = (Arc<str>, Arc<str>);

/// What of a lane has not been read.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Left {
    /// Whether its pauses have been restored.
    pub(super) is_restored: bool,
    /// The tables that have not been read to their end, each with the position after which to go on.
    pub(super) tables: Vec<(Table, Mark)>,
}

/// Whose usage counts against a lane's limits, beside its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shares<'a> {
    Nothing,
    /// That of the lanes of this account.
    Account(&'a Arc<str>),
    /// That of all lanes of the vendor.
    Vendor,
}

/// The most lanes without a tenant that are remembered. Those beyond, whose rows stop counting soonest, are read again
/// if their tenants come back.
const MOST_GONE: usize = 100_000;

/// How far a lane has been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    Waiting,
    /// Waits to be read, before the lanes that have no jobs.
    Urgent,
    UnderWay,
    /// Is being read, and its tenant has gone.
    Leaving,
    Whole,
}

/// The lanes of an account that have not been read completely, but for that of the tenant that is named as the account.
#[derive(Default)]
struct Account {
    unread: HashSet<Arc<str>>,
    /// Jobs wait for all of them, and for those that join them: none is [`Read::Waiting`].
    is_urgent: bool,
}

/// A lane that has been read, or a part of it, and whose tenant has gone.
struct Gone {
    /// When the last row that was read stops counting.
    until: Time,
    /// What has not been read.
    left: Left,
}

/// Which lanes have been read. Pure.
#[derive(Default)]
pub(super) struct Lanes {
    known: HashMap<Lane, Read>,
    /// The known lanes without a limit that counts by time. Only their pauses are read.
    uncounted: HashSet<Lane>,
    /// Lanes that were uncounted when the read that is under way began, and have a limit that counts by time now.
    counted_since: HashSet<Lane>,
    /// The lanes that have been read in part, and that wait for the rest to be read.
    left: HashMap<Lane, Left>,
    gone: HashMap<Lane, Gone>,
    /// The lanes in `gone`, those first whose rows stop counting first.
    ends: BTreeSet<(Time, Lane)>,
    /// How long a row counts at each vendor at most, since the start.
    counts: HashMap<Arc<str>, Duration>,
    /// The number of lanes of each vendor that have not been read completely.
    unread: HashMap<Arc<str>, usize>,
    /// The accounts of these lanes, where an account is not named as the tenant is.
    account_of: HashMap<Lane, Arc<str>>,
    /// By account and vendor: the lanes in `account_of`.
    accounts: HashMap<Lane, Account>,
    /// Vendors with jobs whose tenants share limits.
    urgent_vendors: HashSet<Arc<str>>,
    urgent: VecDeque<Lane>,
    waiting: VecDeque<Lane>,
}

impl Lanes {
    /// Queues the lane to be read, unless that has happened already. A row of the lane `counts` for so long; `None` if no
    /// limit of it counts by time. Returns whether the tenant has come back and all of its usage counts already.
    pub(super) fn add(
        &mut self,
        tenant: &Arc<str>,
        vendor: &Arc<str>,
        account: &Arc<str>,
        counts: Option<Duration>,
        now: Time,
    ) -> bool {
        let lane = (tenant.clone(), vendor.clone());
        if let Some(counts) = counts {
            let longest = self.counts.entry(vendor.clone()).or_default();
            *longest = counts.max(*longest);
        }
        let begins_to_count = counts.is_some() && self.uncounted.remove(&lane);
        match self.known.get_mut(&lane) {
            None => {}
            Some(Read::Whole) if begins_to_count => {}
            Some(read) => {
                match read {
                    Read::Leaving => *read = Read::UnderWay,
                    Read::Waiting | Read::Urgent if begins_to_count => drop(self.left.remove(&lane)),
                    _ => {}
                }
                if begins_to_count && *read == Read::UnderWay {
                    self.counted_since.insert(lane.clone());
                }
                if *read != Read::Whole {
                    // The account may be another one than before.
                    self.leave_account(&lane);
                    self.join_account(&lane, account);
                    if self.is_urgent(&lane) {
                        self.ask(&lane);
                    }
                }
                return false;
            }
        }
        if counts.is_none() && !self.gone.contains_key(&lane) {
            self.uncounted.insert(lane.clone());
            self.left.insert(lane.clone(), Left::default());
        }
        if let Some(gone) = self.gone.remove(&lane) {
            self.ends.remove(&(gone.until, lane.clone()));
            if gone.until > now {
                if gone.left.tables.is_empty() {
                    self.known.insert(lane, Read::Whole);
                    return true;
                }
                // The lane may be a new one.
                self.left.insert(lane.clone(), Left { is_restored: false, ..gone.left });
            }
        }
        *self.unread.entry(lane.1.clone()).or_default() += 1;
        self.join_account(&lane, account);
        self.queue(lane, false);
        false
    }

    fn join_account(&mut self, lane: &Lane, account: &Arc<str>) {
        if *account != lane.0 {
            self.account_of.insert(lane.clone(), account.clone());
            let account = self.accounts.entry((account.clone(), lane.1.clone())).or_default();
            account.unread.insert(lane.0.clone());
        }
    }

    fn leave_account(&mut self, lane: &Lane) {
        let Some(account) = self.account_of.remove(lane) else { return };
        let named = (account, lane.1.clone());
        if let Some(account) = self.accounts.get_mut(&named) {
            account.unread.remove(&lane.0);
            if account.unread.is_empty() {
                self.accounts.remove(&named);
            }
        }
    }

    /// Whether jobs wait for all lanes of the lane's account, or of its vendor.
    fn is_urgent(&self, lane: &Lane) -> bool {
        let account = self.account_of.get(lane).map(|account| (account.clone(), lane.1.clone()));
        let account = account.and_then(|named| self.accounts.get(&named));
        self.urgent_vendors.contains(&lane.1) || account.is_some_and(|account| account.is_urgent)
    }

    /// Queues a lane that has not been read completely. If it `goes_on`, it is read before those that wait already.
    fn queue(&mut self, lane: Lane, goes_on: bool) {
        let is_urgent = self.is_urgent(&lane);
        self.known.insert(lane.clone(), if is_urgent { Read::Urgent } else { Read::Waiting });
        let queue = if is_urgent { &mut self.urgent } else { &mut self.waiting };
        if goes_on { queue.push_front(lane) } else { queue.push_back(lane) }
    }

    /// Whether all usage has been read that matters for a job of the lane. If not, it is read next.
    pub(super) fn is_ready(&mut self, tenant: &Arc<str>, vendor: &Arc<str>, shares: Shares<'_>) -> bool {
        let lane = (tenant.clone(), vendor.clone());
        if !self.known.contains_key(&lane) {
            // The tenant has gone meanwhile, or a reload is about to add it.
            return false;
        }
        let is_read = self.ask(&lane);
        match shares {
            Shares::Nothing => return is_read,
            Shares::Account(account) => return self.ask_account(account, vendor) && is_read,
            Shares::Vendor if is_read && !self.unread.contains_key(vendor) => return true,
            Shares::Vendor => {}
        }
        if self.urgent_vendors.insert(vendor.clone()) {
            for lane in self.waiting.iter().filter(|lane| lane.1 == *vendor) {
                if let Some(read @ Read::Waiting) = self.known.get_mut(lane) {
                    *read = Read::Urgent;
                    self.urgent.push_back(lane.clone());
                }
            }
        }
        false
    }

    /// Whether nothing of the lane is left to be read. If something is, the lane becomes urgent.
    fn ask(&mut self, lane: &Lane) -> bool {
        match self.known.get_mut(lane) {
            Some(read @ Read::Waiting) => {
                *read = Read::Urgent;
                self.urgent.push_back(lane.clone());
                false
            }
            read => read.is_none_or(|read| *read == Read::Whole),
        }
    }

    /// As [`ask`](Self::ask), for all lanes of an account.
    fn ask_account(&mut self, account: &Arc<str>, vendor: &Arc<str>) -> bool {
        let named = (account.clone(), vendor.clone());
        let mut lanes = Vec::new();
        let mut is_read = true;
        if let Some(account) = self.accounts.get_mut(&named) {
            is_read = false;
            if !std::mem::replace(&mut account.is_urgent, true) {
                lanes.extend(account.unread.iter().map(|tenant| (tenant.clone(), vendor.clone())));
            }
        }
        for lane in &lanes {
            self.ask(lane);
        }
        // The tenant that is named as the account is in it, unless its entry states another.
        self.ask(&named) && is_read
    }

    /// Up to `most` lanes that are to be read now, each with what is to be read of it.
    pub(super) fn next(&mut self, most: usize) -> Vec<(Lane, Left)> {
        let mut lanes = Vec::new();
        while lanes.len() < most
            && let Some(lane) = self.urgent.pop_front().or_else(|| self.waiting.pop_front())
        {
            if let Some(read @ (Read::Waiting | Read::Urgent)) = self.known.get_mut(&lane) {
                *read = Read::UnderWay;
                let tables = [Table::Units, Table::Requests].map(|table| (table, Mark::START));
                let whole = || Left { is_restored: false, tables: tables.to_vec() };
                let left = self.left.remove(&lane).unwrap_or_else(whole);
                lanes.push((lane, left));
            }
        }
        lanes
    }

    /// Records that the lane has been read but for what is `left`. A lane that is not restored had no tenant meanwhile.
    pub(super) fn read(&mut self, lane: &Lane, left: Option<Left>, now: Time) {
        let Some(read @ (Read::UnderWay | Read::Leaving)) = self.known.get(lane).copied() else { return };
        let begins_to_count = self.counted_since.remove(lane);
        if read == Read::UnderWay && (begins_to_count || left.is_some()) {
            // Without a tenant: it has come back, or is about to be reported as gone.
            let left = left.filter(|_| !begins_to_count);
            let goes_on = left.as_ref().is_some_and(|left| left.is_restored);
            self.left.extend(left.map(|left| (lane.clone(), left)));
            return self.queue(lane.clone(), goes_on);
        }
        self.count_read(lane);
        if read == Read::UnderWay {
            self.known.insert(lane.clone(), Read::Whole);
            return;
        }
        self.known.remove(lane);
        // Of an uncounted lane nothing has been counted.
        if !self.uncounted.remove(lane) && !begins_to_count {
            self.keep(lane.clone(), left.unwrap_or_default(), now);
        }
    }

    /// Records that the tenant has gone. If it comes back, only what has not been read is read.
    pub(super) fn forget(&mut self, tenant: &str, vendor: &str, now: Time) {
        let lane: Lane = (tenant.into(), vendor.into());
        let left = match self.known.remove(&lane) {
            None => return,
            Some(Read::UnderWay | Read::Leaving) => {
                self.known.insert(lane, Read::Leaving);
                return;
            }
            Some(Read::Waiting | Read::Urgent) => {
                self.count_read(&lane);
                self.left.remove(&lane)
            }
            Some(Read::Whole) => Some(Left::default()),
        };
        // A lane of which nothing has been read is unknown from now on, and so is one of which nothing counts.
        if !self.uncounted.remove(&lane)
            && let Some(left) = left
        {
            self.keep(lane, left, now);
        }
    }

    /// Remembers a lane whose tenant has gone, and forgets lanes of which no row counts any more.
    fn keep(&mut self, lane: Lane, left: Left, now: Time) {
        let until = now + self.counts.get(&lane.1).copied().unwrap_or_default();
        self.ends.insert((until, lane.clone()));
        self.gone.insert(lane, Gone { until, left });
        while self.ends.len() > MOST_GONE || self.ends.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, lane)) = self.ends.pop_first() else { break };
            self.gone.remove(&lane);
        }
    }

    fn count_read(&mut self, lane: &Lane) {
        self.leave_account(lane);
        if let Some(unread) = self.unread.get_mut(&lane.1) {
            *unread = unread.saturating_sub(1);
            if *unread == 0 {
                self.unread.remove(&lane.1);
            }
        }
    }
}

/// Which lanes have been read; shared by the worker, changes of the tenants, and the task that reads.
#[derive(Default)]
pub(in crate::outbox) struct Recall {
    pub(super) lanes: Mutex<Lanes>,
    /// How many times a tenant has appeared.
    pub(super) appeared: AtomicU64,
    pub(super) wanted: Notify,
    /// Whether lanes have become ready since the worker asked.
    pub(super) has_read: AtomicBool,
}

#[cfg(test)]
mod tests;
