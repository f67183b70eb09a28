//! Runs whose input is a named pipe, which cannot be read again from its beginning.
#![cfg(unix)]

use std::io::Write;
use std::ops::RangeInclusive;

use super::*;

/// Runs with jobs that are written into the pipe `jobs`. It is closed after `sent` requests in all.
async fn run_piped(place: &RunFolder, args: &[&str], numbers: RangeInclusive<u32>, sent: u64) -> ProcessOutput {
    let child = place.start(&[&["jobs"], args].concat());
    let path = place.path("jobs");
    let lines: String = numbers.map(|number| job("acme", &format!("/jobs/{number}"))).collect();
    let write = move || {
        // Waits until the program has opened it too.
        let mut pipe = fs::OpenOptions::new().write(true).open(path).unwrap();
        pipe.write_all(lines.as_bytes()).unwrap();
        pipe
    };
    let pipe = tokio::task::spawn_blocking(write).await.unwrap();
    place.wait_until_sent(sent).await;
    drop(pipe);
    wait(child).await
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_lines_of_pipe_are_sent() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    assert!(Command::new("mkfifo").arg(place.path("jobs")).status().unwrap().success());
    let ran = run_piped(&place, &[], 1..=3, 3).await;
    assert_eq!((ran.figures(), ran.code), ([3, 0, 0], 0), "{}", ran.err);
    let ran = run_piped(&place, &["--changed"], 2..=5, 5).await;
    assert_eq!((ran.figures(), ran.code, place.effects()), ([2, 0, 0], 0, (5, 5)), "{}", ran.err);
    let ran = run_piped(&place, &[], 7..=8, 5).await;
    assert!(ran.code == 2 && ran.err.contains("jobs is not what the last run was given"), "{} {}", ran.code, ran.err);
    assert_eq!(place.vendor.summary().arrived, 5);
}

/// Waits until the process handles SIGINT, which ends it otherwise.
#[cfg(target_os = "linux")]
async fn wait_until_listening(child: &Child) {
    const INTERRUPT: u64 = 1 << 1;
    for _ in 0..1_000 {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let handled = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        if u64::from_str_radix(handled.trim(), 16).unwrap() & INTERRUPT != 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the process does not handle SIGINT");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn interrupt_ends_a_run_that_waits_for_a_writer() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    assert!(Command::new("mkfifo").arg(place.path("jobs")).status().unwrap().success());
    for args in [&["jobs"][..], &["jobs", "--dry-run"]] {
        let child = place.start(args);
        wait_until_listening(&child).await;
        signal(&child, "INT");
        let ran = wait(child).await;
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(ran.err.contains("interrupted before anything was sent"), "{}", ran.err);
    }
}
