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

fn lines(number: u64) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), "line")
}

impl ActiveRun {
    /// Waits for exchanges under way, counts the results, and prints them. One more signal ends the waiting, and what
    /// is known by then is printed.
    pub(super) async fn finish(
        mut self,
        args: &Args,
        mut end: End,
        began: Time,
        signals: &Signals,
    ) -> Result<Outcome, Failure> {
        let signals_before = signals.count();
        let settled = tokio::select! {
            settled = self.settle(args, &end) => Some(settled),
            () = signals.more_than(signals_before) => None,
        };
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

    /// Waits for the exchanges under way and for the reader of the results. Returns the store's counts of the run's
    /// jobs.
    async fn settle(&self, args: &Args, end: &End) -> (Result<(), Failure>, Option<BatchCounts>) {
        let is_all = matches!(end, End::All);
        if !is_all && !args.quiet && self.client.in_flight() > 0 {
            notes::say("run: ends what is under way; Ctrl-C once more leaves it at that");
        }
        // Jobs that wait for a permit go back into the store and are not waited for.
        self.client.shutdown(if self.client.in_flight() > 0 { GRACE } else { LEAST_GRACE }).await;
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
