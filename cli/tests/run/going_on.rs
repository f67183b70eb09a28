//! Interrupted runs continue: no job is lost, and no job that has ended is sent twice.

use integration_client::IntegrationClient;
use integration_client::store::Store;

use super::*;

/// A vendor with a limit of 400 requests a second: a run of 2,000 jobs takes five seconds.
fn vendor() -> FakeVendorBuilder {
    FakeVendor::builder().limit(VendorLimit::sliding_window(400, SECOND)).latency(Duration::from_millis(5))
}

#[tokio::test(flavor = "multi_thread")]
async fn run_killed_twice_acts_once_per_job() {
    let place = RunFolder::new(vendor()).await;
    place.jobs("jobs.jsonl", 1..=2_000);
    let args = ["jobs.jsonl", "--out", "results.jsonl"];
    for at in [300, 1_200] {
        let mut child = place.start(&args);
        place.wait_until_sent(at).await;
        child.kill().unwrap();
        wait(child).await;
    }
    let ran = place.run(&args).await;
    assert_eq!((ran.figures(), ran.code), ([2_000, 0, 0], 0), "{}", ran.err);
    assert!(ran.err.contains("run: goes on; "), "{}", ran.err);
    assert_eq!((place.effects(), place.vendor.refused()), ((2_000, 2_000), 0));
    let results = place.results("results.jsonl");
    assert_eq!(lines_of(&results, "done"), (1..=2_000).collect::<Vec<_>>(), "each line once");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_without_double_sends() {
    let place = RunFolder::new(vendor()).await;
    place.jobs("jobs.jsonl", 1..=1_200);
    let child = place.start(&["jobs.jsonl"]);
    place.wait_until_sent(500).await;
    signal(&child, "INT");
    let ran = wait(child).await;
    let [done, 0, 0] = ran.figures() else { panic!("{}", ran.err) };
    assert_eq!((ran.code, done), (3, place.vendor.summary().arrived), "all that was under way has ended: {}", ran.err);
    assert!(ran.err.contains("Run the same command again to go on"), "{}", ran.err);
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([1_200, 0, 0], 0), "{}", ran.err);
    assert_eq!((place.vendor.summary().arrived, place.vendor.refused()), (1_200, 0));
}

/// A terminal that is closed sends SIGHUP, perhaps twice. A program that `nohup` started goes on.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn closed_terminal_ends_without_double_sends() {
    let place = RunFolder::new(vendor()).await;
    place.jobs("jobs.jsonl", 1..=1_600);
    let start = |by: &[&str]| {
        let program = env!("CARGO_BIN_EXE_integration-client");
        let mut command = Command::new(by[0]);
        command.args(&by[1..]).args([program, "run", "jobs.jsonl", "--vendors", "vendors.toml"]);
        command.current_dir(&place.folder).env("IC_RUN_KEY", "acme").env("IC_RUN_KEY_2", "umbra");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // The tests themselves may run without a terminal, and ignore the signal.
    let child = start(&["env", "--default-signal=HUP"]);
    place.wait_until_sent(500).await;
    signal(&child, "HUP");
    signal(&child, "HUP");
    let ran = wait(child).await;
    let [done, 0, 0] = ran.figures() else { panic!("{}", ran.err) };
    assert_eq!((ran.code, done), (3, place.vendor.summary().arrived), "all that was under way has ended: {}", ran.err);
    let child = start(&["nohup"]);
    place.wait_until_sent(done + 100).await;
    signal(&child, "HUP");
    let ran = wait(child).await;
    assert_eq!((ran.figures(), ran.code), ([1_600, 0, 0], 0), "{}", ran.err);
    assert_eq!((place.vendor.summary().arrived, place.vendor.refused()), (1_600, 0));
}

/// The killed process has published its status in the last seconds, and the next one publishes its own.
#[tokio::test(flavor = "multi_thread")]
async fn killed_process_is_not_at_work() {
    let place = RunFolder::new(vendor()).await;
    place.jobs("jobs.jsonl", 1..=8_000);
    let status = async |more: &[&str]| {
        let args = [&["status", "--store", "jobs.jsonl.sqlite"][..], more].concat();
        wait(place.command(&args).spawn().unwrap()).await.out
    };
    for processes in 1..=2 {
        let mut child = place.start(&["jobs.jsonl"]);
        for look in 0.. {
            let seen: Value = serde_json::from_str(&status(&["--json"]).await).unwrap_or_default();
            if seen["workers"].as_array().is_some_and(|workers| workers.len() == processes) {
                break;
            }
            assert!(look < 200, "{seen}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let shown = status(&[]).await;
        assert!(shown.contains("\n1 process at work\n"), "{shown}");
        child.kill().unwrap();
        wait(child).await;
    }
}

/// The dry run waits for lines of a pipe that stays open.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn dry_run_of_a_pipe_can_be_interrupted() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    let temporary = place.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let entries = || fs::read_dir(&temporary).unwrap().count();
    let mut command = place.command(&["run", "-", "--dry-run", "--vendors", "vendors.toml"]);
    let mut child = command.env("TMPDIR", &temporary).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than a pipe holds, so the command reads.
    let jobs = job("acme", "/jobs/1").repeat(2_000);
    tokio::task::block_in_place(|| std::io::Write::write_all(&mut input, jobs.as_bytes()).unwrap());
    assert_eq!(entries(), 1);
    // The command reads all of them, and waits for more.
    tokio::time::sleep(SECOND).await;
    signal(&child, "INT");
    let ran = tokio::time::timeout(10 * SECOND, wait(child)).await.expect("one signal ends it");
    assert!(ran.code == 3 && ran.err.contains("run: interrupted; nothing was sent"), "{} {}", ran.code, ran.err);
    assert_eq!((entries(), place.vendor.summary().arrived), (0, 0));
    drop(input);
}

/// The second run waits for the rest of the lines that the first has sent.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn skip_of_a_pipes_old_part_can_be_interrupted() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    let line = |number| job("acme", &format!("/jobs/{number}?note={}", "x".repeat(4_000)));
    let start = || {
        let mut command = place.command(&["run", "-", "--vendors", "vendors.toml"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        (child, input)
    };
    let write = |mut input: std::process::ChildStdin, lines: String| {
        tokio::task::block_in_place(|| std::io::Write::write_all(&mut input, lines.as_bytes()).unwrap());
        input
    };
    let (child, input) = start();
    drop(write(input, (1..=40).map(line).collect()));
    let ran = wait(child).await;
    assert_eq!((ran.code, place.effects()), (0, (40, 40)), "{}", ran.err);
    // More than a pipe holds, so the command reads.
    let (child, input) = start();
    let input = write(input, (1..=30).map(line).collect());
    tokio::time::sleep(SECOND).await;
    signal(&child, "INT");
    let ran = tokio::time::timeout(10 * SECOND, wait(child)).await.expect("one signal ends it");
    assert!(ran.code == 3 && ran.err.contains("interrupted before anything was sent"), "{} {}", ran.code, ran.err);
    drop(input);
}

#[tokio::test(flavor = "multi_thread")]
async fn next_run_sends_added_lines() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.write("jobs.jsonl", job("acme", "/jobs/1").trim_end());
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!(ran.figures(), [1, 0, 0]);
    assert!(ran.err.contains("run: no --out: the vendors' responses are not kept\n"), "{}", ran.err);
    place.jobs("jobs.jsonl", 1..=3);
    assert_eq!(place.run(&["jobs.jsonl"]).await.figures(), [3, 0, 0]);
    assert_eq!(place.effects(), (3, 3));
    // Nothing was added.
    let ran = place.run(&["jobs.jsonl", "--out", "late.jsonl"]).await;
    let said = "run: nothing to send: every line of this file has ended in earlier runs (jobs.jsonl.sqlite); --anew \
                sends all of its lines again, also those that are done\n";
    assert!(ran.code == 0 && ran.err.contains(said), "{}", ran.err);
    for result in place.results("late.jsonl") {
        assert!(result["body"].is_null() && result["body_kept"] == false, "{result}");
    }
    assert_eq!(place.effects(), (3, 3));
    // The next export replaces the file with other lines.
    place.jobs("jobs.jsonl", 11..=12);
    let ran = place.run(&["jobs.jsonl", "--out", "results.jsonl"]).await;
    assert_eq!((ran.code, place.effects()), (2, (3, 3)), "{}", ran.err);
    assert!(ran.err.contains("2 lines are new or were changed (1, 2)"), "{}", ran.err);
    assert!(ran.err.contains("3 lines of before not there any more"), "{}", ran.err);
    let ran = place.run(&["jobs.jsonl", "--anew", "--out", "results.jsonl"]).await;
    assert_eq!((ran.figures(), place.effects()), ([2, 0, 0], (5, 5)), "{}", ran.err);
    assert_eq!(lines_of(&place.results("results.jsonl"), "done"), [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_file_is_not_resumed() {
    let place = RunFolder::new(vendor()).await;
    place.jobs("jobs.jsonl", 1..=1_500);
    let mut child = place.start(&["jobs.jsonl"]);
    place.wait_until_sent(100).await;
    child.kill().unwrap();
    wait(child).await;
    let sent = place.vendor.summary().arrived;
    let dry = place.run(&["jobs.jsonl", "--dry-run"]).await;
    assert!(dry.out.contains("lines were read before, of which") && dry.out.contains("wait to be sent"), "{}", dry.out);
    let old = fs::read_to_string(place.path("jobs.jsonl")).unwrap();
    place.write("jobs.jsonl", &old.replacen("/jobs/1\"", "/jobs/one\"", 1));
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.code, place.vendor.summary().arrived), (2, sent), "nothing is sent: {}", ran.err);
    assert!(ran.err.contains("was changed since it was sent in part"), "{}", ran.err);
    place.write("jobs.jsonl", &old);
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code, place.effects()), ([1_500, 0, 0], 0, (1_500, 1_500)), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn store_in_use_is_left_alone() {
    let place = RunFolder::new(vendor()).await;
    place.jobs("jobs.jsonl", 1..=2_400);
    let args = ["jobs.jsonl", "--out", "results.jsonl"];
    let child = place.start(&args);
    place.wait_until_sent(1).await;
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("is in use by another run: wait for its end"), "{}", ran.err);
    let others: Vec<Child> = (0..3).map(|_| place.start(&args)).collect();
    for other in others {
        let ran = wait(other).await;
        assert_eq!(ran.code, 2);
        assert!(ran.err.contains("results.jsonl: another run writes this file: wait for its end"), "{}", ran.err);
    }
    let first = wait(child).await;
    assert_eq!((first.figures(), first.code, place.effects()), ([2_400, 0, 0], 0, (2_400, 2_400)), "{}", first.err);
    let results = place.results("results.jsonl");
    assert_eq!(lines_of(&results, "done"), (1..=2_400).collect::<Vec<_>>(), "each line once");
    assert!(results.iter().all(|result| result["body"] == serde_json::json!({})), "with its response");
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_result_pipe_ends_without_loss() {
    let place = RunFolder::new(vendor()).await;
    place.jobs("jobs.jsonl", 1..=1_000);
    let mut child = place.start(&["jobs.jsonl", "--out", "-"]);
    let mut some = [0; 2_000];
    child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    drop(child.stdout.take());
    let ran = wait(child).await;
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("nobody reads the results any more"), "{}", ran.err);
    let ran = place.run(&["jobs.jsonl", "--out", "-"]).await;
    assert_eq!((ran.figures(), ran.code, ran.out.lines().count()), ([1_000, 0, 0], 0, 1_000), "{}", ran.err);
    assert_eq!(place.vendor.summary().arrived, 1_000, "nothing that was answered is sent again");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn full_disk_ends_without_double_sends() {
    let place = RunFolder::new(vendor()).await;
    place.jobs("jobs.jsonl", 1..=900);
    let ran = place.run(&["jobs.jsonl", "--out", "/dev/full"]).await;
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("No space left on device") && ran.err.contains("run the same command again"),
        "{}",
        ran.err
    );
    let ran = place.run(&["jobs.jsonl", "--out", "results.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([900, 0, 0], 0), "{}", ran.err);
    assert_eq!(place.vendor.summary().arrived, 900);
    let results = place.results("results.jsonl");
    assert_eq!(lines_of(&results, "done"), (1..=900).collect::<Vec<_>>());
    assert!(results.iter().all(|result| result["body"] == serde_json::json!({})), "the answers were in the store");
}

/// A limit on the file size keeps the store's files from growing, as a full disk would, until the test removes it. By
/// default the system kills a process that exceeds it.
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "a test waits")]
#[tokio::test(flavor = "multi_thread")]
async fn full_store_is_waited_for() {
    let place = RunFolder::new(vendor()).await;
    place.jobs("jobs.jsonl", 1..=900);
    let program = env!("CARGO_BIN_EXE_integration-client");
    let line = format!("ulimit -Sf 700; exec {program} run jobs.jsonl --vendors vendors.toml --out results.jsonl");
    let mut command = Command::new("bash");
    command.args(["-c", &line]).current_dir(&place.folder).env("IC_RUN_KEY", "acme").env("IC_RUN_KEY_2", "umbra");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (pid, mut err) = (child.id().to_string(), child.stderr.take().unwrap());
    let reading = tokio::task::spawn_blocking(move || {
        let (mut said, mut some, mut is_full) = (String::new(), [0; 4096], true);
        loop {
            let read = err.read(&mut some).unwrap();
            if read == 0 {
                return said;
            }
            said += &String::from_utf8_lossy(&some[..read]);
            if is_full && said.contains("the store cannot be written") {
                is_full = false;
                std::thread::sleep(2 * SECOND);
                let status =
                    Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:unlimited"]).status().unwrap();
                assert!(status.success());
            }
        }
    });
    let code = wait(child).await.code;
    let said = reading.await.unwrap();
    let figures = ProcessOutput { code, out: String::new(), err: said.clone() }.figures();
    assert!(said.contains("Nothing is sent until it can; make room"), "{said}");
    assert_eq!((figures, code), ([900, 0, 0], 0), "{said}");
    assert_eq!((place.effects(), place.vendor.summary().arrived), ((900, 900), 900), "{said}");
    assert_eq!(lines_of(&place.results("results.jsonl"), "done"), (1..=900).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn mended_lines_are_sent_on_request() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.jobs("jobs.jsonl", 1..=600);
    assert_eq!(place.run(&["jobs.jsonl"]).await.figures(), [600, 0, 0]);
    let mended = |first: &str| {
        let rest = (1..=600).filter(|number| *number != 300).map(|number| job("acme", &format!("/jobs/{number}")));
        first.to_owned() + &rest.collect::<String>()
    };
    // Adds a line at the beginning and removes line 300, so that line numbers change.
    place.write("jobs.jsonl", &mended(&job("acme", "/jobs/new")));
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.code, place.effects()), (2, (600, 600)), "{}", ran.err);
    assert!(ran.err.contains("line 1 is new or was changed, 599 lines sent already"), "{}", ran.err);
    assert!(ran.err.contains("--changed sends only") && ran.err.contains("--anew sends all"), "{}", ran.err);
    // A dry run says what the run would do.
    let dry = place.run(&["jobs.jsonl", "--dry-run"]).await;
    assert!(dry.code == 2 && dry.err.contains("line 1 is new or was changed"), "{} {}", dry.out, dry.err);
    for (how, expected) in
        [("--changed", "jobs.jsonl: 1 job, 599 lines were read before; the"), ("--anew", "jobs.jsonl: 600 jobs; the")]
    {
        let dry = place.run(&["jobs.jsonl", how, "--dry-run"]).await;
        assert!(dry.code == 0 && dry.out.contains(expected), "{how}: {} {}", dry.out, dry.err);
    }
    let ran = place.run(&["jobs.jsonl", "--changed"]).await;
    assert_eq!((ran.figures(), ran.code, place.effects()), ([1, 0, 0], 0, (601, 601)), "{}", ran.err);
    let dry = place.run(&["jobs.jsonl", "--dry-run"]).await;
    assert!(dry.out.contains("jobs.jsonl: no jobs, 600 lines were read before. Nothing was sent"), "{}", dry.out);
    assert!(ran.err.contains("599 lines were sent before, and not again"), "{}", ran.err);
    // The run of the changed file has ended, so later input is compared with that file, and nothing is left to do.
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), place.effects()), ([1, 0, 0], (601, 601)), "{}", ran.err);
    assert!(ran.err.contains("nothing to send: every line of this file has ended in earlier runs"), "{}", ran.err);
    assert!(ran.err.contains("--anew sends all of its lines again, also those that are done"), "{}", ran.err);
    place.write("jobs.jsonl", &mended(&job("acme", "/jobs/newer")));
    let ran = place.run(&["jobs.jsonl", "--changed"]).await;
    assert_eq!((ran.figures(), place.effects()), ([1, 0, 0], (602, 602)), "{}", ran.err);
    // Equal lines are counted: a line that occurs more often than before is new.
    let twice = job("acme", "/jobs/twice");
    place.write("jobs.jsonl", &(mended(&job("acme", "/jobs/newer")) + &twice + &twice));
    assert_eq!(place.run(&["jobs.jsonl"]).await.figures(), [3, 0, 0], "lines may be added without a word");
    place.write("jobs.jsonl", &(twice.clone() + &twice + &twice));
    let ran = place.run(&["jobs.jsonl", "--changed"]).await;
    assert_eq!(ran.figures(), [1, 0, 0], "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_of_changed_lines_resumes_after_kill() {
    let place = RunFolder::new(vendor()).await;
    place.jobs("jobs.jsonl", 1..=400);
    assert_eq!(place.run(&["jobs.jsonl"]).await.figures(), [400, 0, 0]);
    place.jobs("jobs.jsonl", 201..=1_600);
    let mut child = place.start(&["jobs.jsonl", "--changed"]);
    place.wait_until_sent(700).await;
    child.kill().unwrap();
    wait(child).await;
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([1_200, 0, 0], 0), "{}", ran.err);
    assert_eq!(place.effects(), (1_600, 1_600), "none of the 200 was sent again");
}

/// Begins a run in the store that follows another one, as a process leaves it that is killed before it accepts a line.
/// `since` makes the number of the run that it follows from that of the last one.
async fn begin_after(place: &RunFolder, since: impl FnOnce(u64) -> u64) {
    let store = Store::sqlite(place.path("jobs.jsonl.sqlite"));
    let client = IntegrationClient::builder().without_catalogue().store(store).build().await.unwrap();
    let mut batch = client.outbox().batch("run jobs.jsonl").await.unwrap();
    let mark = serde_json::json!({
        "offset": 0, "lines": 0, "jobs": 0, "invalid": 0, "complete": false, "since": since(batch.run()),
        "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    });
    batch.begin_anew(&mark.to_string()).await.unwrap();
    client.shutdown(SECOND).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_run_resumes_before_first_line() {
    for again in [&["jobs.jsonl", "--changed"][..], &["jobs.jsonl"][..]] {
        let place = RunFolder::new(FakeVendor::builder()).await;
        place.jobs("jobs.jsonl", 1..=40);
        assert_eq!(place.run(&["jobs.jsonl"]).await.figures(), [40, 0, 0]);
        place.jobs("jobs.jsonl", 21..=50);
        begin_after(&place, |run| run).await;
        let ran = place.run(again).await;
        assert_eq!((ran.figures(), ran.code, place.effects()), ([10, 0, 0], 0, (50, 50)), "{again:?}: {}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unwritable_results_begin_no_run() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.jobs("jobs.jsonl", 1..=40);
    assert_eq!(place.run(&["jobs.jsonl"]).await.figures(), [40, 0, 0]);
    place.jobs("jobs.jsonl", 21..=50);
    for how in ["--changed", "--anew"] {
        let ran = place.run(&["jobs.jsonl", how, "--out", "missing/results.jsonl"]).await;
        assert_eq!((ran.code, place.effects()), (2, (40, 40)), "{how}: {}", ran.err);
        let ran = place.run(&["jobs.jsonl"]).await;
        assert_eq!((ran.code, place.effects()), (2, (40, 40)), "{how}: {}", ran.err);
        assert!(ran.err.contains("--changed sends only"), "{how}: the run before is still the last: {}", ran.err);
    }
}

/// A file that holds the results of the run before, and an address that the console cannot listen on.
#[tokio::test(flavor = "multi_thread")]
async fn refused_new_run_keeps_the_record_of_the_old_one() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.jobs("jobs.jsonl", 1..=40);
    let plain = ["jobs.jsonl", "--out", "results.jsonl"];
    assert_eq!(place.run(&plain).await.figures(), [40, 0, 0]);
    let results = fs::read_to_string(place.path("results.jsonl")).unwrap();
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = occupied.local_addr().unwrap().to_string();
    for how in ["--anew", "--changed"] {
        // Without a difference `--changed` begins no new run.
        place.jobs("jobs.jsonl", if how == "--changed" { 21..=50 } else { 1..=40 });
        let ran = place.run(&[&plain[..], &[how]].concat()).await;
        assert_eq!((ran.code, place.vendor.summary().arrived), (2, 40), "{how}: {}", ran.err);
        assert!(ran.err.contains("results.jsonl is not empty, and a new run needs a file"), "{how}: {}", ran.err);
        let ran = place.run(&["jobs.jsonl", how, "--console", &address]).await;
        assert_eq!((ran.code, place.vendor.summary().arrived), (2, 40), "{how}: {}", ran.err);
        place.jobs("jobs.jsonl", 1..=40);
        let ran = place.run(&plain).await;
        assert_eq!((ran.figures(), ran.code), ([40, 0, 0], 0), "{how}: {}", ran.err);
        assert_eq!(place.vendor.summary().arrived, 40, "{how}: nothing is sent again");
        assert_eq!(fs::read_to_string(place.path("results.jsonl")).unwrap(), results, "{how}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_notes_sends_nothing() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.jobs("jobs.jsonl", 1..=40);
    assert_eq!(place.run(&["jobs.jsonl"]).await.figures(), [40, 0, 0]);
    // The new run follows one of which the store holds nothing.
    begin_after(&place, |run| run.wrapping_add(1)).await;
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.code, place.effects()), (2, (40, 40)), "{}", ran.err);
    assert!(ran.err.contains("no longer holds which these are. Nothing was sent"), "{}", ran.err);
}

/// One of them works on the file, and sends its own job alone.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn two_sends_share_a_file() {
    let service = integration_client::testing::Delay::fixed(2 * SECOND);
    let place = RunFolder::new(FakeVendor::builder().service_time(service)).await;
    let send = |path: &str| {
        let args = ["send", "acme", "v", path, "-d", "{}", "--vendors", "vendors.toml", "--store", "jobs.sqlite"];
        place.command(&args).spawn().unwrap()
    };
    let first = send("/first");
    place.wait_until_sent(1).await;
    let second = send("/second");
    let process = second.id().to_string();
    let second = tokio::time::timeout(30 * SECOND, wait(second)).await;
    if second.is_err() {
        Command::new("kill").arg(process).status().unwrap();
    }
    let (first, second) = (wait(first).await, second.expect("it sends its job"));
    assert_eq!((first.code, second.code), (0, 0), "{} {}", first.err, second.err);
    assert_eq!((place.effects(), place.vendor.summary().arrived), ((2, 2), 2));
}

/// The jobs of an interrupted run stay for the run, whose results need their responses.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn send_leaves_jobs_of_interrupted_run() {
    let place = RunFolder::new(FakeVendor::builder().limit(VendorLimit::sliding_window(20, SECOND))).await;
    place.jobs("jobs.jsonl", 1..=80);
    let child = place.start(&["jobs.jsonl", "--out", "results.jsonl"]);
    place.wait_until_sent(20).await;
    signal(&child, "INT");
    let ran = wait(child).await;
    assert_eq!(ran.code, 3, "{}", ran.err);
    let before = place.vendor.summary().arrived;
    let args = ["send", "acme", "v", "/own", "-d", "{}", "--vendors", "vendors.toml", "--store", "jobs.jsonl.sqlite"];
    let sent = wait(place.command(&args).spawn().unwrap()).await;
    assert_eq!((sent.code, place.vendor.summary().arrived), (0, before + 1), "{}", sent.err);
    let ran = place.run(&["jobs.jsonl", "--out", "results.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code, place.effects()), ([80, 0, 0], 0, (81, 81)), "{}", ran.err);
    let results = place.results("results.jsonl");
    assert_eq!(lines_of(&results, "done"), (1..=80).collect::<Vec<_>>());
    assert!(results.iter().all(|result| result["body"].is_object()), "{results:?}");
}
