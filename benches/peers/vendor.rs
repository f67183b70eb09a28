//! The vendor, in its own process: this program, started with an argument.
//!
//! The process prints one line when it listens ([`VendorAccess`]), serves until its standard input closes, and then prints one
//! line about what arrived ([`Report`]), judged by its own algorithm.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use integration_client::testing::limit::{Limiter, Phase, Refill, Rule};
use integration_client::testing::{Arrival, Delay, FakeVendor, HeaderStyle, VendorLimit};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

/// The key with which all clients call.
pub(crate) const KEY: &str = "key-of-acme";
pub(crate) const WINDOW: Duration = Duration::from_secs(1);
/// By then, effects of an unsteady start are over.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);

/// The vendor's algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Counting {
    /// Windows begin at times that the vendor sets.
    FixedWindow,
    /// A window begins with the first request after the end of the last window.
    FixedFromFirst,
    SlidingWindow,
    SlidingCounter,
    TokenBucket,
    LeakyBucket,
}

impl Counting {
    pub(crate) const FIVE: [Counting; 5] = [
        Counting::FixedWindow,
        Counting::SlidingWindow,
        Counting::SlidingCounter,
        Counting::TokenBucket,
        Counting::LeakyBucket,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Counting::FixedWindow | Counting::FixedFromFirst => "fixed window",
            Counting::SlidingWindow => "sliding log",
            Counting::SlidingCounter => "sliding counter",
            Counting::TokenBucket => "token bucket",
            Counting::LeakyBucket => "leaky bucket",
        }
    }

    /// Whether the vendor refills or drains steadily.
    pub(crate) fn is_bucket(self) -> bool {
        matches!(self, Counting::TokenBucket | Counting::LeakyBucket)
    }

    fn rule(self, limit: u32, phase: Duration) -> Rule {
        let (window_ns, phase_ns) = (nanos(WINDOW), nanos(phase));
        match self {
            Counting::FixedWindow => Rule::FixedWindow { limit, window_ns, phase: Phase::At(phase_ns) },
            Counting::FixedFromFirst => Rule::FixedWindow { limit, window_ns, phase: Phase::FirstRequest },
            Counting::SlidingWindow => Rule::SlidingWindow { limit, window_ns, both_ends: false },
            Counting::SlidingCounter => Rule::SlidingCounter { limit, window_ns, phase_ns },
            Counting::TokenBucket => {
                Rule::TokenBucket { capacity: limit, rate: limit, per_ns: window_ns, refill: Refill::Steady }
            }
            Counting::LeakyBucket => Rule::LeakyBucket { capacity: limit, rate: limit, per_ns: window_ns },
        }
    }
}

/// The headers that the vendor sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum StatedHeaders {
    /// `ratelimit-limit`, `-remaining` and `-reset` in every response, and `retry-after` in refusals.
    Everything,
    /// `retry-after` in refusals.
    RetryAfter,
    Nothing,
}

impl StatedHeaders {
    pub(crate) fn name(self) -> &'static str {
        match self {
            StatedHeaders::Everything => "all",
            StatedHeaders::RetryAfter => "retry-after",
            StatedHeaders::Nothing => "none",
        }
    }
}

/// Another user of the same key.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Others {
    pub(crate) per_second: u32,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

/// The settings of a vendor, and of the run by which its arrivals are measured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) counting: Counting,
    /// Units in one [`WINDOW`].
    pub(crate) limit: u32,
    /// When windows begin, after the vendor's start.
    pub(crate) phase: Duration,
    /// The longest random delay on the way to the vendor.
    pub(crate) jitter: Duration,
    pub(crate) seed: u64,
    pub(crate) penalty: Duration,
    pub(crate) says: StatedHeaders,
    pub(crate) others: Option<Others>,
    /// Arrivals are counted for this time from the first one on.
    pub(crate) run: Duration,
    /// The number of requests in the job.
    pub(crate) records: u64,
}

impl Spec {
    pub(crate) fn new(counting: Counting, limit: u32) -> Spec {
        Spec {
            counting,
            limit,
            phase: Duration::from_millis(370),
            jitter: Duration::ZERO,
            seed: 7,
            penalty: Duration::ZERO,
            says: StatedHeaders::Everything,
            others: None,
            run: Duration::from_secs(10),
            records: 0,
        }
    }
}

/// What a client may know about the vendor.
#[derive(Serialize, Deserialize)]
pub(crate) struct VendorAccess {
    pub(crate) url: String,
    /// The vendor's entry for `vendors.toml`.
    pub(crate) toml: String,
}

/// What arrived at the vendor.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) sent: u64,
    pub(crate) refused: u64,
    /// Refusals of the other user's requests.
    pub(crate) others_refused: u64,
    /// The first and the last arrival, as time since the vendor's start.
    pub(crate) first: Duration,
    pub(crate) last: Duration,
    /// Requests admitted in the run.
    pub(crate) admitted: u64,
    /// Requests admitted in the run, beginning [`SETTLED`] after the first arrival.
    pub(crate) settled: u64,
    /// What this vendor would admit in the run from a sender that sends each request as soon as it fits.
    pub(crate) bound: u64,
    /// How long such a sender takes for the job's records.
    pub(crate) ideal: Duration,
    /// Requests admitted and refused in each second since the vendor's start.
    pub(crate) seconds: Vec<(u32, u32)>,
    /// The first and the last arrival of each group of `limit` admitted requests, as time since the first arrival.
    pub(crate) shares: Vec<(Duration, Duration)>,
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// Runs the vendor's process.
pub(crate) fn serve(spec: &str) {
    let spec: Spec = serde_json::from_str(spec).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let rule = spec.counting.rule(spec.limit, spec.phase);
        let mut vendor = FakeVendor::builder()
            .limit(VendorLimit::new(rule).count_requests())
            .arrival_delay(Delay::default().jitter(spec.jitter))
            .seed(spec.seed)
            .penalty(spec.penalty)
            .headers(match spec.says {
                StatedHeaders::Everything => HeaderStyle::RateLimit,
                StatedHeaders::RetryAfter => HeaderStyle::RetryAfter,
                StatedHeaders::Nothing => HeaderStyle::Silent,
            });
        if let Some(Others { per_second, from, until }) = spec.others {
            vendor = vendor.other_traffic(KEY, per_second, from, until);
        }
        let vendor = vendor.start().await.unwrap();
        let access = VendorAccess { url: vendor.url(), toml: vendor.vendors_toml("vendor") };
        println!("{}", serde_json::to_string(&access).unwrap());
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
        println!("{}", serde_json::to_string(&report(&spec, rule, &vendor.arrivals())).unwrap());
    });
}

fn report(spec: &Spec, rule: Rule, log: &[Arrival]) -> Report {
    let mut report = Report::default();
    let at = |arrival: &Arrival| Duration::from_nanos(arrival.at.as_nanos());
    let own = || log.iter().filter(|arrival| !arrival.foreign);
    report.others_refused = log.iter().filter(|arrival| arrival.foreign && !arrival.admitted).count() as u64;
    let (Some(first), Some(last)) = (own().next().map(at), own().next_back().map(at)) else { return report };
    (report.first, report.last) = (first, last);
    for arrival in own() {
        let after = at(arrival) - first;
        report.sent += 1;
        report.refused += u64::from(!arrival.admitted);
        report.admitted += u64::from(arrival.admitted && after < spec.run);
        report.settled += u64::from(arrival.admitted && (SETTLED..spec.run).contains(&after));
        let second = at(arrival).as_secs() as usize;
        if report.seconds.len() <= second {
            report.seconds.resize(second + 1, (0, 0));
        }
        let (admitted, refused) = &mut report.seconds[second];
        *(if arrival.admitted { admitted } else { refused }) += 1;
    }
    let admitted: Vec<Duration> = own().filter(|arrival| arrival.admitted).map(|arrival| at(arrival) - first).collect();
    report.shares = admitted.chunks(spec.limit as usize).map(|share| (share[0], share[share.len() - 1])).collect();
    report.bound = greedy(rule, first).take_while(|at| *at < first + spec.run).count() as u64;
    report.ideal = greedy(rule, first).take(spec.records as usize).last().map_or(Duration::ZERO, |at| at - first);
    report
}

/// When the requests of a sender arrive that begins at `from` and sends each as soon as it fits.
fn greedy(rule: Rule, from: Duration) -> impl Iterator<Item = Duration> {
    let (mut limiter, mut at) = (Limiter::new(rule), nanos(from));
    std::iter::from_fn(move || {
        at = limiter.fits_at(at, 1)?;
        limiter.count(at, 1);
        Some(Duration::from_nanos(at))
    })
}

/// A running vendor. Dropping it ends the process.
pub(crate) struct Vendor {
    process: Child,
    output: BufReader<ChildStdout>,
    pub(crate) access: VendorAccess,
}

impl Vendor {
    pub(crate) async fn start(spec: &Spec) -> Vendor {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["vendor", &serde_json::to_string(spec).unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).await.unwrap();
        Vendor { process, output, access: serde_json::from_str(&line).unwrap() }
    }

    pub(crate) async fn stop(mut self) -> Report {
        drop(self.process.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).await.unwrap();
        self.process.wait().await.unwrap();
        serde_json::from_str(&text).unwrap()
    }
}
