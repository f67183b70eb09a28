//! Runs in a store on which other processes work too.

#[cfg(unix)]
use integration_client::{IntegrationClient, store::Store};

use super::*;

/// A run of other lines, from a pipe, works on the store meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn new_run_begins_when_the_store_is_free() {
    let place = RunFolder::new(FakeVendor::builder().limit(VendorLimit::sliding_window(400, SECOND))).await;
    let run = |args: &[&str]| place.start(&[args, &["--store", "shared.sqlite"]].concat());
    place.jobs("jobs.jsonl", 1..=40);
    assert_eq!(wait(run(&["jobs.jsonl"])).await.figures(), [40, 0, 0]);
    // The other run goes on until its pipe is closed.
    let pipe = ["run", "-", "--store", "shared.sqlite", "--vendors", "vendors.toml"];
    let mut other = place.command(&pipe).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = other.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, job("acme", "/jobs/101").as_bytes()).unwrap();
    place.wait_until_sent(41).await;
    for how in ["--anew", "--changed"] {
        // Without a difference `--changed` begins no new run.
        place.jobs("jobs.jsonl", if how == "--changed" { 21..=50 } else { 1..=40 });
        let ran = wait(run(&["jobs.jsonl", how])).await;
        assert_eq!(ran.code, 2, "{how}: {}", ran.err);
        assert!(ran.err.contains("is in use by another run: wait for its end"), "{how}: {}", ran.err);
    }
    drop(input);
    let other = wait(other).await;
    assert_eq!((other.figures(), other.code), ([1, 0, 0], 0), "{}", other.err);
    place.jobs("jobs.jsonl", 1..=40);
    let ran = wait(run(&["jobs.jsonl"])).await;
    assert_eq!((ran.figures(), ran.code), ([40, 0, 0], 0), "{}", ran.err);
    assert_eq!((place.effects(), place.vendor.summary().arrived), ((41, 41), 41), "nothing is sent again");
}

/// A container may mount the file without its folder. The test needs the right to mount in a namespace of its own; where
/// a user has no such right, it checks nothing.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn store_mounted_without_its_folder_is_refused() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.jobs("jobs.jsonl", 1..=3);
    assert_eq!(place.run(&["jobs.jsonl"]).await.figures(), [3, 0, 0]);
    place.write("mounted.sqlite", "");
    let program = env!("CARGO_BIN_EXE_integration-client");
    let mounts = "mount --bind jobs.jsonl.sqlite mounted.sqlite || exit 77";
    let commands = ["status --store mounted.sqlite", "run jobs.jsonl --store mounted.sqlite --vendors vendors.toml"];
    for command in commands {
        let line = format!("{mounts}; exec {program} {command}");
        let mut mounting = Command::new("unshare");
        mounting.args(["--map-root-user", "--mount", "bash", "-c", &line]).current_dir(&place.folder);
        mounting.env("IC_RUN_KEY", "acme").env("IC_RUN_KEY_2", "umbra");
        let Ok(child) = mounting.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
            return;
        };
        let ran = wait(child).await;
        if ran.code == 77 || ran.err.starts_with("unshare: ") {
            return;
        }
        assert_eq!(ran.code, 2, "{command}: {}", ran.err);
        assert!(ran.err.contains("Mount the folder of the file instead"), "{command}: {}", ran.err);
    }
    assert_eq!(place.vendor.summary().arrived, 3, "nothing is sent again");
}

#[cfg(unix)]
const ARGS: [&str; 3] = ["jobs.jsonl", "--out", "results.jsonl"];

/// The folder of a run of 80 jobs that was interrupted after some twenty.
#[cfg(unix)]
async fn interrupted_run() -> RunFolder {
    let place = RunFolder::new(FakeVendor::builder().limit(VendorLimit::sliding_window(20, SECOND))).await;
    place.jobs("jobs.jsonl", 1..=80);
    let child = place.start(&ARGS);
    place.wait_until_sent(20).await;
    signal(&child, "INT");
    let ran = wait(child).await;
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(place.vendor.summary().arrived < 80, "{}", ran.err);
    place
}

/// A gateway on the store of an interrupted run sends its jobs, and has no handler for their responses.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn responses_that_another_worker_got_are_in_the_results() {
    let place = interrupted_run().await;
    let serve = ["serve", "--listen", "127.0.0.1:0", "--vendors", "vendors.toml", "--store", "jobs.jsonl.sqlite"];
    let serving = place.command(&serve).spawn().unwrap();
    place.wait_until_sent(80).await;
    signal(&serving, "TERM");
    let served = wait(serving).await;
    assert_eq!(served.code, 0, "{}", served.err);
    let ran = place.run(&ARGS).await;
    assert_eq!((ran.figures(), ran.code, place.vendor.summary().arrived), ([80, 0, 0], 0, 80), "{}", ran.err);
    let results = place.results("results.jsonl");
    assert_eq!(lines_of(&results, "done"), (1..=80).collect::<Vec<_>>(), "each line once");
    let is_whole = |result: &Value| {
        result["body"] == serde_json::json!({}) && result["headers"]["content-type"] == "application/json"
    };
    assert!(results.iter().all(is_whole), "with its response: {results:?}");
}

/// A program on the same store cancels a job of an interrupted run.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_job_is_counted_and_found() {
    let place = interrupted_run().await;
    let store = Store::sqlite(place.path("jobs.jsonl.sqlite"));
    let client = IntegrationClient::builder().without_catalogue().store(store).build().await.unwrap();
    let run = client.outbox().batch("run jobs.jsonl").await.unwrap().run();
    // The id of a batch's job: the run, and the number behind the two bits of a UUID's variant.
    let last = format!("{run:016x}{:016x}", (1_u64 << 63) | 80);
    assert!(client.outbox().receipt(&last).unwrap().cancel().await.unwrap());
    client.shutdown(SECOND).await;
    let ran = place.run(&ARGS).await;
    let figures = ran.err.lines().last().unwrap();
    assert!(figures.starts_with("run: done=79 refused=0 dead=0 cancelled=1 seconds="), "{}", ran.err);
    assert_eq!((ran.code, place.effects()), (1, (79, 79)), "{}", ran.err);
    assert_eq!(lines_of(&place.results("results.jsonl"), "cancelled"), [80]);
}
