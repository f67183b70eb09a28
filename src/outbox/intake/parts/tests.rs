use super::*;
use crate::error::ErrorKind;

#[test]
fn rejected_jobs_are_alone_at_last() {
    let mut parts = Parts::new([0..8, 8..10]);
    let (mut written, mut tries) = (Vec::new(), 0);
    while let Some(part) = parts.pop(usize::MAX, |_| 0) {
        tries += 1;
        match part.range.clone().any(|number| [3, 8, 9].contains(&number)) {
            true => parts.reject(part, Error::not_sent(ErrorKind::Store, "not this one")),
            false => {
                parts.accept(&part);
                written.extend(part.range);
            }
        }
    }
    assert_eq!((written, tries), (vec![0, 1, 2, 4, 5, 6, 7], 13));
    let rejected: Vec<_> = parts.rejected().iter().map(|job| (job.number, job.is_cause)).collect();
    assert_eq!(rejected, [(3, true), (8, false), (9, false)], "no job of the second transaction was accepted");
}

#[test]
fn parts_that_are_left_keep_order() {
    let mut parts = Parts::new([0..2, 2..3, 3..5]);
    for _ in 0..2 {
        let part = parts.pop(usize::MAX, |_| 0).unwrap();
        parts.reject(part, Error::not_sent(ErrorKind::Store, "not this one"));
    }
    // Job 0 is behind all others now.
    let part = parts.pop(usize::MAX, |_| 0).unwrap();
    assert_eq!((part.range.clone(), parts.rest(part)), (1..2, vec![0, 1, 2, 3, 4]));
    assert!(parts.pop(usize::MAX, |_| 0).is_none() && parts.rejected().is_empty());
}

#[test]
fn part_is_cut_by_number_and_by_statements() {
    let mut parts = Parts::new([0..500, 500..503]);
    let mut next =
        |most| parts.pop(most, |number| if number < 100 { 4 } else { 0 }).map(|part| (part.range, part.first));
    assert_eq!(next(usize::MAX), Some((0..STATEMENTS / 4, 0)));
    assert_eq!(next(7), Some((50..57, 0)), "the rest comes next");
    assert_eq!(next(usize::MAX), Some((57..500, 0)), "43 of these take statements of their own");
    assert_eq!(next(1), Some((500..501, 1)));
    let part = parts.pop(usize::MAX, |_| STATEMENTS + 1).unwrap();
    assert_eq!((part.range.clone(), parts.rest(part)), (501..502, vec![501, 502]), "one goes in any case");
}
