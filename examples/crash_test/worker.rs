//! The process that is killed: it accepts requests, sends them, and prints which ones it has acknowledged.

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, WHAT, Watch};
use integration_client::{ErrorKind, IntegrationClient, Priority, Request};

use crate::process::Worker;
use crate::{Fallible, TENANTS, runtime};

/// The most requests that wait. All of them are sent in the end.
const BACKLOG: u64 = 400;

/// The settings of a worker, passed in its environment.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) store: String,
    pub(crate) vendors: String,
    /// A part of each request's path. `None` for a worker that accepts no requests.
    pub(crate) run: Option<String>,
    /// The named point at which the worker ends itself, and at which pass: `name:number`.
    pub(crate) point: Option<String>,
    pub(crate) lease: Duration,
    /// The worker's part of the limit.
    pub(crate) share: f64,
}

impl Orders {
    /// The command that runs this program as a worker.
    pub(crate) fn command(&self) -> Fallible<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env("CRASH_TEST_STORE", &self.store).env("CRASH_TEST_VENDORS", &self.vendors);
        command.env("CRASH_TEST_LEASE", self.lease.as_millis().to_string());
        command.env("CRASH_TEST_SHARE", self.share.to_string());
        command.envs(self.run.as_ref().map(|run| ("CRASH_TEST_RUN", run)));
        command.envs(self.point.as_ref().map(|point| ("CRASH_TEST_POINT", point)));
        Ok(command)
    }

    /// Starts the worker. A worker with a point may end before it is ready.
    pub(crate) fn start(&self) -> Fallible<Worker> {
        Worker::start(self.command()?, self.point.is_some())
    }
}

/// The named points at which a worker can end itself.
pub(crate) fn points() -> Vec<String> {
    let moments = ["before", "after", "committed"];
    WHAT.iter().flat_map(|what| moments.map(|moment| format!("{what}-{moment}"))).collect()
}

struct Point {
    name: String,
    left: AtomicU32,
}

impl Watch for Point {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        let moment = match moment {
            Moment::Before => "before",
            Moment::After => "after",
            Moment::Committed => "committed",
        };
        let here = self.name.strip_prefix(what).and_then(|rest| rest.strip_prefix('-')) == Some(moment);
        if here && self.left.fetch_sub(1, Relaxed) == 1 {
            std::process::abort();
        }
        Fault::None
    }
}

pub(crate) async fn client(orders: &Orders, work: bool) -> Fallible<IntegrationClient> {
    let mut store = Store::url(&orders.store).keep_done(Duration::MAX).lease(orders.lease).max_backlog(BACKLOG);
    if let Some((name, number)) = orders.point.as_deref().and_then(|point| point.split_once(':')) {
        let point = Point { name: name.to_owned(), left: AtomicU32::new(number.parse()?) };
        store = store.watched_by(Arc::new(point));
    }
    let mut builder =
        IntegrationClient::builder().without_catalogue().vendors_toml(orders.vendors.as_str()).store(store);
    for tenant in TENANTS {
        let entry = TenantEntry::new(tenant, "v").credential(format!("env:CRASH_TEST_KEY_{tenant}"));
        builder = builder.tenant(entry.share(orders.share));
    }
    Ok(if work { builder.work().build().await? } else { builder.build().await? })
}

/// Accepts and sends requests until the process is killed or its input ends. Without a `run`, it only sends.
pub(crate) fn work(store: &str) -> Fallible<bool> {
    // The judge reads the warnings.
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    let orders = Orders {
        store: store.to_owned(),
        vendors: std::env::var("CRASH_TEST_VENDORS")?,
        run: std::env::var("CRASH_TEST_RUN").ok(),
        point: std::env::var("CRASH_TEST_POINT").ok(),
        lease: Duration::from_millis(std::env::var("CRASH_TEST_LEASE")?.parse()?),
        share: std::env::var("CRASH_TEST_SHARE")?.parse()?,
    };
    runtime()?.block_on(async {
        let client = client(&orders, true).await?;
        say("ready");
        let (end, ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            let _ = end.send(());
        });
        let mut tasks = tokio::task::JoinSet::new();
        for (task, run) in orders.run.iter().flat_map(|run| (0..6).map(move |task| (task, run))) {
            tasks.spawn(accept(client.clone(), run.clone(), task));
        }
        let _ = ended.await;
        tasks.shutdown().await;
        Ok(client.shutdown(Duration::from_secs(10)).await)
    })
}

async fn accept(client: IntegrationClient, run: String, task: usize) {
    let mut random = fastrand::Rng::new();
    for number in 0u64.. {
        let tenant = TENANTS[task % TENANTS.len()];
        let priority = [Priority::High, Priority::Normal, Priority::Low][random.usize(..3)];
        // The vendor refuses some requests for good, and others until the client gives them up.
        let kind = ["gone", "busy"].get(random.usize(..25)).unwrap_or(&"jobs");
        let path = format!("/{kind}/{run}-{task}-{number}");
        let request = Request::post("v", path.as_str()).json(&[number]);
        let wait = match client.outbox().enqueue(tenant, priority, request).await {
            Ok(receipt) => {
                say(&format!("accepted {} {path}", receipt.id()));
                random.u64(5..50)
            }
            // The backlog is full.
            Err(error) if error.kind() == ErrorKind::QueueFull => 50,
            Err(error) => {
                say(&format!("failed {error}"));
                50
            }
        };
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
}

/// Prints a line in one write, so that the pipe gets either the whole line or nothing.
fn say(line: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}
