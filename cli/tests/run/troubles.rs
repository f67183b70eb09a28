//! Runs with keys that the vendor refuses and with secrets that are missing.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn refused_key_stops_its_tenant_alone() {
    let limit = VendorLimit::sliding_window(100, SECOND);
    let place = RunFolder::new(FakeVendor::builder().limit(limit).poisoned("/locked", 401)).await;
    let mut jobs = String::new();
    for number in 1..=300 {
        jobs += &job("acme", &format!("/locked/{number}"));
    }
    for number in 1..=20 {
        jobs += &job("umbra", &format!("/jobs/{number}"));
    }
    place.write("jobs.jsonl", &jobs);
    let began = now();
    let ran = place.run(&["jobs.jsonl"]).await;
    let [done, refused, dead] = ran.figures();
    assert_eq!((done, refused, ran.code), (20, 0, 2), "{}", ran.err);
    assert!((10..=60).contains(&dead), "those that were under way beside the tenth: {}", ran.err);
    assert!(ran.err.contains("acme at v: the key is refused with 401"), "{}", ran.err);
    assert!(ran.err.contains("is the credential env:IC_RUN_KEY right?"), "{}", ran.err);
    assert!(ran.err.contains("dead-letters redrive --all --store jobs.jsonl.sqlite"), "{}", ran.err);
    assert!(began.elapsed() < Duration::from_secs(20), "{}", ran.err);
    // Each of these jobs was sent twice: with the cached secret, and again with the secret read anew.
    assert!(place.vendor.summary().arrived <= 20 + 2 * 60, "{:?}", place.vendor.summary());
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_without_secret_wait_and_are_reported() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.write("jobs.jsonl", &(job("acme", "/jobs/1") + &job("umbra", "/jobs/2")));
    let mut command = place.command(&["run", "jobs.jsonl", "--vendors", "vendors.toml"]);
    let mut child = command.env_remove("IC_RUN_KEY_2").spawn().unwrap();
    let mut said = child.stderr.take().unwrap();
    let named = tokio::task::spawn_blocking(move || {
        let (mut text, mut some) = (String::new(), [0; 1_000]);
        while !text.contains("umbra at v") {
            let count = said.read(&mut some).unwrap();
            assert!(count > 0, "it ended: {text}");
            text += &String::from_utf8_lossy(&some[..count]);
        }
        (text, said)
    });
    let (text, mut rest) = tokio::time::timeout(Duration::from_secs(20), named).await.unwrap().unwrap();
    assert!(text.contains("the credential env:IC_RUN_KEY_2 cannot be read"), "{text}");
    signal(&child, "INT");
    let status = tokio::task::spawn_blocking(move || {
        rest.read_to_end(&mut Vec::new()).unwrap();
        child.wait().unwrap()
    });
    assert_eq!(status.await.unwrap().code(), Some(3));
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([2, 0, 0], 0), "{}", ran.err);
}

/// Runs `send` with these arguments, and interrupts it after the vendor has received a request or, with `waits`, after the
/// store holds one.
#[cfg(unix)]
async fn interrupted_send(place: &RunFolder, args: &[&str], waits: bool) -> ProcessOutput {
    let mut command = place.command(&[&["send", "acme", "v", "/slow", "--vendors", "vendors.toml"], args].concat());
    let child = command.spawn().unwrap();
    match waits {
        true => place.wait_until_stored("s.sqlite").await,
        false => place.wait_until_sent(1).await,
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    signal(&child, "INT");
    wait(child).await
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_send_reports_its_delivery() {
    let limit = VendorLimit::sliding_window(1, 60 * SECOND);
    let place = RunFolder::new(FakeVendor::builder().limit(limit.clone()).latency(Duration::from_millis(750))).await;
    let ran = interrupted_send(&place, &["-d", "{}"], false).await;
    assert_eq!((ran.code, &*ran.out), (3, ""), "{}", ran.err);
    assert!(ran.err.contains("the vendor may have acted on it"), "{}", ran.err);
    let place = RunFolder::new(FakeVendor::builder().limit(limit).latency(Duration::from_millis(750))).await;
    // The command waits for the exchange of a job that was sent.
    let ran = interrupted_send(&place, &["-d", "{}", "--store", "s.sqlite"], false).await;
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("was sent, and the vendor answered 200"), "{}", ran.err);
    // The limit is used up, so the next job waits.
    let ran = interrupted_send(&place, &["-d", "{}", "--store", "s.sqlite"], true).await;
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("it waits as job") && ran.err.contains("in s.sqlite"), "{}", ran.err);
    assert_eq!(place.vendor.summary().arrived, 1);
}
