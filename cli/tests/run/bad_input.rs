//! Input with lines that are not jobs, and outputs that hold other text than results.

use super::*;

fn three_lines(second: &str) -> String {
    job("acme", "/jobs/1") + second + "\n" + &job("acme", "/jobs/3")
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_line_stops_the_run_until_mended() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    for (line, said) in [
        ("{\"tenant\": \"acme\", ", "jobs.jsonl:2: not JSON: EOF while parsing"),
        ("{\"tenant\":\"acme\",\"vendro\":\"v\"}", "unknown field `vendro`"),
        ("[]", "not a job: an array; write an object, {\"tenant\":…}"),
        ("{\"tenant\":\"nobody\",\"vendor\":\"v\",\"method\":\"GET\",\"path\":\"/\"}", "nobody"),
        (
            "{\"tenant\":\"acme\",\"vendor\":\"w\",\"method\":\"GET\",\"path\":\"/\"}",
            "`integration-client vendors` lists",
        ),
        (
            "{\"tenant\":\"acme\",\"vendor\":\"v\",\"method\":\"GET\",\"path\":\"/\",\"headers\":{\"a b\":\"c\"}}",
            "header",
        ),
        (
            "{\"tenant\":\"acme\",\"vendor\":\"v\",\"method\":\"GET\",\"path\":\"/\",\"cost\":{\"pionts\":5}}",
            "the entry of vendor `v` declares no \"pionts\"; it counts points",
        ),
    ] {
        place.write("jobs.jsonl", &three_lines(line));
        let ran = place.run(&["jobs.jsonl"]).await;
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains("jobs.jsonl:2: ") && ran.err.contains(said), "{}", ran.err);
        assert!(ran.err.contains("Correct the line and run the same command again"), "{}", ran.err);
        ran.figures();
    }
    place.write("jobs.jsonl", &three_lines(job("umbra", "/jobs/2").trim_end()));
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code, place.effects()), ([3, 0, 0], 0, (3, 3)), "{}", ran.err);
    assert_eq!(place.vendor.summary().arrived, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_lines_can_be_skipped() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    let mut jobs = String::new();
    for number in 1..=50 {
        jobs += &if number % 2 == 0 { "no job\n".to_owned() } else { job("acme", &format!("/jobs/{number}")) };
    }
    place.write("jobs.jsonl", &jobs);
    let args = ["jobs.jsonl", "--keep-going", "--out", "results.jsonl"];
    let ran = place.run(&args).await;
    assert_eq!((ran.figures(), ran.code), ([25, 0, 0], 1), "{}", ran.err);
    assert!(
        ran.err.contains("jobs.jsonl:2: not JSON") && ran.err.contains("25 invalid lines were left out"),
        "{}",
        ran.err
    );
    assert!(ran.err.lines().count() < 20, "the first ten are named: {}", ran.err);
    let results = place.results("results.jsonl");
    assert_eq!(lines_of(&results, "invalid"), (1..=25).map(|half| half * 2).collect::<Vec<_>>());
    assert_eq!(lines_of(&results, "done").len(), 25);
    // A second run has nothing left to do, and reports the same exit code and results.
    assert_eq!(place.run(&args).await.code, 1);
    assert_eq!(place.results("results.jsonl").len(), 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn skipped_lines_are_sent_once_valid() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    let late = |number: u32| job("late", &format!("/late/{number}"));
    place.write("jobs.jsonl", &(three_lines(late(1).trim_end()) + "no job\n"));
    place.write("late.jsonl", &late(2));
    let run = async |args: &[&str]| {
        let ran = place.run(&[args, &["--keep-going"]].concat()).await;
        (ran.figures(), ran.code)
    };
    assert_eq!(run(&["jobs.jsonl"]).await, ([2, 0, 0], 1));
    assert_eq!(run(&["late.jsonl"]).await, ([0, 0, 0], 1), "no line is a job");
    let vendors = fs::read_to_string(place.path("vendors.toml")).unwrap();
    let tenant = "\n[[tenants]]\nid = \"late\"\nvendor = \"v\"\ncredential = \"env:IC_RUN_KEY\"\n";
    place.write("vendors.toml", &(vendors + tenant));
    assert_eq!(run(&["jobs.jsonl"]).await, ([2, 0, 0], 1), "it goes on, and has nothing left to do");
    assert_eq!(run(&["jobs.jsonl", "--changed"]).await, ([1, 0, 0], 1), "one line is no job still");
    assert_eq!(run(&["late.jsonl", "--changed"]).await, ([1, 0, 0], 0));
    assert_eq!(run(&["jobs.jsonl", "--changed"]).await, ([1, 0, 0], 1), "it goes on: no line is sent twice");
    assert_eq!((place.effects(), place.vendor.summary().arrived), ((4, 4), 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_input_keeps_its_results() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.write("jobs.jsonl", &three_lines("no job"));
    let args = ["jobs.jsonl", "--keep-going", "--out", "results.jsonl"];
    assert_eq!(place.run(&args).await.code, 1);
    // The line that was left out is no job still, so no new run begins.
    let ran = place.run(&[&args[..], &["--changed"]].concat()).await;
    assert_eq!((ran.figures(), ran.code, place.effects()), ([2, 0, 0], 1, (2, 2)), "{}", ran.err);
    assert_eq!(place.results("results.jsonl").len(), 3);
}

/// Programs for Windows write such files.
#[tokio::test(flavor = "multi_thread")]
async fn byte_order_mark_is_skipped() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.write("jobs.jsonl", &format!("\u{feff}{}", three_lines(job("umbra", "/jobs/2").trim_end())));
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code, place.effects()), ([3, 0, 0], 0, (3, 3)), "{}", ran.err);
    let utf16 = |name: &str| {
        let text = fs::read_to_string(place.path(name)).unwrap();
        let mark = if text.starts_with('\u{feff}') { "" } else { "\u{feff}" };
        let bytes: Vec<u8> = format!("{mark}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        fs::write(place.path(&format!("utf16-{name}")), bytes).unwrap();
    };
    utf16("jobs.jsonl");
    for more in [&[][..], &["--dry-run"]] {
        let ran = place.run(&[&["utf16-jobs.jsonl"], more].concat()).await;
        assert!(ran.code == 2 && ran.err.contains("utf16-jobs.jsonl: it is UTF-16"), "{} {}", ran.code, ran.err);
    }
    utf16("vendors.toml");
    let check = wait(place.command(&["check", "utf16-vendors.toml"]).spawn().unwrap()).await;
    assert!(check.code == 2 && check.err.contains("it is not UTF-8 (perhaps UTF-16)"), "{}", check.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_something_else_are_left_alone() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.jobs("jobs.jsonl", 1..=3);
    for mine in ["my own words\n", "my own words", "{\"my\": \"own words\"}", "[\n17\n]"] {
        place.write("mine.txt", mine);
        let ran = place.run(&["jobs.jsonl", "--out", "mine.txt"]).await;
        assert_eq!((ran.code, place.vendor.summary().arrived), (2, 0));
        assert!(ran.err.contains("mine.txt holds something else than results of this run"), "{}", ran.err);
        assert_eq!(fs::read_to_string(place.path("mine.txt")).unwrap(), mine);
    }
    // A last line that was cut off is written again.
    let ran = place.run(&["jobs.jsonl", "--out", "results.jsonl"]).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    let whole = place.results("results.jsonl");
    let text = fs::read_to_string(place.path("results.jsonl")).unwrap();
    for cut in [1, 30] {
        place.write("results.jsonl", &text[..text.len() - cut]);
        assert_eq!(place.run(&["jobs.jsonl", "--out", "results.jsonl"]).await.code, 0);
        assert_eq!(lines_of(&place.results("results.jsonl"), "done"), lines_of(&whole, "done"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn crafted_line_number_allocates_no_memory() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.jobs("jobs.jsonl", 1..=3);
    let numbers = [u64::MAX, 1 << 62, 400_000_000_000, 0];
    for number in numbers {
        place.write("results.jsonl", &format!("{{\"line\":{number},\"outcome\":\"invalid\",\"error\":\"\"}}\n"));
        // With 4 GiB of address space, a table as large as the line number fails at once instead of filling the memory.
        let program = env!("CARGO_BIN_EXE_integration-client");
        let line =
            format!("ulimit -Sv 4194304; exec {program} run jobs.jsonl --vendors vendors.toml --out results.jsonl");
        let mut command = Command::new("bash");
        command.args(["-c", &line]).current_dir(&place.folder).env("IC_RUN_KEY", "acme").env("IC_RUN_KEY_2", "umbra");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ran = wait(child).await;
        assert_eq!((ran.code, ran.figures()), (0, [3, 0, 0]), "{number}: {}", ran.err);
        assert_eq!(lines_of(&place.results("results.jsonl"), "done"), [1, 2, 3], "{number}");
    }
}
