//! The programs under test: processes with their own clients, which send requests and accept jobs, and report each in a
//! line.
//!
//! The sender sends requests and waits for their answers, cancels some of them half-way, and accepts jobs. A worker
//! accepts jobs and delivers those of all programs. The programs print these lines:
//!
//! | line | meaning |
//! |---|---|
//! | `ask VENDOR TENANT PATH` | a request or a job is handed to the client |
//! | `accepted PATH ID` | the job was acknowledged |
//! | `answered PATH STATUS` | the request was answered, and the body was read |
//! | `failed PATH DELIVERY KIND` | the client returned an error |
//! | `dropped PATH` | the future was dropped before it ended |
//! | `idle` | after `quiet`: every request and acceptance has ended |

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::store::Store;
use integration_client::testing::step_wall_clock;
use integration_client::{Error, IntegrationClient, Priority, Request};
use tokio::sync::{mpsc, watch};

use super::Fallible;
use super::process::Worker;
use super::world::{ACCOUNTS, SET_BY_PROGRAM, TENANTS, credential_variable, key, tenant, vendors};

/// A worker that does not renew its lease for this long loses its jobs to others. Some stalls of the store last longer.
const LEASE: Duration = Duration::from_secs(2);
/// A request that is not sent by then ends with an error, for which the judge looks for a cause.
const DEADLINE: Duration = Duration::from_secs(20);

/// The settings with which a program starts.
#[derive(Clone)]
pub(crate) struct Orders {
    /// Part of the paths of the program's requests.
    pub(crate) run: String,
    pub(crate) store: String,
    pub(crate) config: PathBuf,
    /// The program's part of every limit.
    pub(crate) share: f64,
    /// Whether the program delivers jobs; if not, it is the sender.
    pub(crate) works: bool,
    pub(crate) seed: u64,
    /// The error of the program's wall clock when it starts.
    pub(crate) clock_ms: i64,
}

impl Orders {
    /// Starts this executable as a program, with `arguments`.
    pub(crate) fn start(&self, arguments: &[&str]) -> Fallible<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        command.env("SOAK_RUN", &self.run).env("SOAK_STORE", &self.store).env("SOAK_CONFIG", &self.config);
        command.env("SOAK_SHARE", self.share.to_string()).env("SOAK_WORKS", self.works.to_string());
        command.env("SOAK_SEED", self.seed.to_string()).env("SOAK_CLOCK_MS", self.clock_ms.to_string());
        for tenant in 0..TENANTS {
            for account in 0..ACCOUNTS.len() {
                command.env(credential_variable(tenant, account), key(tenant, account));
            }
        }
        Worker::start(command, false)
    }

    fn read() -> Fallible<Orders> {
        Ok(Orders {
            run: std::env::var("SOAK_RUN")?,
            store: std::env::var("SOAK_STORE")?,
            config: std::env::var("SOAK_CONFIG")?.into(),
            share: std::env::var("SOAK_SHARE")?.parse()?,
            works: std::env::var("SOAK_WORKS")?.parse()?,
            seed: std::env::var("SOAK_SEED")?.parse()?,
            clock_ms: std::env::var("SOAK_CLOCK_MS")?.parse()?,
        })
    }

    async fn client(&self) -> Fallible<IntegrationClient> {
        // The outcomes are read at the end of the run, and clocks step by a day, so the store must not delete them.
        let store = Store::url(&self.store).keep_done(Duration::MAX).keep_dead(Duration::MAX).lease(LEASE);
        let builder = IntegrationClient::builder()
            .without_catalogue()
            .vendors_file(&self.config)
            .watch_config(Duration::from_millis(100))
            .store(store);
        let client = if self.works { builder.work().build().await? } else { builder.build().await? };
        let account = SET_BY_PROGRAM / 2;
        for vendor in vendors() {
            let entry = TenantEntry::new(tenant(SET_BY_PROGRAM), vendor.name)
                .account(ACCOUNTS[account])
                .credential(format!("env:{}", credential_variable(SET_BY_PROGRAM, account)))
                .share(self.share);
            client.tenants().set(entry)?;
        }
        Ok(client)
    }
}

/// Whether this process was started by [`Orders::start`].
pub(crate) fn is_program() -> bool {
    std::env::var_os("SOAK_RUN").is_some()
}

/// Runs the program until its input ends.
pub(crate) fn run() -> Fallible<bool> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    let orders = Orders::read()?;
    step_wall_clock(orders.clock_ms);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let client = orders.client().await?;
        say("ready");
        let mut commands = commands();
        let (quiet, is_quiet) = watch::channel(false);
        // Every task holds a sender of this channel, so the channel closes when the last task has ended.
        let (alive, mut ended) = mpsc::channel::<()>(1);
        let mut random = fastrand::Rng::with_seed(orders.seed);
        let requests = Arc::new(AtomicU64::new(0));
        for number in 0..TENANTS * vendors().len() {
            let caller = Caller {
                client: client.clone(),
                tenant: tenant(number % TENANTS),
                vendor: number / TENANTS,
                run: orders.run.clone(),
                sends: !orders.works,
                requests: requests.clone(),
                _alive: alive.clone(),
            };
            tokio::spawn(caller.call(random.fork(), is_quiet.clone()));
        }
        drop(alive);
        let mut is_idle = false;
        loop {
            tokio::select! {
                command = commands.recv() => match command.as_deref() {
                    None => break,
                    Some("quiet") => drop(quiet.send_replace(true)),
                    Some(command) => {
                        if let Some(by_ms) = command.strip_prefix("step ") {
                            step_wall_clock(by_ms.parse()?);
                        }
                    }
                },
                None = ended.recv(), if !is_idle => {
                    is_idle = true;
                    say("idle");
                }
            }
        }
        client.shutdown(Duration::from_secs(10)).await;
        Ok(true)
    })
}

/// The lines of the standard input, until it ends.
fn commands() -> mpsc::UnboundedReceiver<String> {
    let (sender, commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    commands
}

/// One tenant's requests to one vendor: pauses, and bursts that reach the limits.
#[derive(Clone)]
struct Caller {
    client: IntegrationClient,
    tenant: String,
    vendor: usize,
    run: String,
    /// Whether the caller also sends requests; if not, it only accepts jobs.
    sends: bool,
    requests: Arc<AtomicU64>,
    _alive: mpsc::Sender<()>,
}

impl Caller {
    async fn call(self, mut random: fastrand::Rng, mut quiet: watch::Receiver<bool>) {
        let longest_pause = if self.sends { 6_000 } else { 12_000 };
        loop {
            let pause = Duration::from_millis(random.u64(0..longest_pause));
            if tokio::time::timeout(pause, quiet.wait_for(|quiet| *quiet)).await.is_ok() {
                return;
            }
            let requests = if random.u32(..10) == 0 { 30 } else { random.u32(1..8) };
            let as_jobs = !self.sends || random.bool();
            for _ in 0..requests {
                tokio::spawn(self.clone().request(as_jobs, random.fork()));
            }
        }
    }

    async fn request(self, as_job: bool, mut random: fastrand::Rng) {
        let vendor = vendors()[self.vendor];
        let priority = [Priority::High, Priority::Normal, Priority::Low][random.usize(..3)];
        let first = if random.bool() { vendor.endpoint } else { "other" };
        let kind = if as_job { "job" } else { ["post", "get"][random.usize(..2)] };
        let path = format!("/{first}/{kind}-{}-{}", self.run, self.requests.fetch_add(1, Relaxed));
        let request = match kind {
            "get" => Request::get(vendor.name, path.as_str()),
            _ => Request::post(vendor.name, path.as_str()).json(&[1]),
        };
        say(&format!("ask {} {} {path}", vendor.name, self.tenant));
        if as_job {
            match self.client.outbox().enqueue(&self.tenant, priority, request).await {
                Ok(receipt) => say(&format!("accepted {path} {}", receipt.id())),
                Err(error) => failed(&path, &error),
            }
            return;
        }
        let sent = async {
            let response = self.client.send(&self.tenant, priority, request.deadline(DEADLINE)).await?;
            let status = response.status();
            response.bytes().await?;
            Ok::<_, Error>(status.as_u16())
        };
        // One of eight callers cancels its request, at any moment of the request's life.
        let patience = if random.u32(..8) == 0 { Duration::from_millis(random.u64(0..400)) } else { Duration::MAX };
        match tokio::time::timeout(patience, sent).await {
            Ok(Ok(status)) => say(&format!("answered {path} {status}")),
            Ok(Err(error)) => failed(&path, &error),
            Err(_) => say(&format!("dropped {path}")),
        }
    }
}

fn failed(path: &str, error: &Error) {
    say(&format!("failed {path} {:?} {} {error}", error.delivery(), error.kind().as_str()));
}

/// Prints a line in one write, so that the pipe gets either the whole line or nothing.
fn say(line: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}
