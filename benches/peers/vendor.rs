//! The vendor, in a process of its own: this program again, with an argument.
//!
//! It prints one line when it listens ([`Told`]), serves until its standard input closes, and then prints one line on what
//! arrived ([`Report`]), judged by its own algorithm.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use integration_client::testing::limit::{Limiter, Phase, Refill, Rule};
use integration_client::testing::{Arrival, Delay, FakeVendor, HeaderStyle, VendorLimit};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

/// The key with which everybody calls.
pub(crate) const KEY: &str = "key-of-acme";
pub(crate) const WINDOW: Duration = Duration::from_secs(1);
/// What an unsteady start may do is over by then.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);

/// How the vendor counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Counting {
    /// Windows begin at moments of the vendor's own.
    FixedWindow,
    /// Windows begin with the first request after the last one's end.
    FixedFromFirst,
    SlidingLog,
    SlidingCounter,
    TokenBucket,
    LeakyBucket,
}

impl Counting {
    pub(crate) const FIVE: [Counting; 5] = [
        Counting::FixedWindow,
        Counting::SlidingLog,
        Counting::SlidingCounter,
        Counting::TokenBucket,
        Counting::LeakyBucket,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Counting::FixedWindow | Counting::FixedFromFirst => "fixed window",
            Counting::SlidingLog => "sliding log",
            Counting::SlidingCounter => "sliding counter",
            Counting::TokenBucket => "token bucket",
            Counting::LeakyBucket => "leaky bucket",
        }
    }

    /// The vendor refills or drains steadily.
    pub(crate) fn is_bucket(self) -> bool {
        matches!(self, Counting::TokenBucket | Counting::LeakyBucket)
    }

    fn rule(self, limit: u32, phase: Duration) -> Rule {
        let (window_ns, phase_ns) = (nanos(WINDOW), nanos(phase));
        match self {
            Counting::FixedWindow => Rule::FixedWindow { limit, window_ns, phase: Phase::At(phase_ns) },
            Counting::FixedFromFirst => Rule::FixedWindow { limit, window_ns, phase: Phase::FirstRequest },
            Counting::SlidingLog => Rule::SlidingLog { limit, window_ns, both_ends: false },
            Counting::SlidingCounter => Rule::SlidingCounter { limit, window_ns, phase_ns },
            Counting::TokenBucket => {
                Rule::TokenBucket { capacity: limit, rate: limit, per_ns: window_ns, refill: Refill::Steady }
            }
            Counting::LeakyBucket => Rule::LeakyBucket { capacity: limit, rate: limit, per_ns: window_ns },
        }
    }
}

/// What the vendor says in headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Says {
    /// `ratelimit-limit`, `-remaining` and `-reset` on every answer, `retry-after` on refusals.
    Everything,
    /// `retry-after` on refusals.
    RetryAfter,
    Nothing,
}

impl Says {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Says::Everything => "all",
            Says::RetryAfter => "retry-after",
            Says::Nothing => "none",
        }
    }
}

/// Somebody else who calls with the same key.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Others {
    pub(crate) per_second: u32,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

/// A vendor, and what its arrivals are measured by.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) counting: Counting,
    /// Units in one [`WINDOW`].
    pub(crate) limit: u32,
    /// Where windows begin, after the vendor's start.
    pub(crate) phase: Duration,
    /// Up to this long on the way to the vendor.
    pub(crate) jitter: Duration,
    pub(crate) seed: u64,
    pub(crate) penalty: Duration,
    pub(crate) says: Says,
    pub(crate) others: Option<Others>,
    /// Arrivals count for so long from the first one.
    pub(crate) run: Duration,
    /// How many requests the job has.
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
            says: Says::Everything,
            others: None,
            run: Duration::from_secs(10),
            records: 0,
        }
    }
}

/// What a client may know.
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) url: String,
    /// The vendor's entry for `vendors.toml`.
    pub(crate) toml: String,
}

/// What arrived.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) sent: u64,
    pub(crate) refused: u64,
    /// Of somebody else's calls.
    pub(crate) others_refused: u64,
    /// First and last arrival since the vendor's start.
    pub(crate) first: Duration,
    pub(crate) last: Duration,
    /// Admitted in the run.
    pub(crate) admitted: u64,
    /// The same from [`SETTLED`] after the first arrival on.
    pub(crate) settled: u64,
    /// What this vendor would have admitted in the run of somebody who sends each request when it fits.
    pub(crate) bound: u64,
    /// The time that such a sender needs for the job's records.
    pub(crate) ideal: Duration,
    /// Admitted and refused in each second since the vendor's start.
    pub(crate) seconds: Vec<(u32, u32)>,
    /// First and last arrival of each limit's worth that was admitted, since the first arrival.
    pub(crate) shares: Vec<(Duration, Duration)>,
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// The vendor's side.
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
                Says::Everything => HeaderStyle::RateLimit,
                Says::RetryAfter => HeaderStyle::RetryAfter,
                Says::Nothing => HeaderStyle::Silent,
            });
        if let Some(Others { per_second, from, until }) = spec.others {
            vendor = vendor.other_traffic(KEY, per_second, from, until);
        }
        let vendor = vendor.start().await.unwrap();
        let told = Told { url: vendor.url(), toml: vendor.vendors_toml("vendor") };
        println!("{}", serde_json::to_string(&told).unwrap());
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

/// When the requests arrive of somebody who begins at this moment, and sends each as soon as it fits.
fn greedy(rule: Rule, from: Duration) -> impl Iterator<Item = Duration> {
    let (mut limiter, mut at) = (Limiter::new(rule), nanos(from));
    std::iter::from_fn(move || {
        at = limiter.fits_at(at, 1)?;
        limiter.count(at, 1);
        Some(Duration::from_nanos(at))
    })
}

/// A vendor that runs. Dropping it ends it.
pub(crate) struct Vendor {
    process: Child,
    output: BufReader<ChildStdout>,
    pub(crate) told: Told,
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
        Vendor { process, output, told: serde_json::from_str(&line).unwrap() }
    }

    pub(crate) async fn stop(mut self) -> Report {
        drop(self.process.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).await.unwrap();
        self.process.wait().await.unwrap();
        serde_json::from_str(&text).unwrap()
    }
}
