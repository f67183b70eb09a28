//! Expired rows are deleted in small steps.

use super::super::actor::Step;
use super::super::batches::{self, Page};
use super::super::driver::{Dialect, args};
#[cfg(all(feature = "sqlite", feature = "testing"))]
use super::super::faults::{Fault, Moment, Watch};
use super::super::purge::{self, Retention, What};
use super::super::purged::Purged;
use super::stalls::scripted;
use super::*;

/// Writes expired rows into each table, two hours old, with the numbers from `first` to `last`.
const FILL: Step<[i64; 2], ()> = |[first, last], db, now| {
    Box::pin(async move {
        // The SQL of a number as 16 bytes, and of a source of numbers.
        let (id, from) = match db.dialect() {
            Dialect::Sqlite => ("CAST(printf('%016d', i) AS BLOB)", "n"),
            Dialect::Postgres => ("convert_to(lpad(i::text, 16, '0'), 'UTF8')", "generate_series($3, $1) i"),
        };
        let with = match db.dialect() {
            Dialect::Sqlite => "WITH RECURSIVE n(i) AS (SELECT $3 UNION ALL SELECT i + 1 FROM n WHERE i < $1) ",
            Dialect::Postgres => "",
        };
        let tables = [
            format!(
                "INSERT INTO ic_done (id, tenant, vendor, outcome, status, attempts, finished_at) \
                 {with}SELECT {id}, 'a', 'v', 0, 200, 1, $2 - i FROM {from}"
            ),
            format!(
                "INSERT INTO ic_key (tenant, vendor, key, job, fingerprint, expires_at) \
                 {with}SELECT 'a', 'v', 'k' || i, {id}, 'f', $2 - i FROM {from}"
            ),
            format!(
                "INSERT INTO ic_spent (tenant, vendor, endpoint, slot, owner, high, requests, points, last_at, until) \
                 {with}SELECT 'a', 'v', '', i, {id}, 0, 1, 1, $2 - i, $2 - i FROM {from}"
            ),
            format!(
                "INSERT INTO ic_dead (id, tenant, vendor, tier, reason, died_at, letter) \
                 {with}SELECT {id}, 'a', 'v', 1, 'exhausted', $2 - i, {id} FROM {from}"
            ),
        ];
        for sql in tables {
            // The driver caches statements for ever; the test has only these few.
            db.execute(Box::leak(sql.into_boxed_str()), args![*last, now - 7_200_000, *first]).await?;
        }
        Ok(())
    })
};

const LEFT: Step<(), [i64; 4]> = |(), db, _| {
    Box::pin(async move {
        let mut left = [0; 4];
        let sql = [
            "SELECT count(*) FROM ic_done",
            "SELECT count(*) FROM ic_key",
            "SELECT count(*) FROM ic_spent",
            "SELECT count(*) FROM ic_dead",
        ];
        for (left, sql) in left.iter_mut().zip(sql) {
            *left = db.fetch(sql, Vec::new()).await?[0].int()?;
        }
        Ok(left)
    })
};

const HOUR: Retention = Retention { done_ms: 3_600_000, dead_ms: 3_600_000, most_dead: 1_000_000 };

#[tokio::test]
async fn purge_lets_other_writes_in_between() {
    for store in stores().await {
        let store = open(&store).await;
        store.write([1, 12_000], FILL).await.unwrap();
        let recent = accept(&store, job("a")).await;
        let claimed = claim(&store, id(), "a", 1).await.remove(0);
        let end = jobs::End::Delivered { status: 200, attempts: 1, result: None, reply: None };
        store
            .write(vec![jobs::JobEnd { id: recent, fence: claimed.fence, known: None, end }], jobs::finish)
            .await
            .unwrap();
        let purge = purge::run(&store, HOUR);
        let mut written = 0;
        let others = async {
            loop {
                accept(&store, job("b")).await;
                written += 1;
            }
        };
        let letters = tokio::select! {
            letters = purge => letters.unwrap(),
            () = others => unreachable!(),
        };
        assert_eq!(letters, 12_000);
        assert_eq!(store.read((), LEFT).await.unwrap(), [1, 0, 0, 0], "what is not over stays");
        // Each step deletes at most 4,000 rows, so there are at least twelve steps.
        assert!(written >= 6, "{written} written meanwhile");
    }
}

#[tokio::test]
async fn purge_step_is_bounded() {
    for store in stores().await {
        let store = open(&store).await;
        store.write([1, 100], FILL).await.unwrap();
        let kinds = [What::Done, What::Keys, What::Usage, What::OldLetters, What::Surplus(i64::MAX)];
        for what in kinds {
            let before: i64 = store.read((), LEFT).await.unwrap().iter().sum();
            let step = purge::Step { what, keep: HOUR, rows: 30, from: i64::MIN };
            assert_eq!(store.write(step, purge::step).await.unwrap().settled, 30, "{what:?}");
            let after: i64 = store.read((), LEFT).await.unwrap().iter().sum();
            assert_eq!(before - after, 30, "{what:?}");
        }
    }
}

#[tokio::test]
async fn purge_keeps_newest_letters_and_live_keys() {
    for store in stores().await {
        let store = open(&store).await;
        store.write([1, 2_000], FILL).await.unwrap();
        let waits = NewJob { key: Some(("mine".to_owned(), "f".to_owned())), ..job("a") };
        accept(&store, waits.clone()).await;
        let age: Step<(), u64> =
            |(), db, _| db.execute("UPDATE ic_key SET expires_at = 5 WHERE key = 'mine'", Vec::new());
        store.write((), age).await.unwrap();
        let keep = Retention { dead_ms: i64::MAX, most_dead: 700, ..HOUR };
        assert_eq!(purge::run(&store, keep).await.unwrap(), 1_300);
        assert_eq!(store.surplus_letters.load(Relaxed), 1_300);
        assert_eq!(store.read((), LEFT).await.unwrap(), [0, 1, 0, 700]);
        let again = NewJob { id: id(), ..waits.clone() };
        assert_eq!(store.write(again, jobs::insert).await.unwrap(), jobs::Accepted::Before(waits.id));
    }
}

/// Two batches have outcomes: one has notes of its run, and the other has none.
#[tokio::test]
async fn batch_with_notes_keeps_its_outcomes() {
    for store in stores().await {
        let store = open(&store).await;
        // The ids that `FILL` makes begin with these numbers.
        for (name, run, note) in [("noted", *b"00000000", "n"), ("plain", *b"00000001", "")] {
            let name = name.to_owned();
            store.write((name.clone(), run, None), batches::open).await.unwrap();
            let (mark, note) = ("m".to_owned(), note.as_bytes().to_vec());
            let page = Page { name, run, before: 0, mark, note, jobs: Vec::new() };
            assert!(store.write(page, batches::accept).await.unwrap());
        }
        store.write([1, 100], FILL).await.unwrap();
        store.write([100_000_001, 100_000_050], FILL).await.unwrap();
        let keep = Retention { done_ms: 1, ..HOUR };
        let step = purge::Step { what: What::Done, keep, rows: 30, from: i64::MIN };
        for settled in [30, 30] {
            assert_eq!(store.write(step, purge::step).await.unwrap().settled, settled);
        }
        purge::run(&store, keep).await.unwrap();
        assert_eq!(store.read((), LEFT).await.unwrap()[0], 100, "those of the batch with notes");
        assert_eq!(store.write(step, purge::step).await.unwrap().settled, 0, "they are not read again at once");
        // A day later.
        let age: Step<(), u64> = |(), db, _| db.execute("UPDATE ic_done SET finished_at = 5", Vec::new());
        store.write((), age).await.unwrap();
        *store.purged.lock() = Purged::default();
        purge::run(&store, keep).await.unwrap();
        assert_eq!(store.read((), LEFT).await.unwrap()[0], 100);
        // The notes of the run stay for the one that replaces it, and its outcomes do not.
        let anew = ("noted".to_owned(), [9; 8], Some(String::new()));
        store.write(anew, batches::open).await.unwrap();
        assert_eq!(store.read((*b"00000000", -1, 10), batches::notes).await.unwrap().len(), 1);
        store.write((), age).await.unwrap();
        *store.purged.lock() = Purged::default();
        purge::run(&store, keep).await.unwrap();
        assert_eq!(store.read((), LEFT).await.unwrap()[0], 0);
    }
}

/// Deletes outcomes. Returns how many notes PostgreSQL read for it.
#[cfg(feature = "postgres")]
const NOTES_READ: Step<purge::Step, i64> = |step, db, now| {
    Box::pin(async move {
        let sql =
            "SELECT (seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_xact_user_tables WHERE relname = 'ic_note'";
        let before = db.fetch(sql, Vec::new()).await?[0].int()?;
        assert!(purge::step(step, db, now).await?.settled > 0);
        Ok(db.fetch(sql, Vec::new()).await?[0].int()? - before)
    })
};

#[cfg(feature = "postgres")]
#[tokio::test]
async fn purge_does_not_search_the_notes_of_other_runs() {
    let store = open(&Store::postgres(database().await)).await;
    store.write(("plain".to_owned(), *b"00000001", None), batches::open).await.unwrap();
    store.write([100_000_001, 100_000_200], FILL).await.unwrap();
    let notes: Step<(), u64> = |(), db, _| {
        let sql = "INSERT INTO ic_note (batch, run, page, note) SELECT 'large', convert_to('00000000', 'UTF8'), i, '' \
                   FROM generate_series(1, 20000) i";
        db.execute(sql, Vec::new())
    };
    assert_eq!(store.write((), notes).await.unwrap(), 20_000);
    let analyze: Step<(), u64> = |(), db, _| db.execute("ANALYZE ic_note", Vec::new());
    store.write((), analyze).await.unwrap();
    let step = purge::Step { what: What::Done, keep: HOUR, rows: 200, from: i64::MIN };
    let read = store.write(step, NOTES_READ).await.unwrap();
    assert!(read < 1_000, "{read} notes were read for 200 outcomes");
}

#[tokio::test]
async fn table_that_fails_stops_no_purge() {
    for store in stores().await {
        let store = open(&store).await;
        store.write([1, 100], FILL).await.unwrap();
        let rename: Step<(), u64> = |(), db, _| db.execute("ALTER TABLE ic_key RENAME TO ic_key_away", Vec::new());
        store.write((), rename).await.unwrap();
        purge::run(&store, HOUR).await.unwrap_err();
        let rename: Step<(), u64> = |(), db, _| db.execute("ALTER TABLE ic_key_away RENAME TO ic_key", Vec::new());
        store.write((), rename).await.unwrap();
        assert_eq!(store.read((), LEFT).await.unwrap(), [0, 100, 0, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_search_from_the_beginning_stops_no_purge() {
    let (script, store) = scripted().await;
    let fail_once = || script.set(|script| (script.full, script.once) = (["BEGIN"].into(), ["BEGIN"].into()));
    purge::run(&store, Retention::UNLIMITED).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    // The first table is purged from where the last purge ended.
    fail_once();
    purge::run(&store, Retention::UNLIMITED).await.unwrap();
    assert!(script.0.lock().full.is_empty(), "a search has failed");
    // Nothing is known of the first table.
    *store.purged.lock() = Purged::default();
    fail_once();
    let committed = script.0.lock().committed;
    purge::run(&store, Retention::UNLIMITED).await.unwrap_err();
    assert!(script.0.lock().committed > committed + 5, "the other tables are purged");
}

/// The retention of a process that sends its own jobs alone.
#[tokio::test]
async fn unlimited_retention_keeps_results_and_letters() {
    for store in stores().await {
        let store = open(&store).await;
        store.write([1, 100], FILL).await.unwrap();
        assert_eq!(purge::run(&store, Retention::UNLIMITED).await.unwrap(), 0);
        assert_eq!(store.read((), LEFT).await.unwrap(), [100, 0, 0, 100]);
    }
}

#[tokio::test]
async fn expired_key_belongs_to_the_next_job() {
    for store in stores().await {
        let store = open(&store).await;
        store.write([1, 1], FILL).await.unwrap();
        // The key of a job that ended two hours ago, of another request.
        let keyed = |fingerprint: &str| NewJob { key: Some(("k1".to_owned(), fingerprint.to_owned())), ..job("a") };
        let next = accept(&store, keyed("other")).await;
        let again = NewJob { id: id(), ..keyed("other") };
        assert_eq!(store.write(again, jobs::insert).await.unwrap(), jobs::Accepted::Before(next));
        let first = store.write(keyed("f"), jobs::insert).await.unwrap();
        assert_eq!(first, jobs::Accepted::KeyOfAnother);
    }
}

const PAGES: Step<(), [i64; 2]> = |(), db, _| {
    Box::pin(async move {
        let all = db.fetch("PRAGMA page_count", Vec::new()).await?[0].int()?;
        let free = db.fetch("PRAGMA freelist_count", Vec::new()).await?[0].int()?;
        Ok([all, free])
    })
};

#[tokio::test]
async fn sqlite_file_returns_most_free_pages() {
    for store in stores().await {
        let store = open(&store).await;
        if !store.is_alone {
            continue;
        }
        // One transaction of them all could take longer than the store waits for an answer.
        for first in (1..80_000).step_by(10_000) {
            store.write([first, first + 9_999], FILL).await.unwrap();
        }
        let [full, _] = store.read((), PAGES).await.unwrap();
        assert!(full > 6_000, "{full} pages");
        purge::run(&store, HOUR).await.unwrap();
        let [left, free] = store.read((), PAGES).await.unwrap();
        assert!(free <= 4_096 && left < full - 1_000, "{full} pages before, {left} now, of which {free} are free");
    }
}

#[tokio::test]
async fn letters_are_counted_in_pages() {
    for store in stores().await {
        let store = open(&store).await;
        store.write([1, 1_000], FILL).await.unwrap();
        for most in [0, 1, 299, 300, 600, 999, 1_000, 5_000, i64::MAX] {
            let whole = purge::surplus(&store, most, i64::MAX).await.unwrap();
            assert_eq!(whole.is_some(), most < 1_000, "{most}");
            for page in [50, 300, 999, 1_000] {
                assert_eq!(purge::surplus(&store, most, page).await.unwrap(), whole, "{most} by {page}");
            }
        }
    }
}

/// The first read after it is armed fails.
#[cfg(all(feature = "sqlite", feature = "testing"))]
#[derive(Default)]
struct FailingRead(std::sync::atomic::AtomicBool);

#[cfg(all(feature = "sqlite", feature = "testing"))]
impl Watch for FailingRead {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        let fails = what == "read" && moment == Moment::Before && self.0.swap(false, Relaxed);
        if fails { Fault::Full } else { Fault::None }
    }
}

#[cfg(all(feature = "sqlite", feature = "testing"))]
#[tokio::test]
async fn failed_count_of_letters_stops_no_purge() {
    let watch = std::sync::Arc::new(FailingRead::default());
    let store = open(&Store::sqlite(folder().join("store.db")).watched_by(watch.clone())).await;
    store.write([1, 100], FILL).await.unwrap();
    watch.0.store(true, Relaxed);
    assert_eq!(purge::run(&store, HOUR).await.unwrap(), 100);
    assert_eq!((watch.0.load(Relaxed), store.read((), LEFT).await.unwrap()), (false, [0; 4]));
}
