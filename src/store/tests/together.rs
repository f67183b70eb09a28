//! Starts and ends of many jobs go into one statement each, and mean the same as one by one.

use super::super::jobs::{End, JobEnd, Start};
use super::super::records::{self, JobState};
use super::super::usage::{self, Mark, Table};
use super::*;

fn start_of(job: &Claimed, owner: Id) -> Start {
    Start {
        id: job.id,
        fence: job.fence,
        owner,
        lane: job.lane.clone(),
        again: false,
        endpoint: "labels".to_owned(),
        points: 2,
        slot_ms: 3_600_000,
        counts_ms: 60_000,
    }
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
        // Five go back, and four of them to another process.
        let back = |job: &Claimed| JobEnd { id: job.id, fence: job.fence, known: None, end: End::Back };
        let ends: Vec<_> = claimed[..5].iter().map(back).collect();
        assert_eq!(store.write(ends, jobs::finish).await.unwrap(), [true; 5]);
        let taken = claim(&store, other, "a", 4).await;
        assert_eq!(taken.len(), 4);
        let store = std::sync::Arc::new(store);
        for round in 1..=2 {
            let mut tasks = tokio::task::JoinSet::new();
            for (number, job) in claimed.iter().enumerate() {
                let (store, start) = (store.clone(), start_of(job, owner));
                tasks.spawn(async move { (number, store.start(start).await.unwrap()) });
            }
            let mut begun = tasks.join_all().await;
            begun.sort_unstable();
            let expected: Vec<_> = (0..40).map(|number| (number, (number >= 5).then_some(round))).collect();
            assert_eq!(begun, expected, "the exchanges of each job, and none of those that were lost");
        }
        // An exchange that is recorded already counts in the usage only.
        let again = Start { again: true, ..start_of(&claimed[10], owner) };
        assert_eq!(store.start(again).await.unwrap(), Some(2));
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
        // None, small ones, bytes that are no text, and one that goes alone.
        let result = |number: usize| match number % 4 {
            0 => None,
            1 => Some(b"{}".to_vec()),
            2 => Some(vec![0, 255, 128, b'"']),
            _ => Some(vec![b'x'; 40_000]),
        };
        let end = |number: usize| {
            let end = End::Delivered { status: 201, attempts: 3, result: result(number) };
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
