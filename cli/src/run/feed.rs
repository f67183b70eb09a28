//! Moves jobs from the input into the store, not much further ahead than sending needs. The pages that were read while
//! the store wrote the pages before are accepted together. So reading and writing do not wait for each other, and a
//! slow disk makes the groups larger instead of the run slower.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use integration_client::IntegrationClient;
use integration_client::clock::{Clock, Time};
use integration_client::outbox::{Batch, Checked};
use tokio::sync::mpsc;

use super::input::{Input, Mark, Page};
use super::keys::PausedLanes;
use super::progress::Rate;
use super::results::{LaneTier, Results};
use super::sent::Sent;
use crate::connect::in_words;
use crate::notes;

/// The most jobs that are accepted and have not ended, without those of paused lanes. Enough that tenants that are far
/// apart in the file are sent side by side, and few enough that the store does not grow with the size of the file. The
/// store does grow by all jobs of paused lanes, because jobs of other lanes may follow them in the file.
pub(super) const AHEAD: u64 = 100_000;
/// This many accepted jobs are enough if they end within [`SOON`]. Their rows are then still in SQLite's write-ahead
/// log and memory when they are sent, and are not copied into the database file and back in between.
const ENOUGH: u64 = 16_384;
/// See [`ENOUGH`].
const SOON: Duration = Duration::from_secs(4);
/// The number of lines that are not jobs, and of lanes, for which a message is shown; further ones are only counted.
pub(super) const SAID: u64 = 10;
/// Pages that were read and wait to be accepted, besides those that are being accepted.
const READ: usize = 4;
/// A group of pages with this many bytes of input is accepted without further pages, because a group is in memory more
/// than once.
const BYTES_TOGETHER: u64 = 1 << 20;
/// A group of pages with this many lines is accepted without further pages, because one transaction accepts the whole
/// group and the writes of ended jobs wait for it.
const LINES_TOGETHER: u64 = 4_096;
/// The wait before pages that the store could not write are tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// The interval at which the feed checks whether more jobs may be accepted.
const LOOK: Duration = Duration::from_millis(50);
/// The interval at which the store is asked what is left, whatever this process has counted: another process may have
/// ended some of the jobs.
pub(super) const COUNT: Duration = Duration::from_secs(2);

/// Whether the feed must wait, given the number of accepted jobs that have not ended and the number that ends per
/// second.
fn is_far_ahead(jobs: u64, per_second: Option<f64>) -> bool {
    jobs >= AHEAD || jobs >= ENOUGH && per_second.is_some_and(|rate| rate * SOON.as_secs_f64() >= ENOUGH as f64)
}

/// The content of pages that are accepted together.
#[derive(Default)]
struct Ready {
    jobs: Vec<Checked>,
    lanes: HashMap<LaneTier, u64>,
    /// Up to where the input is read with these pages.
    mark: Mark,
    /// The hashes of the pages' lines that are jobs. `--changed` sends the others once they are jobs too.
    note: Vec<u8>,
    /// The numbers of lines that are not jobs and are left out, with the reasons.
    left_out: Vec<(u64, String)>,
    /// Why the run ends after these pages: a line that is not a job, or an error of reading.
    bad: Option<String>,
}

/// How much of the input is in the store, for the progress.
#[derive(Clone)]
pub(super) struct HowFar {
    mark: Rc<RefCell<Mark>>,
    size: Option<u64>,
    /// The number of lines that were skipped because an earlier run has sent them.
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

    /// About how many jobs are not accepted yet, estimated from the size of the input. `None` if the size is unknown.
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

/// The pages of the input. They are read on a blocking thread, because reading from a pipe waits for its writer.
pub(super) fn pages(mut input: Input, clock: Clock) -> mpsc::Receiver<io::Result<Page>> {
    let (sender, pages) = mpsc::channel(READ);
    tokio::task::spawn_blocking(move || {
        loop {
            let page = input.page(|| clock.wall());
            let is_last = page.as_ref().map_or(true, |page| page.complete);
            if sender.blocking_send(page).is_err() || is_last {
                return;
            }
        }
    });
    pages
}

pub(super) struct Feed {
    pages: mpsc::Receiver<io::Result<Page>>,
    client: IntegrationClient,
    batch: Batch,
    results: Results,
    far: HowFar,
    shown: String,
    keep_going: bool,
    /// The lines that are not sent again, and the number of the run that has sent them.
    sent: Option<(Sent, u64)>,
    keys: PausedLanes,
    clock: Clock,
    /// The rate at which jobs end.
    rate: Rate,
    /// When the store was last asked how many jobs are left.
    counted: Option<Time>,
}

impl Feed {
    /// Begins to read. The caller has moved `input` to the position that `mark` states.
    #[expect(clippy::too_many_arguments, reason = "each is another thing")]
    pub(super) fn begin(
        client: &IntegrationClient,
        input: Input,
        batch: Batch,
        mark: Mark,
        results: Results,
        keep_going: bool,
        sent: Option<(Sent, u64)>,
        keys: PausedLanes,
        clock: Clock,
    ) -> Feed {
        let (size, shown) = (input.size, input.shown.clone());
        let pages = pages(input, clock);
        // Lines may have been added to a complete input since then.
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
            keys,
            clock,
            rate: Rate::default(),
            counted: None,
        }
    }

    pub(super) fn far(&self) -> HowFar {
        self.far.clone()
    }

    /// Accepts the whole input. An error says why that is impossible.
    pub(super) async fn run(mut self) -> Result<(), String> {
        while !self.far.is_complete() {
            self.let_it_come().await;
            let Ready { jobs, lanes, mark, note, left_out, bad } = self.read().await?;
            self.results.invalid(&left_out).await;
            for (tenant, vendor, _) in lanes.keys() {
                self.keys.check(tenant, vendor, &self.client).await;
            }
            // Serializing cannot fail, because all keys are strings.
            let text = serde_json::to_string(&mark).unwrap_or_default();
            while let Err(error) = self.batch.accept_with_note(jobs.clone(), &text, note.clone()).await {
                // An error of the store has a source and is retried. An error without a source is a refusal of the
                // batch, which is final.
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

    /// Waits while enough jobs are accepted.
    async fn let_it_come(&mut self) {
        loop {
            let (now, seen) = (self.clock.now(), self.results.seen());
            self.rate.note(now, seen.done + seen.dead);
            if !is_far_ahead(self.results.ahead(&self.keys), self.rate.per_second()) {
                return;
            }
            if self.counted.is_some_and(|at| now.since(at) < COUNT) {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            // A store that cannot be read is asked again.
            if let Ok(waiting) = self.batch.waiting().await {
                self.results.left_at_most(waiting);
            }
            // The interval begins at the end of the count, so that a slow count leaves time for what it counts.
            self.counted = Some(self.clock.now());
        }
    }

    /// Waits for a page, and groups it with the pages that were read meanwhile.
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
                // The reader has ended without a last page: it panicked, and the panic was reported.
                None => Some(format!("{shown}: it cannot be read any further")),
            };
            if let Some(why) = why {
                // Pages that were read before the error are accepted first; then the run ends.
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

    /// Checks the lines of a page, and adds them to the group.
    fn check(&mut self, page: Page, ready: &mut Ready) {
        let (mut jobs, mut invalid) = (ready.mark.jobs, ready.mark.invalid);
        let since = self.sent.as_ref().map(|(_, since)| *since);
        // The page may have waited for room, and relative deadlines count from when the page was read.
        let waited = self.clock.wall().duration_since(page.read_at).unwrap_or_default();
        for line in page.lines {
            if let Some((sent, _)) = &mut self.sent
                && sent.take(&line.text)
            {
                ready.note.extend_from_slice(&line.text);
                self.far.skipped.set(self.far.skipped() + 1);
                continue;
            }
            let checked = line.job.and_then(|job| {
                let request = match job.request.stated_deadline() {
                    Some(left) => job.request.deadline(left.saturating_sub(waited)),
                    None => job.request,
                };
                // A kind of points that the vendor does not count is probably misspelled. The job would be sent with a
                // wrong cost, so it is refused.
                self.client.costs(&job.tenant, &request).map_err(|error| in_words(&error))?;
                let request = self.results.request(request);
                let checked = self.batch.check(line.number, &job.tenant, job.priority, request);
                let checked = checked.map_err(|error| in_words(&error))?;
                Ok((checked, (job.tenant, job.vendor, job.priority)))
            });
            match checked {
                Ok((checked, lane)) => {
                    ready.jobs.push(checked);
                    ready.note.extend_from_slice(&line.text);
                    *ready.lanes.entry(lane).or_default() += 1;
                    jobs += 1;
                }
                Err(why) if self.keep_going => {
                    invalid += 1;
                    match invalid {
                        ..=SAID => notes::say(&format!("{}:{}: {why}; left out", self.shown, line.number)),
                        _ if invalid == SAID + 1 => notes::say("more lines are invalid; --out names all of them"),
                        _ => {}
                    }
                    ready.left_out.push((line.number, why));
                }
                Err(why) => {
                    ready.mark = Mark { since, ..line.begin.mark(jobs, invalid, false) };
                    ready.bad = Some(format!(
                        "{}:{}: {why}. Correct the line and run the same command again, or leave such lines out with --keep-going",
                        self.shown, line.number
                    ));
                    return;
                }
            }
        }
        ready.mark = Mark { since, ..page.end.mark(jobs, invalid, page.complete) };
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use integration_client::config::TenantEntry;
    use integration_client::outbox::BatchCounts;
    use integration_client::store::Store;
    use integration_client::testing::{FakeAnswer, FakeTransport};
    use integration_client::{IntegrationClientBuilder, Priority};

    use super::super::keys::KeyFault;
    use super::*;

    #[test]
    fn feed_reads_further_ahead_when_sending_slowly() {
        assert!(!is_far_ahead(ENOUGH - 1, Some(1e6)), "a little is always ahead");
        assert!(is_far_ahead(ENOUGH, Some(10_000.0)) && is_far_ahead(60_000, Some(10_000.0)));
        assert!(!is_far_ahead(ENOUGH, Some(100.0)), "others behind them in the file may be faster");
        assert!(!is_far_ahead(ENOUGH, None), "nobody knows yet");
        assert!(is_far_ahead(AHEAD, None) && is_far_ahead(AHEAD, Some(0.0)));
    }

    /// A folder with a file of one job, whose deadline is two seconds after it was read.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("ic-feed-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let job = "{\"tenant\":\"acme\",\"vendor\":\"v\",\"method\":\"GET\",\"path\":\"/\",\"deadline\":\"2s\"}\n";
        std::fs::write(folder.join("jobs.jsonl"), job).unwrap();
        folder
    }

    fn input(folder: &Path) -> Input {
        Input::open(folder.join("jobs.jsonl").to_str().unwrap()).unwrap()
    }

    fn builder(folder: &Path, transport: &FakeTransport) -> IntegrationClientBuilder {
        let entry = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(entry).transport(transport.clone());
        builder.tenant(TenantEntry::new("acme", "v")).store(Store::sqlite(folder.join("store.db")))
    }

    async fn feed(client: &IntegrationClient, folder: &Path) -> Feed {
        let batch = client.outbox().batch("run").await.unwrap();
        let results = Results::open(None, batch.numbers()).unwrap();
        Feed::begin(
            client,
            input(folder),
            batch,
            Mark::default(),
            results,
            false,
            None,
            PausedLanes::default(),
            Clock::system(),
        )
    }

    async fn counts(client: &IntegrationClient) -> BatchCounts {
        client.outbox().batch("run").await.unwrap().counts().await.unwrap()
    }

    /// Other workers on the store have ended all jobs that were accepted before.
    #[tokio::test]
    async fn jobs_ended_elsewhere_make_room() {
        let (folder, transport) = (folder("elsewhere"), FakeTransport::new(|_| FakeAnswer::status(200)));
        let client = builder(&folder, &transport).build().await.unwrap();
        let feed = feed(&client, &folder).await;
        let mut before = BatchCounts::default();
        before.waiting = AHEAD;
        feed.results.begin(&before, Vec::new());
        tokio::time::timeout(Duration::from_secs(20), feed.run()).await.expect("there is room").unwrap();
        assert_eq!(counts(&client).await.waiting, 1);
        client.shutdown(Duration::from_secs(5)).await;
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// The jobs at the beginning of the file have no key, and those behind them have one.
    #[tokio::test]
    async fn jobs_of_paused_lanes_leave_room() {
        let (folder, transport) = (folder("paused"), FakeTransport::new(|_| FakeAnswer::status(200)));
        let client = builder(&folder, &transport).tenant(TenantEntry::new("umbra", "v")).build().await.unwrap();
        let mut feed = feed(&client, &folder).await;
        let mut before = BatchCounts::default();
        before.waiting = AHEAD;
        feed.results.begin(&before, vec![(("umbra".to_owned(), "v".to_owned(), Priority::Normal), AHEAD)]);
        assert!(feed.keys.pause(("umbra".to_owned(), "v".to_owned()), KeyFault::Missing, &client));
        // The store, which holds none of the jobs of before, is not asked.
        feed.counted = Some(Clock::system().now() + Duration::from_secs(3_600));
        tokio::time::timeout(Duration::from_secs(20), feed.run()).await.expect("there is room").unwrap();
        assert_eq!(counts(&client).await.waiting, 1);
        client.shutdown(Duration::from_secs(5)).await;
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A job of an earlier run ended while this one began, before its lane was counted.
    #[tokio::test]
    async fn lane_whose_jobs_have_ended_keeps_no_run_waiting() {
        let (folder, transport) = (folder("ended"), FakeTransport::new(|_| FakeAnswer::status(200)));
        let client = builder(&folder, &transport).build().await.unwrap();
        let feed = feed(&client, &folder).await;
        let lane = |tenant: &str| (tenant.to_owned(), "v".to_owned(), Priority::Normal);
        feed.results.begin(&BatchCounts::default(), vec![(lane("acme"), 1), (lane("umbra"), 2)]);
        feed.results.left_as_stored(&[(lane("umbra"), 3)]);
        assert_eq!(feed.results.left_by_lane(), [(lane("umbra"), 2)]);
        client.shutdown(Duration::from_secs(5)).await;
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// The page was read five seconds before there was room for its job.
    #[tokio::test]
    async fn waiting_page_keeps_its_deadlines() {
        let (folder, transport) = (folder("deadlines"), FakeTransport::new(|_| FakeAnswer::status(200)));
        let client = builder(&folder, &transport).work().build().await.unwrap();
        let mut feed = feed(&client, &folder).await;
        let then = Clock::system().wall() - Duration::from_secs(5);
        let (sender, pages) = mpsc::channel(1);
        assert!(sender.try_send(input(&folder).page(|| then)).is_ok());
        feed.pages = pages;
        feed.run().await.unwrap();
        while counts(&client).await.waiting > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((counts(&client).await.dead, transport.calls().len()), (1, 0));
        client.shutdown(Duration::from_secs(5)).await;
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
