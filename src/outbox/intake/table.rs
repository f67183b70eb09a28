//! The hand-over from the table `ic_intake` of the store itself: see docs/INTAKE.md.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::line::Line;
use super::parts::{BYTES_TOGETHER, Parts, Rejected};
use super::room::{LaneName, Room, place};
use crate::error::{Error, ErrorKind};
use crate::outbox::accept::Origin;
use crate::outbox::{Outbox, OutboxState};
use crate::store::intake::{self, is_rejection};
use crate::store::intake_table::{self, CheckedRow, Move, Moved, Page, Waiting};
use crate::store::jobs::{Accepted, NewJob};
use crate::store::problems::Work;
use crate::store::{LaneTier, Size, is_down, millis_of};

/// The most rows in one read, and in one transaction.
const ROWS: i64 = 256;
/// How often an empty table is checked.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The longest wait between two passes over a table with rows of full lanes: one of them may have room.
const LONGEST: Duration = Duration::from_secs(5);
/// The wait after a failure of the store.
const AWAY: Duration = Duration::from_secs(1);
/// The source name under which the ids of rows are remembered.
const NAME: &str = "ic_intake";

impl Outbox {
    /// Accepts the requests that applications insert into the store's table `ic_intake`, until
    /// [`shutdown`](crate::IntegrationClient::shutdown). Runs in the caller's own task. Returns how many jobs were accepted.
    ///
    /// An application in any language inserts a row in a transaction of its own:
    /// `INSERT INTO ic_intake (request) VALUES ('{"tenant":"acme","vendor":"shopify","method":"POST","path":"/orders.json"}')`;
    /// [`Line`] lists the fields. A row is moved in one transaction of the store, so that each becomes one job, whatever
    /// is killed. A row that is no valid request goes into `ic_intake_refused` with the reason. So does a row whose job
    /// the database rejects, if it accepts other jobs of rows that were read together. Several processes may take from
    /// one table: one of them moves rows at a time.
    ///
    /// While the outbox, or a tenant's part of it, is full, and while the store is unreachable, rows stay in the
    /// table. So does a row that an application has locked, with the later rows of its tenant and vendor.
    ///
    /// # Errors
    /// An error of the store that is not temporary, and [`ErrorKind::Shutdown`] if the client had been shut down before.
    pub async fn feed_from_table(self) -> Result<u64, Error> {
        let outbox = self.state()?.clone();
        outbox.check_open()?;
        let (mut stop, mut new, mut after) = (outbox.stop.subscribe(), 0, 0);
        // A lane that was full counts as full until the end of the table is reached, so that its rows keep their
        // order.
        let mut room = Room::default();
        let mut accepts = false;
        let mut began = outbox.clock.now();
        while !*stop.borrow() {
            let failed = |error| Found { failure: Some(error), ..Found::default() };
            let found = self.page(&outbox, &mut room, &mut accepts, after).await.unwrap_or_else(failed);
            new += found.jobs;
            accepts &= found.failure.is_none();
            let wait = match (found.failure, found.last) {
                (Some(error), _) if error.kind() == ErrorKind::Shutdown => break,
                (Some(error), _) if is_down(&error) => AWAY,
                (Some(error), _) => return Err(error),
                (None, Some(last)) => {
                    after = last;
                    Duration::ZERO
                }
                (None, None) => {
                    // Rows of full lanes are read again in each pass. If there are many, at most half of the time is spent on that.
                    let longest = if room.has_closed() { LONGEST } else { LOOK_EVERY };
                    (after, room) = (0, Room::default());
                    outbox.clock.now().since(began).clamp(LOOK_EVERY, longest)
                }
            };
            if !wait.is_zero() {
                // Either the time is over or the client has been shut down.
                let _ = tokio::time::timeout(wait, stop.wait_for(|stop| *stop)).await;
                began = outbox.clock.now();
            }
        }
        Ok(new)
    }

    /// Moves one page of rows behind `after`. `accepts`: whether the database has accepted jobs of earlier pages, so that
    /// a row which it rejects is at fault.
    async fn page(
        &self,
        outbox: &Arc<OutboxState>,
        room: &mut Room,
        accepts: &mut bool,
        after: i64,
    ) -> Result<Found, Error> {
        let longest = i64::try_from(outbox.store.limits.max_payload).unwrap_or(i64::MAX);
        let page = Page { after, rows: ROWS, bytes: BYTES_TOGETHER as i64, longest };
        let waiting = outbox.store.read(page, intake_table::read).await?;
        let end = waiting.last().map(|row| row.seq).filter(|_| page.is_full(&waiting));
        let mut rows = Vec::new();
        let cut = match self.check_rows(outbox, room, waiting, &mut rows).await {
            Ok(cut) => cut,
            Err(error) => {
                count_out(outbox, &rows);
                return Err(error);
            }
        };
        let found = if rows.is_empty() { Found::default() } else { move_page(outbox, accepts, rows).await };
        found.stay.iter().for_each(|lane| room.close(lane));
        Ok(Found { last: cut.or(end).filter(|_| room.is_open() && !found.is_cut), ..found })
    }

    /// Makes jobs of those rows of a page whose lanes may have room, and counts them in the backlogs of their lanes.
    /// Ends before a row whose job would make the transaction too large, and then returns the row before it.
    async fn check_rows(
        &self,
        outbox: &Arc<OutboxState>,
        room: &mut Room,
        waiting: Vec<Waiting>,
        rows: &mut Vec<CheckedRow>,
    ) -> Result<Option<i64>, Error> {
        let (wall, longest) = (outbox.clock.wall(), outbox.store.limits.max_payload);
        let (mut bytes, mut before) = (0usize, None);
        for row in waiting {
            let seq = row.seq;
            outbox.measured.intake.behind(Some(Duration::from_millis(row.age_ms.unsigned_abs())));
            if full_lane(room, &row).is_some() {
                before = Some(seq);
                continue;
            }
            match self.job_of(&row, wall, longest) {
                Ok(job) => {
                    let with_job = bytes.saturating_add(job.request.len());
                    if bytes > 0 && with_job > BYTES_TOGETHER {
                        return Ok(before);
                    }
                    match place(outbox, room, &job.lane).await? {
                        true => {
                            bytes = with_job;
                            rows.push(CheckedRow { seq, job: Ok(job) });
                        }
                        false if !room.is_open() => break,
                        false => {}
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::Shutdown | ErrorKind::Store) => return Err(error),
                Err(error) => rows.push(CheckedRow { seq, job: Err(error.to_string()) }),
            }
            before = Some(seq);
        }
        Ok(None)
    }

    fn job_of(&self, row: &Waiting, wall: SystemTime, longest: usize) -> Result<NewJob, Error> {
        let Some(text) = &row.request else {
            let why = format!("the request is longer than {longest} bytes (`max_payload_bytes`)");
            return Err(Error::not_sent(ErrorKind::InvalidRequest, why));
        };
        let Line { tenant, priority, request } = Line::parse(text, wall)?;
        let origin = match &row.id {
            Some(id) => Origin::Message { source: NAME, id },
            None => Origin::Caller,
        };
        self.job(&tenant, priority, request, origin).map(|(_, job)| job)
    }
}

/// The lane of a row, if it counts as full. No job is made of such a row: a table may hold millions of them.
fn full_lane(room: &Room, row: &Waiting) -> Option<LaneName> {
    let text = row.request.as_deref().filter(|_| room.has_closed())?;
    Line::lane(text).filter(|lane| room.is_closed(lane))
}

/// The result of one page.
#[derive(Default)]
struct Found {
    jobs: u64,
    /// The row behind which the next page begins, if others may follow.
    last: Option<i64>,
    /// The lanes of which rows stay in the table although there is room for them.
    stay: Vec<LaneTier>,
    /// Whether another process is moving rows, so that the rest of the page is left in the table.
    is_cut: bool,
    /// The error after which the other rows of the page are still in the table.
    failure: Option<Error>,
}

/// Moves the rows of a page. A row that the database rejects is refused, if the database accepts others.
async fn move_page(outbox: &OutboxState, accepts: &mut bool, rows: Vec<CheckedRow>) -> Found {
    let (mut parts, mut found, mut refused) = (Parts::new(std::iter::once(0..rows.len())), Found::default(), 0);
    let rows = Arc::new(rows);
    let statements = |row: usize| rows[row].job.as_ref().map_or(1, intake::statements);
    let next = |parts: &mut Parts| {
        let most = outbox.intake_bound.lock().most();
        parts.pop(most, statements)
    };
    while let Some(part) = next(&mut parts) {
        // Another process is moving rows.
        if found.is_cut {
            parts.rest(part).into_iter().for_each(|number| count_out(outbox, &rows[number..=number]));
            break;
        }
        // Later rows of a lane of which one stays may be in this part.
        match write(outbox, rows.clone(), part.range.clone(), found.stay.clone()).await {
            Ok(moved) => {
                outbox.intake_bound.lock().written(part.range.len(), outbox.clock.now());
                let stays = |row: &&CheckedRow| moved.stay.contains(&row.seq);
                let lanes = rows.iter().filter(stays).filter_map(|row| Some(row.job.as_ref().ok()?.lane.clone()));
                found.stay.extend(lanes);
                found.is_cut = moved.is_elsewhere;
                let new = count_new(outbox, &rows[part.range.clone()], moved.taken);
                if new > 0 {
                    parts.accept(&part);
                }
                (found.jobs, refused) = (found.jobs + new, refused + moved.refused);
            }
            // One of the rows may be the cause.
            Err(error) if is_rejection(&error) => parts.reject(part, error),
            Err(error) => {
                outbox.intake_bound.lock().failed(part.range.len(), outbox.clock.now());
                found.failure = Some(error);
                parts.rest(part).into_iter().for_each(|number| count_out(outbox, &rows[number..=number]));
                break;
            }
        }
    }
    *accepts |= found.jobs > 0;
    if *accepts {
        parts.accept_all();
    }
    let mut bad = Vec::new();
    for Rejected { number, error, is_cause } in parts.rejected() {
        count_out(outbox, &rows[number..=number]);
        match is_cause {
            true => bad.push(CheckedRow { seq: rows[number].seq, job: Err(error.to_string()) }),
            // The rows that could show whether the database accepts others were not tried.
            false if found.is_cut || !found.stay.is_empty() => {}
            // A database that accepts no other job of the page is at fault, and not the row.
            false => {
                found.failure.get_or_insert(error);
            }
        }
    }
    if found.failure.is_none() && !bad.is_empty() {
        let all = 0..bad.len();
        match write(outbox, Arc::new(bad), all, Vec::new()).await {
            Ok(moved) => refused += moved.refused,
            Err(error) => found.failure = Some(error),
        }
    }
    outbox.measured.intake.taken(found.jobs);
    outbox.measured.intake.refused(refused);
    if refused > 0 {
        tracing::warn!(rows = refused, "rows of ic_intake were refused; ic_intake_refused says why");
    }
    found
}

/// Moves a range of rows in one transaction, except the rows of the lanes `stay`.
async fn write(
    outbox: &OutboxState,
    rows: Arc<Vec<CheckedRow>>,
    which: Range<usize>,
    stay: Vec<LaneTier>,
) -> Result<Moved, Error> {
    let keep_ms = millis_of(outbox.store.limits.keep_dead);
    let jobs = || rows[which.clone()].iter().filter_map(|row| row.job.as_ref().ok());
    // Beside the statements of the jobs, one for each row that is refused.
    let refused = which.len() - jobs().count();
    let size = Size {
        bytes: jobs().map(|job| job.request.len()).sum(),
        statements: refused + jobs().map(intake::statements).sum::<usize>(),
    };
    outbox.store.write_bulk(Work::Accept, size, Move { rows, which, stay, keep_ms }, intake_table::move_rows).await
}

/// Tells the worker of the rows that became new jobs, and takes the others out of the backlogs. Returns the number of
/// new jobs.
fn count_new(outbox: &OutboxState, rows: &[CheckedRow], taken: Vec<(i64, Accepted)>) -> u64 {
    let (mut taken, mut new) = (taken.into_iter().peekable(), 0);
    for row in rows {
        let Ok(job) = &row.job else { continue };
        // `taken` is in the order of the rows. It lacks rows that another process has moved, and rows that stay.
        match taken.next_if(|(seq, _)| *seq == row.seq) {
            Some((_, Accepted::New)) => {
                new += 1;
                outbox.lane_has_job(job.lane.clone());
            }
            _ => outbox.count_out(&job.lane),
        }
    }
    new
}

/// Takes the jobs of rows out of the backlogs of their lanes.
fn count_out(outbox: &OutboxState, rows: &[CheckedRow]) {
    rows.iter().filter_map(|row| row.job.as_ref().ok()).for_each(|job| outbox.count_out(&job.lane));
}
