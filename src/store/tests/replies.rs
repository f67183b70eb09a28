//! Replies are written with the ends of their jobs, one for each end that counts.

use super::super::dead::NewDead;
use super::super::driver::{Db, DbError, args};
use super::super::jobs::{End, JobEnd};
use super::super::purge::{self, Retention, What};
use super::super::records;
use super::super::replies::{self, Claim, Kept, Settled, Taken, Which};
use super::*;
use crate::BoxFuture;

fn delivered(reply: Option<&str>) -> End {
    End::Delivered { status: 200, attempts: 1, result: None, reply: reply.map(str::to_owned) }
}

fn dead(id: Id, reply: &str) -> End {
    End::Dead(Box::new(NewDead {
        id,
        lane: lane("a"),
        reason: "rejected".to_owned(),
        letter: b"{}".to_vec(),
        request: None,
        keep_result: false,
        reply: Some(reply.to_owned()),
    }))
}

async fn stored_replies(store: &Opened) -> Vec<Kept> {
    store.read(i64::MAX, replies::read).await.unwrap()
}

#[tokio::test]
async fn reply_is_written_with_its_jobs_end() {
    for store in stores().await {
        let store = open(&store).await;
        for _ in 0..6 {
            accept(&store, job("a")).await;
        }
        let claimed = claim(&store, id(), "a", 6).await;
        let end =
            |number: usize, end: End| JobEnd { id: claimed[number].id, fence: claimed[number].fence, known: None, end };
        let large = "x".repeat(2 << 20);
        let ends = vec![
            end(0, delivered(Some("\"zero\"\u{1f600}"))),
            end(1, delivered(None)),
            end(2, delivered(Some(&large))),
            end(3, dead(claimed[3].id, "three")),
            end(4, End::Back),
            // The claim with this fence does not exist, so the end takes no effect.
            JobEnd { fence: claimed[5].fence + 7, ..end(5, dead(claimed[5].id, "not its end")) },
            end(0, delivered(Some("a second end"))),
        ];
        let told = store.write(ends, jobs::finish).await.unwrap();
        assert_eq!(told, [true, true, true, true, true, false, false]);
        let kept = stored_replies(&store).await;
        let simple = |number: usize| claimed[number].id.simple().to_string();
        let mut found: Vec<_> = kept.iter().map(|kept| (kept.id.clone(), kept.reply.clone())).collect();
        found.sort();
        let mut expected = vec![
            (simple(0), "\"zero\"\u{1f600}".to_owned()),
            (simple(2), large.clone()),
            (simple(3), "three".to_owned()),
        ];
        expected.sort();
        assert_eq!(found, expected);
        // Each reply can be taken once, and the numbers of replies are not used again.
        let numbers = Taken(kept.iter().map(|kept| kept.seq).collect());
        let counted = async || store.read((), records::backlog).await.unwrap();
        let backlog = counted().await;
        let replies = backlog.replies;
        assert!(replies.count == 3 && replies.oldest.is_some_and(|age| age < Duration::from_secs(60)), "{backlog:?}");
        assert_eq!(store.write(numbers.clone(), replies::delete).await.unwrap(), 3);
        let backlog = counted().await;
        assert_eq!(backlog.replies, records::UntakenReplies::default());
        assert_eq!(store.write(numbers.clone(), replies::delete).await.unwrap(), 0);
        let again = claim(&store, id(), "a", 1).await.remove(0);
        let end = JobEnd { id: again.id, fence: again.fence, known: None, end: delivered(Some("four")) };
        assert_eq!(store.write(vec![end], jobs::finish).await.unwrap(), [true]);
        let kept = stored_replies(&store).await;
        assert!(kept.len() == 1 && numbers.0.iter().all(|number| *number < kept[0].seq));
    }
}

#[tokio::test]
async fn untaken_reply_is_purged_after_a_week() {
    for store in stores().await {
        let store = open(&store).await;
        accept(&store, job("a")).await;
        let claimed = claim(&store, id(), "a", 1).await.remove(0);
        let end = JobEnd { id: claimed.id, fence: claimed.fence, known: None, end: delivered(Some("{}")) };
        store.write(vec![end], jobs::finish).await.unwrap();
        let step = purge::Step {
            what: What::Replies,
            keep: Retention { done_ms: 0, dead_ms: 0, most_dead: 1 },
            rows: 10,
            from: i64::MIN,
        };
        assert_eq!(store.write(step, purge::step).await.unwrap().settled, 0);
        let age: crate::store::actor::Step<(), ()> = |(), db, _| {
            Box::pin(
                async move { db.execute("UPDATE ic_reply SET until = until - 604800001", Vec::new()).await.map(drop) },
            )
        };
        store.write((), age).await.unwrap();
        assert_eq!(store.write(step, purge::step).await.unwrap().settled, 1);
        assert!(stored_replies(&store).await.is_empty());
    }
}

#[tokio::test]
async fn expired_reply_claim_goes_to_another_process() {
    for store in stores().await {
        let store = open(&store).await;
        for _ in 0..3 {
            accept(&store, job("a")).await;
        }
        let claimed = claim(&store, id(), "a", 3).await;
        let ends = claimed.iter().enumerate().map(|(number, claimed)| JobEnd {
            id: claimed.id,
            fence: claimed.fence,
            known: None,
            end: delivered(Some(&number.to_string())),
        });
        store.write(ends.collect(), jobs::finish).await.unwrap();
        let claim_of = |most| {
            let shares = vec![(Which::Untried, most), (Which::Tried, most)];
            Claim { most, shares, held_ms: 60_000 }
        };
        let take = async |most| {
            let taken = store.write(claim_of(most), replies::claim).await.unwrap();
            taken.into_iter().map(|taken| (taken.kept.seq, taken.tries)).collect::<Vec<_>>()
        };
        let is_any_due = async || store.read(claim_of(1), replies::is_any_due).await.unwrap();
        assert!(is_any_due().await);
        let first = take(2).await;
        assert_eq!(first.iter().map(|(_, tries)| *tries).collect::<Vec<_>>(), [1, 1]);
        let second = take(10).await;
        assert_eq!(second.len(), 1, "the others are another process's");
        assert!(!is_any_due().await && take(10).await.is_empty());
        // One reply is delivered, one is not, and the process that has claimed the third is killed.
        let settled = Settled { delivered: vec![first[0].0], later: vec![(first[1].0, 0)] };
        store.write(settled, replies::settle).await.unwrap();
        assert_eq!(take(10).await, [(first[1].0, 2)]);
        let over: crate::store::actor::Step<(), ()> = |(), db, _| {
            Box::pin(async move { db.execute("UPDATE ic_reply SET due = due - 60001", Vec::new()).await.map(drop) })
        };
        store.write((), over).await.unwrap();
        let mut again = take(10).await;
        again.sort_unstable();
        let mut expected = vec![(first[1].0, 3), (second[0].0, 2)];
        expected.sort_unstable();
        assert_eq!(again, expected);
        let later = Settled { delivered: Vec::new(), later: again.iter().map(|(seq, _)| (*seq, 60_000)).collect() };
        store.write(later, replies::settle).await.unwrap();
        assert!(take(10).await.is_empty());
        assert_eq!(stored_replies(&store).await.len(), 2, "they stay until they are delivered");
    }
}

#[tokio::test]
async fn claim_has_untried_replies_beside_repetitions() {
    fn insert<'a>(count: &'a usize, db: Db<'a>, now: i64) -> BoxFuture<'a, Result<(), DbError>> {
        Box::pin(async move {
            let rows: Vec<(Id, &str)> = (0..*count).map(|_| (id(), "{}")).collect();
            replies::insert(&rows, db, now).await
        })
    }
    for store in stores().await {
        let store = open(&store).await;
        let take = async |most, shares: &[(Which, i64)]| {
            let claim = Claim { most, shares: shares.to_vec(), held_ms: 60_000 };
            let is_any_due = store.read(claim.clone(), replies::is_any_due).await.unwrap();
            let taken = store.write(claim, replies::claim).await.unwrap();
            assert_eq!(is_any_due, !taken.is_empty());
            taken.into_iter().map(|taken| (taken.kept.seq, taken.tries)).collect::<Vec<_>>()
        };
        let numbers = |taken: Vec<(i64, i64)>| taken.into_iter().map(|(seq, _)| seq).collect::<Vec<_>>();
        store.write(6, insert).await.unwrap();
        // The first six are due again, for longer than the new ones.
        let first = numbers(take(10, &[(Which::Untried, 10)]).await);
        let later = first.iter().map(|seq| (*seq, -1_000)).collect();
        store.write(Settled { delivered: Vec::new(), later }, replies::settle).await.unwrap();
        store.write(4, insert).await.unwrap();
        assert!(take(10, &[]).await.is_empty());
        let both = [(Which::Untried, 2), (Which::Tried, 4), (Which::Untried, 4)];
        let new: Vec<i64> = (1..=4).map(|number| first[5] + number).collect();
        assert_eq!(take(4, &both).await, [(first[0], 2), (first[1], 2), (new[0], 1), (new[1], 1)], "half of each kind");
        assert_eq!(take(4, &[(Which::NewestUntried, 1)]).await, [(new[3], 1)]);
        assert_eq!(numbers(take(4, &both).await), [first[2], first[3], first[4], new[2]], "what one kind leaves");
        store.write(4, insert).await.unwrap();
        assert_eq!(take(4, &both).await.iter().filter(|(_, tries)| *tries == 1).count(), 3, "what the other leaves");
    }
}

/// Makes all replies due at `at`, as the version before this one wrote them.
pub(crate) fn as_written_before(db: Db<'_>, at: i64) -> BoxFuture<'_, Result<u64, DbError>> {
    db.execute("UPDATE ic_reply SET due = $1", args![at])
}
