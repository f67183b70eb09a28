//! Tests of the command `run` from the outside: a process that sends to a vendor over a socket.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on says why")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use integration_client::testing::{FakeVendor, FakeVendorBuilder, HeaderStyle, VendorLimit};
use serde_json::Value;

#[path = "run/bad_input.rs"]
mod bad_input;
#[path = "run/bodies.rs"]
mod bodies;
#[path = "run/console.rs"]
mod console;
#[cfg(target_os = "linux")]
#[path = "run/full_disk.rs"]
mod full_disk;
#[path = "run/going_on.rs"]
mod going_on;
#[path = "run/letters.rs"]
mod letters;
#[path = "run/pipes.rs"]
mod pipes;
#[path = "run/send.rs"]
mod send;
#[path = "run/shared_store.rs"]
mod shared_store;
#[path = "run/sources.rs"]
mod sources;
#[path = "run/stalls.rs"]
mod stalls;
#[path = "run/status.rs"]
mod status;
#[path = "run/troubles.rs"]
mod troubles;

const SECOND: Duration = Duration::from_secs(1);

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// A folder with a vendor's entry, two tenants and files of jobs.
struct RunFolder {
    folder: PathBuf,
    vendor: FakeVendor,
}

/// The exit code and the output of a process.
struct ProcessOutput {
    code: i32,
    out: String,
    err: String,
}

impl ProcessOutput {
    /// The figures `done`, `refused` and `dead` in the last line.
    #[track_caller]
    fn figures(&self) -> [u64; 3] {
        let last = self.err.lines().last().unwrap_or_default();
        let figures = last.strip_prefix("run: ").unwrap_or_else(|| panic!("{}", self.err));
        let mut named: BTreeMap<&str, &str> = figures.split(' ').filter_map(|pair| pair.split_once('=')).collect();
        named.remove("seconds").unwrap().parse::<f64>().unwrap();
        assert_eq!(named.len(), 3, "{last}");
        ["done", "refused", "dead"].map(|name| named[name].parse().unwrap())
    }
}

impl RunFolder {
    async fn new(vendor: FakeVendorBuilder) -> RunFolder {
        RunFolder::with(vendor.headers(HeaderStyle::Silent).start().await.unwrap())
    }

    fn with(vendor: FakeVendor) -> RunFolder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ic-run-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        // On one machine no request is under way for a second. The test alone uses the vendor, so it may use the whole
        // limit.
        let vendors = vendor
            .vendors_toml("v")
            .replacen("\nauth", "\nmax_transit = \"1s\"\nconnect_timeout = \"1s\"\nauth", 1)
            .replace("\nwindow", "\nsafety = 1.0\nwindow")
            + "\n[vendors.v.idempotency]\nheader = \"idempotency-key\"\n[vendors.v.retry]\nfirst_wait = \"100ms\"\n"
            + "\n[[tenants]]\nid = \"acme\"\nvendor = \"v\"\ncredential = \"env:IC_RUN_KEY\"\n"
            + "\n[[tenants]]\nid = \"umbra\"\nvendor = \"v\"\ncredential = \"env:IC_RUN_KEY_2\"\n";
        fs::write(folder.join("vendors.toml"), vendors).unwrap();
        RunFolder { folder, vendor }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Writes a file with one job of tenant acme for each number, with the paths `/jobs/1` and so on.
    fn jobs(&self, name: &str, numbers: std::ops::RangeInclusive<u32>) {
        self.write(name, &numbers.map(|number| job("acme", &format!("/jobs/{number}"))).collect::<String>());
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_integration-client"));
        command.args(args).current_dir(&self.folder);
        command.env("IC_RUN_KEY", "acme").env("IC_RUN_KEY_2", "umbra").env_remove("NO_COLOR");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, args: &[&str]) -> Child {
        self.command(&[&["run"], args, &["--vendors", "vendors.toml"]].concat()).spawn().unwrap()
    }

    async fn run(&self, args: &[&str]) -> ProcessOutput {
        wait(self.start(args)).await
    }

    /// Counts the requests that the vendor accepted: the different pairs of path and idempotency key, and the different
    /// paths. The numbers are equal unless a job took effect twice.
    fn effects(&self) -> (usize, usize) {
        let arrivals = self.vendor.arrivals();
        let taken = arrivals.iter().filter(|arrival| arrival.admitted && arrival.status == 200);
        let effects: BTreeSet<_> = taken.map(|arrival| (&*arrival.path, &*arrival.idempotency_key)).collect();
        let paths: BTreeSet<_> = effects.iter().map(|(path, _)| path).collect();
        (effects.len(), paths.len())
    }

    fn results(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until the vendor has received this many requests.
    async fn wait_until_sent(&self, requests: u64) {
        for _ in 0..2_000 {
            if self.vendor.summary().arrived >= requests {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("only {} of {requests} requests came", self.vendor.summary().arrived);
    }

    /// Waits until the store holds a request that has not ended.
    #[cfg(unix)]
    async fn wait_until_stored(&self, store: &str) {
        for _ in 0..200 {
            let status = wait(self.command(&["status", "--store", store, "--json"]).spawn().unwrap()).await;
            let seen: Value = serde_json::from_str(&status.out).unwrap_or_default();
            if seen["queues"].as_array().is_some_and(|queues| !queues.is_empty()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{store} holds no request");
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn job(tenant: &str, path: &str) -> String {
    let mut line = String::new();
    writeln!(
        line,
        "{{\"tenant\":\"{tenant}\",\"vendor\":\"v\",\"priority\":\"low\",\"method\":\"POST\",\"path\":\"{path}\",\"body\":{{\"a\":1}}}}"
    )
    .unwrap();
    line
}

async fn wait(child: Child) -> ProcessOutput {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    ProcessOutput { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

#[cfg(unix)]
fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
}

fn lines_of(results: &[Value], outcome: &str) -> Vec<u64> {
    let of = results.iter().filter(|result| result["outcome"] == outcome);
    let mut lines: Vec<u64> = of.map(|result| result["line"].as_u64().unwrap()).collect();
    lines.sort_unstable();
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_file_all_get_results() {
    let place = RunFolder::new(FakeVendor::builder().poisoned("/bad", 422)).await;
    let mut jobs: String = (1..=300).map(|number| job("acme", &format!("/jobs/{number}"))).collect();
    jobs += &job("umbra", "/bad/1");
    jobs += "\n{\"tenant\":\"umbra\",\"vendor\":\"v\",\"method\":\"get\",\"path\":\"/text?q=1\",\"headers\":{\"x-a\":\"b\"},\"body\":\"plain\"}";
    place.write("jobs.jsonl", &jobs);
    let ran = place.run(&["jobs.jsonl", "--out", "results.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code, &*ran.out), ([301, 0, 1], 1, ""), "{}", ran.err);
    assert!(ran.err.contains("1 rejected (422): line 301"), "{}", ran.err);
    assert!(ran.err.contains("dead-letters list --run "), "{}", ran.err);
    assert!(ran.err.contains(" --store jobs.jsonl.sqlite\n"), "{}", ran.err);
    let results = place.results("results.jsonl");
    assert_eq!(lines_of(&results, "done"), (1..=300).chain([303]).collect::<Vec<_>>());
    let dead = results.iter().find(|result| result["outcome"] == "dead").unwrap();
    assert_eq!((&dead["line"], &dead["status"], &dead["tenant"]), (&301.into(), &422.into(), &"umbra".into()));
    assert!(dead["answer"].is_string(), "what the vendor said: {dead}");
    let first = results.iter().find(|result| result["line"] == 1).unwrap();
    assert_eq!(
        (&first["status"], &first["attempts"], &first["body"]),
        (&200.into(), &1.into(), &serde_json::json!({}))
    );
    assert_eq!(place.effects(), (301, 301));
    // A second run sends nothing, and writes the results of all jobs again.
    let again = place.run(&["jobs.jsonl", "--out", "again.jsonl", "--quiet"]).await;
    assert_eq!((again.figures(), again.code, again.err.lines().count()), ([301, 0, 1], 1, 1), "{}", again.err);
    let late = place.results("again.jsonl");
    assert_eq!(lines_of(&late, "done"), lines_of(&results, "done"));
    assert!(late.iter().any(|result| result["body_kept"] == false), "the store keeps no response that was written");
    assert_eq!(place.vendor.summary().arrived, 302);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_estimate_is_known_after_a_tenth() {
    let place = RunFolder::new(FakeVendor::builder().limit(VendorLimit::sliding_window(100, SECOND))).await;
    place.jobs("jobs.jsonl", 1..=1_600);
    let began = now();
    let mut child = place.start(&["jobs.jsonl"]);
    // Collects the progress lines, one every five seconds, each with the time at which it was read.
    let mut err = child.stderr.take().unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        let (mut seen, mut line, mut byte) = (Vec::new(), String::new(), [0]);
        while err.read(&mut byte).unwrap() > 0 {
            match byte[0] {
                b'\n' => seen.push((began.elapsed().as_secs_f64(), std::mem::take(&mut line))),
                byte => line.push(byte.into()),
            }
        }
        seen
    });
    assert_eq!(wait(child).await.code, 0);
    let seen = reading.await.unwrap();
    let end = seen.last().unwrap().0;
    let figure = |line: &str, name: &str| -> Option<f64> {
        line.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    };
    // The limit alone lets the run end after 15 s: 100 requests at once and 1,500 more. An estimate takes it that time
    // will go on being lost as before, so it may be wrong by what the machine has lost (a busy disk).
    let lost = (end - 15.0).max(0.0);
    let mut asked = 0;
    for (at, line) in &seen {
        let (Some(done), Some(eta)) = (figure(line, "done"), figure(line, "eta_s")) else { continue };
        let off = at + eta - end;
        println!("at {at:.1} s of {end:.1}: done={done}, said {eta:.1} s, off by {:.1} %", off / end * 100.0);
        if done >= 160.0 {
            asked += 1;
            assert!(off.abs() <= 0.1 * end + lost, "{line}, and it ended after {end:.1} s");
        }
    }
    assert!(asked >= 2, "{seen:?}");
    assert_eq!(place.vendor.refused(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn piped_lines_are_sent_at_once() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    let mut command = place.command(&["run", "-", "--vendors", "vendors.toml", "--out", "-"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, job("acme", "/jobs/1").as_bytes()).unwrap();
    // The job is sent although the pipe is still open.
    place.wait_until_sent(1).await;
    std::io::Write::write_all(&mut input, job("acme", "/jobs/2").trim_end().as_bytes()).unwrap();
    drop(input);
    let ran = wait(child).await;
    assert_eq!((ran.figures(), ran.code, ran.out.lines().count()), ([2, 0, 0], 0, 2), "{}", ran.err);
    assert!(place.path("run.sqlite").exists());
}
