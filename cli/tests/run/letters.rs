//! Commands that change dead letters and tenants of a store: ids may be shortened, `--dry-run` shows the change, and
//! nothing is changed without consent.

use integration_client::store::Store;
use integration_client::testing::{Fault, When};
use integration_client::{IntegrationClient, Priority, Request};

use super::*;

impl RunFolder {
    async fn ask(&self, args: &[&str]) -> ProcessOutput {
        wait(self.command(args).env("INTEGRATION_CLIENT_STORE", "jobs.jsonl.sqlite").spawn().unwrap()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn letter_ids_may_be_shortened() {
    let place = RunFolder::new(FakeVendor::builder().poisoned("/jobs", 422)).await;
    place.jobs("jobs.jsonl", 1..=3);
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!(ran.figures(), [0, 0, 3], "{}", ran.err);
    assert!(!ran.err.contains("once more"), "the vendor says no again: {}", ran.err);
    let ran = place.run(&["jobs.jsonl"]).await;
    assert!(ran.err.contains("nothing to send") && !ran.err.contains("--anew"), "{}", ran.err);
    let list = place.ask(&["dead-letters", "list", "--json"]).await;
    let letters: Vec<Value> = list.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<&str> = letters.iter().map(|letter| letter["id"].as_str().unwrap()).collect();

    let all = place.ask(&["dead-letters", "show", &ids[0][..6]]).await;
    assert!(all.code == 2 && ids.iter().all(|id| all.err.contains(id)), "{}", all.err);
    let length =
        (1..=ids[0].len()).find(|length| ids[1..].iter().all(|id| !id.starts_with(&ids[0][..*length]))).unwrap();
    let one = &ids[0][..length];
    let shown = place.ask(&["dead-letters", "show", one]).await;
    assert!(shown.code == 0 && shown.out.contains(ids[0]), "{}{}", shown.out, shown.err);

    let preview = place.ask(&["dead-letters", "redrive", one, "--dry-run"]).await;
    assert_eq!((preview.code, &*preview.out), (0, "1 letter would be a job again\n"), "{}", preview.err);
    let none = place.ask(&["dead-letters", "redrive"]).await;
    assert!(none.code == 2 && none.err.contains("--all"), "{}", none.err);
    // A misspelt tenant or vendor is reported, although there is nothing to do.
    for option in ["--tenant", "--vendor"] {
        let none = place.ask(&["dead-letters", "redrive", "--all", option, "nosuch"]).await;
        assert_eq!((none.code, &*none.out), (0, "no letter was made a job again\n"), "{}", none.err);
        assert!(none.err.starts_with("no dead letter matches the options; `dead-letters list`"), "{}", none.err);
    }
    // Without a terminal the command cannot ask for consent, so it changes nothing.
    for (what, said) in [
        (&["redrive", "--all"][..], "this would send 3 dead letters again: add --yes"),
        (&["purge"], "this would delete 3 dead letters for good, requests and all: add --yes"),
    ] {
        let unsure = place.ask(&[&["dead-letters"], what].concat()).await;
        assert!(unsure.code == 2 && unsure.err.contains(said), "{}", unsure.err);
        let preview = place.ask(&[&["dead-letters"], what, &["--dry-run"]].concat()).await;
        assert!(preview.code == 0 && preview.out.contains(" would be "), "{}{}", preview.out, preview.err);
    }
    assert_eq!(place.ask(&["dead-letters", "list", "--json"]).await.out, list.out, "nothing was changed");

    let again = place.ask(&["dead-letters", "redrive", one, "--json"]).await;
    assert_eq!((again.code, &*again.out), (0, "{\"redriven\":1,\"skipped\":0}\n"), "{}", again.err);
    let missing = place.ask(&["dead-letters", "redrive", "no-such-id", "--json"]).await;
    assert_eq!((missing.code, &*missing.out), (1, "{\"redriven\":0,\"skipped\":0}\n"), "a program reads this");
    assert!(missing.err.contains("no dead letter has this id"), "{}", missing.err);
    let gone = place.ask(&["dead-letters", "purge", "--yes"]).await;
    assert_eq!((gone.code, &*gone.out), (0, "2 dead letters deleted\n"), "{}", gone.err);
}

/// The vendor may have acted on an ambiguous letter, and would act twice.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_letters_are_redriven_only_by_their_reason() {
    let vendor = FakeVendor::builder().poisoned("/locked", 401).poisoned("/bad", 422);
    let place = RunFolder::new(vendor.fault(When::path("/lost"), Fault::Reset)).await;
    let keyless = fs::read_to_string(place.path("vendors.toml")).unwrap();
    let keyless = keyless.replace("[vendors.v.idempotency]\nheader = \"idempotency-key\"\n", "");
    place.write("vendors.toml", &keyless);
    let jobs: String = ["/lost/1", "/locked/1", "/bad/1"].map(|path| job("acme", path)).concat();
    place.write("jobs.jsonl", &jobs);
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!(ran.figures(), [0, 0, 3], "{}", ran.err);
    for (args, expected) in
        [(&[][..], 3), (&["--status", "401"], 1), (&["--status", "422"], 1), (&["--status", "500"], 0)]
    {
        let list = place.ask(&[&["dead-letters", "list", "--json"], args].concat()).await;
        assert_eq!((list.code, list.out.lines().count()), (0, expected), "{args:?} {}", list.err);
    }
    let left_out = "1 ambiguous letter is left out, because the vendor may have acted on it";
    let redrive = async |args: &[&str]| place.ask(&[&["dead-letters", "redrive", "--all"], args].concat()).await;
    let all = redrive(&["--dry-run"]).await;
    assert_eq!((all.code, &*all.out), (0, "2 letters would be jobs again\n"), "{}", all.err);
    assert!(all.err.contains(left_out) && all.err.contains("--reason ambiguous"), "{}", all.err);
    let named = redrive(&["--dry-run", "--reason", "ambiguous"]).await;
    assert_eq!((&*named.out, &*named.err), ("1 letter would be a job again\n", ""));
    let locked = redrive(&["--yes", "--status", "401"]).await;
    assert!(locked.out.starts_with("1 letter is a job again; "), "{}{}", locked.out, locked.err);
    let bad = place.ask(&["dead-letters", "purge", "--yes", "--status", "422"]).await;
    assert_eq!((bad.code, &*bad.out), (0, "1 dead letter deleted\n"), "{}", bad.err);
    let rest = redrive(&["--yes"]).await;
    assert_eq!((rest.code, &*rest.out), (0, "no letter was made a job again\n"), "{}", rest.err);
    assert!(rest.err.contains(left_out), "{}", rest.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_in_doubt_are_counted() {
    let place = RunFolder::new(FakeVendor::builder().poisoned("/down", 500).poisoned("/bad", 422)).await;
    let once =
        fs::read_to_string(place.path("vendors.toml")).unwrap().replace("first_wait", "max_retries = 1\nfirst_wait");
    place.write("vendors.toml", &once);
    place.write("jobs.jsonl", &["/down/1", "/bad/1"].map(|path| job("acme", path)).concat());
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!(ran.figures(), [0, 0, 2], "{}", ran.err);
    for (args, is_said) in [
        (&["--dry-run"][..], true),
        (&["--dry-run", "--reason", "rejected"], false),
        (&["--yes", "--reason", "exhausted"], true),
    ] {
        let again = place.ask(&[&["dead-letters", "redrive", "--all"], args].concat()).await;
        let said = again.err.contains("the vendor may have acted on 1 of these letters: ");
        assert!(again.code == 0 && said == is_said, "{args:?} {}{}", again.out, again.err);
    }
}

/// A letter of an earlier run whose request was done in a later one would act twice.
#[tokio::test(flavor = "multi_thread")]
async fn advised_redrive_selects_letters_of_its_run_alone() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.jobs("jobs.jsonl", 1..=2);
    let mut commands = Vec::new();
    for (args, refused) in [(&["jobs.jsonl"][..], "/jobs/1"), (&["jobs.jsonl", "--anew"], "/jobs/2")] {
        place.vendor.clear_faults();
        place.vendor.add_fault(When::path(refused), Fault::Status(401));
        let ran = place.run(args).await;
        assert_eq!(ran.figures(), [1, 0, 1], "{}", ran.err);
        let (_, command) = ran.err.split_once(", then: integration-client ").unwrap();
        commands.push(command.lines().next().unwrap().to_owned());
    }
    place.vendor.clear_faults();
    let words: Vec<&str> = commands[1].split(' ').chain(["--yes"]).collect();
    let again = wait(place.command(&words).spawn().unwrap()).await;
    assert!(again.code == 0 && again.out.starts_with("1 letter is a job again; "), "{}{}", again.out, again.err);
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!(ran.figures(), [2, 0, 0], "{}", ran.err);
    let arrivals = place.vendor.arrivals();
    let done = |path: &str| arrivals.iter().filter(|arrival| &*arrival.path == path && arrival.status == 200).count();
    assert_eq!((done("/jobs/1"), done("/jobs/2")), (1, 2), "once in each run that had not done it");

    // The letter of the first run is left, also by a purge of the second run's.
    let run = |command: &str| command.split_once("--run ").unwrap().1.split(' ').next().unwrap().to_owned();
    let (first, second) = (run(&commands[0]), run(&commands[1]));
    for (run, said) in
        [(&second, "no dead letters fit: there is nothing to delete\n"), (&first, "1 dead letter deleted\n")]
    {
        let list = place.ask(&["dead-letters", "list", "--run", run, "--json"]).await;
        assert_eq!(list.out.lines().count(), usize::from(run == &first), "{}{}", list.out, list.err);
        let gone = place.ask(&["dead-letters", "purge", "--run", run, "--yes"]).await;
        assert_eq!((gone.code, &*gone.out), (0, said), "{}", gone.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_removal_needs_a_name_or_consent() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.write("active.txt", "acme\n");
    let tenants = |args: &[&'static str]| [&["tenants"], args, &["--vendors", "vendors.toml"]].concat();
    for id in ["a1", "a2", "a3"] {
        let set = place.ask(&tenants(&["set", id, "v", "--credential", "env:IC_RUN_KEY"])).await;
        assert_eq!(set.code, 0, "{}", set.err);
    }
    let preview = place.ask(&tenants(&["retire", "a1", "--dry-run"])).await;
    assert_eq!((preview.code, &*preview.out), (0, "a1 at v would be retired\n"), "{}", preview.err);
    // Only what is not named one by one needs consent.
    let sure = place.ask(&tenants(&["retire", "a1", "--yes"])).await;
    assert!(sure.code == 2 && sure.err.contains("--yes"), "{}", sure.err);
    let one = place.ask(&tenants(&["retire", "a1"])).await;
    assert_eq!((one.code, &*one.out), (0, "a1 at v is retired\n"), "{}", one.err);
    let unsure = place.ask(&tenants(&["cleanup", "--active", "active.txt"])).await;
    assert!(unsure.code == 2 && unsure.err.contains("this would retire 2 tenants: add --yes"), "{}", unsure.err);
    let rest = place.ask(&tenants(&["cleanup", "--active", "active.txt", "--yes"])).await;
    assert!(rest.code == 0 && rest.out.ends_with("2 tenants retired\n"), "{}{}", rest.out, rest.err);
}

/// The vendors' file states `acme` with another credential, with which it is served once the store's row is gone.
#[tokio::test(flavor = "multi_thread")]
async fn retired_tenant_that_a_file_still_states_is_named() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.write("active.txt", "nobody\n");
    let tenants = |args: &[&'static str]| [&["tenants"], args, &["--vendors", "vendors.toml"]].concat();
    let set = async || {
        let set = place.ask(&tenants(&["set", "acme", "v", "--credential", "env:IC_RUN_KEY_2"])).await;
        assert_eq!(set.code, 0, "{}", set.err);
    };
    set().await;
    let preview = place.ask(&tenants(&["retire", "acme", "--dry-run"])).await;
    let said = "acme at v would be removed from the store, but vendors.toml states it: it would be served with \
                env:IC_RUN_KEY. Remove it there too.\n";
    assert_eq!((preview.code, &*preview.out), (1, said), "{}", preview.err);
    let retired = place.ask(&tenants(&["retire", "acme"])).await;
    let said = "acme at v was removed from the store, but vendors.toml still states it: it is served with \
                env:IC_RUN_KEY. Remove it there too.\n";
    assert_eq!((retired.code, &*retired.out), (1, said), "{}", retired.err);
    set().await;
    let json = place.ask(&tenants(&["retire", "acme", "--json"])).await;
    let entry =
        serde_json::json!({ "id": "acme", "vendor": "v", "stated_in": "vendors.toml", "credential": "env:IC_RUN_KEY" });
    let shown: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &shown["retired"][0]), (1, &entry), "{}", json.err);
    set().await;
    let cleanup = place.ask(&tenants(&["cleanup", "--active", "active.txt", "--yes"])).await;
    assert!(cleanup.code == 1 && cleanup.out.starts_with(said), "{}{}", cleanup.out, cleanup.err);
    assert!(cleanup.out.ends_with("1 tenant removed from the store\n"), "{}", cleanup.out);
}

/// The tenants are retired although nobody reads their names.
#[tokio::test(flavor = "multi_thread")]
async fn closed_output_stops_no_cleanup() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.write("active.txt", "acme\n");
    for id in ["a1", "a2", "a3"] {
        let set = ["tenants", "set", id, "v", "--vendors", "vendors.toml", "--credential", "env:IC_RUN_KEY"];
        assert_eq!(place.ask(&set).await.code, 0);
    }
    let mut command = place.command(&["tenants", "cleanup", "--active", "active.txt", "--yes"]);
    let mut child = command.env("INTEGRATION_CLIENT_STORE", "jobs.jsonl.sqlite").spawn().unwrap();
    drop(child.stdout.take());
    let ran = wait(child).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    let left = place.ask(&["tenants", "list", "--vendors", "vendors.toml", "--json"]).await;
    assert!(!left.out.contains("\"store\""), "{}{}", left.out, left.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_response_of_a_request_is_shown() {
    let place = RunFolder::new(FakeVendor::builder().poisoned("/down", 503)).await;
    let ran = wait(place.command(&["send", "acme", "v", "/down", "--vendors", "vendors.toml", "-i"]).spawn().unwrap());
    let ran = ran.await;
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.out.starts_with("HTTP/1.1 503 Service Unavailable\n"), "{}", ran.out);
    assert!(ran.err.contains("\nattempt "), "{}", ran.err);
    assert!(ran.err.contains("error: tenant acme, vendor v: "), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn response_line_ends_and_refusal_is_named() {
    let place =
        RunFolder::new(FakeVendor::builder().poisoned("/bad", 422).limit(VendorLimit::sliding_window(100, SECOND)))
            .await;
    let good = place.command(&["send", "acme", "v", "/good", "--vendors", "vendors.toml"]).spawn().unwrap();
    let good = wait(good).await;
    assert!(good.code == 0 && good.out.ends_with("\n") && good.err.is_empty(), "{:?} {:?}", good.out, good.err);
    let bad = place.command(&["send", "acme", "v", "/bad", "--vendors", "vendors.toml"]).spawn().unwrap();
    let bad = wait(bad).await;
    assert_eq!((bad.code, &*bad.err), (1, "error: the vendor answered 422 Unprocessable Entity\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn store_without_worker_is_reported() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    let builder = IntegrationClient::builder().without_catalogue().vendors_file(place.path("vendors.toml"));
    let client = builder.store(Store::sqlite(place.path("jobs.jsonl.sqlite"))).build().await.unwrap();
    client.outbox().enqueue("acme", Priority::Normal, Request::get("v", "/")).await.unwrap();
    let status = place.ask(&["status"]).await;
    assert!(status.code == 0 && status.out.contains("no worker is running: nothing is sent until"), "{}", status.out);
    assert!(status.out.contains("\n1 waiting, 0 under way, 0 dead\n"), "{}", status.out);
    assert_eq!(place.vendor.summary().arrived, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_deletes_more_letters_than_fit_one_transaction() {
    let place = RunFolder::new(FakeVendor::builder().poisoned("/jobs", 422)).await;
    place.jobs("jobs.jsonl", 1..=450);
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!(ran.figures(), [0, 0, 450], "{}", ran.err);
    let gone = place.ask(&["dead-letters", "purge", "--yes"]).await;
    assert_eq!((gone.code, &*gone.out), (0, "450 dead letters deleted\n"), "{}", gone.err);
    let again = place.ask(&["dead-letters", "purge", "--yes"]).await;
    assert!(again.out.contains("there is nothing to delete"), "{}", again.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_counts_untaken_replies() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    place.write("jobs.jsonl", r#"{"tenant":"acme","vendor":"v","method":"GET","path":"/","reply":true}"#);
    let ran = place.run(&["jobs.jsonl"]).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    let status = place.ask(&["status"]).await;
    assert!(status.out.contains("\n1 reply that nobody has taken, the oldest "), "{}", status.out);
    let status: Value = serde_json::from_str(&place.ask(&["status", "--json"]).await.out).unwrap();
    assert!(status["replies"]["count"] == 1 && status["replies"]["oldest_s"].is_number(), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn file_is_checked_and_timed_without_sending() {
    let place = RunFolder::new(FakeVendor::builder().limit(VendorLimit::sliding_window(100, SECOND))).await;
    let jobs: String = (1..=1_100).map(|number| job("acme", &format!("/jobs/{number}"))).collect();
    place.write("jobs.jsonl", &(jobs + &job("nobody", "/jobs/1") + "{\n" + &job("stored", "/jobs/2")));
    let set = ["tenants", "set", "stored", "v", "--vendors", "vendors.toml", "--credential", "env:IC_RUN_KEY"];
    assert_eq!(place.ask(&set).await.code, 0);
    let before = place.ask(&["status", "--json"]).await.out;
    let dry = place.run(&["jobs.jsonl", "--dry-run"]).await;
    assert_eq!((dry.code, &*dry.err), (1, ""), "{}", dry.out);
    assert!(dry.out.contains("jobs.jsonl:1101: tenant \"nobody\" is not configured"), "{}", dry.out);
    assert!(dry.out.contains("jobs.jsonl:1102: not JSON"), "{}", dry.out);
    let last = dry.out.lines().last().unwrap();
    assert!(last.starts_with("jobs.jsonl: 1101 jobs, 2 invalid lines; they take 1"), "{}", dry.out);
    assert!(last.ends_with("s or more. Nothing was sent"), "{}", dry.out);
    assert_eq!((place.vendor.summary().arrived, place.ask(&["status", "--json"]).await.out), (0, before));
    let slow = RunFolder::new(FakeVendor::builder().limit(VendorLimit::sliding_window(2, 60 * SECOND))).await;
    let hurried = |number: u32| job("acme", &format!("/{number}")).replacen('{', "{\"deadline\":\"20s\",", 1);
    slow.write("jobs.jsonl", &((1..=6).map(hurried).collect::<String>() + &job("umbra", "/7")));
    let mut command = slow.command(&["run", "jobs.jsonl", "--vendors", "vendors.toml", "--dry-run"]);
    let dry = wait(command.env_remove("IC_RUN_KEY_2").spawn().unwrap()).await;
    assert_eq!(dry.code, 0, "{} {}", dry.out, dry.err);
    let late = dry.out.lines().find(|line| line.contains(" of 7 jobs cannot be sent before their deadline (lines "));
    assert!(late.is_some_and(|late| late.ends_with(", 6)") && !late.contains("(lines 1,")), "{}", dry.out);
    assert!(dry.out.contains("warning: umbra at v: env:IC_RUN_KEY_2 is not set in this process; "), "{}", dry.out);
    let passed = hurried(1).replacen("20s", "2020-01-01T00:00:00Z", 1);
    slow.write("passed.jsonl", &passed);
    let dry = slow.run(&["passed.jsonl", "--dry-run"]).await;
    assert!(dry.out.contains("1 of 1 jobs cannot be sent before its deadline (line 1)"), "{}", dry.out);
    slow.write("many.jsonl", &(1..=10_000).map(hurried).collect::<String>());
    let began = now();
    let dry = slow.run(&["many.jsonl", "--dry-run"]).await;
    assert!(dry.out.contains(" of 10,000 jobs cannot be sent before their deadline"), "{}", dry.out);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // The store of a run does not exist before its first run, and a dry run does not create it.
    place.jobs("other.jsonl", 1..=2);
    assert_eq!(place.run(&["other.jsonl", "--dry-run"]).await.code, 0);
    assert!(!place.path("other.jsonl.sqlite").exists());
}
