//! Pauses that vendors asked for: written, read by the next process, ended early, and purged.

use std::sync::LazyLock;

use super::super::actor::Step;
use super::super::pauses::{self, Begun, Holder, Paused, Shortened};
use super::super::purge::{self, Retention};
use super::*;

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::system);

fn in_seconds(seconds: u64) -> Time {
    CLOCK.now() + Duration::from_secs(seconds)
}

fn holder(scope: &'static str, name: &str) -> Holder {
    Holder { vendor: "v".to_owned(), environment: "live".to_owned(), scope, name: name.to_owned() }
}

fn paused(limit: &str) -> Paused {
    Paused { limit: limit.to_owned(), limit_of: "*".to_owned(), endpoint: "*".to_owned() }
}

fn pause(holder: Holder, limit: &str, seconds: u64) -> Begun {
    Begun { holder, paused: paused(limit), until: in_seconds(seconds) }
}

async fn keep(store: &Opened, begun: Vec<Begun>, shortened: Vec<Shortened>) {
    store.write((*CLOCK, begun, shortened), pauses::keep).await.unwrap();
}

/// The pauses of these holders: the index of the holder, the limit, and the seconds that are left, rounded up.
async fn read(store: &Opened, holders: &[Holder]) -> Vec<(usize, String, i64)> {
    let stored = store.read(holders.to_vec(), pauses::read).await.unwrap();
    let row = |pause: pauses::Stored| (pause.holder, pause.paused.limit, (pause.left_ms + 999) / 1_000);
    let mut rows: Vec<_> = stored.into_iter().map(row).collect();
    rows.sort_unstable();
    rows
}

/// Lets all pauses have ended a second ago. Returns how many rows there are.
const END_ALL: Step<(), u64> = |(), db, now| {
    Box::pin(async move {
        let args = crate::store::driver::args![now - 1_000];
        db.execute("UPDATE ic_pause SET until = $1", args).await
    })
};

const COUNT: Step<(), i64> =
    |(), db, _| Box::pin(async move { db.fetch("SELECT count(*) FROM ic_pause", Vec::new()).await?[0].int() });

#[tokio::test]
async fn next_process_reads_pauses_of_its_holders() {
    for kind in stores().await {
        let holders = [holder("tenant", "a"), holder("account", "a"), holder("vendor", "")];
        let [tenant, account, vendor] = holders.clone();
        {
            let store = open(&kind).await;
            let begun = vec![
                pause(tenant.clone(), "", 3_600),
                pause(tenant, "day", 60),
                pause(account, "day", 900),
                pause(vendor, "all", 30),
                pause(holder("tenant", "b"), "day", 60),
            ];
            assert!(!store.read((), pauses::any).await.unwrap());
            keep(&store, begun, Vec::new()).await;
        }
        let store = open(&kind).await;
        assert!(store.read((), pauses::any).await.unwrap());
        let day = || "day".to_owned();
        let expected = [(0, String::new(), 3_600), (0, day(), 60), (1, day(), 900), (2, "all".to_owned(), 30)];
        let found = read(&store, &holders).await;
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((holder, limit, left), expected) in found.into_iter().zip(expected) {
            assert_eq!((holder, limit), (expected.0, expected.1));
            assert!((expected.2 - 10..=expected.2).contains(&left), "{left} of {}", expected.2);
        }
        assert!(read(&store, &[]).await.is_empty());
    }
}

#[tokio::test]
async fn later_end_of_two_processes_counts() {
    for store in stores().await {
        let store = open(&store).await;
        let tenant = || holder("tenant", "a");
        keep(&store, vec![pause(tenant(), "day", 3_600)], Vec::new()).await;
        keep(&store, vec![pause(tenant(), "day", 60)], Vec::new()).await;
        assert!(read(&store, &[tenant()]).await[0].2 > 3_500);
        // A process that knows of a pause of a minute ends that one, and not the one of an hour.
        let shortened = |known| Shortened { pause: pause(tenant(), "day", 0), known: in_seconds(known) };
        keep(&store, Vec::new(), vec![shortened(60)]).await;
        assert!(read(&store, &[tenant()]).await[0].2 > 3_500);
        keep(&store, Vec::new(), vec![shortened(3_610)]).await;
        assert!(read(&store, &[tenant()]).await.is_empty());
    }
}

#[tokio::test]
async fn shortened_pause_ends_at_its_new_end() {
    for store in stores().await {
        let store = open(&store).await;
        let tenant = || holder("tenant", "a");
        keep(&store, vec![pause(tenant(), "day", 3_600), pause(tenant(), "hour", 3_600)], Vec::new()).await;
        let shortened = Shortened { pause: pause(tenant(), "day", 100), known: in_seconds(3_610) };
        keep(&store, vec![pause(tenant(), "minute", 50)], vec![shortened]).await;
        let found = read(&store, &[tenant()]).await;
        let limits: Vec<&str> = found.iter().map(|(_, limit, _)| &**limit).collect();
        assert_eq!(limits, ["day", "hour", "minute"]);
        assert!((80..=100).contains(&found[0].2) && found[1].2 > 3_500, "{found:?}");
    }
}

/// The end of a row is the pause's, however long the write waited: otherwise the process that wrote it would take the row
/// for another's, and could not end it.
#[tokio::test]
async fn late_write_moves_no_end() {
    for store in stores().await {
        let store = open(&store).await;
        let tenant = || holder("tenant", "a");
        let begun = pause(tenant(), "day", 60);
        tokio::time::sleep(Duration::from_millis(2_100)).await;
        keep(&store, vec![begun], Vec::new()).await;
        let left = read(&store, &[tenant()]).await[0].2;
        assert!(left <= 58, "{left} s");
    }
}

#[tokio::test]
async fn pauses_that_are_over_are_purged() {
    for store in stores().await {
        let store = open(&store).await;
        let tenant = || holder("tenant", "a");
        keep(&store, vec![pause(tenant(), "day", 3_600), pause(tenant(), "hour", 60)], Vec::new()).await;
        purge::run(&store, Retention::UNLIMITED).await.unwrap();
        assert_eq!(store.read((), COUNT).await.unwrap(), 2, "they are in force");
        assert_eq!(store.write((), END_ALL).await.unwrap(), 2);
        assert!(!store.read((), pauses::any).await.unwrap());
        assert!(read(&store, &[tenant()]).await.is_empty());
        keep(&store, vec![pause(tenant(), "hour", 60)], Vec::new()).await;
        *store.purged.lock() = super::super::purged::Purged::default();
        purge::run(&store, Retention::UNLIMITED).await.unwrap();
        assert_eq!(store.read((), COUNT).await.unwrap(), 1, "a pause that began again stays");
    }
}
