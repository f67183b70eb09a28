//! From the input into the store: a page at a time, no further ahead of what is sent than need be.

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
use super::results::{LaneTier, Results};
use super::sent::Sent;
use crate::connect::in_words;
use crate::notes;

/// Jobs that are accepted and have not ended, at most. Enough that tenants that stand far apart in the file are sent side by
/// side, and not so many that the store becomes as large as a file of any size.
pub(super) const AHEAD: u64 = 100_000;
/// Lines that are no jobs, of which each is said.
pub(super) const SAID: u64 = 10;
/// After this a page that could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How soon it is seen that there is room for more.
const LOOK: Duration = Duration::from_millis(50);

/// A page that is to be accepted.
struct Ready {
    jobs: Vec<Checked>,
    lanes: HashMap<LaneTier, u64>,
    mark: Mark,
    /// The hashes of its lines.
    note: Vec<u8>,
    /// Lines that are no jobs and are left out, and why.
    left_out: Vec<(u64, String)>,
    /// It ends before a line that is no job, and so does the run.
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
        let (sender, pages) = mpsc::channel(2);
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
        Feed { pages, client: client.clone(), batch, results, far, shown, keep_going, sent }
    }

    pub(super) fn far(&self) -> HowFar {
        self.far.clone()
    }

    /// Takes the whole input over, or says what is in the way.
    pub(super) async fn run(mut self) -> Result<(), String> {
        while !self.far.is_complete() {
            while self.results.left() >= AHEAD {
                tokio::time::sleep(LOOK).await;
            }
            let shown = &self.shown;
            let page = match self.pages.recv().await {
                Some(Ok(page)) => page,
                Some(Err(error)) => {
                    return Err(format!(
                        "{shown}: {error}. When it can be read, run the same command again: it goes on"
                    ));
                }
                // The reader has ended without a last page: it broke, which it has said itself.
                None => return Err(format!("{shown}: it cannot be read any further")),
            };
            let Ready { jobs, lanes, mark, note, left_out, bad } = self.check(page);
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

    fn check(&mut self, page: Page) -> Ready {
        let (mut jobs, mut invalid) = (self.far.mark.borrow().jobs, self.far.invalid());
        let mut ready = Ready {
            jobs: Vec::with_capacity(page.lines.len()),
            lanes: HashMap::new(),
            mark: Mark::default(),
            note: Vec::new(),
            left_out: Vec::new(),
            bad: None,
        };
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
                    return ready;
                }
            }
            ready.note.extend_from_slice(&line.text);
        }
        ready.mark = Mark { since, ..page.end.mark(jobs, invalid, page.complete) };
        ready
    }
}
