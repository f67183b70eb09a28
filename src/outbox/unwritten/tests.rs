//! Tests of `unwritten`.

use std::collections::BTreeMap;

use super::*;

fn end(number: u128) -> JobEnd {
    JobEnd { id: Id::from_u128(number), fence: 1, known: None, end: End::Back }
}

fn ids(finishes: &[JobEnd]) -> Vec<u128> {
    finishes.iter().map(|finish| finish.id.as_u128()).collect()
}

#[test]
fn outcomes_are_written_together_up_to_a_size() {
    let mut ends = Unwritten::default();
    let with = |bytes: usize| End::Later { after_ms: 0, expires_at: None, history: vec![0; bytes] };
    for (number, bytes) in [(1, BYTES_TOGETHER + 1), (2, BYTES_TOGETHER - 1), (3, 1), (4, 1)] {
        ends.add(JobEnd { end: with(bytes), ..end(number) }, None);
    }
    for together in [vec![1], vec![2, 3], vec![4]] {
        assert_eq!(ids(&ends.next(Time::ZERO).unwrap()), together);
        assert_eq!(ends.written(Time::ZERO).0.len(), together.len());
    }
    assert!(ends.is_empty());
}

#[test]
fn unwritable_outcome_is_isolated_and_dropped() {
    let (mut ends, mut now) = (Unwritten::default(), Time::ZERO);
    ends.add(end(1), None);
    ends.add(end(2), None);
    let together = ends.next(now).unwrap();
    assert_eq!((ids(&together), ends.next(now).is_none()), (vec![1, 2], true));
    assert!(ends.failed(now, Failure::Down).is_empty(), "the store is away: nothing is lost");
    assert!(ends.next(now).is_none(), "not at once");
    now = now + WAIT;
    assert_eq!(ids(&ends.next(now).unwrap()), [1, 2]);
    assert!(ends.failed(now, Failure::Own).is_empty());
    let mut dropped = 0;
    for _ in 0..20 {
        now = now + WAIT;
        let Some(next) = ends.next(now) else { break };
        match ids(&next)[..] {
            [1] => dropped += ends.failed(now, Failure::Own).len(),
            [2] => assert_eq!(ends.written(now).0.len(), 1),
            ref other => panic!("{other:?}: each goes by itself"),
        }
    }
    assert_eq!((dropped, ends.is_empty()), (1, true));
}

fn delivered(number: u128) -> JobEnd {
    JobEnd { end: End::Delivered { status: 200, attempts: 1, result: None, reply: None }, ..end(number) }
}

#[test]
fn only_telling_outcomes_are_counted() {
    let (mut ends, mut now) = (Unwritten::default(), Time::ZERO);
    ends.add(end(1), None);
    (2..=4).for_each(|number| ends.add(delivered(number), None));
    assert_eq!(ends.telling(), 3);
    assert_eq!(ids(&ends.next(now).unwrap()), [1, 2, 3, 4]);
    assert_eq!(ends.telling(), 3, "they are not written yet");
    ends.failed(now, Failure::Down);
    assert_eq!(ends.telling(), 3);
    // The write of the second fails for its own reason, until an outcome that says nothing takes its place.
    for _ in 0..60 {
        now = now + WAIT;
        match ends.next(now) {
            None => break,
            Some(next) if ids(&next).contains(&2) && !matches!(next[0].end, End::Dropped) => {
                ends.failed(now, Failure::Own);
            }
            Some(_) => drop(ends.written(now)),
        }
    }
    assert_eq!((ends.telling(), ends.is_empty()), (0, true));
    ends.add(delivered(5), None);
    assert_eq!((ends.give_up(), ends.telling()), (1, 0));
}

#[test]
fn known_outcome_is_kept_until_another_of_its_kind_is_written() {
    let (mut ends, mut now) = (Unwritten::default(), Time::ZERO);
    (1..=10).for_each(|number| ends.add(delivered(number), None));
    let mut tries = BTreeMap::new();
    // No delivery can be written for a minute. Ends of another kind can, and take their turns.
    for step in 0..120 {
        now = now + WAIT / 2;
        if step % 20 == 10 {
            ends.add(end(99), None);
        }
        let Some(next) = ends.next(now) else { continue };
        if matches!(next[0].end, End::Back) {
            ends.written(now);
            continue;
        }
        assert!(next.iter().all(|finish| matches!(finish.end, End::Delivered { .. })), "{next:?}");
        ids(&next).into_iter().for_each(|id| *tries.entry(id).or_insert(0) += 1);
        assert!(ends.failed(now, Failure::Own).is_empty());
    }
    assert!(tries.len() == 10 && tries.values().all(|tries| *tries > REPEATS + 1), "tried again: {tries:?}");
    // All but one can be written. That one is replaced in the end, because the others show that the store works.
    let mut last = Vec::new();
    for _ in 0..60 {
        now = now + WAIT;
        while let Some(next) = ends.next(now) {
            if ids(&next) == [7] && matches!(next[0].end, End::Delivered { .. }) {
                assert!(ends.failed(now, Failure::Own).is_empty());
                break;
            }
            last.extend(ends.written(now).0.iter().map(|finish| (finish.id.as_u128(), finish.end.clone())));
        }
    }
    assert!(ends.is_empty(), "{last:?}");
    let (seventh, others): (Vec<_>, Vec<_>) = last.into_iter().partition(|(id, _)| *id == 7);
    assert!(matches!(seventh[..], [(_, End::Dropped)]), "{seventh:?}");
    assert!(others.len() == 9 && others.iter().all(|(_, end)| matches!(end, End::Delivered { .. })), "{others:?}");
}

#[test]
fn unwritable_outcome_delays_no_other() {
    let (mut ends, now) = (Unwritten::default(), Time::ZERO + WAIT);
    ends.add(delivered(1), None);
    ends.next(now).unwrap();
    assert!(ends.failed(now, Failure::Own).is_empty());
    ends.add(delivered(2), None);
    assert_eq!(ids(&ends.next(now).unwrap()), [2], "at once");
    ends.written(now);
    assert!(ends.next(now).is_none(), "the first one not at once");
    ends.add(delivered(3), None);
    assert_eq!(ids(&ends.next(now + WAIT).unwrap()), [1]);
    assert!(ends.failed(now + WAIT, Failure::Down).is_empty());
    // It still goes by itself, in turn with the others.
    let later = now + WAIT + WAIT;
    for expected in [vec![3], vec![1]] {
        assert_eq!(ids(&ends.next(later).unwrap()), expected);
        ends.written(now);
    }
    assert!(ends.is_empty());
}

#[test]
fn locked_outcome_holds_up_no_other() {
    let (mut ends, now) = (Unwritten::default(), Time::ZERO + WAIT);
    (1..=3).for_each(|number| ends.add(end(number), None));
    assert_eq!(ids(&ends.next(now).unwrap()), [1, 2, 3]);
    assert!(!ends.may_be_locked() && ends.failed(now, Failure::Locked).is_empty());
    ends.add(end(4), None);
    // At once, one by one, in turn with the one that came later.
    let mut order = Vec::new();
    while let Some(next) = ends.next(now) {
        order.push((ids(&next), ends.may_be_locked()));
        match ids(&next)[..] {
            [2] => assert!(ends.failed(now, Failure::Locked).is_empty()),
            _ => drop(ends.written(now)),
        }
    }
    assert_eq!(order, [(vec![1], true), (vec![4], false), (vec![2], true), (vec![3], true)]);
    ends.add(end(5), None);
    assert_eq!(ids(&ends.next(now).unwrap()), [5]);
    ends.written(now);
    assert!(ends.next(now).is_none() && !ends.is_empty() && ends.say_nothing());
    assert_eq!(ids(&ends.next(now + LOCKED).unwrap()), [2]);
    ends.written(now);
    assert!(ends.is_empty());
}

#[test]
fn failures_are_timed_until_a_write_succeeds() {
    let (mut ends, began) = (Unwritten::default(), Time::ZERO + WAIT);
    ends.add(end(1), None);
    assert!(ends.failed(began, Failure::Down).is_empty());
    assert_eq!(ends.failing_for(began + WAIT), Duration::ZERO, "nothing was being written");
    let mut now = began + WAIT;
    let first = now;
    for why in [Failure::Down, Failure::Own, Failure::Down] {
        ends.next(now).unwrap();
        assert!(ends.failed(now, why).is_empty());
        now = now + WAIT;
        assert_eq!(ends.failing_for(now), now.since(first));
    }
    ends.count_failures_anew();
    assert_eq!(ends.failing_for(now), Duration::ZERO);
    ends.next(now).unwrap();
    assert!(ends.failed(now, Failure::Down).is_empty());
    now = now + WAIT;
    assert_eq!(ends.failing_for(now), WAIT);
    ends.next(now).unwrap();
    ends.written(now);
    assert_eq!(ends.failing_for(now + WAIT), Duration::ZERO);
    assert_eq!(ends.give_up(), 0);
    ends.add(end(2), None);
    ends.next(now).unwrap();
    ends.add(end(3), None);
    assert_eq!((ends.give_up(), ends.is_empty()), (2, true));
}

#[test]
fn failure_of_the_store_halves_the_next_write() {
    let (mut ends, mut now) = (Unwritten::default(), Time::ZERO + WAIT);
    (0..1_000).for_each(|number| ends.add(delivered(number), None));
    for expected in [512, 256, 128] {
        assert_eq!(ends.next(now).unwrap().len(), expected);
        assert!(ends.failed(now, Failure::Down).is_empty());
        now = now + WAIT;
    }
    // Writes make it larger again, also slow ones: they may have waited for others.
    for (expected, took) in [(64, 0), (128, 3), (256, 0)] {
        assert_eq!(ends.next(now).unwrap().len(), expected);
        now = now + Duration::from_secs(took);
        assert_eq!(ends.written(now).0.len(), expected);
    }
    assert_eq!(ends.next(now).unwrap().len(), 512);
}

#[test]
fn large_outcomes_take_few_statements_together() {
    let mut ends = Unwritten::default();
    let large = || End::Delivered { status: 200, attempts: 1, result: Some(vec![0; 17 << 10]), reply: None };
    (0..300).for_each(|number| ends.add(JobEnd { end: large(), ..end(number) }, None));
    let mut left = 300;
    while let Some(next) = ends.next(Time::ZERO) {
        assert!(2 * next.len() <= STATEMENTS, "{} outcomes of two statements each", next.len());
        left -= ends.written(Time::ZERO).0.len();
    }
    assert_eq!(left, 0);
}
