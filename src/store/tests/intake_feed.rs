//! Rows of `ic_intake`, from an application's insert to the vendor.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::intake_poison::REJECT;
use crate::config::TenantEntry;
use crate::store::Store;
use crate::store::actor::Step;
use crate::store::driver::{Row, args};
use crate::store::faults::{Fault, Moment, Watch};
use crate::testing::{FakeAnswer, FakeTransport};
use crate::{ErrorKind, IntegrationClient};

const VENDORS: &str =
    "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";

const INSERT: Step<String, u64> =
    |request, db, _| Box::pin(db.execute("INSERT INTO ic_intake (request) VALUES ($1)", args![request]));
const REFUSED: Step<(), Vec<(String, String)>> = |(), db, _| {
    Box::pin(async move {
        let sql = "SELECT request, why FROM ic_intake_refused ORDER BY seq";
        db.fetch(sql, Vec::new()).await?.iter_mut().map(|row| Ok((row.text()?, row.text()?))).collect()
    })
};
const LEFT: Step<(), i64> = |(), db, _| {
    Box::pin(async move {
        let mut rows = db.fetch("SELECT count(*) FROM ic_intake", Vec::new()).await?;
        Ok(rows.first_mut().map(Row::int).transpose()?.unwrap_or_default())
    })
};
/// The stored requests, in the order of their jobs.
const JOBS: Step<(), Vec<Vec<u8>>> = |(), db, _| {
    Box::pin(async move {
        let sql = "SELECT request FROM ic_job ORDER BY seq";
        db.fetch(sql, Vec::new()).await?.iter_mut().map(Row::bytes).collect()
    })
};

fn store(name: &str) -> Store {
    let folder = std::env::temp_dir().join(format!("ic-intake-table-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    Store::sqlite(folder.join("s.db"))
}

async fn client(transport: &FakeTransport, store: Store) -> IntegrationClient {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDORS).transport(transport.clone());
    let builder = builder.tenant(TenantEntry::new("acme", "v")).tenant(TenantEntry::new("umbra", "v"));
    let builder = builder.tenant(TenantEntry::new("other", "v"));
    builder.store(store).work().build().await.unwrap()
}

fn post(tenant: &str, path: &str) -> String {
    format!(r#"{{"tenant":"{tenant}","vendor":"v","method":"POST","path":"{path}"}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_inserted_rows_are_kept() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let client = client(&transport, store("all")).await;
    let outbox = client.outbox();
    let state = outbox.state().unwrap();
    let inserting = async {
        for number in 0..600 {
            state.store.write(post("acme", &format!("/{number}")), INSERT).await.unwrap();
        }
        for bad in ["{", r#"{"tenant":"nobody","vendor":"v","method":"GET","path":"/"}"#] {
            state.store.write(bad.to_owned(), INSERT).await.unwrap();
        }
        while transport.calls().len() < 600 || state.store.read((), LEFT).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        client.shutdown(Duration::from_secs(5)).await;
    };
    let fed = async { tokio::join!(client.outbox().feed_from_table(), inserting).0 };
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), fed).await.unwrap().unwrap(), 600);
    let mut paths: Vec<String> = transport.calls().iter().map(|call| call.path().to_owned()).collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 600, "each once");
    let refused = state.store.read((), REFUSED).await.unwrap();
    assert_eq!(refused.len(), 2);
    assert!(refused[0].1.starts_with("not JSON") && refused[1].1.contains("nobody"), "{refused:?}");
    let error = client.outbox().feed_from_table().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shutdown);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_lanes_rows_hold_up_no_other() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).delay(Duration::from_secs(3600)));
    let client = client(&transport, store("full").max_lane_backlog(2)).await;
    let outbox = client.outbox();
    let state = outbox.state().unwrap();
    for number in 0..300 {
        state.store.write(post("acme", &format!("/{number}")), INSERT).await.unwrap();
    }
    state.store.write(post("umbra", "/behind"), INSERT).await.unwrap();
    let looking = async {
        while !transport.calls().iter().any(|call| call.path() == "/behind") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let feeding = client.outbox().feed_from_table();
    let found = async {
        tokio::select! {
            fed = feeding => panic!("it ended: {fed:?}"),
            () = looking => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(30), found).await.unwrap();
    let left = state.store.read((), LEFT).await.unwrap();
    assert!(left > 200, "{left} rows stay where they are");
}

/// Waits until no row is left, and this number of requests has reached the vendor.
async fn wait_for(client: &IntegrationClient, transport: &FakeTransport, calls: usize) {
    let outbox = client.outbox();
    let state = outbox.state().unwrap();
    while transport.calls().len() < calls || state.store.read((), LEFT).await.unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Inserts rows, hands them over, and then one more. Returns the refused rows with their reasons.
async fn hand_over(client: &IntegrationClient, transport: &FakeTransport, rows: &[String]) -> Vec<(String, String)> {
    let outbox = client.outbox();
    let state = outbox.state().unwrap();
    for row in rows {
        state.store.write(row.clone(), INSERT).await.unwrap();
    }
    let good = rows.iter().filter(|row| row.contains("good")).count();
    let inserting = async {
        wait_for(client, transport, good).await;
        state.store.write(post("acme", "/behind"), INSERT).await.unwrap();
        wait_for(client, transport, good + 1).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    let fed = async { tokio::join!(client.outbox().feed_from_table(), inserting).0 };
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), fed).await.unwrap().unwrap(), good as u64 + 1);
    assert_eq!(transport.calls().len(), good + 1);
    state.store.read((), REFUSED).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_row_is_refused_among_accepted_ones() {
    for store in super::stores().await {
        let transport = FakeTransport::new(|_| FakeAnswer::status(200));
        let client = client(&transport, store).await;
        client.outbox().state().unwrap().store.write((), REJECT).await.unwrap();
        let rows = [post("acme", "/good/0"), post("umbra", "/1"), post("acme", "/good/2")];
        let refused = hand_over(&client, &transport, &rows).await;
        assert_eq!((refused.len(), &refused[0].0), (1, &rows[1]));
        assert!(refused[0].1.contains("not this one"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_with_nul_stops_no_other() {
    for store in super::stores().await {
        let transport = FakeTransport::new(|_| FakeAnswer::status(200));
        let client = client(&transport, store).await;
        let nul = r#"{"tenant":"acme","vendor":"v","method":"GET","path":"/","x\u0000":1}"#;
        let rows = [nul.to_owned(), post("acme", "/good"), nul.replace(r#""x\u0000":1"#, r#""priority":"\u0000""#)];
        let refused = hand_over(&client, &transport, &rows).await;
        assert_eq!(refused.len(), 2);
        assert!(refused[0].1.contains(r"unknown field `x\0`") && refused[1].1.contains(r"`\0`"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rejection_of_all_rows_ends_hand_over() {
    for store in super::stores().await {
        let transport = FakeTransport::new(|_| FakeAnswer::status(200));
        let client = client(&transport, store).await;
        let outbox = client.outbox();
        let state = outbox.state().unwrap();
        state.store.write((), REJECT).await.unwrap();
        for row in [post("umbra", "/0"), "{".to_owned(), post("umbra", "/2")] {
            state.store.write(row, INSERT).await.unwrap();
        }
        let error = client.outbox().feed_from_table().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Store && error.to_string().contains("not this one"), "{error}");
        assert_eq!(state.store.read((), LEFT).await.unwrap(), 2, "only the row that is no request is refused");
    }
}

/// Counts the transactions that accept jobs.
#[derive(Default)]
struct Commits(AtomicUsize);

impl Watch for Commits {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        if what == "accept" && moment == Moment::Committed {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Fault::None
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_rows_take_several_commits() {
    let commits = Arc::new(Commits::default());
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).delay(Duration::from_secs(3600)));
    let store = store("large").max_payload_bytes(2 << 20).watched_by(commits.clone());
    let client = client(&transport, store).await;
    let outbox = client.outbox();
    let state = outbox.state().unwrap();
    let body = "x".repeat(1 << 20);
    for number in 0..12 {
        let row = post("acme", &format!("/{number}")).replace('}', &format!(r#","body":"{body}"}}"#));
        state.store.write(row, INSERT).await.unwrap();
    }
    let moved = async {
        tokio::select! {
            fed = client.outbox().feed_from_table() => panic!("it ended: {fed:?}"),
            () = wait_for(&client, &transport, 0) => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(60), moved).await.unwrap();
    // The last commit may be visible before it is counted. It is counted before the next write.
    state.store.write(post("acme", "/later"), INSERT).await.unwrap();
    let commits = commits.0.load(Ordering::Relaxed);
    assert!((2..12).contains(&commits), "{commits} commits");
    let jobs = state.store.read((), JOBS).await.unwrap();
    assert_eq!(jobs.len(), 12);
    for (number, job) in jobs.iter().enumerate() {
        let path = format!(r#""path":"/{number}""#);
        assert!(String::from_utf8_lossy(job).contains(&path), "job {number} is another");
    }
}

/// Makes 600 rows of tenant `acme` and one of `umbra` behind them.
#[cfg(feature = "postgres")]
const MANY: Step<(), u64> = |(), db, _| {
    let sql = "INSERT INTO ic_intake (request) SELECT json_build_object('tenant', CASE WHEN n = 600 THEN 'umbra' ELSE \
               'acme' END, 'vendor', 'v', 'method', 'POST', 'path', '/' || n)::text FROM generate_series(0, 600) n";
    Box::pin(db.execute(sql, Vec::new()))
};

/// The paths of the stored requests of tenant `acme`, in the order of their jobs, must be those of its rows.
#[cfg(feature = "postgres")]
async fn check_order(client: &IntegrationClient) {
    let outbox = client.outbox();
    let jobs = outbox.state().unwrap().store.read((), JOBS).await.unwrap();
    let jobs: Vec<String> = jobs.iter().map(|job| String::from_utf8_lossy(job).into_owned()).collect();
    assert_eq!(jobs.len(), 601);
    let of_acme = jobs.iter().filter(|job| !job.contains(r#""path":"/600""#));
    for (number, job) in of_acme.enumerate() {
        assert!(job.contains(&format!(r#""path":"/{number}""#)), "job {number} is another: {job}");
    }
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn rows_behind_locked_row_keep_order() {
    use sqlx::Connection;
    let url = super::database().await;
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).delay(Duration::from_secs(3600)));
    let client = client(&transport, Store::postgres(url.clone())).await;
    let outbox = client.outbox();
    let state = outbox.state().unwrap();
    state.store.write((), MANY).await.unwrap();
    let mut application = sqlx::PgConnection::connect(&url).await.unwrap();
    for sql in ["BEGIN", "SELECT 1 FROM ic_intake ORDER BY seq LIMIT 1 FOR UPDATE"] {
        sqlx::Executor::execute(&mut application, sql).await.unwrap();
    }
    let looking = async {
        while !transport.calls().iter().any(|call| call.path() == "/600") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(state.store.read((), LEFT).await.unwrap(), 600, "the rows of the lane stay");
        sqlx::Executor::execute(&mut application, "ROLLBACK").await.unwrap();
        wait_for(&client, &transport, 0).await;
    };
    let moved = async {
        tokio::select! {
            fed = client.outbox().feed_from_table() => panic!("it ended: {fed:?}"),
            () = looking => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(60), moved).await.unwrap();
    check_order(&client).await;
}

/// The rows are moved in parts because the database rejects one of them, and the first part has a locked row.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn locked_and_rejected_rows_stop_no_other() {
    use sqlx::Connection;
    let url = super::database().await;
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).delay(Duration::from_secs(3600)));
    let client = client(&transport, Store::postgres(url.clone())).await;
    let outbox = client.outbox();
    let state = outbox.state().unwrap();
    state.store.write((), REJECT).await.unwrap();
    for (tenant, path) in [("acme", "/0"), ("umbra", "/1"), ("acme", "/2"), ("other", "/3")] {
        state.store.write(post(tenant, path), INSERT).await.unwrap();
    }
    let mut application = sqlx::PgConnection::connect(&url).await.unwrap();
    for sql in ["BEGIN", "SELECT 1 FROM ic_intake ORDER BY seq LIMIT 1 FOR UPDATE"] {
        sqlx::Executor::execute(&mut application, sql).await.unwrap();
    }
    let looking = async {
        while state.store.read((), LEFT).await.unwrap() > 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let refused = state.store.read((), REFUSED).await.unwrap();
        assert!(refused.len() == 1 && refused[0].1.contains("not this one"), "{refused:?}");
        sqlx::Executor::execute(&mut application, "ROLLBACK").await.unwrap();
        wait_for(&client, &transport, 0).await;
    };
    let moved = async {
        tokio::select! {
            fed = client.outbox().feed_from_table() => panic!("it ended: {fed:?}"),
            () = looking => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(60), moved).await.unwrap();
    let jobs = state.store.read((), JOBS).await.unwrap();
    assert_eq!(jobs.len(), 3);
    for (job, path) in jobs.iter().zip(["/3", "/0", "/2"]) {
        let job = String::from_utf8_lossy(job);
        assert!(job.contains(&format!(r#""path":"{path}""#)), "{path}: {job}");
    }
}

/// The two may not meet at the same rows here; `one_process_moves_rows_at_a_time` makes them meet.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_hand_overs_keep_order() {
    let url = super::database().await;
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).delay(Duration::from_secs(3600)));
    let one = client(&transport, Store::postgres(url.clone())).await;
    let other = client(&transport, Store::postgres(url)).await;
    one.outbox().state().unwrap().store.write((), MANY).await.unwrap();
    let moved = async {
        tokio::select! {
            fed = one.outbox().feed_from_table() => panic!("it ended: {fed:?}"),
            fed = other.outbox().feed_from_table() => panic!("it ended: {fed:?}"),
            () = wait_for(&one, &transport, 0) => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(60), moved).await.unwrap();
    check_order(&one).await;
}
