//! Clients that share a limit through a store, over real sockets and in real time. The clients of one test process
//! stand for several processes.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests spawn and measure")]

use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::testing::{FakeVendor, HeaderStyle, VendorLimit};
use integration_client::{ErrorKind, IntegrationClient, Priority, Request};

const LIMIT: u32 = 40;

async fn vendor() -> FakeVendor {
    let limit = VendorLimit::sliding_window(LIMIT, Duration::from_secs(1));
    FakeVendor::builder().limit(limit).headers(HeaderStyle::XRateLimit).start().await.unwrap()
}

async fn client(vendor: &FakeVendor, name: &str, store: &str) -> IntegrationClient {
    let transit = "\nconnect_timeout = \"200ms\"\nmax_transit = \"300ms\"\nauth = { scheme = \"none\" }\n# auth";
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendor.vendors_toml(name).replacen("\nauth", transit, 1))
        .tenant(TenantEntry::new("acme", name))
        .share_through(store)
        .sharing_lease(Duration::from_secs(2))
        .build()
        .await
        .unwrap()
}

/// Sends as much as the limits allow for `time`. Returns the number of requests.
async fn send(client: &IntegrationClient, vendor: &str, time: Duration) -> u32 {
    let ends = Instant::now() + time;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (client, vendor) = (client.clone(), vendor.to_owned());
        tasks.spawn(async move {
            let mut sent = 0;
            while Instant::now() < ends {
                let request = Request::get(vendor.as_str(), "/orders").header("x-tenant", "acme").deadline(time);
                match client.send("acme", Priority::Normal, request).await {
                    Ok(answer) => sent += u32::from(answer.status().is_success()),
                    // A request that has waited for nearly all of its deadline may leave and have no response in time.
                    Err(error)
                        if matches!(error.kind(), ErrorKind::Deadline | ErrorKind::Timeout | ErrorKind::Shutdown) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            sent
        });
    }
    tasks.join_all().await.into_iter().sum()
}

/// Two clients share a limit, and the other one gets the units that one gives back at its shutdown.
/// The vendor has a name of its own, so that no other test of the same store shares its limit.
async fn shared_through(name: &str, store: &str) {
    let vendor = vendor().await;
    let (one, two) = (client(&vendor, name, store).await, client(&vendor, name, store).await);
    // A store that may have lost its state grants no units before every lease has ended.
    let first = Request::get(name, "/orders").header("x-tenant", "acme").deadline(Duration::from_secs(20));
    one.send("acme", Priority::Normal, first).await.unwrap();
    let time = Duration::from_secs(3);
    let (a, b) = tokio::join!(send(&one, name, time), send(&two, name, time));
    assert!(a > 20 && b > 20, "{a} and {b}");
    assert!(a + b >= 70, "{a} and {b} of {}", 3 * LIMIT);
    let status = one.sharing().unwrap();
    assert!(status.answered > 3 && status.limits == 1 && status.away_for.is_none(), "{status:?}");
    assert!(status.lease_left > Duration::from_millis(500), "{status:?}");
    one.shutdown(Duration::from_secs(1)).await;
    let alone = send(&two, name, time).await;
    assert!(alone >= 70, "{alone} alone");
    assert_eq!(vendor.refused(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_share_a_limit_through_sqlite() {
    let folder = tempfile_folder("sharing");
    shared_through("filed", &format!("sqlite:{}", folder.join("capacity.db").display())).await;
    std::fs::remove_dir_all(folder).unwrap();
}

/// Requests that do not wait get units of the store's full pool. Nothing else is sent.
#[tokio::test(flavor = "multi_thread")]
async fn immediate_requests_get_units() {
    let folder = tempfile_folder("sharing-immediate");
    let store = format!("sqlite:{}", folder.join("capacity.db").display());
    let vendor = vendor().await;
    let sender = client(&vendor, "prompt", &store).await;
    let mut has_sent = false;
    let ends = Instant::now() + Duration::from_secs(5);
    while !has_sent && Instant::now() < ends {
        let request = Request::get("prompt", "/orders").header("x-tenant", "acme");
        match sender.try_send("acme", Priority::Normal, request).await {
            Ok(answer) => has_sent |= answer.status().is_success(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotNow, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(has_sent);
    sender.shutdown(Duration::from_secs(1)).await;
    std::fs::remove_dir_all(folder).unwrap();
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn clients_share_a_limit_through_postgres() {
    let url = std::env::var("IC_TEST_POSTGRES").expect("`eval $(scripts/postgres.sh start)` before");
    shared_through("served", &url).await;
}

/// The pooler assigns a connection of the server to each transaction.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn clients_share_a_limit_through_a_pooler() {
    let url = std::env::var("IC_TEST_PGBOUNCER").expect("`eval $(scripts/postgres.sh start)` before");
    shared_through("pooled", &url).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn clients_share_a_limit_through_redis() {
    let url = std::env::var("IC_TEST_REDIS").expect("`eval $(scripts/redis.sh start)` before");
    shared_through("cached", &url).await;
}

/// Two clients share a limit with a window of one minute, through a store that can share only such long windows.
#[cfg(any(feature = "etcd", feature = "object-store", feature = "zookeeper"))]
async fn shared_by_the_minute(name: &str, store: &str) {
    let limit = VendorLimit::sliding_window(LIMIT, Duration::from_secs(60));
    let vendor = FakeVendor::builder().limit(limit).headers(HeaderStyle::XRateLimit).start().await.unwrap();
    let client = || async {
        let none = "\nauth = { scheme = \"none\" }\n# auth";
        let builder = IntegrationClient::builder().without_catalogue().share_through(store);
        let builder = builder.vendors_toml(vendor.vendors_toml(name).replacen("\nauth", none, 1));
        builder.tenant(TenantEntry::new("acme", name)).build().await.unwrap()
    };
    let (one, two) = (client().await, client().await);
    let (a, b) = tokio::join!(send(&one, name, Duration::from_secs(4)), send(&two, name, Duration::from_secs(4)));
    assert!(a >= 4 && b >= 4 && a + b >= 24, "{a} and {b} of {LIMIT}");
    let status = one.sharing().unwrap();
    assert!(status.answered > 0 && status.limits == 1 && status.away_for.is_none(), "{status:?}");
    one.shutdown(Duration::from_secs(1)).await;
    two.shutdown(Duration::from_secs(1)).await;
    assert_eq!(vendor.refused(), 0);
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread")]
async fn clients_share_a_limit_through_etcd() {
    let url = std::env::var("IC_TEST_ETCD").expect("`eval $(scripts/etcd.sh start)` before, or IC_TEST_ETCD=off");
    if url != "off" {
        // Each run has its own key prefix, because the usage of an earlier run counts for a minute.
        shared_by_the_minute("elected", &format!("{url}/{}", std::process::id())).await;
    }
}

#[cfg(feature = "object-store")]
#[tokio::test(flavor = "multi_thread")]
async fn clients_share_a_limit_through_objects() {
    let url = std::env::var("IC_TEST_S3").expect("`eval $(scripts/s3.sh start)` before, or IC_TEST_S3=off");
    if url != "off" {
        let own = format!("/{}?", std::process::id());
        shared_by_the_minute("stored", &url.replacen('?', &own, 1)).await;
    }
}

#[cfg(feature = "zookeeper")]
#[tokio::test(flavor = "multi_thread")]
async fn clients_share_a_limit_through_zookeeper() {
    let wanted = "`eval $(scripts/zookeeper.sh start)` before, or IC_TEST_ZOOKEEPER=off";
    let url = std::env::var("IC_TEST_ZOOKEEPER").expect(wanted);
    if url == "off" {
        return;
    }
    let (own, rest) = (std::process::id(), url.strip_prefix("zk://").unwrap());
    shared_by_the_minute("voted", &format!("{url}/{own}/a")).await;
    // The nodes belong to a user, and one of the two servers is away.
    let of_user = format!("zk://app:p%40ss@127.0.0.1:1,{rest}/of-app-{own}");
    shared_by_the_minute("owned", &of_user).await;
    let other = of_user.replace("p%40ss", "hunter2");
    let builder = IntegrationClient::builder().without_catalogue().share_through(other);
    let error = builder.build().await.map(drop).unwrap_err().to_string();
    assert!(error.contains("its password is wrong") && !error.contains("hunter2"), "{error}");
}

/// A window that is too short for the store is an error at the start, in a reload, and when a tenant is added.
#[cfg(feature = "etcd")]
#[tokio::test]
async fn too_short_shared_limit_is_an_error() {
    let url = std::env::var("IC_TEST_ETCD").expect("`eval $(scripts/etcd.sh start)` before, or IC_TEST_ETCD=off");
    if url == "off" {
        return;
    }
    let vendor = vendor().await;
    let texts = vendor.vendors_toml("brief").replacen("\nauth", "\nauth = { scheme = \"none\" }\n# auth", 1);
    let builder = |texts: String| {
        IntegrationClient::builder().without_catalogue().vendors_toml(texts).share_through(url.as_str())
    };
    let tenant = || TenantEntry::new("acme", "brief");
    let error = builder(texts.clone()).tenant(tenant()).build().await.map(drop).unwrap_err().to_string();
    for part in ["etcd holds limits of 60s", "vendor `brief` is of 1s", "Redis or PostgreSQL", "shared = false"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    // A vendor without tenants may have any limits.
    let client = builder(texts.clone()).build().await.unwrap();
    let error = client.tenants().set(tenant()).unwrap_err().to_string();
    assert!(error.contains("shared = false"), "{error}");
    let alone = texts.replacen("window =", "shared = false\nwindow =", 1);
    let client = builder(alone).tenant(tenant()).build().await.unwrap();
    let request = Request::get("brief", "/orders").header("x-tenant", "acme").deadline(Duration::from_secs(5));
    client.send("acme", Priority::Normal, request).await.unwrap();
    assert_eq!(client.sharing().unwrap().answered, 0, "nothing is shared");
}

/// Two processes that each have a fixed part of the limit are replaced, one after the other, by processes that share
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn unsharing_processes_are_replaced_gradually() {
    let folder = tempfile_folder("sharing-upgrade");
    let store = format!("sqlite:{}", folder.join("capacity.db").display());
    let vendor = vendor().await;
    let half = || TenantEntry::new("acme", "rolled").share(0.5);
    let texts = {
        let transit = "\nconnect_timeout = \"200ms\"\nmax_transit = \"300ms\"\nauth = { scheme = \"none\" }\n# auth";
        vendor.vendors_toml("rolled").replacen("\nauth", transit, 1)
    };
    let builder = || IntegrationClient::builder().without_catalogue().vendors_toml(texts.clone()).tenant(half());
    let shares = || builder().share_through(store.as_str()).sharing_lease(Duration::from_secs(2));
    // The requests of a process count for one window after it has ended.
    let ended = Duration::from_millis(1_400);
    let time = Duration::from_secs(2);
    let (old, other) = (builder().build().await.unwrap(), builder().build().await.unwrap());
    let before = tokio::join!(send(&old, "rolled", time), send(&other, "rolled", time));
    old.shutdown(Duration::from_secs(1)).await;
    tokio::time::sleep(ended).await;
    let one = shares().build().await.unwrap();
    tokio::join!(send(&one, "rolled", time), send(&other, "rolled", time));
    other.shutdown(Duration::from_secs(1)).await;
    tokio::time::sleep(ended).await;
    let two = shares().build().await.unwrap();
    // First both clients together have half of the limit. Then one after the other is configured with the whole limit:
    // half of it stays in force until both are.
    let (a, b) = tokio::join!(send(&one, "rolled", time), send(&two, "rolled", time));
    assert!(a + b <= LIMIT / 2 * 4, "{a} and {b}");
    one.tenants().set(TenantEntry::new("acme", "rolled")).unwrap();
    let (a, b) = tokio::join!(send(&one, "rolled", time), send(&two, "rolled", time));
    assert!(a + b <= LIMIT / 2 * 4, "{a} and {b}");
    two.tenants().set(TenantEntry::new("acme", "rolled")).unwrap();
    tokio::join!(send(&one, "rolled", time), send(&two, "rolled", time));
    let (a, b) = tokio::join!(send(&one, "rolled", time), send(&two, "rolled", time));
    assert!(a + b > LIMIT / 2 * 2 + 10, "{a} and {b} after {before:?}");
    assert_eq!(vendor.refused(), 0);
    one.shutdown(Duration::from_secs(1)).await;
    two.shutdown(Duration::from_secs(1)).await;
    std::fs::remove_dir_all(folder).unwrap();
}

/// A configuration file names the store, as for the command line.
#[tokio::test(flavor = "multi_thread")]
async fn file_names_the_sharing_store() {
    let folder = tempfile_folder("sharing-file");
    let vendor = vendor().await;
    let path = folder.join("capacity.db");
    let texts = format!(
        "[sharing]\nthrough = 'sqlite:{}'\nlease = \"3s\"\n{}",
        path.display(),
        vendor.vendors_toml("filed").replacen("\nauth", "\nauth = { scheme = \"none\" }\n# auth", 1)
    );
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(texts)
        .tenant(TenantEntry::new("acme", "filed"))
        .build()
        .await
        .unwrap();
    let request = Request::get("filed", "/orders").header("x-tenant", "acme").deadline(Duration::from_secs(5));
    client.send("acme", Priority::Normal, request).await.unwrap();
    let status = client.sharing().unwrap();
    assert!(status.answered > 0 && status.lease_left < Duration::from_secs(3), "{status:?}");
    client.shutdown(Duration::from_secs(1)).await;
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn invalid_sharing_store_errors_at_position() {
    for (text, place, help) in [
        ("[sharing]\nthrough = ''", "sharing.through", "store"),
        ("[sharing]\nthrough = 'redis://user:hunter2@host'", "sharing.through", "env:NAME"),
        ("[sharing]\nthrough = 'zk://user:hunter2@one:2181,two:2181/path'", "sharing.through", "env:NAME"),
        ("[sharing]\nthrough = 's3://bucket?secret_access_key=hunter2'", "sharing.through", "env:NAME"),
        ("[sharing]\nthrough = 'store'\nlease = '1s'", "sharing.lease", "2 seconds"),
        ("[sharing]\nthrough = 'store'\nlease = 'soon'", "sharing.lease", "duration"),
        ("[sharing]\nthrough = 'store'\nwhen_away = 'local'", "sharing.when_away", "\"stop\""),
        ("[sharing]\nthrough = 'store'\nwhen_away = 'floor'", "sharing.max_processes", "as many as ever run"),
        ("[sharing]\nthrough = 'store'\nfloor = 0.1", "sharing.floor", "when_away"),
        ("[sharing]\nthrough = 'store'\nwhen_away = 'floor'\nfloor = 0.9\nmax_processes = 4", "sharing.floor", "0.5"),
        ("[sharing]\nthru = 'store'", "unknown field `thru`", "through"),
        ("[sharing]\nthrough = 'env:NO_SUCH_VARIABLE_OF_SHARING'", "sharing.through", "is not set"),
    ] {
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text);
        let error = builder.build().await.map(drop).unwrap_err().to_string();
        assert!(error.contains(place) && error.contains(help) && !error.contains("hunter2"), "{text}: {error}");
    }
}

#[tokio::test]
async fn unworkable_sharing_is_a_start_error() {
    let build = |through: &str| {
        let builder = IntegrationClient::builder().without_catalogue().share_through(through);
        async move { builder.build().await.map(drop).unwrap_err().to_string() }
    };
    let error = build("store").await;
    assert!(error.contains("needs a store"), "{error}");
    let error = build("memcached://here").await;
    assert!(error.contains("memcached") && error.contains("sqlite:PATH"), "{error}");
    if cfg!(feature = "etcd") {
        let error = build("etcd://127.0.0.1:1").await;
        assert!(error.contains("sharing through etcd: the server cannot be reached"), "{error}");
    }
    if cfg!(feature = "zookeeper") {
        let error = build("zk://127.0.0.1:1,127.0.0.1:2").await;
        assert!(error.contains("sharing through ZooKeeper: the server cannot be reached"), "{error}");
    }
    if cfg!(feature = "object-store") {
        let error = build("s3://bucket?colour=red").await;
        assert!(error.contains("`colour`, which is no setting"), "{error}");
    }
}

fn tempfile_folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("ic-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
