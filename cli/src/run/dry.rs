//! `run --dry-run`: checks that every line is a job, and estimates how long the jobs would take, with those that wait in
//! the run's store. Nothing is sent, and the run's store is not written.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use integration_client::clock::Clock;
use integration_client::outbox::Queue;
use integration_client::store::Store;
use integration_client::{Error, ErrorKind, IntegrationClient, Priority};

use super::args::{Args, name};
use super::costly::Costly;
use super::deadlines::{Deadlines, Late};
use super::feed::{self, SAID};
use super::input::Input;
use super::keys;
use super::prepare::{Beginning, Checks};
use super::results::LaneTier;
use super::sent::Sent;
use super::unconfigured;
use crate::connect::{Named, in_words};
use crate::key_files::{self, KeyFiles};
use crate::output::{Failure, Outcome, Screen, table};
use crate::text::{count, span, thousands64};

/// Tenant, vendor and the name of the priority. The table is sorted by them.
type Lane = (String, String, String);

/// The number of jobs of a lane, and the total cost of those that were read, by kind of points.
struct Load {
    priority: Priority,
    /// Jobs that wait in the store from before. They are sent first.
    waiting: u64,
    /// Jobs of the lines that the dry run has read.
    jobs: u64,
    points: BTreeMap<Arc<str>, u64>,
    deadlines: Deadlines,
}

impl Load {
    fn of(priority: Priority) -> Load {
        Load { priority, waiting: 0, jobs: 0, points: BTreeMap::new(), deadlines: Deadlines::default() }
    }

    /// The number of jobs that the run would send.
    fn all(&self) -> u64 {
        self.waiting + self.jobs
    }

    /// How long the first `jobs` jobs take if no other lane sends; `None` if that is not known. Each of them is taken to
    /// cost as much as those that were read; if none was read, what a request costs that states nothing.
    fn takes(
        &self,
        jobs: u64,
        client: &IntegrationClient,
        tenant: &str,
        vendor: &str,
    ) -> Result<Option<Duration>, Error> {
        let part = |sum: u64| (u128::from(sum) * u128::from(jobs) / u128::from(self.jobs.max(1))) as u64;
        let points: Vec<(&str, u64)> = self.points.iter().map(|(kind, sum)| (&**kind, part(*sum))).collect();
        match client.estimate_points(tenant, vendor, self.priority, jobs, &points) {
            // The configuration no longer has the tenant of jobs that wait in the store.
            Err(error) if matches!(error.kind(), ErrorKind::UnknownTenant | ErrorKind::UnknownVendor) => Ok(None),
            estimate => Ok(estimate?.expected),
        }
    }
}

/// A temporary folder for the store of the dry run. Dropping it deletes the folder.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, Failure> {
        let path = std::env::temp_dir().join(format!("integration-client-dry-run-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| Failure::reading(&path, &error))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Opens the run's store. `None` if its file does not exist, because opening it would create it.
async fn open(named: &Named) -> Result<Option<IntegrationClient>, Failure> {
    if named.path().is_some_and(|path| !path.exists()) {
        return Ok(None);
    }
    Ok(Some(IntegrationClient::builder().without_catalogue().store(named.store()).build().await?))
}

/// The rows of vendors and tenants in the run's store.
async fn rows(named: &Named) -> Result<Vec<(String, String)>, Failure> {
    let Some(client) = open(named).await? else { return Ok(Vec::new()) };
    let rows = client.config().stored().await?;
    client.shutdown(Duration::from_secs(1)).await;
    Ok(rows)
}

/// What the run's store holds.
#[derive(Default)]
struct Stored {
    /// Lines of the input that an earlier run has read; the input is read up to their end.
    read: u64,
    /// Jobs of those lines that were not sent yet.
    waiting: Vec<(LaneTier, u64)>,
    /// All jobs of the store. The run would also send those of other runs.
    queues: Vec<Queue>,
    /// The lines that the run would not send again.
    sent: Option<Sent>,
}

impl Stored {
    /// Reads the run's store.
    ///
    /// # Errors
    /// Those with which the run itself would begin, as for a file that has changed.
    async fn read(args: &Args, checks: Checks<'_>, named: &Named, input: &mut Input) -> Result<Stored, Failure> {
        let mut stored = Stored::default();
        let Some(client) = open(named).await? else { return Ok(stored) };
        stored.queues = client.outbox().queues(10_000).await?;
        // A batch that does not exist would be created.
        if client.outbox().batches().await?.contains(&name(args)) {
            let batch = client.outbox().batch(&name(args)).await?;
            let counts = batch.counts().await?;
            match Beginning::of(args, checks, named, &batch, counts, input).await? {
                Beginning::New | Beginning::Anew => {}
                Beginning::GoOn(mark, sent) => {
                    (stored.read, stored.waiting) = (mark.lines, batch.waiting_by_lane().await?);
                    stored.sent = sent.map(|(sent, _)| sent);
                }
                Beginning::Changed(sent) => stored.sent = Some(sent),
            }
        }
        client.shutdown(Duration::from_secs(1)).await;
        Ok(stored)
    }
}

pub(super) async fn run(
    args: &Args,
    named: &Named,
    mut input: Input,
    clock: Clock,
    screen: Screen,
) -> Result<Outcome, Failure> {
    let folder = Folder::new()?;
    let store = || Store::sqlite(folder.0.join("store.sqlite"));
    // A batch checks the requests, and opening a batch writes to the store. So the dry run uses a temporary store, into
    // which the configuration of the run's store is copied.
    let rows = rows(named).await?;
    if !rows.is_empty() {
        let alone = IntegrationClient::builder().without_catalogue().store(store()).build().await?;
        for (name, text) in rows {
            alone.config().set_stored(&name, Some(&text)).await?;
        }
    }
    let builder = args.configuration.builder()?.config_in_store().store(store());
    let client = builder.without_watching().build().await?;
    let batch = client.outbox().batch("dry run").await?;
    let checks = Checks { client: &client, batch: &batch };
    let stored = Stored::read(args, checks, named, &mut input).await?;
    let Stored { read, waiting: left, queues, mut sent } = stored;
    let mut out = anstream::stdout();
    let mut lanes: BTreeMap<Lane, Load> = BTreeMap::new();
    for ((tenant, vendor, priority), jobs) in left {
        let lane = (tenant, vendor, priority.to_string());
        lanes.entry(lane).or_insert_with(|| Load::of(priority)).waiting = jobs;
    }
    let (mut invalid, mut before, mut late, mut costly) = (0_u64, read, Late::default(), Costly::default());
    let shown = input.shown.clone();
    let mut pages = feed::pages(input, clock);
    loop {
        let Some(page) = pages.recv().await else {
            return Err(Failure::Input(format!("{shown}: it cannot be read any further")));
        };
        let page = page.map_err(|error| Failure::Input(format!("{shown}: {error}")))?;
        for line in page.lines {
            if sent.as_mut().is_some_and(|sent| sent.take(&line.text)) {
                before += 1;
                continue;
            }
            let mut is_costly = false;
            let checked = line.job.and_then(|job| {
                let costs = client.costs(&job.tenant, &job.request).map_err(|error| in_words(&error))?;
                let deadline = job.request.stated_deadline();
                let checked = batch.check(line.number, &job.tenant, job.priority, job.request);
                is_costly = checked.as_ref().is_err_and(|error| error.kind() == ErrorKind::CostAboveCapacity);
                checked.map_err(|error| in_words(&error))?;
                Ok((job.tenant, job.vendor, job.priority, costs, deadline))
            });
            match checked {
                Ok((tenant, vendor, priority, costs, deadline)) => {
                    let lane = (tenant, vendor, priority.to_string());
                    let load = lanes.entry(lane).or_insert_with(|| Load::of(priority));
                    load.jobs += 1;
                    for (kind, units) in costs {
                        *load.points.entry(kind).or_default() += u64::from(units);
                    }
                    if let Some(deadline) = deadline {
                        let number = load.all();
                        late.keep(&mut load.deadlines, number, deadline, line.number);
                    }
                }
                Err(why) => {
                    invalid += 1;
                    if is_costly {
                        costly.add(line.number, &why);
                    }
                    match invalid {
                        ..=SAID => writeln!(out, "{shown}:{}: {why}", line.number)?,
                        _ if invalid == SAID + 1 => writeln!(out, "… and more")?,
                        _ => {}
                    }
                }
            }
        }
        if page.complete {
            break;
        }
        // Checking computes for long, and the signals must be heard.
        tokio::task::yield_now().await;
    }
    let mut latest = Some(Duration::ZERO);
    let mut estimates = Vec::new();
    for ((tenant, vendor, tier), load) in &lanes {
        let takes = load.takes(load.all(), &client, tenant, vendor)?;
        tokio::task::yield_now().await;
        late.look(&load.deadlines, load.all(), |jobs| load.takes(jobs, &client, tenant, vendor)).await?;
        latest = latest.zip(takes).map(|(latest, takes)| latest.max(takes));
        let shown = takes.map_or_else(|| "not known".to_owned(), about);
        estimates.push(vec![tenant.clone(), vendor.clone(), tier.clone(), thousands64(load.all()), shown]);
    }
    if !estimates.is_empty() {
        let header = ["tenant", "vendor", "priority", "jobs", "takes alone"];
        write!(out, "{}", table(screen, &header, estimates, &[3, 4]))?;
        writeln!(out)?;
    }
    let own: BTreeSet<keys::Lane> = lanes.keys().map(|(tenant, vendor, _)| (tenant.clone(), vendor.clone())).collect();
    let of_store: BTreeSet<keys::Lane> =
        queues.iter().map(|queue| (queue.tenant.clone(), queue.vendor.clone())).collect();
    let files = KeyFiles::default();
    for (tenant, vendor) in own.union(&of_store) {
        if let Some(missing) = key_files::missing(&files, &client, tenant, vendor).await {
            let what = missing.said();
            let of_others = match own.contains(&(tenant.clone(), vendor.clone())) {
                true => "",
                false => " of other runs in this store",
            };
            writeln!(out, "warning: {tenant} at {vendor}: {what}; the run would send none of its jobs{of_others}")?;
        }
    }
    for said in unconfigured::said(&queues, &client) {
        writeln!(out, "warning: {said}")?;
    }
    let waiting = lanes.values().map(|load| load.waiting).sum::<u64>();
    let jobs = lanes.values().map(|load| load.jobs).sum::<u64>();
    if let Some(costly) = costly.shown() {
        writeln!(out, "warning: {costly}")?;
    }
    if let Some(late) = late.shown(jobs) {
        writeln!(out, "warning: {late}")?;
    }
    let jobs = count(usize::try_from(jobs).unwrap_or(usize::MAX), "job");
    let lines = match invalid {
        0 => String::new(),
        1 => ", 1 invalid line".to_owned(),
        _ => format!(", {} invalid lines", thousands64(invalid)),
    };
    let waiting = match waiting {
        0 => String::new(),
        1 => ", of which 1 job waits to be sent".to_owned(),
        _ => format!(", of which {} jobs wait to be sent", thousands64(waiting)),
    };
    let before = match before {
        0 => String::new(),
        1 => format!(", 1 line was read before{waiting}"),
        _ => format!(", {} lines were read before{waiting}", thousands64(before)),
    };
    let takes = match latest.filter(|_| !lanes.is_empty()) {
        Some(latest) if latest < Duration::from_secs(1) => "; the limits let them go within 1s".to_owned(),
        Some(latest) => format!("; they take {} or more", about(latest)),
        None => String::new(),
    };
    writeln!(out, "{shown}: {jobs}{lines}{before}{takes}. Nothing was sent")?;
    client.shutdown(Duration::from_secs(1)).await;
    Ok(if invalid > 0 { Outcome::Found } else { Outcome::Fine })
}

/// An estimated time, rounded down to whole seconds.
fn about(time: Duration) -> String {
    match time.as_secs() {
        0 => "less than 1s".to_owned(),
        seconds => span(Duration::from_secs(seconds)),
    }
}
