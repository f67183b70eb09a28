//! Compares the vendor's record with the workers' acknowledgements.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use integration_client::outbox::Status;
use integration_client::testing::{Delay, FakeVendor, HeaderStyle, VendorLimit};

use crate::process::{Ended, Worker};
use crate::worker::{Orders, client};
use crate::{Fallible, Options, database, runtime};

const WINDOW: Duration = Duration::from_secs(2);

/// The conditions of a run.
pub(crate) struct World {
    /// The limit of each tenant, in requests per window.
    pub(crate) limit: u32,
    pub(crate) service: Delay,
    pub(crate) lease: Duration,
    /// How many workers run at a time. Each has an equal part of the limit.
    pub(crate) workers: u32,
}

pub(crate) struct Judge {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) vendor: FakeVendor,
    pub(crate) orders: Orders,
    /// Exchanges that were under way when their worker was killed or stopped, or when the store's server was restarted.
    pub(crate) in_flight: HashSet<String>,
    /// Acknowledged requests: paths by id.
    accepted: BTreeMap<String, String>,
    /// The number of requests that the client did not accept because of an error.
    pub(crate) failed: u64,
    /// How often the store refused a write about a job because another process had claimed the job.
    pub(crate) outdated: u64,
    kind: String,
    folder: PathBuf,
}

impl Judge {
    pub(crate) fn new(options: &Options, world: &World) -> Fallible<Judge> {
        let folder = std::env::temp_dir().join(format!("ic-crash-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let runtime = runtime()?;
        let store = match options.store.as_str() {
            "sqlite" => format!("sqlite:{}", folder.join("outbox.db").display()),
            "postgres" => runtime.block_on(database::empty("crash"))?,
            other => return Err(format!("--store {other}: sqlite or postgres").into()),
        };
        println!("crash-test: seed {}, in {}", options.seed, folder.display());
        let vendor = FakeVendor::builder()
            .limit(VendorLimit::sliding_window(world.limit, WINDOW))
            .headers(HeaderStyle::Silent)
            .poisoned("/gone", 410)
            .poisoned("/busy", 503)
            .service_time(world.service);
        let vendor = runtime.block_on(vendor.start())?;
        // Idempotency keys and quick retries. On this machine, no request is under way for longer than a second.
        let transit = "\nconnect_timeout = \"1s\"\nmax_transit = \"1s\"\nauth";
        let vendors = vendor.vendors_toml("v").replacen("\nauth", transit, 1)
            + "\n[vendors.v.idempotency]\nheader = \"idempotency-key\"\n[vendors.v.retry]\nfirst_wait = \"200ms\"\n\
               longest_wait = \"2s\"\nmax_retries = 1\n";
        let share = 1.0 / f64::from(world.workers);
        let orders = Orders { store, vendors, run: None, point: None, lease: world.lease, share };
        Ok(Judge {
            runtime,
            vendor,
            orders,
            in_flight: HashSet::new(),
            accepted: BTreeMap::new(),
            failed: 0,
            outdated: 0,
            kind: options.store.clone(),
            folder,
        })
    }

    pub(crate) fn start(&self, run: &str) -> Fallible<Worker> {
        Orders { run: Some(run.to_owned()), ..self.orders.clone() }.start()
    }

    pub(crate) fn hear(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["accepted", id, path] => drop(self.accepted.insert(id.to_owned(), path.to_owned())),
                _ => {
                    self.failed += 1;
                    println!("crash-test: the worker said {line:?}");
                }
            }
        }
    }

    /// Takes the last output of a worker that has ended.
    pub(crate) fn bury(&mut self, ended: Ended) {
        self.hear(ended.said);
        let of_another = |line: &&String| line.contains("another process has it");
        self.outdated += ended.warned.iter().filter(of_another).count() as u64;
        if let Ok(path) = std::env::var("CRASH_TEST_LOG") {
            // The environment variable keeps the log for those who look for the cause of a failure.
            let _ = std::fs::write(format!("{path}.{}", fastrand::u32(..)), ended.warned.join("\n"));
        }
        for line in ended.warned.iter().filter(|line| line.contains("panicked")) {
            self.failed += 1;
            println!("crash-test: the worker warned {line:?}");
        }
    }

    /// Records which exchanges are under way. An exchange that was recorded before and has no outcome yet counts once.
    pub(crate) fn count_begun(&mut self) -> Fallible<()> {
        let begun = self.runtime.block_on(database::begun(&self.orders.store))?;
        self.in_flight.extend(begun);
        Ok(())
    }

    pub(crate) fn count(&self, sql: &'static str) -> Fallible<i64> {
        self.runtime.block_on(database::count(&self.orders.store, sql))
    }

    /// Lets one more worker send what is left, until nothing is left or no job has ended for a minute. Returns the
    /// number of jobs left.
    pub(crate) fn drain(&mut self) -> Fallible<i64> {
        let worker = Orders { share: 1.0, ..self.orders.clone() }.start()?;
        let (mut left, mut since) = (i64::MAX, Instant::now());
        while left > 0 && since.elapsed() < Duration::from_secs(60) {
            let now_left = self.count("SELECT count(*) FROM ic_job")?;
            if now_left < left {
                (left, since) = (now_left, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let ended = worker.finish()?;
        self.bury(ended);
        Ok(left)
    }

    /// Drains the store, compares the records, and prints the last line: `what` stands near its beginning, `more` at
    /// its end.
    pub(crate) fn verdict(mut self, what: &str, more: &str, failures_are_fine: bool) -> Fallible<bool> {
        let left = self.drain()?;
        let arrivals = self.vendor.arrivals();
        let mut admitted: HashMap<&str, u64> = HashMap::new();
        let mut keys: HashMap<&str, HashSet<&str>> = HashMap::new();
        for arrival in arrivals.iter().filter(|arrival| arrival.admitted && arrival.judged) {
            *admitted.entry(&arrival.path).or_default() += 1;
            keys.entry(&arrival.path).or_default().insert(&arrival.idempotency_key);
        }
        let lost = self.runtime.block_on(lost(&self.orders, &self.accepted, &admitted))?;
        let duplicates: u64 = admitted.values().map(|count| count - 1).sum();
        let double_effects = keys.values().filter(|keys| keys.len() > 1).count();
        let twice = "SELECT count(*) FROM (SELECT id FROM (SELECT id FROM ic_job UNION ALL SELECT id FROM ic_done \
                     UNION ALL SELECT id FROM ic_dead) places GROUP BY id HAVING count(*) > 1) twice";
        let twice = self.count(twice)?;
        let dead = self.count("SELECT count(*) FROM ic_dead")?;
        let (refused, in_flight) = (self.vendor.refused(), self.in_flight.len());
        println!(
            "crash-test: {} arrivals, {dead} dead letters, {left} left, {twice} in two places, {} refused to be accepted",
            arrivals.len(),
            self.failed
        );
        println!(
            "crash-test: store={} {what} accepted={} lost={lost} duplicates={duplicates} \
             in_flight_at_kill={in_flight} double_effects={double_effects} refused={refused}{more}",
            self.kind,
            self.accepted.len()
        );
        let _ = std::fs::remove_dir_all(&self.folder);
        let within = usize::try_from(duplicates).is_ok_and(|duplicates| duplicates <= in_flight);
        let accepts = !self.accepted.is_empty() && (self.failed == 0 || failures_are_fine);
        Ok(lost == 0 && within && double_effects == 0 && refused == 0 && twice == 0 && left == 0 && accepts)
    }
}

/// Counts acknowledged requests that are neither delivered (by the vendor's record too) nor dead letters.
async fn lost(orders: &Orders, accepted: &BTreeMap<String, String>, admitted: &HashMap<&str, u64>) -> Fallible<u64> {
    let client = client(orders, false).await?;
    let mut lost = 0;
    for (id, path) in accepted {
        let status = client.outbox().receipt(id)?.status().await?;
        let is_safe = match status {
            Status::Delivered { .. } => admitted.contains_key(path.as_str()),
            Status::Dead { .. } => true,
            _ => false,
        };
        if !is_safe {
            lost += 1;
            println!("crash-test: LOST {id} {path}: {status:?}");
        }
    }
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    let mut after = None::<i64>;
    loop {
        let letters = client.outbox().dead_letters()?.list(after, 500).await?;
        let Some(last) = letters.last() else { break };
        after = Some(last.place);
        for kept in letters {
            *reasons.entry(kept.letter.reason.to_string()).or_default() += 1;
        }
    }
    println!("crash-test: dead letters by reason: {reasons:?}");
    Ok(lost)
}
