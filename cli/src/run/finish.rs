//! The end of a run: waits for exchanges under way, counts the results, and prints the summary.

use std::time::Duration;

use integration_client::clock::Time;
use integration_client::outbox::BatchCounts;

use super::account;
use super::active::{ActiveRun, End};
use super::args::Args;
use crate::interrupt::Signals;
use crate::notes;
use crate::output::{Failure, Outcome};
use crate::text::count;

/// The time for exchanges that are under way when the run is interrupted.
pub(super) const GRACE: Duration = Duration::from_secs(30);
/// The time for claimed jobs to go back into the store if no exchange is under way, and for results to be written.
const LEAST_GRACE: Duration = Duration::from_secs(2);
/// The most time for outcomes to be written: nothing but this process knows them, but some errors never end.
const OUTCOMES: Duration = Duration::from_secs(3_600);
/// A shutdown whose end the run decides.
const WITHOUT_END: Duration = Duration::from_secs(365 * 24 * 3_600);
/// The interval at which a run that ends looks whether outcomes are still to be written.
const LOOK: Duration = Duration::from_millis(100);

fn lines(number: u64) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), "line")
}

fn jobs(number: u64) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), "job")
}

impl ActiveRun {
    /// Waits for exchanges under way and until their outcomes are in the store, counts the results, and prints them.
    /// One more signal ends the waiting, and what is known by then is printed. While outcomes are not in the store, it
    /// takes two signals.
    pub(super) async fn finish(
        mut self,
        args: &Args,
        mut end: End,
        began: Time,
        signals: &Signals,
    ) -> Result<Outcome, Failure> {
        let signals_before = signals.count();
        let settled = tokio::select! {
            settled = self.settle(args, &end, signals) => Some(settled),
            () = self.last_signal(signals, signals_before) => None,
        };
        // At once: nothing waits for these outcomes any more.
        let lost = self.client.outbox().unwritten_outcomes();
        let counts = match settled {
            Some((written, counts)) => {
                written?;
                counts
            }
            None => {
                end = End::Interrupted;
                None
            }
        };
        end = self.unwritten().unwrap_or(end);
        self.hear_all().await;
        let seconds = self.clock.now().since(began).as_secs_f64();
        let (done, dead) = match &counts {
            Some(counts) => (counts.delivered, counts.dead),
            // The store cannot be read, or there is no time to read it.
            None => (self.results.seen().done, self.results.seen().dead),
        };
        let cancelled = counts.as_ref().map_or(0, |counts| counts.cancelled);
        let invalid = self.far.invalid();
        let of_keys = self.troubles.of_keys(&self.letters);
        let last = match (&end, &of_keys) {
            (End::All, Some(why)) | (End::Stopped(why), _) => why.as_str(),
            _ => "",
        };
        if dead > 0 && !args.quiet && counts.is_some() {
            tokio::select! {
                () = account::say(&self.client, self.batch.numbers(), dead, &self.letters, last) => {}
                () = signals.more_than(signals_before) => {}
            }
        }
        if self.far.skipped() > 0 && !args.quiet {
            notes::say(&format!("run: {} were sent before, and not again", lines(self.far.skipped())));
        }
        if invalid > 0 && !args.quiet {
            let were = if invalid == 1 { "line was" } else { "lines were" };
            notes::say(&format!("run: {invalid} invalid {were} left out"));
        }
        if lost > 0 {
            notes::say(&format!(
                "run: the outcomes of {} were not written in the store, and are lost. The next run sends a request of \
                 these again that may be repeated or has an idempotency key, and makes the others dead letters \
                 `ambiguous`",
                jobs(lost)
            ));
        }
        let outcome = match (end, of_keys) {
            (End::All, Some(why)) => Err(why),
            (End::All, None) if dead + cancelled + invalid > 0 => Ok(Outcome::Found),
            (End::All, None) => Ok(Outcome::Fine),
            (End::Interrupted, _) => {
                let left = counts.map_or(String::new(), |counts| match counts.waiting {
                    1 => "; 1 accepted job waits".to_owned(),
                    waiting => format!("; {waiting} accepted jobs wait"),
                });
                notes::say(&format!("run: interrupted{left}. Run the same command again to go on"));
                Ok(Outcome::Interrupted)
            }
            (End::Unread, _) => {
                notes::say("run: nobody reads the results any more. Run the same command again to go on");
                Ok(Outcome::Interrupted)
            }
            (End::Unwritten(why), _) => {
                let kept = if lost == 0 { ": what was answered meanwhile is in the store" } else { "" };
                Err(format!("the results cannot be written: {why}. Make room, and run the same command again{kept}"))
            }
            (End::Stopped(why), _) => Err(why),
        };
        let outcome = outcome.map_err(|why| {
            notes::say(&format!("error: {why}"));
            Failure::Said
        });
        let refused = self.refused;
        let cancelled = if cancelled > 0 { format!(" cancelled={cancelled}") } else { String::new() };
        notes::say_last(&format!("run: done={done} refused={refused} dead={dead}{cancelled} seconds={seconds:.2}"));
        outcome
    }

    /// Waits for the signal that ends the waiting: the first after `before`, or the second of all while outcomes are
    /// not in the store.
    async fn last_signal(&self, signals: &Signals, before: u32) {
        signals.more_than(before).await;
        let unwritten = self.client.outbox().unwritten_outcomes();
        if before == 0 && unwritten > 0 {
            notes::say(&format!(
                "run: waits for the outcomes of {}, which are not in the store; Ctrl-C once more loses them",
                jobs(unwritten)
            ));
            signals.more_than(1).await;
        }
    }

    /// Ends the sending. Waits for exchanges under way, but not without end, and for their outcomes to be written: only
    /// this process knows them before.
    async fn stop(&self, signals: &Signals) {
        let grace = if self.client.in_flight() > 0 { GRACE } else { LEAST_GRACE };
        let began = self.clock.now();
        if self.has_stopped(began, began + grace, signals).await {
            return;
        }
        // Jobs that wait for a permit go back into the store and are not waited for. What they have become is.
        self.client.shutdown(Duration::ZERO).await;
        self.has_stopped(began, self.clock.now() + LEAST_GRACE, signals).await;
    }

    /// Waits until the client has stopped: until this time, and for longer while outcomes are not in the store. Returns
    /// whether it has.
    async fn has_stopped(&self, began: Time, mut until: Time, signals: &Signals) -> bool {
        // One shutdown for the whole wait: without one that waits, the client discards the outcomes after a while.
        let mut stopped = std::pin::pin!(self.client.shutdown(WITHOUT_END));
        loop {
            if tokio::time::timeout(LOOK, stopped.as_mut()).await.is_ok() {
                return true;
            }
            let (now, outbox) = (self.clock.now(), self.client.outbox());
            if now >= until {
                return false;
            }
            if outbox.clone().unwritten_outcomes() > 0 && now.since(began) < OUTCOMES {
                // What else a shutdown writes has time after them.
                until = until.max(now + LEAST_GRACE);
                if let Some(problem) = outbox.problem() {
                    let times = if signals.count() == 0 { "twice" } else { "once more" };
                    notes::now_and_then(&format!(
                        "run: sends nothing more, and ends when the outcomes of its requests are in the store, which cannot \
                         be written: {problem}. It waits for an hour at most; Ctrl-C {times} loses these outcomes"
                    ));
                }
            }
        }
    }

    /// Waits for the exchanges under way and for the reader of the results. Returns the store's counts of the run's
    /// jobs.
    async fn settle(&self, args: &Args, end: &End, signals: &Signals) -> (Result<(), Failure>, Option<BatchCounts>) {
        let is_all = matches!(end, End::All);
        if !is_all && !args.quiet && self.client.in_flight() > 0 {
            notes::say("run: ends what is under way; Ctrl-C once more leaves it at that");
        }
        self.stop(signals).await;
        let counts = self.batch.counts().await.ok();
        let mut written = Ok(());
        if is_all {
            written = self.results.complete(&self.batch).await;
            self.results.drain().await;
        } else {
            // The next run writes the results that are missing.
            let _ = tokio::time::timeout(LEAST_GRACE, self.results.drain()).await;
        }
        (written, counts)
    }
}
