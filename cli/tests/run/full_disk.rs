//! Runs whose store and results are on one disk that is full. A limit on the size of files takes its place, because a
//! test can set and remove it while the process runs.

use std::sync::{Arc, Mutex};

use integration_client::testing::Delay;
use tokio::task::JoinHandle;

use super::*;

const ARGS: [&str; 3] = ["jobs.jsonl", "--out", "results.jsonl"];

/// A vendor that answers when no file can be written any more.
fn slow_vendor() -> FakeVendorBuilder {
    FakeVendor::builder().service_time(Delay::fixed(3 * SECOND))
}

/// What a process has said on standard error so far.
struct Said {
    pid: String,
    text: Arc<Mutex<String>>,
    reading: JoinHandle<()>,
}

impl Said {
    fn by(child: &mut Child) -> Said {
        let (pid, mut err) = (child.id().to_string(), child.stderr.take().unwrap());
        let text = Arc::<Mutex<String>>::default();
        let said = text.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut some = [0; 4096];
            loop {
                let read = err.read(&mut some).unwrap();
                if read == 0 {
                    return;
                }
                *said.lock().unwrap() += &String::from_utf8_lossy(&some[..read]);
            }
        });
        Said { pid, text, reading }
    }

    async fn wait_for(&self, part: &str) {
        for _ in 0..600 {
            if self.text.lock().unwrap().contains(part) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // The runtime of the test waits for the reading, which ends with the process.
        Command::new("kill").args(["-KILL", &self.pid]).status().unwrap();
        panic!("{part} is not in: {}", self.text.lock().unwrap());
    }

    async fn all(self) -> String {
        self.reading.await.unwrap();
        std::mem::take(&mut *self.text.lock().unwrap())
    }
}

/// Sets the limit on the size of a process's files, in bytes.
fn limit_files(child: &Child, limit: &str) {
    let pid = child.id().to_string();
    let status = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={limit}:unlimited")]).status().unwrap();
    assert!(status.success());
}

/// A run of 20 jobs that the vendor has answered while no file could be written, and that waits for room.
async fn waiting_run(place: &RunFolder) -> (Child, Said) {
    place.jobs("jobs.jsonl", 1..=20);
    let mut child = place.start(&ARGS);
    let said = Said::by(&mut child);
    place.wait_until_sent(20).await;
    limit_files(&child, "0");
    said.wait_for("ends when the outcomes of its requests are in the store, which cannot be written").await;
    (child, said)
}

#[tokio::test(flavor = "multi_thread")]
async fn run_on_full_disk_keeps_outcomes() {
    let place = RunFolder::new(slow_vendor()).await;
    let (mut child, said) = waiting_run(&place).await;
    // Longer than a run waits that has no exchange under way and nothing to write.
    tokio::time::sleep(6 * SECOND).await;
    assert!(child.try_wait().unwrap().is_none(), "{}", said.all().await);
    limit_files(&child, "unlimited");
    let code = wait(child).await.code;
    let said = said.all().await;
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("error: the results cannot be written: ") && !said.contains("are lost"), "{said}");
    assert!(said.contains("what was answered meanwhile is in the store"), "{said}");
    let ran = place.run(&ARGS).await;
    assert_eq!((ran.figures(), ran.code), ([20, 0, 0], 0), "{}", ran.err);
    assert_eq!(place.vendor.summary().arrived, 20, "nothing is sent again");
    let results = place.results("results.jsonl");
    assert_eq!(lines_of(&results, "done"), (1..=20).collect::<Vec<_>>(), "each line once");
    assert!(results.iter().all(|result| result["body"] == serde_json::json!({})), "with its response");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_signal_counts_lost_outcomes() {
    let place = RunFolder::new(slow_vendor()).await;
    let (mut child, said) = waiting_run(&place).await;
    signal(&child, "INT");
    said.wait_for("Ctrl-C once more loses them").await;
    tokio::time::sleep(3 * SECOND).await;
    assert!(child.try_wait().unwrap().is_none(), "{}", said.all().await);
    signal(&child, "INT");
    let code = wait(child).await.code;
    let said = said.all().await;
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("run: the outcomes of 20 jobs were not written in the store, and are lost"), "{said}");
    assert!(!said.contains("is in the store"), "{said}");
    // With their keys, the vendor takes the requests for the same ones.
    let ran = place.run(&ARGS).await;
    assert_eq!((ran.figures(), ran.code, place.effects()), ([20, 0, 0], 0, (20, 20)), "{}", ran.err);
}
