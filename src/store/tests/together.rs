//! Starts and ends of many jobs go into one statement each, with the same effect as one by one.

use super::super::dead::{self, Filter, NewDead};
use super::super::jobs::{End, JobEnd, Start};
use super::super::records::{self, JobState};
use super::super::usage::{self, Mark, Table};
use super::*;

fn start_of(job: &Claimed, owner: Id) -> Start {
    Start { endpoint: "labels".to_owned(), points: 2, slot_ms: 3_600_000, ..super::start_of(job, owner) }
}

#[tokio::test]
async fn concurrent_starts_count_each_exchange_once() {
    for store in stores().await {
        let store = open(&store).await;
        for _ in 0..40 {
            accept(&store, job("a")).await;
        }
        let (owner, other) = (id(), id());
        let claimed = claim(&store, owner, "a", 40).await;
        // Five jobs are put back, and another process claims four of them.
        let back = |job: &Claimed| JobEnd { id: job.id, fence: job.fence, known: None, end: End::Back };
        let ends: Vec<_> = claimed[..5].iter().map(back).collect();
        assert_eq!(store.write(ends, jobs::finish).await.unwrap(), [true; 5]);
        let taken = claim(&store, other, "a", 4).await;
        assert_eq!(taken.len(), 4);
        let store = std::sync::Arc::new(store);
        for round in 0..=1 {
            let mut tasks = tokio::task::JoinSet::new();
            for (number, job) in claimed.iter().enumerate() {
                let (store, start) = (store.clone(), start_of(job, owner));
                tasks.spawn(async move { (number, store.start(start).await.unwrap()) });
            }
            let mut begun = tasks.join_all().await;
            begun.sort_unstable();
            let jobs = claimed.iter().enumerate();
            let expected: Vec<_> =
                jobs.map(|(number, job)| (number, (number >= 5).then_some(job.fence + round))).collect();
            assert_eq!(begun, expected, "the exchanges of each job, and none of those that were lost");
        }
        // An exchange that is recorded already is counted again in the usage only.
        let again = Start { again: true, ..start_of(&claimed[10], owner) };
        assert_eq!(store.start(again).await.unwrap(), Some(claimed[10].fence + 1));
        let wanted = usage::Wanted { tenant: "a".to_owned(), vendor: "v".to_owned(), after: Mark::START };
        let read = store.read((other, Table::Requests, vec![wanted]), usage::read).await.unwrap();
        let (requests, points) = read[0].rows.iter().fold((0, 0), |sum, row| (sum.0 + row.requests, sum.1 + row.units));
        assert_eq!((requests, points), (71, 142));
    }
}

#[tokio::test]
async fn delivered_jobs_end_together_with_their_results() {
    for store in stores().await {
        let store = open(&store).await;
        for _ in 0..30 {
            accept(&store, job("a")).await;
        }
        let (owner, other) = (id(), id());
        let claimed = claim(&store, owner, "a", 30).await;
        let back = |job: &Claimed| JobEnd { id: job.id, fence: job.fence, known: None, end: End::Back };
        store.write(claimed[..2].iter().map(back).collect(), jobs::finish).await.unwrap();
        assert_eq!(claim(&store, other, "a", 1).await.len(), 1);
        // The results are: none, small ones, bytes that are no text, and ones that are too large to be written with
        // others.
        let result = |number: usize| match number % 4 {
            0 => None,
            1 => Some(b"{}".to_vec()),
            2 => Some(vec![0, 255, 128, b'"']),
            _ => Some(vec![b'x'; 40_000]),
        };
        let end = |number: usize| {
            let end = End::Delivered { status: 201, attempts: 3, result: result(number), reply: None };
            JobEnd { id: claimed[number].id, fence: claimed[number].fence, known: None, end }
        };
        let ends: Vec<_> = (0..30).map(end).collect();
        assert_eq!(store.write(ends.clone(), jobs::finish).await.unwrap(), [true; 30], "whoever has the job");
        assert_eq!(store.write(ends, jobs::finish).await.unwrap(), [false; 30], "and once");
        assert_eq!(store.read(10, records::count).await.unwrap(), 0);
        for (number, job) in claimed.iter().enumerate() {
            let found = store.read(job.id, records::find).await.unwrap();
            let expected = JobState::Done { outcome: 0, status: 201, attempts: 3, result: result(number) };
            assert_eq!(found, expected, "{number}");
        }
    }
}

#[tokio::test]
async fn jobs_end_together_unless_taken_over() {
    for store in stores().await {
        let store = open(&store).await;
        for _ in 0..90 {
            accept(&store, job("a")).await;
        }
        let (owner, other) = (id(), id());
        let claimed = claim(&store, owner, "a", 90).await;
        // Three jobs, one for each kind of end below, belong to another process by now.
        let taken = [0, 30, 60];
        let back = |number: usize, end| {
            let job = &claimed[number];
            JobEnd { id: job.id, fence: job.fence, known: None, end }
        };
        let ends: Vec<_> = taken.iter().map(|number| back(*number, End::Back)).collect();
        assert_eq!(store.write(ends, jobs::finish).await.unwrap(), [true; 3]);
        assert_eq!(claim(&store, other, "a", 3).await.len(), 3);
        let started = claimed[1].clone();
        assert_eq!(store.start(start_of(&started, owner)).await.unwrap(), Some(started.fence));
        let end = |number: usize| {
            let end = match number / 30 {
                0 => End::Later {
                    after_ms: 60_000 + number as i64 * 1_000,
                    expires_at: None,
                    history: vec![number as u8, 0xff],
                },
                1 => End::Dead(Box::new(NewDead {
                    id: claimed[number].id,
                    lane: lane("a"),
                    reason: "exhausted".to_owned(),
                    letter: format!("{{\"number\":{number}}}").into_bytes(),
                    request: number.is_multiple_of(2).then(|| b"{}".to_vec()),
                    keep_result: number.is_multiple_of(3),
                    reply: None,
                })),
                _ => End::Back,
            };
            JobEnd { known: (number == 1).then_some(1), ..back(number, end) }
        };
        let ends: Vec<_> = (0..90).map(end).collect();
        let expected: Vec<bool> = (0..90).map(|number| !taken.contains(&number)).collect();
        assert_eq!(store.write(ends.clone(), jobs::finish).await.unwrap(), expected);
        assert_eq!(store.write(ends[2..].to_vec(), jobs::finish).await.unwrap(), [false; 88], "and once");
        for (number, job) in claimed.iter().enumerate() {
            match (store.read(job.id, records::find).await.unwrap(), number / 30) {
                (JobState::UnderWay, _) => assert!(taken.contains(&number), "{number}"),
                (JobState::Waiting { due_in_ms }, 0) => {
                    let due = 60_000 + number as i64 * 1_000;
                    assert!((due - 30_000..=due).contains(&due_in_ms), "{number}: {due_in_ms}");
                }
                (JobState::Dead { reason }, 1) => assert_eq!(reason, "exhausted", "{number}"),
                (JobState::Waiting { due_in_ms: 0 }, 2) => {}
                (other, _) => panic!("{number}: {other:?}"),
            }
        }
        let (letters, _) = store.read(Filter { most: 100, ..Filter::default() }, dead::list).await.unwrap();
        assert_eq!(letters.len(), 29);
        for letter in letters {
            let number = claimed.iter().position(|job| job.id == letter.id).unwrap();
            let text = String::from_utf8(letter.letter).unwrap();
            assert_eq!((text, letter.can_be_sent), (format!("{{\"number\":{number}}}"), number.is_multiple_of(2)));
        }
        // The jobs that were put back are claimed again at once. Their fence is increased, and their earlier claim is
        // not counted.
        let again = claim(&store, other, "a", 90).await;
        assert_eq!(again.len(), 29);
        let fence_before = |id| claimed.iter().find(|job| job.id == id).unwrap().fence;
        assert!(again.iter().all(|job| job.claims == 1 && job.fence > fence_before(job.id)));
        // The known outcome of an exchange has increased the fence, so the earlier claim cannot start another exchange.
        assert_eq!(store.start(start_of(&started, owner)).await.unwrap(), None);
    }
}
