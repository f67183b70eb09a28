//! The scenarios, and the tables that they print.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Wanted;
use crate::clients::{Client, Kind};
use crate::vendor::{Counting, Others, Report, SETTLED, Spec, StatedHeaders, Vendor};

/// More callers than a limit has units, so that a burst of a whole window never lacks callers.
const CALLERS: usize = 200;
/// A job that takes longer than this is cancelled.
const PATIENCE: Duration = Duration::from_secs(40);
const JITTER: Duration = Duration::from_millis(50);

/// The figures of the last line.
#[derive(Default)]
pub(crate) struct Totals {
    /// Refused requests of our client while no one else used the key.
    pub(crate) refused: u64,
    pub(crate) job_fixed: Vec<f64>,
    pub(crate) job_bucket: Vec<f64>,
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// Runs callers that always have more to send, until the run is over. Requests under way at the end are cancelled.
async fn saturate(kind: Kind, spec: Spec) -> Report {
    let vendor = Vendor::start(&spec).await;
    let client = Client::start(kind, &spec, &vendor.access).await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let client = client.clone();
        callers.spawn(async move {
            loop {
                client.record().await;
            }
        });
    }
    tokio::select! {
        () = tokio::time::sleep(spec.run) => {}
        // Callers end only by panics.
        ended = callers.join_next() => ended.unwrap().unwrap(),
    }
    callers.shutdown().await;
    vendor.stop().await
}

/// Runs all of them concurrently. Returns the reports in order.
async fn all(runs: impl IntoIterator<Item = (Kind, Spec)>) -> Vec<Report> {
    let runs: Vec<_> = runs.into_iter().map(|(kind, spec)| tokio::spawn(saturate(kind, spec))).collect();
    let mut reports = Vec::new();
    for run in runs {
        reports.push(run.await.unwrap());
    }
    reports
}

/// Each client with each choice of headers that it runs with.
fn rows(clients: impl Iterator<Item = Kind>) -> impl Iterator<Item = (Kind, StatedHeaders)> {
    clients.flat_map(|kind| kind.header_styles().iter().map(move |&says| (kind, says)))
}

/// The clients that know only the limit.
fn limiters(wanted: &Wanted) -> impl Iterator<Item = Kind> {
    wanted.clients.iter().copied().filter(|kind| *kind != Kind::Oracle)
}

fn label(kind: Kind, says: StatedHeaders, counting: Counting) -> String {
    format!("{}, {}, {}", kind.name(), says.name(), counting.name())
}

fn heading(columns: &[&str]) {
    println!("| {} |", columns.join(" | "));
    println!("|{}", "---|".repeat(columns.len()));
}

fn print_seconds(wanted: &Wanted, what: &str, report: &Report) {
    if wanted.seconds {
        let seconds: Vec<String> = report.seconds.iter().map(|(yes, no)| format!("{yes}/{no}")).collect();
        println!("    {what}: admitted/refused in each second of the vendor's: {}", seconds.join(" "));
    }
}

/// Scenario a: a job of a fixed number of records, as fast as the limit allows. At a limit of thousands per second, the
/// last window's burst alone is some percent of the whole job, whichever client sends it. So ours and the oracle run
/// the job again at a fourth of the limit.
pub(crate) async fn job(wanted: &Wanted, totals: &mut Totals) {
    let (records, limit) = if wanted.quick { (4_000, 1_000) } else { (10_000, 2_000) };
    job_at(wanted, totals, records, limit, |_, _| true).await;
    let exact = |kind, says| matches!((kind, says), (Kind::OursPace | Kind::Oracle, StatedHeaders::RetryAfter));
    job_at(wanted, totals, records, limit / 4, exact).await;
}

async fn job_at(
    wanted: &Wanted,
    totals: &mut Totals,
    records: u64,
    limit: u32,
    takes_part: impl Fn(Kind, StatedHeaders) -> bool,
) {
    println!("\n## a. {records} records at {limit} a second, {} at once, one job at a time\n", wanted.workers);
    let columns = [
        "client",
        "headers",
        "vendor",
        "sent",
        "refused",
        "seconds",
        "ideal",
        "times the ideal",
        "by the vendor's log",
    ];
    heading(&columns);
    let mut seconds = Vec::new();
    for (kind, says) in rows(wanted.clients.iter().copied()).filter(|(kind, says)| takes_part(*kind, *says)) {
        for counting in [Counting::FixedFromFirst, Counting::TokenBucket] {
            let spec = Spec { records, says, ..Spec::new(counting, limit) };
            let (took, report) = run_job(kind, spec, wanted.workers).await;
            let ideal = report.ideal.as_secs_f64();
            let ratio = took.as_secs_f64() / ideal;
            println!(
                "| {} | {} | {} | {} | {} | {:.2} | {ideal:.2} | {}{ratio:.3} | {:.3} |",
                kind.name(),
                says.name(),
                counting.name(),
                report.sent,
                report.refused,
                took.as_secs_f64(),
                if took < PATIENCE { "" } else { "more than " },
                (report.last - report.first).as_secs_f64() / ideal,
            );
            if kind.is_ours() {
                totals.refused += report.refused;
            }
            if (kind, says) == (Kind::OursPace, StatedHeaders::RetryAfter) {
                let job = if counting.is_bucket() { &mut totals.job_bucket } else { &mut totals.job_fixed };
                job.push(ratio);
            }
            seconds.push((label(kind, says, counting), report));
        }
    }
    for (what, report) in seconds {
        print_seconds(wanted, &what, &report);
        if wanted.seconds {
            let share =
                |(from, to): &(Duration, Duration)| format!("{:.3}-{:.3}", from.as_secs_f64(), to.as_secs_f64());
            let shares: Vec<String> = report.shares.iter().map(share).collect();
            println!("    {what}: when each {limit} arrived that were admitted: {}", shares.join(" "));
        }
    }
}

async fn run_job(kind: Kind, spec: Spec, workers_at_once: usize) -> (Duration, Report) {
    let vendor = Vendor::start(&spec).await;
    let client = Client::start(kind, &spec, &vendor.access).await;
    let taken = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..workers_at_once {
        let (client, taken) = (client.clone(), taken.clone());
        workers.spawn(async move {
            while taken.fetch_add(1, Ordering::Relaxed) < spec.records {
                client.record().await;
            }
        });
    }
    while let Ok(Some(ended)) = tokio::time::timeout_at((start + PATIENCE).into(), workers.join_next()).await {
        ended.unwrap();
    }
    let took = start.elapsed();
    workers.shutdown().await;
    (took, vendor.stop().await)
}

/// Scenario b: more work than the limit allows, with each algorithm, without and with jitter. All ten runs of a client
/// are concurrent.
pub(crate) async fn saturation(wanted: &Wanted, totals: &mut Totals) {
    let run = secs(if wanted.quick { 5 } else { 10 });
    let base = |counting| Spec { run, ..Spec::new(counting, 100) };
    let jitters = [Duration::ZERO, JITTER];
    let mut measured = Vec::new();
    for (kind, says) in rows(limiters(wanted)) {
        let runs = jitters.map(|jitter| Counting::FIVE.map(|counting| (kind, Spec { jitter, says, ..base(counting) })));
        let reports = all(runs.into_iter().flatten()).await;
        if kind.is_ours() {
            totals.refused += reports.iter().map(|report| report.refused).sum::<u64>();
        }
        measured.push((kind, says, reports));
    }
    println!("\n## b. saturation: 100 a second, {CALLERS} callers, {run:?}\n");
    println!(
        "Percent of the greedy bound (from second {} on: percent of the limit), and how many were refused.",
        SETTLED.as_secs()
    );
    for (number, jitter) in jitters.into_iter().enumerate() {
        println!(
            "\n{}\n",
            if jitter.is_zero() { "Without jitter:".into() } else { format!("0 to {jitter:?} on the way:") }
        );
        heading(&[
            "client",
            "headers",
            "fixed window",
            "sliding log",
            "sliding counter",
            "token bucket",
            "leaky bucket",
        ]);
        for (kind, says, reports) in &measured {
            let reports = &reports[number * Counting::FIVE.len()..][..Counting::FIVE.len()];
            let cells: Vec<String> = reports.iter().map(|report| share(run, report)).collect();
            println!("| {} | {} | {} |", kind.name(), says.name(), cells.join(" | "));
        }
        for (kind, says, reports) in &measured {
            for (counting, report) in Counting::FIVE.iter().zip(&reports[number * Counting::FIVE.len()..]) {
                print_seconds(wanted, &label(*kind, *says, *counting), report);
            }
        }
    }
}

/// Formats a run of saturation at 100 per second as a cell of a table.
fn share(run: Duration, report: &Report) -> String {
    let settled = 100 * (run - SETTLED).as_secs();
    format!(
        "{:.1} % ({:.1} %), {}",
        percent(report.admitted, report.bound),
        percent(report.settled, settled),
        report.refused
    )
}

/// Scenario c: a vendor that blocks a key that it has refused; the clients know its limit. Clients run one after the
/// other, because a single refusal caused by a busy processor would spoil the result.
pub(crate) async fn penalty(wanted: &Wanted, totals: &mut Totals) {
    let run = secs(if wanted.quick { 5 } else { 10 });
    let countings = [Counting::FixedWindow, Counting::SlidingWindow, Counting::TokenBucket];
    let spec = |counting| {
        let spec = Spec::new(counting, 100);
        Spec { run, jitter: JITTER, penalty: secs(2), says: StatedHeaders::RetryAfter, ..spec }
    };
    println!(
        "\n## c. a refused key is blocked for 2 s, and each hit makes the block 2 s longer; 0 to {JITTER:?} on the way\n"
    );
    heading(&["client", "fixed window", "sliding log", "token bucket"]);
    let mut measured = Vec::new();
    for (kind, _) in rows(limiters(wanted)).filter(|(_, says)| *says == StatedHeaders::RetryAfter) {
        let reports = all(countings.map(|counting| (kind, spec(counting)))).await;
        let cells: Vec<String> = reports.iter().map(|report| share(run, report)).collect();
        println!("| {} | {} |", kind.name(), cells.join(" | "));
        if kind.is_ours() {
            totals.refused += reports.iter().map(|report| report.refused).sum::<u64>();
        }
        measured.push((kind, reports));
    }
    for (kind, reports) in &measured {
        for (counting, report) in countings.iter().zip(reports) {
            print_seconds(wanted, &label(*kind, StatedHeaders::RetryAfter, *counting), report);
        }
    }
}

/// Scenario d: another user of the key takes half of the limit for half of the time.
pub(crate) async fn others(wanted: &Wanted) {
    let (from, until, run) = if wanted.quick { (2, 7, 9) } else { (5, 15, 20) };
    println!("\n## d. 100 a second; somebody else takes 50 of them from second {from} to {until} of {run}\n");
    println!("Percent of the other half used meanwhile; of ours refused, of the other's refused.\n");
    for counting in [Counting::FixedWindow, Counting::SlidingWindow] {
        others_at(wanted, counting, (from, until, run)).await;
    }
}

async fn others_at(wanted: &Wanted, counting: Counting, (from, until, run): (u64, u64, u64)) {
    let said = [StatedHeaders::Everything, StatedHeaders::RetryAfter, StatedHeaders::Nothing];
    let spec = |says| Spec {
        run: secs(run),
        says,
        others: Some(Others { per_second: 50, from: secs(from), until: secs(until) }),
        ..Spec::new(counting, 100)
    };
    println!("\n{}:\n", counting.name());
    heading(&["client", "headers on every answer", "retry-after on refusals", "no headers"]);
    let reports = all(limiters(wanted).flat_map(|kind| said.map(|says| (kind, spec(says))))).await;
    for (kind, reports) in limiters(wanted).zip(reports.chunks(said.len())) {
        let cells: Vec<String> = reports
            .iter()
            .map(|report| {
                let meanwhile = report.seconds.iter().skip(from as usize).take((until - from) as usize);
                let used = meanwhile.map(|(admitted, _)| u64::from(*admitted)).sum();
                let half = 50 * (until - from);
                format!("{:.0} %; {}, {}", percent(used, half), report.refused, report.others_refused)
            })
            .collect();
        println!("| {} | {} |", kind.name(), cells.join(" | "));
        for (says, report) in said.iter().zip(reports) {
            print_seconds(wanted, &format!("{}, {says:?}", kind.name()), report);
        }
    }
}
