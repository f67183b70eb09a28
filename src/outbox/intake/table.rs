//! The hand-over from the table `ic_intake` of the store itself: see docs/INTAKE.md.

use std::time::{Duration, SystemTime};

use super::line::Line;
use super::room::{Room, place};
use crate::error::{Error, ErrorKind};
use crate::outbox::accept::Origin;
use crate::outbox::{Outbox, OutboxState};
use crate::store::intake_table::{self, Move, Page, Waiting};
use crate::store::jobs::Accepted;
use crate::store::problems::Work;
use crate::store::{is_down, millis_of};
use std::sync::Arc;

/// The most rows in one read, and in one transaction.
const ROWS: i64 = 256;
/// How often an empty table is checked.
const LOOK_EVERY: Duration = Duration::from_millis(250);
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
    /// [`Line`] lists the fields. A row is moved in one transaction of the store, so that each becomes one job, whatever is
    /// killed. A row that is no valid request goes into `ic_intake_refused` with the reason. Several processes may take
    /// from one table.
    ///
    /// While the outbox, or a tenant's part of it, is full, and while the store is unreachable, rows stay in the
    /// table.
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
        while !*stop.borrow() {
            let wait = match self.page(&outbox, &mut room, after).await {
                Ok(Found { jobs, last: Some(last) }) => {
                    (new, after) = (new + jobs, last);
                    Duration::ZERO
                }
                Ok(Found { jobs, last: None }) => {
                    new += jobs;
                    (after, room) = (0, Room::default());
                    LOOK_EVERY
                }
                Err(error) if error.kind() == ErrorKind::Shutdown => break,
                Err(error) if is_down(&error) => AWAY,
                Err(error) => return Err(error),
            };
            if !wait.is_zero() {
                // Either the time is over or the client has been shut down.
                let _ = tokio::time::timeout(wait, stop.wait_for(|stop| *stop)).await;
            }
        }
        Ok(new)
    }

    /// Moves one page of rows behind `after`.
    async fn page(&self, outbox: &Arc<OutboxState>, room: &mut Room, after: i64) -> Result<Found, Error> {
        let limits = &outbox.store.limits;
        let longest = i64::try_from(limits.max_payload).unwrap_or(i64::MAX);
        let rows = outbox.store.read(Page { after, rows: ROWS, longest }, intake_table::read).await?;
        let last = rows.last().map(|row| row.seq).filter(|_| rows.len() as i64 == ROWS);
        let wall = outbox.clock.wall();
        let mut moved = Move { jobs: Vec::new(), refused: Vec::new(), keep_ms: millis_of(limits.keep_dead) };
        let (mut lanes, mut failed) = (Vec::new(), None);
        for row in rows {
            outbox.measured.intake.behind(Some(Duration::from_millis(row.age_ms.unsigned_abs())));
            let job = match self.job_of(&row, wall, limits.max_payload) {
                Ok(job) => job,
                Err(error) if matches!(error.kind(), ErrorKind::Shutdown | ErrorKind::Store) => {
                    failed = Some(error);
                    break;
                }
                Err(error) => {
                    moved.refused.push((row.seq, error.to_string()));
                    continue;
                }
            };
            match place(outbox, room, &job.lane).await {
                Ok(true) => {
                    lanes.push((row.seq, job.lane.clone()));
                    moved.jobs.push((row.seq, job));
                }
                Ok(false) if !room.is_open() => break,
                Ok(false) => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if let Some(error) = failed {
            lanes.iter().for_each(|(_, lane)| outbox.count_out(lane));
            return Err(error);
        }
        if moved.jobs.is_empty() && moved.refused.is_empty() {
            return Ok(Found { jobs: 0, last: last.filter(|_| room.is_open()) });
        }
        let result = outbox.store.write_as(Work::Accept, moved, intake_table::move_rows).await;
        let mut taken = result.as_ref().map(|moved| moved.taken.iter()).into_iter().flatten().peekable();
        let mut jobs = 0;
        for (seq, lane) in lanes {
            // Both are in the order of the rows; rows that another process has moved are missing in one.
            match taken.next_if(|(of, _)| *of == seq) {
                Some((_, Accepted::New)) => {
                    jobs += 1;
                    outbox.lane_has_job(lane);
                }
                _ => outbox.count_out(&lane),
            }
        }
        let refused = result?.refused;
        outbox.measured.intake.taken(jobs);
        outbox.measured.intake.refused(refused);
        if refused > 0 {
            tracing::warn!(rows = refused, "rows of ic_intake were refused; ic_intake_refused says why");
        }
        Ok(Found { jobs, last: last.filter(|_| room.is_open()) })
    }

    fn job_of(&self, row: &Waiting, wall: SystemTime, longest: usize) -> Result<crate::store::jobs::NewJob, Error> {
        let Some(text) = &row.request else {
            let why = format!("the request is longer than {longest} characters (`max_payload_bytes`)");
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

/// The result of one page.
struct Found {
    jobs: u64,
    /// The last row of the page, if others may follow.
    last: Option<i64>,
}
