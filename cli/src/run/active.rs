//! A run under way: hears events, shows progress and notices the end.

use std::time::Duration;

use integration_client::IntegrationClient;
use integration_client::clock::{Clock, Time};
use integration_client::events::{Event, EventKind, Events};
use integration_client::outbox::Batch;

use super::feed::{self, Feed, HowFar};
use super::progress::{self, Moment, Progress, Rate};
use super::results::Results;
use super::troubles::Troubles;
use crate::interrupt::Signals;
use crate::notes;

/// The interval at which the main loop checks progress, problems and the end.
const LOOK: Duration = Duration::from_millis(50);
/// The shortest interval between two readings of events. Waking up for each event of a million jobs would cost more
/// than handling the events.
const HEAR: Duration = Duration::from_millis(5);
/// The shortest interval between two estimates of the end.
const ESTIMATE: Duration = Duration::from_millis(500);

/// Why a run ends.
pub(super) enum End {
    All,
    Interrupted,
    /// The run cannot go on. The text says why, and what to do about it.
    Stopped(String),
    /// The results cannot be written, for this reason.
    Unwritten(String),
    /// The reader of the results has closed its end.
    Unread,
}

/// A run from its first job to its end.
pub(super) struct ActiveRun {
    pub(super) client: IntegrationClient,
    pub(super) events: Events,
    pub(super) batch: Batch,
    pub(super) results: Results,
    pub(super) far: HowFar,
    pub(super) clock: Clock,
    pub(super) progress: Progress,
    pub(super) rate: Rate,
    pub(super) troubles: Troubles,
    /// The options that select the dead letters of this run in commands for the user.
    pub(super) letters: String,
    pub(super) refused: u64,
    pub(super) is_quiet: bool,
    pub(super) ends_in: Option<Duration>,
    pub(super) estimated: Option<Time>,
    /// When the store was last asked whether anything is left.
    pub(super) counted: Time,
    /// The jobs of this run that had ended by then.
    pub(super) ended_by_then: u64,
}

impl ActiveRun {
    /// Sends until the run ends, and shows its progress.
    pub(super) async fn until_it_ends(&mut self, feed: Feed, signals: &Signals) -> End {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut interrupted, mut feeding) = (std::pin::pin!(signals.first()), std::pin::pin!(feed.run()));
        let (mut is_fed, mut rests) = (false, false);
        let mut rest = std::pin::pin!(tokio::time::sleep(HEAR));
        loop {
            tokio::select! {
                () = &mut interrupted => return End::Interrupted,
                // Signals are awaited here too, so that a store that does not answer cannot delay them.
                _ = look.tick() => tokio::select! {
                    () = &mut interrupted => return End::Interrupted,
                    end = self.look() => if let Some(end) = end {
                        return end;
                    },
                },
                fed = &mut feeding, if !is_fed => match fed {
                    Ok(()) => is_fed = true,
                    Err(why) => return End::Stopped(why),
                },
                () = &mut rest, if rests => rests = false,
                event = self.events.next(), if !rests => {
                    let Some(event) = event else { return End::Interrupted };
                    self.hear(&event);
                    self.hear_all().await;
                    rest.set(tokio::time::sleep(HEAR));
                    rests = true;
                }
            }
        }
    }

    /// Handles all events that have happened so far.
    pub(super) async fn hear_all(&mut self) {
        // Without `unconstrained`, tokio's task budget would make the receiver look empty after some hundred events.
        let all = async {
            loop {
                tokio::select! {
                    biased;
                    Some(event) = self.events.next() => self.hear(&event),
                    () = std::future::ready(()) => return,
                }
            }
        };
        tokio::task::unconstrained(all).await;
    }

    fn hear(&mut self, event: &Event) {
        self.refused += u64::from(matches!(event.kind, EventKind::Refused { .. }));
        if let Some(trouble) = self.troubles.hear(event, &self.client)
            && !self.is_quiet
        {
            notes::now_and_then(&trouble);
        }
    }

    /// How the run ends if results cannot be written.
    pub(super) fn unwritten(&self) -> Option<End> {
        let problem = self.results.problem()?;
        Some(match problem.kind() {
            std::io::ErrorKind::BrokenPipe => End::Unread,
            _ => End::Unwritten(problem.to_string()),
        })
    }

    async fn look(&mut self) -> Option<End> {
        if let Some(end) = self.unwritten() {
            return Some(end);
        }
        if let Some(problem) = self.client.outbox().problem() {
            notes::now_and_then(&format!(
                "the store cannot be written: {problem}. Nothing is sent until it can; make room, or end with Ctrl-C"
            ));
        }
        let now = self.clock.now();
        let seen = self.results.seen();
        // The counts of this process may be slightly wrong if another process ended some of the jobs, so the store is
        // also asked at intervals.
        let is_due = now.since(self.counted) >= feed::COUNT;
        if self.far.is_complete() && (seen.all_left == 0 || is_due) {
            self.counted = now;
            if matches!(self.batch.goes_on().await, Ok(false)) {
                return Some(End::All);
            }
            // Only once no more jobs end: the store knows of an end before this process has counted it.
            let ended = seen.done + seen.dead;
            let rests = std::mem::replace(&mut self.ended_by_then, ended) == ended && self.client.in_flight() == 0;
            if is_due
                && rests
                && self.troubles.keys().has_own()
                && let Ok(stored) = self.batch.waiting_by_lane().await
            {
                self.results.left_as_stored(&stored);
            }
        }
        self.troubles.keys().look_again(now, &self.client);
        // While input is unread and jobs may be accepted, jobs with valid keys may follow, so the run goes on.
        if (self.far.is_complete() || self.results.ahead(self.troubles.keys()) >= feed::AHEAD)
            && let Some(why) = self.troubles.in_the_way(&self.results, &self.client, &self.letters, now)
        {
            return Some(End::Stopped(why));
        }
        // Jobs have ended while the store was asked, which takes seconds on a busy disk.
        let (now, seen) = (self.clock.now(), self.results.seen());
        self.rate.note(now, seen.done + seen.dead);
        // Progress is computed only when it is shown, because the estimate looks at every waiting job.
        if !self.progress.is_due(now) {
            return None;
        }
        let unread = self.far.unread();
        let per_second = self.rate.per_second();
        if self.estimated.is_none_or(|at| now.since(at) >= ESTIMATE) {
            self.estimated = Some(now);
            let left = self.results.left_by_lane();
            self.ends_in =
                unread.and_then(|unread| progress::ends_in(&self.client, (&left, seen.all_left), unread, per_second));
        }
        let headrooms = self.client.overview().vendors.into_iter().filter_map(|vendor| vendor.headroom);
        let moment = Moment {
            done: seen.done,
            dead: seen.dead,
            refused: self.refused,
            left: unread.map(|unread| seen.all_left + unread),
            per_second: per_second.unwrap_or_default(),
            headroom: headrooms.min_by(f64::total_cmp),
            ends_in: self.ends_in,
        };
        self.progress.show(now, &moment);
        None
    }
}
