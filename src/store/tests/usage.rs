//! The usage of lanes, read in pages.

use super::super::actor::Step;
use super::super::driver::{Dialect, args};
use super::super::usage::{self, Mark, Table, Taken, Usage, Wanted};
use super::*;

/// Writes `slots` rows for each of two owners of a lane: one request and two points in each row.
const FILL: Step<(String, i64, [Id; 2]), ()> = |(tenant, slots, owners), db, now| {
    Box::pin(async move {
        let sql = match db.dialect() {
            Dialect::Sqlite => {
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) \
                 INSERT INTO ic_spent (tenant, vendor, endpoint, slot, owner, high, requests, points, last_at, until) \
                 SELECT $2, 'v', '', i, $3, i % 2, 1, 2, $4 - i, $4 + 60000 FROM n"
            }
            Dialect::Postgres => {
                "INSERT INTO ic_spent (tenant, vendor, endpoint, slot, owner, high, requests, points, last_at, until) \
                 SELECT $2, 'v', '', i, $3, i % 2, 1, 2, $4 - i, $4 + 60000 FROM generate_series(1, $1) i"
            }
        };
        for owner in owners {
            db.execute(sql, args![*slots, tenant, owner.as_bytes().as_slice(), now]).await?;
        }
        Ok(())
    })
};

fn wanted(tenant: &str) -> Wanted {
    Wanted { tenant: tenant.to_owned(), vendor: "v".to_owned(), after: Mark::START }
}

#[tokio::test]
async fn usage_is_read_in_bounded_pages() {
    for store in stores().await {
        let store = open(&store).await;
        let owners = [id(), id()];
        for (tenant, slots) in [("a", 700), ("b", usage::ROWS / 2), ("c", 3)] {
            store.write((tenant.to_owned(), slots, owners), FILL).await.unwrap();
        }
        let mut asked = vec![wanted("a"), wanted("b"), wanted("nobody"), wanted("c")];
        let mut requests = std::collections::BTreeMap::new();
        let mut pages = 0;
        while !asked.is_empty() {
            let read = store.read((id(), Table::Requests, asked.clone()), usage::read).await.unwrap();
            let mut more = Vec::new();
            for page in read {
                pages += 1;
                assert!(page.rows.len() <= usize::try_from(usage::ROWS).unwrap());
                let lane = &asked[page.lane];
                *requests.entry(lane.tenant.clone()).or_insert(0) +=
                    page.rows.iter().map(|row| row.requests).sum::<i64>();
                assert!(page.rows.iter().all(|row| row.units == 2 && row.age_ms < 60_000));
                more.extend(page.more.map(|after| Wanted { after, ..lane.clone() }));
            }
            asked = more;
        }
        let expected = [("a", 1_400), ("b", usage::ROWS), ("c", 6)].map(|(tenant, count)| (tenant.to_owned(), count));
        assert_eq!(requests, expected.into());
        assert_eq!(pages, 6 + 1 + 1, "and no lane is asked about for ever");
        let own = store.read((owners[0], Table::Requests, vec![wanted("c")]), usage::read).await.unwrap();
        assert_eq!(own[0].rows.len(), 3, "a process is not told what it sent itself");
    }
}

#[tokio::test]
async fn usage_of_many_lanes_is_bounded_in_one_read() {
    for store in stores().await {
        let store = open(&store).await;
        let mut asked: Vec<Wanted> = (0..40).map(|number| wanted(&format!("{number:02}"))).collect();
        for lane in &asked {
            store.write((lane.tenant.clone(), 150, [id(), id()]), FILL).await.unwrap();
        }
        asked.extend((0..24).map(|number| wanted(&format!("nobody-{number}"))));
        let (mut reads, mut rows) = (0, 0);
        while !asked.is_empty() {
            let pages = store.read((id(), Table::Requests, asked.clone()), usage::read).await.unwrap();
            let read: usize = pages.iter().map(|page| page.rows.len()).sum();
            assert!(read <= usize::try_from(usage::ALL_ROWS).unwrap(), "{read}");
            (reads, rows) = (reads + 1, rows + read);
            let more = |page: usage::Page| Some(Wanted { after: page.more?, ..asked[page.lane].clone() });
            asked = pages.into_iter().filter_map(more).collect();
        }
        // 64 lanes get 128 rows each, and the 40 that have more get 204.
        assert_eq!((reads, rows), (2, 40 * 300));
    }
}

const HOUR_MS: i64 = 3_600_000;

/// As many requests and tokens, taken `age_ms` ago. All times are in one slot.
fn taken(count: i64, age_ms: i64) -> Taken {
    Taken {
        tenant: "a".to_owned(),
        vendor: "v".to_owned(),
        endpoint: String::new(),
        high: false,
        requests: count,
        points: count,
        units: vec![("tokens".to_owned(), count)],
        slot_ms: i64::MAX,
        counts_ms: 24 * HOUR_MS,
        age_ms,
    }
}

/// Asserts that another process reads one row of `units` in each table, and that its newest usage is `hours` old.
#[track_caller]
fn assert_one_row(rows: [Vec<Usage>; 2], units: i64, hours: i64) {
    for rows in rows {
        assert_eq!(rows.iter().map(|row| row.units).collect::<Vec<_>>(), [units]);
        let age_ms = rows[0].age_ms;
        assert!((hours * HOUR_MS..hours * HOUR_MS + 60_000).contains(&age_ms), "{age_ms}");
    }
}

async fn rows_of_a(store: &Opened) -> [Vec<Usage>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    for (rows, table) in found.iter_mut().zip([Table::Requests, Table::Units]) {
        let pages = store.read((id(), table, vec![wanted("a")]), usage::read).await.unwrap();
        rows.extend(pages.into_iter().flat_map(|page| page.rows));
    }
    found
}

#[tokio::test]
async fn late_usage_keeps_its_age() {
    for store in stores().await {
        let (store, owner) = (open(&store).await, id());
        store.write((owner, vec![taken(3, 3 * HOUR_MS)]), usage::add).await.unwrap();
        assert_one_row(rows_of_a(&store).await, 3, 3);
        let several = vec![taken(1, 2 * HOUR_MS), taken(1, HOUR_MS), taken(1, 2 * HOUR_MS)];
        store.write((owner, several), usage::add).await.unwrap();
        assert_one_row(rows_of_a(&store).await, 6, 1);
        store.write((owner, vec![taken(4, 5 * HOUR_MS)]), usage::add).await.unwrap();
        assert_one_row(rows_of_a(&store).await, 10, 1);
    }
}

#[tokio::test]
async fn returned_units_make_no_row_younger() {
    for store in stores().await {
        let (store, owner) = (open(&store).await, id());
        store.write((owner, vec![taken(5, 3 * HOUR_MS)]), usage::add).await.unwrap();
        store.write((owner, vec![taken(-1, HOUR_MS)]), usage::add).await.unwrap();
        assert_one_row(rows_of_a(&store).await, 4, 3);
        store.write((owner, vec![taken(-1, 0), taken(2, 2 * HOUR_MS)]), usage::add).await.unwrap();
        assert_one_row(rows_of_a(&store).await, 5, 2);
        // A request was taken, and the correction of an earlier one returned more.
        let (points, units) = (-2, vec![("tokens".to_owned(), -2)]);
        store.write((owner, vec![Taken { points, units, ..taken(1, HOUR_MS) }]), usage::add).await.unwrap();
        assert_one_row(rows_of_a(&store).await, 3, 1);
    }
}

/// The usage may be written after the units were returned.
#[tokio::test]
async fn row_of_returned_units_has_no_age() {
    for store in stores().await {
        let (store, owner) = (open(&store).await, id());
        store.write((owner, vec![taken(-1, HOUR_MS)]), usage::add).await.unwrap();
        store.write((owner, vec![taken(4, 3 * HOUR_MS)]), usage::add).await.unwrap();
        assert_one_row(rows_of_a(&store).await, 3, 3);
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn undecodable_usage_row_hides_no_other() {
    let store = open(&Store::sqlite(folder().join("store.db"))).await;
    store.write(("a".to_owned(), 300, [id(), id()]), FILL).await.unwrap();
    let edit: Step<(), u64> =
        |(), db, _| db.execute("UPDATE ic_spent SET requests = 'many' WHERE slot = 128", Vec::new());
    store.write((), edit).await.unwrap();
    let first = store.read((id(), Table::Requests, vec![wanted("a")]), usage::read).await.unwrap().remove(0);
    let mut count = first.rows.len();
    let mut more = first.more;
    while let Some(after) = more {
        let pages =
            store.read((id(), Table::Requests, vec![Wanted { after, ..wanted("a") }]), usage::read).await.unwrap();
        count += pages.iter().map(|page| page.rows.len()).sum::<usize>();
        more = pages.into_iter().next().and_then(|page| page.more);
    }
    assert_eq!(count, 598);
}
