//! Commands that change dead letters and tenants of a store: ids may be shortened, `--dry-run` shows the change, and
//! nothing is changed without consent.

use integration_client::store::Store;
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
    assert!(ran.out.starts_with("HTTP 503 (attempt "), "{}", ran.out);
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
    assert!(last.starts_with("jobs.jsonl: 1101 jobs, 2 lines are no jobs; they take 1"), "{}", dry.out);
    assert!(last.ends_with("s or more. Nothing was sent"), "{}", dry.out);
    assert_eq!((place.vendor.summary().arrived, place.ask(&["status", "--json"]).await.out), (0, before));
    // The store of a run does not exist before its first run, and a dry run does not create it.
    place.jobs("other.jsonl", 1..=2);
    assert_eq!(place.run(&["other.jsonl", "--dry-run"]).await.code, 0);
    assert!(!place.path("other.jsonl.sqlite").exists());
}
