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
    assert!((10..=120).contains(&dead), "those that were under way beside the tenth: {}", ran.err);
    assert!(ran.err.contains("acme at v: the key is refused with 401"), "{}", ran.err);
    assert!(ran.err.contains("is env:IC_RUN_KEY right?"), "{}", ran.err);
    // No letter of another reason is sent again: the vendor may have acted on it.
    let command = "\n  integration-client dead-letters redrive --all --reason rejected --status 401 --tenant acme --vendor v \
                   --run ";
    assert!(ran.err.contains(command) && ran.err.matches("redrive").count() == 1, "{}", ran.err);
    let said = "run the same command again: it sends what waits. What was refused are dead letters";
    assert!(ran.err.contains(said) && ran.err.contains(" --store jobs.jsonl.sqlite\n"), "{}", ran.err);
    assert!(!ran.err.contains("operator"), "the run paused it: {}", ran.err);
    assert!(began.elapsed() < Duration::from_secs(20), "{}", ran.err);
    // The first of these jobs were sent twice: with the cached secret, and again with the secret read anew.
    assert!(place.vendor.summary().arrived <= 20 + 120, "{:?}", place.vendor.summary());
}

/// All jobs were under way when the key was found to be refused.
#[tokio::test(flavor = "multi_thread")]
async fn refused_key_is_a_failure_without_jobs_left() {
    let place = RunFolder::new(FakeVendor::builder().poisoned("/locked", 401)).await;
    place.write("jobs.jsonl", &(1..=10).map(|number| job("acme", &format!("/locked/{number}"))).collect::<String>());
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([0, 0, 10], 2), "{}", ran.err);
    assert!(ran.err.contains("error: the key is refused of acme at v (env:IC_RUN_KEY)"), "{}", ran.err);
    assert!(!ran.err.contains("it sends what waits"), "nothing waits: {}", ran.err);
}

/// The last message of an interrupted run names no keys, so its account does.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_run_names_the_refused_key() {
    let limit = VendorLimit::sliding_window(100, SECOND);
    let place = RunFolder::new(FakeVendor::builder().limit(limit).poisoned("/locked", 401)).await;
    let mut jobs: String = (1..=12).map(|number| job("acme", &format!("/locked/{number}"))).collect();
    jobs.extend((1..=1_000).map(|number| job("umbra", &format!("/jobs/{number}"))));
    place.write("jobs.jsonl", &jobs);
    let child = place.start(&["jobs.jsonl"]);
    place.wait_until_sent(200).await;
    signal(&child, "INT");
    let ran = wait(child).await;
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("acme at v: the key is refused with 401"), "{}", ran.err);
    let command = "once more:  correct env:IC_RUN_KEY, then: integration-client dead-letters redrive --all \
                   --reason rejected --status 401 --tenant acme --vendor v --run ";
    assert!(ran.err.contains(command), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn few_refusals_name_the_key_to_correct() {
    let place = RunFolder::new(FakeVendor::builder().poisoned("/locked", 401)).await;
    place.write("jobs.jsonl", &job("acme", "/locked/1"));
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([0, 0, 1], 1), "{}", ran.err);
    let command = "once more:  correct env:IC_RUN_KEY, then: integration-client dead-letters redrive --all \
                   --reason rejected --status 401 --tenant acme --vendor v --run ";
    assert!(ran.err.contains(command), "{}", ran.err);
}

/// The run lasts longer than a job is tried again whose credential cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_without_secret_wait_and_are_reported() {
    let place = RunFolder::new(FakeVendor::builder().limit(VendorLimit::sliding_window(20, SECOND))).await;
    let vendors = fs::read_to_string(place.path("vendors.toml")).unwrap();
    let vendors = vendors.replace("first_wait = \"100ms\"", "first_wait = \"100ms\"\nmax_age = \"1s\"");
    place.write("vendors.toml", &vendors);
    let jobs = |tenant: &str, count: u32| -> String {
        (1..=count).map(|number| job(tenant, &format!("/{tenant}/{number}"))).collect()
    };
    place.write("jobs.jsonl", &(jobs("umbra", 30) + &jobs("acme", 120)));
    // The second run finds the jobs in the store.
    for _ in 0..2 {
        let mut command = place.command(&["run", "jobs.jsonl", "--vendors", "vendors.toml"]);
        let ran = wait(command.env_remove("IC_RUN_KEY_2").spawn().unwrap()).await;
        assert_eq!((ran.figures(), ran.code), ([120, 0, 0], 2), "{}", ran.err);
        let said = "run: umbra at v: env:IC_RUN_KEY_2 is not set in this process. None of its jobs is sent";
        assert!(ran.err.contains(said), "{}", ran.err);
        assert!(ran.err.contains("error: the key is missing of umbra at v (env:IC_RUN_KEY_2)"), "{}", ran.err);
        assert!(!ran.err.contains("redrive"), "{}", ran.err);
    }
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([150, 0, 0], 0), "{}", ran.err);
}

/// The first run has read the whole file, so the dry run reads no job whose tenant has no key.
#[tokio::test(flavor = "multi_thread")]
async fn dry_run_counts_the_jobs_that_wait() {
    let place = RunFolder::new(FakeVendor::builder().limit(VendorLimit::sliding_window(10, 60 * SECOND))).await;
    let jobs = (1..=40).map(|number| job("umbra", &format!("/{number}"))).collect::<String>() + &job("acme", "/41");
    place.write("jobs.jsonl", &jobs);
    let run = async |args: &[&str]| {
        let mut command = place.command(&[&["run"], args, &["--vendors", "vendors.toml"]].concat());
        wait(command.env_remove("IC_RUN_KEY_2").spawn().unwrap()).await
    };
    let ran = run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([1, 0, 0], 2), "{}", ran.err);
    let last = |dry: &ProcessOutput| dry.out.lines().last().unwrap_or_default().to_owned();
    let warning =
        "warning: umbra at v: env:IC_RUN_KEY_2 is not set in this process; the run would send none of its jobs";
    let dry = run(&["jobs.jsonl", "--dry-run"]).await;
    assert!(dry.code == 0 && dry.out.contains(&format!("{warning}\n")), "{} {}", dry.out, dry.err);
    let before = "41 lines were read before, of which 40 jobs wait to be sent; they take ";
    assert!(last(&dry).starts_with(&format!("jobs.jsonl: no jobs, {before}")), "{}", dry.out);
    assert!(!last(&dry).contains("less than"), "30 of the jobs wait for the limit: {}", dry.out);
    let row = dry.out.lines().find(|line| line.starts_with("umbra ")).unwrap_or_default();
    assert!(row.contains(" 40 "), "{}", dry.out);
    // A job that is added waits behind those.
    place.write("jobs.jsonl", &(jobs + &job("umbra", "/42").replacen('{', "{\"deadline\":\"20s\",", 1)));
    let dry = run(&["jobs.jsonl", "--dry-run"]).await;
    assert!(last(&dry).starts_with(&format!("jobs.jsonl: 1 job, {before}")), "{}", dry.out);
    assert!(dry.out.contains("1 of 1 jobs cannot be sent before its deadline (line 42)"), "{}", dry.out);
    // The run of another file sends what waits in its store.
    place.write("other.jsonl", &job("acme", "/43"));
    let dry = run(&["other.jsonl", "--dry-run", "--store", "jobs.jsonl.sqlite"]).await;
    assert!(dry.out.contains(&format!("{warning} of other runs in this store\n")), "{} {}", dry.out, dry.err);
    assert_eq!(place.vendor.summary().arrived, 1);
}

/// The credential is there, and the secret of a header beside it is not.
#[tokio::test(flavor = "multi_thread")]
async fn missing_secret_header_stops_its_tenant_alone() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    let vendors = fs::read_to_string(place.path("vendors.toml")).unwrap();
    let more = "\"env:IC_RUN_KEY_2\"\nsecret_headers = { x-second = \"env:IC_RUN_SECOND\" }";
    place.write("vendors.toml", &vendors.replace("\"env:IC_RUN_KEY_2\"", more));
    place.write("jobs.jsonl", &(job("umbra", "/1") + &job("acme", "/2")));
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([1, 0, 0], 2), "{}", ran.err);
    let said = "run: umbra at v: env:IC_RUN_SECOND is not set in this process. None of its jobs is sent";
    assert!(ran.err.contains(said), "{}", ran.err);
    assert!(ran.err.contains("error: the key is missing of umbra at v (env:IC_RUN_SECOND)"), "{}", ran.err);
    let mut command = place.command(&["run", "jobs.jsonl", "--vendors", "vendors.toml"]);
    let ran = wait(command.env("IC_RUN_SECOND", "second").spawn().unwrap()).await;
    assert_eq!((ran.figures(), ran.code), ([2, 0, 0], 0), "{}", ran.err);
}

/// The vendor needs a credential, and the tenant's entry states none.
#[tokio::test(flavor = "multi_thread")]
async fn tenant_without_credential_waits_alone() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    let vendors = fs::read_to_string(place.path("vendors.toml")).unwrap();
    place.write("vendors.toml", &vendors.replace("credential = \"env:IC_RUN_KEY_2\"\n", ""));
    place.write("jobs.jsonl", &(job("umbra", "/1") + &job("acme", "/2")));
    let check = wait(place.command(&["check", "vendors.toml"]).spawn().unwrap()).await;
    let shown = check.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "warning: vendor `v`: no credential is configured for umbra, and the vendor's `auth` needs one";
    assert!(check.code == 0 && shown.contains(said), "{}{}", check.out, check.err);
    let dry = place.run(&["jobs.jsonl", "--dry-run"]).await;
    let said = "warning: umbra at v: no credential is configured; the run would send none of its jobs\n";
    assert!(dry.code == 0 && dry.out.contains(said), "{}{}", dry.out, dry.err);
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([1, 0, 0], 2), "{}", ran.err);
    let said = "run: umbra at v: no credential is configured. None of its jobs is sent";
    assert!(ran.err.contains(said), "{}", ran.err);
    assert!(ran.err.contains("error: the key is missing of umbra at v (none is configured)"), "{}", ran.err);
    place.write("vendors.toml", &vendors);
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([2, 0, 0], 0), "{}", ran.err);
}

/// The store holds jobs of another file, whose key is missing.
#[tokio::test(flavor = "multi_thread")]
async fn missing_key_of_another_run_decides_nothing() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.write("other.jsonl", &job("acme", "/other"));
    place.write("small.jsonl", &job("umbra", "/small"));
    for (jobs, done, code) in [("other.jsonl", 0, 2), ("small.jsonl", 1, 0), ("other.jsonl", 0, 2)] {
        let mut command = place.command(&["run", jobs, "--vendors", "vendors.toml", "--store", "shared.sqlite"]);
        let ran = wait(command.env_remove("IC_RUN_KEY").spawn().unwrap()).await;
        assert_eq!((ran.figures(), ran.code), ([done, 0, 0], code), "{jobs}: {}", ran.err);
        assert!(ran.err.contains("run: acme at v: env:IC_RUN_KEY is not set in this process"), "{}", ran.err);
        assert_eq!(ran.err.contains("Its jobs of other runs in this store are not sent"), code == 0, "{}", ran.err);
    }
    let ran = place.run(&["other.jsonl", "--store", "shared.sqlite"]).await;
    assert_eq!((ran.figures(), ran.code, place.effects()), ([1, 0, 0], 0, (2, 2)), "{}", ran.err);
}

/// The store holds jobs of another file, whose tenant is no longer in the configuration.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_jobs_of_missing_tenant_are_named() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.write("gone.jsonl", &(job("umbra", "/1") + &job("umbra", "/2")));
    place.write("other.jsonl", &job("acme", "/3"));
    let mut command = place.command(&["run", "gone.jsonl", "--vendors", "vendors.toml", "--store", "shared.sqlite"]);
    let ran = wait(command.env_remove("IC_RUN_KEY_2").spawn().unwrap()).await;
    assert_eq!((ran.figures(), ran.code), ([0, 0, 0], 2), "{}", ran.err);
    let vendors = fs::read_to_string(place.path("vendors.toml")).unwrap();
    let (without, _) = vendors.split_once("\n[[tenants]]\nid = \"umbra\"").unwrap();
    place.write("vendors.toml", without);
    let said = "v is not configured for umbra; its 2 jobs wait. What is not configured within ten minutes becomes a dead letter";
    let dry = place.run(&["other.jsonl", "--dry-run", "--store", "shared.sqlite"]).await;
    assert!(dry.code == 0 && dry.out.contains(&format!("warning: {said}")), "{}{}", dry.out, dry.err);
    let ran = place.run(&["other.jsonl", "--store", "shared.sqlite"]).await;
    assert_eq!((ran.figures(), ran.code), ([1, 0, 0], 0), "{}", ran.err);
    assert_eq!(ran.err.matches(&format!("run: {said}")).count(), 1, "{}", ran.err);
}

/// A rotation removes the file of a key before it writes the new one.
#[tokio::test(flavor = "multi_thread")]
async fn file_of_a_key_is_looked_for_again() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    let vendors = fs::read_to_string(place.path("vendors.toml")).unwrap();
    let key = place.path("key");
    place.write("vendors.toml", &vendors.replace("env:IC_RUN_KEY\"", &format!("file:{}\"", key.display())));
    place.write("jobs.jsonl", &(job("acme", "/1") + &job("umbra", "/2")));
    let child = place.start(&["jobs.jsonl"]);
    // The job of the other tenant is sent, and the file is missing.
    place.wait_until_sent(1).await;
    place.write("key", "acme");
    let ran = wait(child).await;
    assert_eq!((ran.figures(), ran.code), ([2, 0, 0], 0), "{}", ran.err);
    assert!(ran.err.contains("is there now. Its jobs are sent"), "{}", ran.err);
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
