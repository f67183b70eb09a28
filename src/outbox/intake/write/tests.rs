use super::*;
use crate::store::{Id, LaneTier};

fn jobs(sizes: &[usize]) -> Vec<NewJob> {
    let lane = LaneTier { tenant: "acme".into(), vendor: "v".into(), tier: 1 };
    let job = |size: &usize| NewJob {
        id: Id::nil(),
        lane: lane.clone(),
        delay_ms: 0,
        expires_ms: None,
        checked_at: Time::ZERO,
        keep_result: false,
        request: vec![0; *size],
        key: None,
        other_key: None,
        message: None,
    };
    sizes.iter().map(job).collect()
}

#[test]
fn held_job_expires_at_the_same_moment() {
    let after = |micros| Time::ZERO + Duration::from_micros(micros);
    let job = NewJob { expires_ms: Some(2_000), ..jobs(&[1]).remove(0) };
    let held = (1..=10).fold(job, |job, times| job.aged_to(after(150_700 * times)));
    assert_eq!(held.expires_ms, Some(493), "1.507 s of 2 s have passed, whatever the number of steps");
    assert_eq!(held.aged_to(after(9_000_000)).expires_ms, Some(0));
}

#[test]
fn message_is_held_for_half_of_the_time_of_ids_of_messages_behind_it() {
    let message = |place: usize| {
        let message = MessageRef { id: format!("0:{place}"), delivery: 0 };
        let mut good = CheckedMessage::new(message, 1, 0, jobs(&[1]).remove(0));
        good.progress.place = place;
        good
    };
    let day = |days: u32| Time::ZERO + days * Duration::from_secs(86_400);
    let week = Duration::from_secs(7 * 86_400);
    let mut held = VecDeque::from([message(1), message(3)]);
    let late = |held: &VecDeque<CheckedMessage>, now| -> Vec<Option<Error>> {
        held.iter().map(|good| held_too_long(good, true, now, week)).collect()
    };
    mark_overtaken(&mut held, None, day(1));
    mark_overtaken(&mut held, Some(0), day(1));
    assert!(late(&held, day(30)).iter().all(Option::is_none), "nothing behind them was accepted");
    mark_overtaken(&mut held, Some(2), day(2));
    mark_overtaken(&mut held, Some(4), day(5));
    assert!(late(&held, day(2) + week / 2).iter().all(Option::is_none));
    let errors = late(&held, day(6));
    let (error, newer) = (errors[0].as_ref().unwrap(), &errors[1]);
    assert!(newer.is_none() && error.kind() == ErrorKind::QueueFull && error.tenant() == Some("acme"), "{error}");
    assert!(
        error.to_string().contains("0:1 had no room, and messages behind it were accepted 302400 s ago"),
        "{error}"
    );
    assert!(error.to_string().contains("the backlog of its lane"), "{error}");
    let error = held_too_long(&held[0], false, day(6), week).unwrap();
    assert!(error.to_string().contains("the outbox (`max_backlog`) is full"), "{error}");
}

#[test]
fn transaction_ends_by_number_and_by_bytes() {
    let large = jobs(&[1 << 20; 20]);
    assert_eq!((end_of_step(&large, 0), end_of_step(&large, 8), end_of_step(&large, 16)), (8, 16, 20));
    assert_eq!(end_of_step(&jobs(&[BYTES_TOGETHER + 1, 1]), 0), 1, "a job that is larger goes alone");
    let small = jobs(&[10; TOGETHER + 5]);
    assert_eq!((end_of_step(&small, 0), end_of_step(&small, TOGETHER)), (TOGETHER, TOGETHER + 5));
}
