//! The end of a run, without new requests and disturbances. What still waits must end by itself; then everything is
//! recorded.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::director::Director;
use super::judge::{BOUND_NS, Outcome, Place, Record, Seen, Told, VendorRecord};
use super::world::vendors;
use super::{Fallible, database};

/// Records a line of a program (`program.rs` lists them). Any other line is a problem of the soak itself.
pub(crate) fn tell(record: &mut Record, problems: &mut Vec<String>, at: u64, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let (path, outcome) = match words[..] {
        ["ask", vendor, tenant, path] => {
            let (vendor, tenant) = (vendor.to_owned(), tenant.to_owned());
            let told = Told { vendor, tenant, asked: at, ended: None, is_cut_off: false };
            record.told.insert(path.to_owned(), told);
            return;
        }
        ["accepted", path, id] => (path, Outcome::Accepted(id.to_owned())),
        ["answered", path, status] => (path, Outcome::Answered(status.parse().unwrap_or_default())),
        ["failed", path, delivery, kind, ..] => (path, Outcome::Failed(delivery.to_owned(), kind.to_owned())),
        ["dropped", path] => (path, Outcome::Dropped),
        ["idle"] => return,
        _ => return problems.push(format!("a program said {line:?}")),
    };
    match record.told.get_mut(path) {
        Some(told) => told.ended = Some((at, outcome)),
        None => problems.push(format!("a program said {line:?} of what it had not asked")),
    }
}

impl Director<'_> {
    /// Waits until nothing is left, or until no lane with something left has made progress for as long as the judge
    /// allows.
    pub(crate) fn settle(&mut self) -> Fallible<()> {
        self.begin_to_settle()?;
        let bound = Duration::from_nanos(BOUND_NS);
        // What is left of each lane, and when it last decreased.
        let mut lanes: HashMap<String, (u64, Instant)> = HashMap::new();
        loop {
            self.hear();
            let mut left = self.runtime.block_on(jobs_left(&self.store))?;
            let waiting = self.record.told.values().filter(|told| told.ended.is_none() && !told.is_cut_off).count();
            left.insert("requests".to_owned(), u64::try_from(waiting)?);
            let now = Instant::now();
            let mut moves = false;
            for (lane, count) in left.into_iter().filter(|(_, count)| *count > 0) {
                let known = lanes.entry(lane).or_insert((u64::MAX, now));
                if count < known.0 {
                    *known = (count, now);
                }
                moves |= now - known.1 < bound;
            }
            if !moves {
                return self.finish_programs();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The complete record of the run, and the problems of the soak itself.
    pub(crate) fn into_record(mut self) -> Fallible<(Record, Vec<String>)> {
        self.record.places = self.runtime.block_on(places(&self.store))?;
        for ((plan, (vendor, offset)), outages) in vendors().into_iter().zip(&self.vendors).zip(&self.outages) {
            let seen = vendor.arrivals().into_iter().map(|arrival| Seen {
                at: arrival.at.as_nanos() + offset,
                finished: arrival.finished_at.map_or(u64::MAX, |at| at.as_nanos() + offset),
                key: arrival.key.to_string(),
                account: arrival.account.to_string(),
                endpoint: arrival.endpoint.to_string(),
                path: arrival.path.to_string(),
                idempotency_key: arrival.idempotency_key.to_string(),
                status: arrival.status,
                admitted: arrival.admitted,
                judged: arrival.judged,
            });
            self.record.vendors.push(VendorRecord { plan, seen: seen.collect(), outages: outages.clone() });
            if vendor.summary().not_logged > 0 {
                self.problems.push(format!("the log of {} is full: fewer seconds", plan.name));
            }
        }
        let _ = std::fs::remove_dir_all(&self.folder);
        Ok((self.record, self.problems))
    }
}

/// The number of jobs in the outbox by tenant and vendor.
async fn jobs_left(store: &str) -> Fallible<HashMap<String, u64>> {
    let sql = "SELECT tenant || ' ' || vendor || ' ' || count(*) FROM ic_job GROUP BY tenant, vendor";
    let rows: Vec<String> = database::ask(store, sql).await?;
    let lane = |row: &String| {
        let (lane, count) = row.rsplit_once(' ')?;
        Some((lane.to_owned(), count.parse().ok()?))
    };
    Ok(rows.iter().filter_map(lane).collect())
}

/// Where the store has each job.
async fn places(store: &str) -> Fallible<HashMap<String, Place>> {
    let [waiting, done, dead] = match store.starts_with("sqlite:") {
        true => [
            "SELECT hex(id) FROM ic_job",
            "SELECT hex(id) || ' ' || status FROM ic_done",
            "SELECT hex(id) || ' ' || reason || ' ' || CAST(letter AS TEXT) FROM ic_dead",
        ],
        false => [
            "SELECT encode(id, 'hex') FROM ic_job",
            "SELECT encode(id, 'hex') || ' ' || status FROM ic_done",
            "SELECT encode(id, 'hex') || ' ' || reason || ' ' || convert_from(letter, 'UTF8') FROM ic_dead",
        ],
    };
    let mut places = HashMap::new();
    for id in database::ask::<String>(store, waiting).await? {
        places.insert(id.to_lowercase(), Place::Waiting);
    }
    for row in database::ask::<String>(store, done).await? {
        let (id, status) = row.split_once(' ').ok_or("a row without a status")?;
        places.insert(id.to_lowercase(), Place::Delivered(status.parse()?));
    }
    for row in database::ask::<String>(store, dead).await? {
        let mut parts = row.splitn(3, ' ');
        let [Some(id), Some(reason), Some(letter)] = [parts.next(), parts.next(), parts.next()] else {
            return Err("a row without a reason and a letter".into());
        };
        places.insert(id.to_lowercase(), Place::Dead { reason: reason.to_owned(), letter: letter.to_owned() });
    }
    Ok(places)
}
