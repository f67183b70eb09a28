//! Runs whose readers of results or of standard error stop reading.

use std::io::{PipeReader, Write};

use integration_client::testing::Reply;

use super::*;

impl RunFolder {
    /// Removes the vendor's support for idempotency keys, so that a job whose response counts as lost becomes a dead
    /// letter.
    fn without_keys(&self) {
        let text = fs::read_to_string(self.path("vendors.toml")).unwrap();
        self.write("vendors.toml", &text.replace("[vendors.v.idempotency]\nheader = \"idempotency-key\"\n", ""));
    }
}

/// A vendor whose responses fill a pipe after some dozens of result lines.
fn large_answers(limit: u32) -> FakeVendorBuilder {
    FakeVendor::builder()
        .limit(VendorLimit::sliding_window(limit, SECOND))
        .latency(Duration::from_millis(300))
        .reply(Reply::json(200, format!("{{\"filler\":\"{}\"}}", "x".repeat(2_000))))
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_result_reader_loses_and_doubles_nothing() {
    let place = RunFolder::new(large_answers(100)).await;
    place.without_keys();
    place.jobs("jobs.jsonl", 1..=300);
    let mut child = place.start(&["jobs.jsonl", "--out", "-"]);
    // Long enough for the default lease of 20 s to end, and the five seconds after which jobs are given to other
    // processes.
    tokio::time::sleep(Duration::from_secs(28)).await;
    let mut out = child.stdout.take().unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        text
    });
    let ran = wait(child).await;
    let text = reading.await.unwrap();
    let results: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((ran.figures(), ran.code), ([300, 0, 0], 0), "{}", ran.err);
    assert_eq!(lines_of(&results, "done"), (1..=300).collect::<Vec<_>>(), "each line once");
    assert!(results.iter().all(|result| result["body"]["filler"].is_string()), "each with its answer");
    assert_eq!(place.vendor.summary().arrived, 300, "nothing is sent twice");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn second_signal_ends_run_with_unread_results() {
    let place = RunFolder::new(large_answers(100)).await;
    place.without_keys();
    place.jobs("jobs.jsonl", 1..=300);
    let mut child = place.start(&["jobs.jsonl", "--out", "-"]);
    place.wait_until_sent(150).await;
    tokio::time::sleep(2 * SECOND).await;
    signal(&child, "INT");
    tokio::time::sleep(2 * SECOND).await;
    let sent = place.vendor.summary().arrived;
    tokio::time::sleep(SECOND).await;
    assert_eq!(place.vendor.summary().arrived, sent, "the first signal ends the sending");
    signal(&child, "INT");
    let began = now();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if began.elapsed() >= 4 * SECOND {
            child.kill().unwrap();
            panic!("it does not end");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(code, Some(3));
    // Every response that had arrived was stored, so the next run sends only the other jobs.
    let ran = place.run(&["jobs.jsonl", "--out", "results.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([300, 0, 0], 0), "{}", ran.err);
    assert_eq!(lines_of(&place.results("results.jsonl"), "done"), (1..=300).collect::<Vec<_>>());
    assert_eq!(place.vendor.summary().arrived, 300, "nothing is sent twice");
}

/// A pipe that is full. The caller must keep the reader, or writes would fail instead of blocking.
fn full_pipe() -> (PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    let written = std::sync::Arc::new(AtomicU32::new(0));
    let count = written.clone();
    // The thread blocks in its last write until the reader is dropped.
    #[expect(clippy::disallowed_methods, reason = "the thread fills the pipe")]
    std::thread::spawn(move || {
        while filler.write_all(b"x").is_ok() {
            count.fetch_add(1, Relaxed);
        }
    });
    #[expect(clippy::disallowed_methods, reason = "the test waits for the pipe to be full")]
    loop {
        let before = written.load(Relaxed);
        std::thread::sleep(Duration::from_millis(200));
        if before > 0 && written.load(Relaxed) == before {
            return (reader, writer);
        }
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn stalled_standard_error_stops_no_sending() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.write("jobs.jsonl", &("no job\n".to_owned() + &job("acme", "/jobs/1")));
    let (_unread, full) = full_pipe();
    let mut command = place.command(&["run", "jobs.jsonl", "--vendors", "vendors.toml", "--keep-going"]);
    let mut child = command.stderr(Stdio::from(full)).spawn().unwrap();
    drop(command);
    place.wait_until_sent(1).await;
    for _ in 0..2 {
        signal(&child, "INT");
        tokio::time::sleep(SECOND).await;
    }
    let began = now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() >= 4 * SECOND {
            child.kill().unwrap();
            panic!("it does not end");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
