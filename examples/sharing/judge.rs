//! Runs the vendor and the processes, and judges the processes by the vendor's record.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use integration_client::clock::Time;
use integration_client::store::Store;
use integration_client::testing::{Arrival, Delay, FakeVendor, HeaderStyle, VendorLimit};
use integration_client::{IntegrationClient, Priority, Request};

use crate::process::Worker;
use crate::{Fallible, Options, database, faults, worker};

pub(crate) fn run(options: &Options) -> Fallible<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = std::env::temp_dir().join(format!("ic-sharing-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let store = match options.store.as_str() {
        "sqlite" => format!("sqlite:{}", folder.join("capacity.db").display()),
        "postgres" => runtime.block_on(database::empty("sharing"))?,
        "etcd" => std::env::var("IC_TEST_ETCD").map_err(|_| "IC_TEST_ETCD names no server: run scripts/etcd.sh")?,
        "zookeeper" => {
            let missing = |_| "IC_TEST_ZOOKEEPER names no server: run scripts/zookeeper.sh";
            std::env::var("IC_TEST_ZOOKEEPER").map_err(missing)?
        }
        "s3" => {
            let url = std::env::var("IC_TEST_S3").map_err(|_| "IC_TEST_S3 names no server: run scripts/s3.sh")?;
            url.replacen('?', &format!("/{}?", std::process::id()), 1)
        }
        "redis" => std::env::var("IC_TEST_REDIS").map_err(|_| "IC_TEST_REDIS names no server: run scripts/redis.sh")?,
        url => url.to_owned(),
    };
    let (limit, window) = (options.limit, options.window);
    let limit = match options.algorithm.as_str() {
        "sliding" => VendorLimit::sliding_window(limit, window),
        "fixed" => VendorLimit::fixed_window(limit, window),
        "bucket" => VendorLimit::token_bucket(limit, limit, window),
        other => return Err(format!("--algorithm {other}: sliding, fixed or bucket").into()),
    };
    let vendor = FakeVendor::builder()
        .limit(limit)
        .headers(HeaderStyle::XRateLimit)
        .seed(options.seed)
        .latency(Duration::from_millis(2))
        .service_time(Delay::fixed(Duration::from_millis(2)).jitter(Duration::from_millis(6)));
    let vendor = runtime.block_on(vendor.start())?;
    // On this machine, no request is under way for longer than a second.
    let transit = "\nconnect_timeout = \"1s\"\nmax_transit = \"1s\"\nauth";
    let vendors = vendor.vendors_toml("v").replacen("\nauth", transit, 1);
    if options.jobs > 0 {
        return drain(options, &runtime, &vendor, &vendors, &store);
    }
    let mut workers = Vec::new();
    for number in 0..options.processes {
        workers.push(worker::start(options, &vendors, &store, number)?);
    }
    let began = Instant::now();
    let first = now(&vendor);
    std::thread::sleep(Duration::from_secs(options.seconds) / if options.fault == "none" { 1 } else { 2 });
    let hit = now(&vendor);
    let workers = faults::happen(&options.fault, &options.store, workers)?;
    if options.fault != "none" {
        std::thread::sleep(Duration::from_secs(options.seconds).saturating_sub(began.elapsed()));
    }
    let last = now(&vendor);
    finish(workers)?;
    let arrivals = vendor.arrivals();
    let verdict = Verdict::of(options, &arrivals, first, hit, last);
    verdict.print(options, vendor.refused());
    std::fs::remove_dir_all(&folder)?;
    Ok(vendor.refused() == 0)
}

/// Fills an outbox and lets the processes drain it.
fn drain(
    options: &Options,
    runtime: &tokio::runtime::Runtime,
    vendor: &FakeVendor,
    vendors: &str,
    store: &str,
) -> Fallible<bool> {
    runtime.block_on(async {
        // The client needs no credential: it is read when a job is sent, and this client sends none.
        let client = worker::client_of(vendors).store(Store::url(store)).build().await?;
        let jobs = accept(options.jobs, &client).await;
        client.shutdown(Duration::from_secs(5)).await;
        jobs
    })?;
    let mut workers = Vec::new();
    for number in 0..options.processes {
        workers.push(worker::start(options, vendors, store, number)?);
    }
    let ends = Instant::now() + Duration::from_secs(options.seconds.max(600));
    while vendor.arrivals().len() < options.jobs as usize && Instant::now() < ends {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(200));
    finish(workers)?;
    let arrivals = vendor.arrivals();
    let (first, last) = (arrivals.iter().map(|it| it.at).min(), arrivals.iter().map(|it| it.at).max());
    let took = last.unwrap_or(Time::ZERO).since(first.unwrap_or(Time::ZERO)).as_secs_f64();
    let rate = 0.8 * f64::from(options.limit) / options.window.as_secs_f64();
    let ideal = f64::from(options.jobs) / rate;
    let paths: std::collections::HashSet<_> = arrivals.iter().map(|it| it.path.clone()).collect();
    let (refused, twice) = (vendor.refused(), arrivals.len() - paths.len());
    println!(
        "sharing-jobs: processes={} jobs={} arrived={} seconds={took:.1} ideal={ideal:.1} refused={refused} twice={twice}",
        options.processes,
        options.jobs,
        paths.len(),
    );
    Ok(refused == 0 && twice == 0 && paths.len() == options.jobs as usize)
}

/// Accepts `jobs` jobs, 64 at a time.
async fn accept(jobs: u32, client: &IntegrationClient) -> Fallible<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for part in 0..64 {
        let client = client.clone();
        tasks.spawn(async move {
            for job in (part..jobs).step_by(64) {
                let request = Request::post("v", format!("/job/{job}"));
                client.outbox().enqueue("acme", Priority::Normal, request).await?;
            }
            Ok::<(), integration_client::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

fn finish(workers: Vec<Worker>) -> Fallible<()> {
    for worker in workers {
        let ended = worker.finish()?;
        let failed: Vec<&String> = ended.said.iter().filter(|line| line.starts_with("failed")).collect();
        if let Some(line) = failed.first() {
            println!("sharing: a process said {line:?}, and {} more", failed.len() - 1);
        }
        for line in ended.warned.iter().take(3) {
            println!("sharing: a process warned {line:?}");
        }
    }
    Ok(())
}

/// The vendor's time at its latest arrival.
fn now(vendor: &FakeVendor) -> Time {
    vendor.arrivals().iter().map(|arrival| arrival.at).max().unwrap_or(Time::ZERO)
}

struct Verdict {
    reached: f64,
    jain: f64,
    tiers: [f64; 3],
    quiet: Duration,
    back: Option<Duration>,
}

impl Verdict {
    fn of(options: &Options, arrivals: &[Arrival], first: Time, hit: Time, last: Time) -> Verdict {
        // Leaves out the first windows, in which the processes divide the limit for the first time.
        let from = first + options.window * 2 + Duration::from_secs(2);
        // Counts whole windows only, because all or none of a window's requests may arrive in a part of it.
        let windows = hit.since(from).as_nanos() / options.window.as_nanos().max(1);
        let until = from + options.window * u32::try_from(windows).unwrap_or(u32::MAX);
        let steady: Vec<&Arrival> = arrivals.iter().filter(|it| it.at >= from && it.at < until).collect();
        let allowed = f64::from(options.limit) * until.since(from).as_secs_f64() / options.window.as_secs_f64();
        let mut by_process = BTreeMap::new();
        let mut tiers = [0.0; 3];
        for arrival in &steady {
            let mut parts = arrival.path.trim_start_matches('/').split('/');
            *by_process.entry(parts.next().unwrap_or_default()).or_insert(0.0) += 1.0;
            let tier = match parts.next() {
                Some("High") => 0,
                Some("Normal") => 1,
                _ => 2,
            };
            tiers[tier] += 100.0 / steady.len().max(1) as f64;
        }
        let (sum, squares) = by_process.values().fold((0.0, 0.0), |(sum, squares), n: &f64| (sum + n, squares + n * n));
        let quiet = arrivals.windows(2).map(|pair| pair[1].at.since(pair[0].at)).max().unwrap_or_default();
        let per_second = |from: Time| {
            let until = from + Duration::from_secs(1);
            arrivals.iter().filter(|it| it.at >= from && it.at < until).count() as f64
        };
        let before = steady.len() as f64 / until.since(from).as_secs_f64().max(1.0);
        let seconds = last.since(hit).as_secs();
        let back = (0..seconds)
            .map(Duration::from_secs)
            .find(|s| (0..3).all(|more| per_second(hit + *s + Duration::from_secs(more)) >= 0.9 * before));
        Verdict {
            reached: 100.0 * steady.len() as f64 / allowed.max(1.0),
            jain: sum * sum / (f64::from(options.processes) * squares).max(1.0),
            tiers,
            quiet,
            back,
        }
    }

    fn print(&self, options: &Options, refused: u64) {
        let store = options.store.split(':').next().unwrap_or_default();
        let [high, normal, low] = self.tiers;
        let back = match (options.fault.as_str(), self.back) {
            ("none", _) => "-".to_owned(),
            (_, Some(back)) => back.as_millis().to_string(),
            (_, None) => "never".to_owned(),
        };
        println!(
            "sharing: processes={} limit={}/{}ms store={store} vendor={} demand={} fault={} reached={:.1} refused={refused} \
             jain={:.3} tiers={high:.0}/{normal:.0}/{low:.0} quiet_ms={} back_ms={back}",
            options.processes,
            options.limit,
            options.window.as_millis(),
            options.algorithm,
            options.demand,
            options.fault,
            self.reached,
            self.jain,
            self.quiet.as_millis(),
        );
    }
}
