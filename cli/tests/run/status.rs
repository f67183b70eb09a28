//! What `status` and a dry run say of jobs that wait until the configuration changes.

use super::*;

/// The status of a store, with its words in one line: long lines are wrapped.
async fn status(place: &RunFolder, args: &[&str]) -> String {
    let shown = wait(place.command(&[&["status", "--store"], args].concat()).spawn().unwrap()).await;
    assert_eq!(shown.code, 0, "{}", shown.err);
    shown.out.split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn until_status_says(place: &RunFolder, store: &str, text: &str) -> String {
    let mut seen = String::new();
    for _ in 0..100 {
        seen = status(place, &[store]).await;
        if seen.contains(text) {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no {text:?}: {seen}");
}

/// Runs a file of jobs of umbra, whose key is missing: they wait in the store.
async fn leave_in_store(place: &RunFolder, file: &str, store: &str) {
    let mut command = place.command(&["run", file, "--vendors", "vendors.toml", "--store", store]);
    let ran = wait(command.env_remove("IC_RUN_KEY_2").spawn().unwrap()).await;
    assert_eq!((ran.figures(), ran.code), ([0, 0, 0], 2), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_above_a_lowered_figure_are_named() {
    let place = RunFolder::new(FakeVendor::builder().limit(VendorLimit::sliding_window(100, SECOND))).await;
    let plain = fs::read_to_string(place.path("vendors.toml")).unwrap();
    let set_limit = |units: u32| {
        let limit = format!(
            "\n[[vendors.v.limits]]\nname = \"points\"\nalgorithm = \"fixed_window\"\nlimit = {units}\nwindow = \"1h\"\n\
             unit = \"points\"\n\n[vendors.v.idempotency]"
        );
        place.write("vendors.toml", &plain.replacen("\n[vendors.v.idempotency]", &limit, 1));
    };
    let costly = |path: &str| job("umbra", path).replacen('{', "{\"cost\":50,", 1);
    set_limit(100);
    place.write("jobs.jsonl", &(costly("/1") + &costly("/2")));
    leave_in_store(&place, "jobs.jsonl", "s.sqlite").await;
    set_limit(10);
    let mut child = place.start(&["jobs.jsonl", "--store", "s.sqlite"]);
    let said = "too expensive: umbra at v (2 jobs that cost up to 50; limit `points` holds ";
    let seen = until_status_says(&place, "s.sqlite", said).await;
    assert!(seen.contains("until the limit's figure or the tenant's `share` is raised"), "{seen}");
    let other = status(&place, &["s.sqlite", "--tenant", "acme"]).await;
    assert!(!other.contains("too expensive"), "{other}");
    child.kill().unwrap();
    wait(child).await;
    place.write("more.jsonl", &(costly("/3") + &job("acme", "/4") + "{\n" + &costly("/5")));
    let dry = place.run(&["more.jsonl", "--dry-run"]).await;
    let said = "warning: 2 lines cost more than a limit holds (lines 1, 4). The first: tenant umbra, vendor v: a cost of 50 \
                never fits limit `points`, which holds ";
    assert!(dry.code == 1 && dry.out.contains(said), "{}{}", dry.out, dry.err);
    assert!(dry.out.contains("more.jsonl: 1 job, 3 invalid lines"), "{}", dry.out);
    assert_eq!(place.vendor.summary().arrived, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_lanes_that_are_not_configured_are_named() {
    let place = RunFolder::new(FakeVendor::builder().limit(VendorLimit::sliding_window(5, SECOND))).await;
    place.write("gone.jsonl", &(job("umbra", "/1") + &job("umbra", "/2")));
    leave_in_store(&place, "gone.jsonl", "s.sqlite").await;
    let vendors = fs::read_to_string(place.path("vendors.toml")).unwrap();
    let (without, _) = vendors.split_once("\n[[tenants]]\nid = \"umbra\"").unwrap();
    place.write("vendors.toml", without);
    place.jobs("jobs.jsonl", 1..=1_000);
    let mut child = place.start(&["jobs.jsonl", "--store", "s.sqlite"]);
    let said = "not configured: 1 lane with jobs: umbra at v (2 jobs). Add what is missing";
    let seen = until_status_says(&place, "s.sqlite", said).await;
    assert!(seen.contains(" acme v low "), "{seen}");
    let umbra = status(&place, &["s.sqlite", "--tenant", "umbra"]).await;
    assert!(umbra.starts_with("s.sqlite, tenant umbra 2 waiting, 0 under way, 0 dead "), "{umbra}");
    assert!(umbra.contains(said) && !umbra.contains("acme"), "{umbra}");
    assert!(umbra.contains("no process at work lists such a lane"), "{umbra}");
    let acme = status(&place, &["s.sqlite", "--tenant", "acme", "--vendor", "v", "--json"]).await;
    let acme: Value = serde_json::from_str(&acme).unwrap();
    let names = |list: &Value| -> BTreeSet<String> {
        list.as_array().unwrap().iter().map(|lane| lane["tenant"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&acme["queues"]), BTreeSet::from(["acme".to_owned()]), "{acme}");
    let worker = &acme["workers"][0];
    assert!(names(&worker["not_configured"]).is_empty() && acme["replies"].is_null(), "{acme}");
    let none = status(&place, &["s.sqlite", "--vendor", "w"]).await;
    assert!(none.starts_with("s.sqlite, vendor w 0 waiting, 0 under way, 0 dead "), "{none}");
    child.kill().unwrap();
    wait(child).await;
}
