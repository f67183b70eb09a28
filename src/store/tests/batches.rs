//! Pages of a batch are accepted once each, even when a page is sent twice.

use super::super::batches::{self, Counts, Page};
use super::super::dead::NewDead;
use super::super::jobs::{End, JobEnd};
use super::super::records::{self, JobState};
use super::*;

fn numbered(run: &batches::Run, numbers: std::ops::Range<u8>) -> Vec<NewJob> {
    let id = |number| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(run);
        (bytes[8], bytes[15]) = (0x80, number);
        Id::from_bytes(bytes)
    };
    numbers.map(|number| NewJob { id: id(number), ..job("acme") }).collect()
}

#[tokio::test]
async fn batch_page_is_accepted_once() {
    for store in stores().await {
        let store = open(&store).await;
        let run = [7; 8];
        let name = "labels".to_owned();
        let found = store.write((name.clone(), run, None), batches::open).await.unwrap();
        assert_eq!((found.run, &*found.mark, found.pages), (run, "", 0));
        let page = |before, mark: &str, numbers| Page {
            name: name.clone(),
            run,
            before,
            mark: mark.to_owned(),
            note: mark.as_bytes().to_vec(),
            jobs: numbered(&run, numbers),
        };
        // More requests than go into one statement.
        assert!(store.write(page(0, "40", 0..40), batches::accept).await.unwrap());
        let count = || batches::counts(&store, run);
        assert_eq!(count().await.unwrap(), Counts { waiting: 40, ..Counts::default() });
        // Some requests end, and then the page is sent once more, as after a lost reply.
        let owner = id();
        let claimed = claim(&store, owner, "acme", 3).await;
        let end = |result| End::Delivered { status: 200, attempts: 1, result, reply: None };
        let ends =
            claimed.iter().map(|job| JobEnd { id: job.id, fence: job.fence, known: None, end: end(None) }).collect();
        assert_eq!(store.write(ends, jobs::finish).await.unwrap(), [true; 3]);
        assert!(store.write(page(0, "40", 0..40), batches::accept).await.unwrap());
        assert_eq!(count().await.unwrap(), Counts { waiting: 37, delivered: 3, ..Counts::default() });
        // A client with an older state of the batch is refused, and its page is not accepted.
        assert!(!store.write(page(0, "50", 40..50), batches::accept).await.unwrap());
        assert!(store.write(page(1, "50", 40..50), batches::accept).await.unwrap());
        assert_eq!(count().await.unwrap().waiting, 47);
        let found = store.write((name.clone(), [8; 8], None), batches::open).await.unwrap();
        assert_eq!((found.run, &*found.mark, found.pages), (run, "50", 2), "it is the same batch");
        let ended = store.read((run, None, 2), batches::ended).await.unwrap();
        assert_eq!(ended.len(), 2);
        assert!(matches!(ended[0], (_, JobState::Done { status: 200, .. })));
        assert_eq!(store.read((run, Some(ended[1].0), 2), batches::ended).await.unwrap().len(), 1);
        assert!(store.read(run, batches::goes_on).await.unwrap());
        let notes = store.read((run, -1, 10), batches::notes).await.unwrap();
        assert_eq!(notes, [(0, b"40".to_vec()), (1, b"50".to_vec())], "one for each page");
        assert_eq!(store.read((run, 0, 10), batches::notes).await.unwrap(), notes[1..]);
        // After a new run has begun, the batch has other requests, and those of the old run are unchanged.
        let found = store.write((name.clone(), [9; 8], Some("0".to_owned())), batches::open).await.unwrap();
        assert_eq!((found.run, &*found.mark, found.pages), ([9; 8], "0", 0));
        assert!(!store.read([9; 8], batches::goes_on).await.unwrap());
        assert!(!store.write(page(2, "60", 50..60), batches::accept).await.unwrap(), "that batch is over");
        assert_eq!(store.read((), batches::names).await.unwrap(), std::slice::from_ref(&name));
    }
}

fn rejected(job: Claimed) -> End {
    let (id, lane, reason, letter) = (job.id, job.lane, "rejected".to_owned(), b"{}".to_vec());
    End::Dead(Box::new(NewDead { id, lane, reason, letter, request: None, keep_result: false, reply: None }))
}

#[tokio::test]
async fn batch_is_counted_in_parts() {
    for store in stores().await {
        let store = open(&store).await;
        let run = [7; 8];
        for job in numbered(&run, 0..40).into_iter().chain(numbered(&[8; 8], 0..5)) {
            accept(&store, job).await;
        }
        let mut ends = Vec::new();
        for (number, job) in claim(&store, id(), "acme", 10).await.into_iter().enumerate() {
            let (id, fence) = (job.id, job.fence);
            let end = match number {
                0..6 => End::Delivered { status: 200, attempts: 1, result: None, reply: None },
                _ => rejected(job),
            };
            ends.push(JobEnd { id, fence, known: None, end });
        }
        assert_eq!(store.write(ends, jobs::finish).await.unwrap(), [true; 10]);
        for job in numbered(&run, 20..23) {
            assert!(store.write(job.id, records::cancel).await.unwrap());
        }
        let expected = Counts { waiting: 27, delivered: 6, cancelled: 3, dead: 4 };
        for most in [1, 3, 7, 27, 100] {
            assert_eq!(batches::counts_by(&store, run, most).await.unwrap(), expected, "{most} together");
        }
        assert_eq!(batches::counts(&store, [9; 8]).await.unwrap(), Counts::default());
        // What waits is counted without a look at what has ended.
        let drop_ended: crate::store::actor::Step<(), u64> = |(), db, _| {
            Box::pin(async move {
                db.execute("DROP TABLE ic_done", Vec::new()).await?;
                db.execute("DROP TABLE ic_dead", Vec::new()).await
            })
        };
        store.write((), drop_ended).await.unwrap();
        assert_eq!(batches::waiting(&store, run).await.unwrap(), expected.waiting);
        assert_eq!(batches::waiting(&store, [9; 8]).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn pages_of_large_results_are_bounded_and_complete() {
    const MIB: usize = 1 << 20;
    for store in stores().await {
        let store = open(&store).await;
        let run = [7; 8];
        for job in numbered(&run, 0..40) {
            accept(&store, job).await;
        }
        let mut jobs = claim(&store, id(), "acme", 40).await;
        jobs.sort_by_key(|job| job.id);
        let expected: Vec<Id> = jobs.iter().map(|job| job.id).collect();
        for (number, job) in jobs.into_iter().enumerate() {
            // Every tenth request is a dead letter, and one has a result that is a page by itself.
            let bytes = if number == 20 { 9 * MIB } else { MIB };
            let (job_id, fence) = (job.id, job.fence);
            let end = match number % 10 {
                9 => rejected(job),
                _ => End::Delivered { status: 200, attempts: 1, result: Some(vec![7; bytes]), reply: None },
            };
            let end = JobEnd { id: job_id, fence, known: None, end };
            assert_eq!(store.write(vec![end], jobs::finish).await.unwrap(), [true]);
        }
        let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = store.read((run, after, 1_000), batches::ended).await.unwrap();
            let Some((last, _)) = page.last() else { break };
            (after, pages) = (Some(*last), pages + 1);
            let bytes = page.iter().filter_map(|(_, state)| match state {
                JobState::Done { result: Some(result), .. } => Some(result.len()),
                _ => None,
            });
            let bytes: Vec<usize> = bytes.collect();
            assert!(bytes.len() <= 1 || bytes.iter().sum::<usize>() <= 8 * MIB, "{bytes:?}");
            seen.extend(page.iter().map(|(id, _)| *id));
        }
        assert_eq!(seen, expected);
        assert!((5..=12).contains(&pages), "{pages}");
    }
}

#[tokio::test]
async fn queues_and_workers_are_listed() {
    for store in stores().await {
        let store = open(&store).await;
        for tenant in ["acme", "acme", "umbra"] {
            accept(&store, job(tenant)).await;
        }
        let owner = id();
        assert_eq!(claim(&store, owner, "acme", 1).await.len(), 1);
        let queues = store.read(10, batches::queues).await.unwrap();
        let seen: Vec<_> = queues.iter().map(|queue| (&*queue.lane.tenant, queue.waiting, queue.under_way)).collect();
        assert_eq!(seen, [("acme", 1, 1), ("umbra", 1, 0)]);
        store.write((owner, Some("[]".to_owned())), batches::tell).await.unwrap();
        store.write((owner, Some("[1]".to_owned())), batches::tell).await.unwrap();
        let told = store.read((), batches::worker_statuses).await.unwrap();
        assert_eq!(told.iter().map(|(who, _, said)| (*who, &**said)).collect::<Vec<_>>(), [(owner, "[1]")]);
        store.write((owner, None), batches::tell).await.unwrap();
        assert!(store.read((), batches::worker_statuses).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn schema_of_earlier_version_is_migrated() {
    for kind in stores().await {
        {
            let store = open(&kind).await;
            accept(&store, job("acme")).await;
            // All statements run in one transaction, because the clock cannot be read without its table.
            let back: crate::store::actor::Step<(), ()> = |(), db, _| {
                Box::pin(async move {
                    for sql in [
                        "DROP TABLE ic_batch",
                        "DROP TABLE ic_worker",
                        "DROP TABLE ic_owner",
                        "DROP TABLE IF EXISTS ic_clock",
                        "DROP TABLE ic_token",
                        "DROP TABLE ic_token_lease",
                        "DROP TABLE ic_note",
                        "DROP TABLE ic_used",
                        "DROP TABLE ic_capacity",
                        "DROP TABLE ic_capacity_long",
                        "DROP TABLE IF EXISTS ic_capacity_known",
                        "DROP TABLE ic_seen",
                        "DROP TABLE ic_intake",
                        "DROP TABLE ic_intake_refused",
                        "DROP TABLE ic_reply",
                        "DROP TABLE ic_config_copy",
                        "DROP TABLE ic_pause",
                        "ALTER TABLE ic_job DROP COLUMN begun",
                        "ALTER TABLE ic_job DROP COLUMN started_at",
                        "ALTER TABLE ic_dead DROP COLUMN fence",
                        "ALTER TABLE ic_dead DROP COLUMN begun",
                        "DROP INDEX ic_job_owned",
                        "DROP INDEX ic_job_due",
                        "CREATE INDEX ic_job_due ON ic_job (run_at) WHERE state = 0",
                        "CREATE INDEX ic_job_leased ON ic_job (lease_until) WHERE state = 1",
                        "UPDATE ic_schema SET version = 1",
                    ] {
                        db.execute(sql, Vec::new()).await?;
                    }
                    Ok(())
                })
            };
            store.write((), back).await.unwrap();
        }
        let store = open(&kind).await;
        store.write(("labels".to_owned(), [7; 8], None), batches::open).await.unwrap();
        assert_eq!(store.read(10, batches::queues).await.unwrap().len(), 1, "what was there is there");
    }
}

#[tokio::test]
async fn notes_outlive_exactly_one_more_run() {
    for store in stores().await {
        let store = open(&store).await;
        let name = "labels".to_owned();
        let page = |run| Page {
            name: name.clone(),
            run,
            before: 0,
            mark: "m".to_owned(),
            note: b"n".to_vec(),
            jobs: Vec::new(),
        };
        let kept = |run: batches::Run| {
            let store = &store;
            async move { store.read((run, -1, 10), batches::notes).await.unwrap().len() }
        };
        for run in [[1; 8], [2; 8], [3; 8]] {
            let anew = (run != [1; 8]).then(|| format!("begin {}", run[0]));
            // Each step is run twice, as after a commit whose reply was lost.
            for _ in 0..2 {
                let found = store.write((name.clone(), run, anew.clone()), batches::open).await.unwrap();
                let mark = anew.clone().unwrap_or_default();
                assert_eq!((found.run, found.mark, found.pages), (run, mark, 0), "the run and its mark");
            }
            if run != [1; 8] {
                assert_eq!(kept([run[0] - 1; 8]).await, 1, "the notes of the replaced run");
            }
            assert!(store.write(page(run), batches::accept).await.unwrap());
        }
        assert_eq!((kept([1; 8]).await, kept([2; 8]).await, kept([3; 8]).await), (0, 1, 1));
        // A new run of another batch deletes no notes of this one.
        store.write(("other".to_owned(), [4; 8], Some(String::new())), batches::open).await.unwrap();
        assert_eq!(kept([2; 8]).await, 1);
    }
}
