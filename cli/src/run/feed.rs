//! From the input into the store, no further ahead of what is sent than need be. The pages that were read while the store wrote the
//! ones before are accepted together: neither waits for the other, and a slow disk makes the groups larger and not the run slower.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use integration_client::IntegrationClient;
use integration_client::clock::Clock;
use integration_client::outbox::{Batch, Checked};
use tokio::sync::mpsc;

use super::input::{Input, Mark, Page};
use super::progress::Rate;
use super::results::{LaneTier, Results};
use super::sent::Sent;
use crate::connect::in_words;
use crate::notes;

/// Jobs that are accepted and have not ended, at most. Enough that tenants that stand far apart in the file are sent side by
/// side, and not so many that the store becomes as large as a file of any size.
pub(super) const AHEAD: u64 = 100_000;
/// As many are enough where they are sent within [`SOON`]: their rows are then still in SQLite's log and memory when they are sent,
/// and are not copied into the file and back in between.
const ENOUGH: u64 = 16_384;
/// See [`ENOUGH`].
const SOON: Duration = Duration::from_secs(4);
/// Lines that are no jobs, of which each is said.
pub(super) const SAID: u64 = 10;
/// Pages that were read and wait, beside those that are being accepted.
const READ: usize = 4;
/// The input in bytes after which a group of pages is accepted without a further one: a group is in memory more than once.
const BYTES_TOGETHER: u64 = 1 << 20;
/// The same in lines: one transaction accepts the whole group, and writes of ended jobs wait for it.
const LINES_TOGETHER: u64 = 4_096;
/// After this a page that could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How soon it is seen that there is room for more.
const LOOK: Duration = Duration::from_millis(50);

/// Whether the feed waits: `jobs` are accepted and have not ended, and `per_second` end in a second.
fn is_far_ahead(jobs: u64, per_second: Option<f64>) -> bool {
    jobs >= AHEAD || jobs >= ENOUGH && per_second.is_some_and(|rate| rate * SOON.as_secs_f64() >= ENOUGH as f64)
}

/// Pages that are to be accepted together.
#[derive(Default)]
struct Ready {
    jobs: Vec<Checked>,
    lanes: HashMap<LaneTier, u64>,
    /// Where the last of them ends.
    mark: Mark,
    /// The hashes of their lines.
    note: Vec<u8>,
    /// Lines that are no jobs and are left out, and why.
    left_out: Vec<(u64, String)>,
    /// They end before a line that is no job, and so does the run.
    bad: Option<String>,
}

/// How far the input is in the store, for whoever watches.
#[derive(Clone)]
pub(super) struct HowFar {
    mark: Rc<RefCell<Mark>>,
    size: Option<u64>,
    /// Lines that an earlier run has sent.
    skipped: Rc<Cell<u64>>,
}

impl HowFar {
    pub(super) fn is_complete(&self) -> bool {
        self.mark.borrow().complete
    }

    pub(super) fn invalid(&self) -> u64 {
        self.mark.borrow().invalid
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped.get()
    }

    /// About how many jobs are not read yet; none where the input does not say how long it is.
    pub(super) fn unread(&self) -> Option<u64> {
        let mark = self.mark.borrow();
        if mark.complete {
            return Some(0);
        }
        let left = self.size?.saturating_sub(mark.offset);
        let each = mark.offset.checked_div(mark.jobs)?;
        left.checked_div(each)
    }
}

pub(super) struct Feed {
    pages: mpsc::Receiver<io::Result<Page>>,
    client: IntegrationClient,
    batch: Batch,
    results: Results,
    far: HowFar,
    shown: String,
    keep_going: bool,
    /// Lines that are not sent again, and the run that has sent them.
    sent: Option<(Sent, u64)>,
    clock: Clock,
    /// At which jobs end.
    rate: Rate,
}

impl Feed {
    /// Begins to read where `mark` says; `input` is there already.
    #[expect(clippy::too_many_arguments, reason = "each is another thing")]
    pub(super) fn begin(
        client: &IntegrationClient,
        mut input: Input,
        batch: Batch,
        mark: Mark,
        results: Results,
        keep_going: bool,
        sent: Option<(Sent, u64)>,
        clock: Clock,
    ) -> Feed {
        let (size, shown) = (input.size, input.shown.clone());
        let (sender, pages) = mpsc::channel(READ);
        // A thread of its own: reading a pipe waits for whoever writes it.
        tokio::task::spawn_blocking(move || {
            loop {
                let page = input.page(clock.wall());
                let is_last = page.as_ref().map_or(true, |page| page.complete);
                if sender.blocking_send(page).is_err() || is_last {
                    return;
                }
            }
        });
        // What was added since then is still to come.
        let mark = Rc::new(RefCell::new(Mark { complete: false, ..mark }));
        let far = HowFar { mark, size, skipped: Rc::default() };
        Feed {
            pages,
            client: client.clone(),
            batch,
            results,
            far,
            shown,
            keep_going,
            sent,
            clock,
            rate: Rate::default(),
        }
    }

    pub(super) fn far(&self) -> HowFar {
        self.far.clone()
    }

    /// Takes the whole input over, or says what is in the way.
    pub(super) async fn run(mut self) -> Result<(), String> {
        while !self.far.is_complete() {
            self.let_it_come().await;
            let Ready { jobs, lanes, mark, note, left_out, bad } = self.read().await?;
            for (line, why) in left_out {
                self.results.invalid(line, &why).await;
            }
            // All keys are strings, so it can always be written.
            let text = serde_json::to_string(&mark).unwrap_or_default();
            while let Err(error) = self.batch.accept_with_note(jobs.clone(), &text, note.clone()).await {
                // What the store fails with has a cause, and is waited for; a refusal of the batch has none.
                if std::error::Error::source(&error).is_none() {
                    return Err(format!("{}: {error}", self.shown));
                }
                tokio::time::sleep(AGAIN).await;
            }
            self.results.accepted(lanes);
            self.far.mark.replace(mark);
            if let Some(why) = bad {
                return Err(why);
            }
        }
        Ok(())
    }

    /// Waits while enough is accepted.
    async fn let_it_come(&mut self) {
        loop {
            let seen = self.results.seen();
            self.rate.note(self.clock.now(), seen.done + seen.dead);
            if !is_far_ahead(seen.all_left, self.rate.per_second()) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits for a page, and takes those that were read by then with it.
    async fn read(&mut self) -> Result<Ready, String> {
        let mut ready = Ready { mark: self.far.mark.borrow().clone(), ..Ready::default() };
        let (begin, begin_lines) = (ready.mark.offset, ready.mark.lines);
        let mut next = self.pages.recv().await;
        loop {
            let shown = &self.shown;
            let why = match next {
                Some(Ok(page)) => {
                    self.check(page, &mut ready);
                    None
                }
                Some(Err(error)) => {
                    Some(format!("{shown}: {error}. When it can be read, run the same command again: it goes on"))
                }
                // The reader has ended without a last page: it broke, which it has said itself.
                None => Some(format!("{shown}: it cannot be read any further")),
            };
            if let Some(why) = why {
                // The pages that were read before the error are accepted; the run ends after that.
                if ready.mark.offset == begin {
                    return Err(why);
                }
                ready.bad = Some(why);
            }
            let is_full = ready.mark.offset.saturating_sub(begin) >= BYTES_TOGETHER
                || ready.mark.lines.saturating_sub(begin_lines) >= LINES_TOGETHER;
            if ready.bad.is_some() || ready.mark.complete || is_full {
                return Ok(ready);
            }
            match self.pages.try_recv() {
                Ok(page) => next = Some(page),
                Err(_) => return Ok(ready),
            }
        }
    }

    /// Adds a page to those before it.
    fn check(&mut self, page: Page, ready: &mut Ready) {
        let (mut jobs, mut invalid) = (ready.mark.jobs, ready.mark.invalid);
        let since = self.sent.as_ref().map(|(_, since)| *since);
        for line in page.lines {
            if let Some((sent, _)) = &mut self.sent
                && sent.take(&line.text)
            {
                ready.note.extend_from_slice(&line.text);
                self.far.skipped.set(self.far.skipped() + 1);
                continue;
            }
            let checked = line.job.and_then(|job| {
                // A kind of points that the vendor does not count is misspelled, and the job would go out with another cost.
                self.client.costs(&job.tenant, &job.request).map_err(|error| in_words(&error))?;
                let checked = self.batch.check(line.number, &job.tenant, job.priority, job.request);
                let checked = checked.map_err(|error| in_words(&error))?;
                Ok((checked, (job.tenant, job.vendor, job.priority)))
            });
            match checked {
                Ok((checked, lane)) => {
                    ready.jobs.push(checked);
                    *ready.lanes.entry(lane).or_default() += 1;
                    jobs += 1;
                }
                Err(why) if self.keep_going => {
                    invalid += 1;
                    match invalid {
                        ..=SAID => notes::say(&format!("{}:{}: {why}; left out", self.shown, line.number)),
                        _ if invalid == SAID + 1 => notes::say("more lines are no jobs; --out names all of them"),
                        _ => {}
                    }
                    ready.left_out.push((line.number, why));
                }
                Err(why) => {
                    ready.mark = Mark { since, ..line.begin.mark(jobs, invalid, false) };
                    ready.bad = Some(format!(
                        "{}:{}: {why}. Mend the line and run the same command again, or leave such lines out with --keep-going",
                        self.shown, line.number
                    ));
                    return;
                }
            }
            ready.note.extend_from_slice(&line.text);
        }
        ready.mark = Mark { since, ..page.end.mark(jobs, invalid, page.complete) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_goes_further_ahead_of_what_is_sent_slowly() {
        assert!(!is_far_ahead(ENOUGH - 1, Some(1e6)), "a little is always ahead");
        assert!(is_far_ahead(ENOUGH, Some(10_000.0)) && is_far_ahead(60_000, Some(10_000.0)));
        assert!(!is_far_ahead(ENOUGH, Some(100.0)), "others behind them in the file may be faster");
        assert!(!is_far_ahead(ENOUGH, None), "nobody knows yet");
        assert!(is_far_ahead(AHEAD, None) && is_far_ahead(AHEAD, Some(0.0)));
    }
}
