//! The store fails at every point at which it can, once or for a while: no acknowledged request is lost or sent twice,
//! callers get errors, and the client recovers by itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::outbox::{Receipt, Status};
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, WHAT, Watch};
use integration_client::testing::{FakeVendor, Fault as VendorFault, HeaderStyle, When};
use integration_client::{Delivery, Error, ErrorKind, IntegrationClient, IntegrationClientBuilder, Priority, Request};

fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("ic-troubles-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

async fn vendor() -> FakeVendor {
    let builder = FakeVendor::builder().headers(HeaderStyle::Silent).poisoned("/gone", 410);
    builder.fault(When::path("/late").first(1), VendorFault::Status(503)).start().await.unwrap()
}

async fn client(vendor: &FakeVendor, store: &Store) -> Result<IntegrationClient, Error> {
    let retry = "\n[vendors.v.idempotency]\nheader = \"idempotency-key\"\n[vendors.v.retry]\nfirst_wait = \"50ms\"\n\
                 longest_wait = \"100ms\"\n";
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor.vendors_toml("v") + retry);
    let builder = builder.tenant(TenantEntry::new("acme", "v").credential("env:PATH"));
    builder.store(store.clone()).work().build().await
}

/// Enqueues a request again and again with the same key until it is accepted. Returns the receipt and the errors before
/// it.
async fn accept(client: &IntegrationClient, path: &str) -> (Receipt, Vec<Error>) {
    let mut errors = Vec::new();
    loop {
        let request = Request::post("v", path).json(&["work"]).idempotency_key(path);
        match client.outbox().enqueue("acme", Priority::Normal, request).await {
            Ok(receipt) => return (receipt, errors),
            Err(error) => errors.push(error),
        }
        assert!(errors.len() < 100, "{:?}", errors.last());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_ended(receipt: &Receipt) -> Status {
    let mut status = None;
    for _ in 0..2_000 {
        // The question for the status may fail too.
        status = receipt.status().await.ok();
        if !matches!(status, None | Some(Status::Waiting { .. } | Status::UnderWay)) {
            return status.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it stays {status:?}");
}

/// How often the vendor acted on each path.
fn successes_by_path(vendor: &FakeVendor) -> BTreeMap<String, usize> {
    let mut acted = BTreeMap::new();
    for arrival in vendor.arrivals().iter().filter(|arrival| arrival.status == 200) {
        *acted.entry(arrival.path.to_string()).or_default() += 1;
    }
    acted
}

#[tokio::test(flavor = "multi_thread")]
async fn full_lane_refuses_its_own_requests_only() {
    let (vendor, store) = (vendor().await, Store::sqlite(folder().join("s.db")).max_lane_backlog(3));
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor.vendors_toml("v"));
    let tenant = |id: &str| TenantEntry::new(id, "v").credential("env:PATH");
    let builder = builder.tenant(tenant("acme")).tenant(tenant("umbra")).store(store.clone());
    let client = builder.build().await.unwrap();
    let enqueue =
        |tenant: &'static str, priority| client.outbox().enqueue(tenant, priority, Request::post("v", "/a").json(&[1]));
    let first = enqueue("acme", Priority::High).await.unwrap();
    enqueue("acme", Priority::Normal).await.unwrap();
    enqueue("acme", Priority::Low).await.unwrap();
    let error = enqueue("acme", Priority::High).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QueueFull);
    assert!(error.to_string().contains("max_lane_backlog") && error.to_string().contains("acme"), "{error}");
    enqueue("umbra", Priority::High).await.unwrap();
    assert!(first.cancel().await.unwrap());
    let began = tokio::time::timeout(Duration::from_secs(5), async {
        while enqueue("acme", Priority::High).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    began.await.expect("there is room again");
    assert!(enqueue("acme", Priority::High).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn unwritable_store_file_is_refused_in_words() {
    use std::os::unix::fs::PermissionsExt;
    let path = folder().join("s.db");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    // A superuser may write to the file nevertheless, but not to this one of the kernel.
    let is_superuser = std::fs::File::options().append(true).open(&path).is_ok();
    let path = if is_superuser { PathBuf::from("/sys/kernel/vmcoreinfo") } else { path };
    if !path.exists() {
        return;
    }
    let error = client(&vendor().await, &Store::sqlite(&path)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("writable") || error.to_string().contains("cannot be opened"), "{error}");
}

/// Whatever the rows contain, the process survives and other jobs are sent. A row with nonsense stays, or becomes a
/// dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn nonsense_rows_hold_up_nobody() {
    use sqlx::{Connection, Row};
    let nonsense = ["'word'", "-9223372036854775808", "9223372036854775807", "x'00ff'", "''", "1.5"];
    let columns = [
        "tenant",
        "vendor",
        "tier",
        "run_at",
        "expires_at",
        "enqueued_at",
        "state",
        "claims",
        "started",
        "fence",
        "owner",
        "lease_until",
        "keep_result",
        "request",
        "history",
        "id",
    ];
    let (vendor, path) = (vendor().await, folder().join("s.db"));
    let store = Store::sqlite(&path);
    let accepting = {
        let keys = "\n[vendors.v.idempotency]\nheader = \"idempotency-key\"\n";
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor.vendors_toml("v") + keys);
        builder.tenant(TenantEntry::new("acme", "v").credential("env:PATH")).store(store.clone()).build().await.unwrap()
    };
    let mut receipts = Vec::new();
    for number in 0..columns.len() * nonsense.len() + 3 {
        receipts.push(accept(&accepting, &format!("/{number}")).await.0);
    }
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    let mut edited = 0;
    for (number, (column, value)) in columns.iter().flat_map(|c| nonsense.iter().map(move |v| (c, v))).enumerate() {
        let sql = format!("UPDATE ic_job SET {column} = {value} WHERE lower(hex(id)) = '{}'", receipts[number].id());
        let done = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        edited += done.rows_affected();
    }
    assert_eq!(edited as usize, columns.len() * nonsense.len());
    for sql in [
        "INSERT INTO ic_spent VALUES ('acme', 'v', '', 'word', x'00', 0, 'many', -5, x'ff', 9223372036854775807)",
        "INSERT INTO ic_done (id, tenant, vendor, outcome, status, attempts, finished_at, result) VALUES (x'01', 'a', 'v', 7, -1, 'x', 'y', 'z')",
        "INSERT INTO ic_dead (id, tenant, vendor, tier, reason, died_at, letter) VALUES (x'02', 'a', 'v', 1, 'none', 'soon', 'no letter')",
    ] {
        sqlx::query(sql).execute(&mut connection).await.unwrap();
    }
    let client = client(&vendor, &store).await.unwrap();
    for receipt in receipts.iter().rev().take(3) {
        assert!(matches!(until_ended(receipt).await, Status::Delivered { status: 200, .. }));
    }
    let late = accept(&client, "/late/r").await.0;
    assert!(matches!(until_ended(&late).await, Status::Delivered { status: 200, .. }));
    let letters = client.outbox().dead_letters().unwrap().list(None, 1_000).await.unwrap();
    assert!(!letters.is_empty(), "what holds no request is a letter");
    let places =
        "SELECT (SELECT count(*) FROM ic_job) + (SELECT count(*) FROM ic_done) + (SELECT count(*) FROM ic_dead)";
    let kept: i64 = sqlx::query(places).fetch_one(&mut connection).await.unwrap().get(0);
    assert_eq!(kept as usize, receipts.len() + 1 + 2, "nothing went away");
    assert!(successes_by_path(&vendor).values().all(|times| *times == 1), "{:?}", successes_by_path(&vendor));
}

/// A page of letters that cannot be read is not the end of the letters.
#[tokio::test(flavor = "multi_thread")]
async fn nonsense_letters_hide_no_other() {
    use sqlx::Connection;
    let (vendor, path) = (vendor().await, folder().join("s.db"));
    let client = client(&vendor, &Store::sqlite(&path)).await.unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    for (from, died_at) in [(1, "1"), (31, "'soon'")] {
        let sql = format!(
            "WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {from} + 29) \
             INSERT INTO ic_dead (id, tenant, vendor, tier, reason, died_at, letter) \
             SELECT CAST(printf('%016d', i) AS BLOB), 'acme', 'v', 1, 'rejected', {died_at}, CAST('no letter' AS BLOB) FROM n"
        );
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    }
    let (receipt, _) = accept(&client, "/gone").await;
    assert!(matches!(until_ended(&receipt).await, Status::Dead { .. }));
    let letters = client.outbox().dead_letters().unwrap();
    let found = letters.list(None, 10).await.unwrap();
    assert_eq!(found.iter().map(|kept| kept.letter.id.clone()).collect::<Vec<_>>(), [receipt.id()]);
    assert_eq!(letters.redrive_all(1_000).await.unwrap().jobs, 1);
}

/// The ids that are in more than one of the three tables of a SQLite store, or in none.
async fn misplaced_ids(path: &Path, receipts: &[Receipt]) -> Vec<String> {
    use sqlx::{Connection, Row};
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    let sql = "SELECT lower(hex(id)) FROM (SELECT id FROM ic_job UNION ALL SELECT id FROM ic_done UNION ALL SELECT id FROM ic_dead)";
    let rows = sqlx::query(sql).fetch_all(&mut connection).await.unwrap();
    let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let once = |id: &String| ids.iter().filter(|other| *other == id).count() == 1;
    receipts.iter().map(Receipt::id).filter(|id| !once(id)).collect()
}

/// Makes the statement of one number fail.
struct FaultAtNth {
    number: u64,
    moment: Moment,
    fault: Fault,
    seen: AtomicU64,
}

impl Watch for FaultAtNth {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        if moment != self.moment || what == "read" {
            return Fault::None;
        }
        let number = self.seen.fetch_add(1, Relaxed) + 1;
        if number == self.number { self.fault } else { Fault::None }
    }
}

/// Runs five jobs while statement `number` fails. Returns whether the run ended before that statement.
async fn run_with(number: u64, moment: Moment, fault: Fault) -> bool {
    let (vendor, path) = (vendor().await, folder().join("s.db"));
    let watch = Arc::new(FaultAtNth { number, moment, fault, seen: AtomicU64::new(0) });
    let store = Store::sqlite(&path).watched_by(watch.clone());
    let client = match client(&vendor, &store).await {
        Ok(client) => client,
        Err(error) => {
            assert!(error.to_string().contains("a test: "), "{error}");
            client(&vendor, &store).await.unwrap()
        }
    };
    let mut receipts = Vec::new();
    for path in ["/a", "/late", "/gone", "/b", "/c"] {
        let (receipt, errors) = accept(&client, path).await;
        assert!(errors.len() <= 1, "{number} {moment:?} {fault:?}: {errors:?}");
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Store), "{errors:?}");
        receipts.push(receipt);
    }
    for (number, receipt) in receipts.iter().enumerate() {
        match until_ended(receipt).await {
            Status::Dead { .. } if number == 2 => {}
            Status::Delivered { status: 200, .. } if number != 2 => {}
            other => panic!("{number} {moment:?} {fault:?}: {other:?}"),
        }
    }
    let expected = ["/a", "/b", "/c", "/late"].map(|path| (path.to_owned(), 1));
    assert_eq!(successes_by_path(&vendor), BTreeMap::from(expected), "{number} {moment:?} {fault:?}");
    assert_eq!(misplaced_ids(&path, &receipts).await, [""; 0]);
    let is_clean = watch.seen.load(Relaxed) < number;
    client.shutdown(Duration::from_secs(5)).await;
    let _ = std::fs::remove_dir_all(path.parent().unwrap());
    is_clean
}

/// How many runs go on at once. They spend most of their time waiting.
const AT_ONCE: u64 = 16;

async fn every_statement_in_turn(moment: Moment, fault: Fault) {
    let mut first = 1;
    let mut clean = 0;
    while clean == 0 {
        let mut runs = tokio::task::JoinSet::new();
        for number in first..first + AT_ONCE {
            runs.spawn(run_with(number, moment, fault));
        }
        clean = runs.join_all().await.into_iter().filter(|clean| *clean).count();
        first += AT_ONCE;
        assert!(first < 2_000, "the run does not end");
    }
    assert!(first > 2 * AT_ONCE, "only {first} statements were seen");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_fails_each_write_once() {
    every_statement_in_turn(Moment::Before, Fault::Full).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_breaks_once_before_every_write() {
    every_statement_in_turn(Moment::Before, Fault::Broken).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_breaks_once_after_every_write() {
    every_statement_in_turn(Moment::After, Fault::Broken).await;
}

/// Loses the confirmation of the first commit after it is armed. Then no connection can be made until the test ends
/// that.
#[derive(Default)]
struct LostReply {
    is_armed: AtomicBool,
    is_down: AtomicBool,
}

impl Watch for LostReply {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        if what == "accept" && moment == Moment::Committed && self.is_armed.swap(false, Relaxed) {
            self.is_down.store(true, Relaxed);
            return Fault::Broken;
        }
        match what {
            "connect" if self.is_down.load(Relaxed) => Fault::Broken,
            _ => Fault::None,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doubtful_commit_names_the_ambiguous_job() {
    let (vendor, watch) = (vendor().await, Arc::new(LostReply::default()));
    let store = Store::sqlite(folder().join("s.db")).watched_by(watch.clone());
    let client = client(&vendor, &store).await.unwrap();
    watch.is_armed.store(true, Relaxed);
    let request = || Request::post("v", "/a").json(&["work"]);
    let error = client.outbox().enqueue("acme", Priority::Normal, request()).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Store, Delivery::Ambiguous), "{error}");
    let id = error.job_id().expect("the job's id").to_owned();
    assert!(error.to_string().contains(&id), "{error}");
    // The store is still away, so the next request is certainly not accepted.
    let refused = client.outbox().enqueue("acme", Priority::Normal, request()).await.unwrap_err();
    assert_eq!((refused.delivery(), refused.job_id()), (Delivery::NotSent, None), "{refused}");
    watch.is_down.store(false, Relaxed);
    let status = until_ended(&client.outbox().receipt(&id).unwrap()).await;
    assert!(matches!(status, Status::Delivered { status: 200, .. }), "{status:?}");
    assert_eq!(successes_by_path(&vendor), BTreeMap::from([("/a".to_owned(), 1)]));
}

/// Overwrites a page of a SQLite file that contains `text`, so that the text's row cannot be read.
fn damage(path: &Path, text: &str) {
    const PAGE: usize = 4096;
    let mut file = std::fs::read(path).unwrap();
    let places = file.windows(text.len()).enumerate().filter(|(_, window)| *window == text.as_bytes());
    // A page in the middle: the row's first and last page may hold parts of other rows.
    let pages: Vec<usize> = places.map(|(at, _)| at / PAGE * PAGE).collect();
    let page = *pages.get(pages.len() / 2).expect("the text is in the file");
    file[page..page + PAGE].fill(0xff);
    std::fs::write(path, file).unwrap();
}

/// Moves the content of a SQLite file's log into the file.
async fn into_the_file(path: &Path) {
    use sqlx::{Connection, Row};
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    for _ in 0..500 {
        let row = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&mut connection).await.unwrap();
        if row.get::<i64, _>(0) == 0 {
            return connection.close().await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the file stays in use");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_page_stops_its_lane_only() {
    let (vendor, path) = (vendor().await, folder().join("s.db"));
    let builder = || {
        let tenants = ["acme", "umbra", "zeta"].map(|id| TenantEntry::new(id, "v").credential("env:PATH"));
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor.vendors_toml("v"));
        tenants.into_iter().fold(builder, IntegrationClientBuilder::tenant).store(Store::sqlite(&path))
    };
    let accepting = builder().build().await.unwrap();
    let marker = "the-middle-of-a-long-body";
    let mut receipts = Vec::new();
    for tenant in ["acme", "umbra", "zeta"] {
        // Long enough that each row has pages of its own.
        let body = format!("{marker}-{tenant} ").repeat(800);
        let request = Request::post("v", format!("/{tenant}")).body(body);
        receipts.push(accepting.outbox().enqueue(tenant, Priority::Normal, request).await.unwrap());
    }
    drop(receipts);
    accepting.shutdown(Duration::from_secs(5)).await;
    drop(accepting);
    into_the_file(&path).await;
    damage(&path, &format!("{marker}-umbra"));
    let client = builder().work().build().await.unwrap();
    let arrived = async {
        while successes_by_path(&vendor).len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), arrived).await.expect("the others' jobs are sent");
    assert!(!successes_by_path(&vendor).contains_key("/umbra"), "{:?}", successes_by_path(&vendor));
    // The problem is reported as long as it lasts, even if other operations succeed meanwhile.
    let receipt =
        client.outbox().enqueue("acme", Priority::High, Request::post("v", "/later").json(&[1])).await.unwrap();
    assert!(matches!(until_ended(&receipt).await, Status::Delivered { status: 200, .. }));
    let problem = client.outbox().problem().expect("it is said");
    assert!(problem.contains("tenant umbra, vendor v") && problem.contains("damaged"), "{problem}");
    assert!(successes_by_path(&vendor).values().all(|times| *times == 1), "{:?}", successes_by_path(&vendor));
}

/// A disk that becomes full, or fails all writes, when a test sets a flag.
#[derive(Default)]
struct Disk {
    /// SQLite cannot enlarge the file, and reports its own error.
    is_full: AtomicBool,
    /// All writes fail; reads succeed.
    fails: AtomicBool,
}

impl Watch for Disk {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        if moment != Moment::Before || what == "read" {
            return Fault::None;
        }
        match what {
            _ if WHAT.contains(&what) && self.fails.load(Relaxed) => Fault::Full,
            "begin" if self.is_full.load(Relaxed) => Fault::First("PRAGMA max_page_count = 1"),
            "begin" => Fault::First("PRAGMA max_page_count = 1000000000"),
            _ => Fault::None,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_loses_nothing_and_work_resumes() {
    let (vendor, folder) = (vendor().await, folder());
    let (disk, path) = (Arc::new(Disk::default()), folder.join("s.db"));
    let client = client(&vendor, &Store::sqlite(&path).watched_by(disk.clone())).await.unwrap();
    let mut receipts = Vec::new();
    for number in 0..10 {
        receipts.push(accept(&client, &format!("/before/{number}")).await.0);
    }
    disk.is_full.store(true, Relaxed);
    let mut refused = 0;
    for number in 0..200 {
        let request = Request::post("v", format!("/full/{number}")).body(vec![b'x'; 20_000]);
        match client.outbox().enqueue("acme", Priority::Normal, request).await {
            // Jobs that were delivered meanwhile have freed space.
            Ok(receipt) => receipts.push(receipt),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Store);
                assert!(error.to_string().contains("the disk is full"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 50, "{refused} of 200 were refused");
    disk.is_full.store(false, Relaxed);
    receipts.push(accept(&client, "/after").await.0);
    for receipt in &receipts {
        assert!(matches!(until_ended(receipt).await, Status::Delivered { status: 200, .. }));
    }
    assert!(successes_by_path(&vendor).values().all(|times| *times == 1), "{:?}", successes_by_path(&vendor));
    assert_eq!(successes_by_path(&vendor).len(), receipts.len());
    assert_eq!(misplaced_ids(&path, &receipts).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn write_outage_resends_no_sent_job() {
    let service = integration_client::testing::Delay::fixed(Duration::from_millis(700));
    let vendor = FakeVendor::builder().headers(HeaderStyle::Silent).service_time(service).start().await.unwrap();
    let (disk, path) = (Arc::new(Disk::default()), folder().join("s.db"));
    let store = Store::sqlite(&path).lease(Duration::from_secs(60)).watched_by(disk.clone());
    let client = client(&vendor, &store).await.unwrap();
    let mut receipts = Vec::new();
    for number in 0..5 {
        receipts.push(accept(&client, &format!("/{number}")).await.0);
    }
    while vendor.arrivals().len() < 5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The responses arrive while their outcomes cannot be written, for longer than a few tries take.
    disk.fails.store(true, Relaxed);
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(matches!(receipts[0].status().await.unwrap(), Status::UnderWay));
    // Successful reads do not hide the problem.
    let problem = client.outbox().problem().expect("it is said");
    assert!(problem.contains("the outcomes of jobs cannot be written: a test: the disk is full"), "{problem}");
    disk.fails.store(false, Relaxed);
    for receipt in &receipts {
        let status = until_ended(receipt).await;
        assert!(matches!(status, Status::Delivered { status: 200, attempts: 1, .. }), "{status:?}");
    }
    assert_eq!(vendor.arrivals().len(), 5, "each once");
}
