//! What the vendor's answers change.

use super::super::pushback::Feedback;
use super::super::throttle::{Mode, Notice, Report, Wait};
use super::*;
use crate::limit::BlockedBy;
use crate::plan::{Counting, EndpointId, Pace};

const PACE: Pace =
    Pace { unit_ns: 12_500_000, limit: 100, window_ns: SECOND, counting: Counting::Windows, mode: Mode::Bands };

/// 100 a second, 80 of them ours.
fn bench() -> (Bench, LaneKey) {
    Bench::with(paced(PACE, Plan { has_slots: false, ..plan(vec![per_second("requests", 100)]) }))
}

fn refusal_for(seconds: u64) -> Feedback {
    Feedback::Refused(Wait::Stated(seconds * SECOND), None)
}

fn passed_with_left(remaining: u64) -> Feedback {
    Feedback::Passed(Some(Report { limit: 100, remaining, reset_ns: Some(SECOND), ..Report::default() }))
}

impl Bench {
    pub(super) fn on_response(&mut self, permit: PermitKey, word: Feedback) -> Option<Notice> {
        self.notices_on_response(permit, word).first().map(|noticed| noticed.notice)
    }

    pub(super) fn notices_on_response(&mut self, permit: PermitKey, word: Feedback) -> Vec<Noticed> {
        let notices = self.engine.on_response(self.now, permit, word, &[]);
        self.engine.answered(self.now, permit);
        self.engine.finished(self.now, permit);
        notices
    }

    pub(super) fn advance_to(&mut self, time: Time) {
        while let Some(due) = self.engine.poll_timeout().filter(|due| *due <= time) {
            self.now = due;
            self.engine.poll(due);
        }
        self.now = time;
    }

    /// Those of `waiters` that can start now, and their permits.
    pub(super) fn start_granted(&mut self, waiters: &mut Vec<WaiterKey>) -> Vec<PermitKey> {
        let (mut started, now) = (Vec::new(), self.now);
        let engine = &mut self.engine;
        waiters.retain(|waiter| match engine.claim(now, *waiter) {
            Claim::Started(permit, _) => {
                started.push(permit);
                false
            }
            _ => true,
        });
        started
    }
}

#[test]
fn stated_refusal_pauses_then_admits_one_probe() {
    let (mut bench, lane) = bench();
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let start = bench.now;
    let until = start + std::time::Duration::from_secs(7);
    assert_eq!(bench.on_response(permit, refusal_for(7)), Some(Notice::Exhausted { until }));
    let mut waiters: Vec<WaiterKey> = (0..10).map(|_| bench.submit_waiting(lane, ask(Tier::High)).0).collect();

    bench.advance_to(until.minus_nanos(1));
    assert!(bench.start_granted(&mut waiters).is_empty(), "early");
    bench.advance_to(until);
    let probe = bench.start_granted(&mut waiters);
    assert_eq!(probe.len(), 1, "one goes alone");
    bench.advance_to(until + std::time::Duration::from_secs(3));
    assert!(bench.start_granted(&mut waiters).is_empty(), "until it is known how it went");

    assert_eq!(bench.on_response(probe[0], Feedback::Passed(None)), Some(Notice::Recovered));
    assert_eq!(bench.start_granted(&mut waiters).len(), 1, "the rate grows from a tenth");
    bench.advance_to(bench.now + std::time::Duration::from_millis(2_000));
    while !waiters.is_empty() {
        bench.advance_to(bench.now + std::time::Duration::from_millis(5));
        for permit in bench.start_granted(&mut waiters) {
            bench.on_response(permit, Feedback::Passed(None));
        }
    }
}

#[test]
fn unstated_waits_double_at_each_refusal() {
    let (mut bench, lane) = bench();
    let mut waits = Vec::new();
    for _ in 0..7 {
        let mut waiter = match bench.submit(lane, ask(Tier::High)) {
            Answer::Granted(permit) => {
                bench.on_response(permit, Feedback::Refused(Wait::Guess { most: 10 * SECOND }, None));
                vec![bench.submit_waiting(lane, ask(Tier::High)).0]
            }
            Answer::Wait { waiter, .. } => vec![waiter],
            other => panic!("{other:?}"),
        };
        let from = bench.now;
        let permit = loop {
            let due = bench.engine.poll_timeout().unwrap();
            bench.advance_to(due);
            if let [permit] = bench.start_granted(&mut waiter)[..] {
                break permit;
            }
        };
        waits.push(bench.now.since(from).as_millis());
        bench.on_response(permit, Feedback::Refused(Wait::Guess { most: 10 * SECOND }, None));
    }
    assert_eq!(waits, [250, 500, 1_000, 2_000, 4_000, 8_000, 10_000]);
}

/// One closed connection ends many exchanges at once; the fifth in a row pauses the lane.
#[test]
fn closed_connection_counts_as_one_failure() {
    let (mut bench, lane) = bench();
    for connection in 1..=5 {
        let permits: Vec<PermitKey> = (0..8).map(|_| bench.submit_granted(lane, ask(Tier::High))).collect();
        bench.advance_to(bench.now + std::time::Duration::from_millis(1));
        let notices: Vec<_> = permits.into_iter().map(|permit| bench.on_response(permit, Feedback::Disowned)).collect();
        let pauses = notices.iter().flatten().count();
        assert_eq!(pauses, usize::from(connection == 5), "connection {connection}: {notices:?}");
        bench.advance_to(bench.now + std::time::Duration::from_millis(1));
    }
    assert!(bench.engine.paused_until(bench.now, lane).is_some());
}

#[test]
fn poisoned_endpoint_stays_alone() {
    let plan = with_endpoint(plan(vec![per_second("requests", 100)]), "good", slots("good", 1_000));
    let plan = with_endpoint(plan, "poisoned", slots("poisoned", 1_000));
    let (mut bench, lane) = Bench::with(paced(PACE, plan));
    let to = |endpoint: EndpointId| Ask { endpoint, ..ask(Tier::High) };
    let permit = bench.submit_granted(lane, to(EndpointId::at(1)));
    bench.on_response(permit, refusal_for(2));
    let mut poisoned: Vec<WaiterKey> = (0..50).map(|_| bench.submit_waiting(lane, to(EndpointId::at(1))).0).collect();
    let mut good: Vec<WaiterKey> = Vec::new();
    let (start, mut sent, mut hits) = (bench.now, 0, 0);
    while bench.now < start + std::time::Duration::from_secs(62) {
        while good.len() < 20 {
            match bench.submit(lane, to(EndpointId::at(0))) {
                Answer::Granted(permit) => {
                    bench.on_response(permit, Feedback::Passed(None));
                    sent += 1;
                }
                Answer::Wait { waiter, .. } => good.push(waiter),
                other => panic!("{other:?}"),
            }
        }
        let next = bench.engine.poll_timeout().unwrap();
        bench.advance_to(next);
        for permit in bench.start_granted(&mut good) {
            sent += 1;
            bench.on_response(permit, Feedback::Passed(None));
        }
        for permit in bench.start_granted(&mut poisoned) {
            hits += 1;
            bench.on_response(permit, refusal_for(2));
        }
    }
    // 80 a second for the 60 s after the pause of the whole lane.
    assert!(sent as f64 >= 0.95 * 80.0 * 60.0, "{sent}");
    assert!((20..=31).contains(&hits), "{hits}");
}

#[test]
fn low_headroom_spaces_grants_out() {
    for (remaining, spacing_us) in [(29, 16_666), (19, 25_000), (9, 50_000)] {
        let (mut bench, lane) = bench();
        let permit = bench.submit_granted(lane, ask(Tier::High));
        let notice = bench.on_response(permit, passed_with_left(remaining));
        assert!(
            matches!(notice, Some(Notice::Slower { remaining_pct, .. }) if remaining_pct == remaining),
            "{notice:?}"
        );
        bench.submit_granted(lane, ask(Tier::High));
        let (waiter, until) = bench.submit_waiting(lane, ask(Tier::High));
        let Until::At(at) = until else { panic!("{until:?}") };
        assert_eq!(at.since(bench.now).as_micros(), spacing_us);
        let reason = bench.engine.waiters[waiter].reason.clone();
        assert_eq!(reason.lack, Some(BlockedBy::Throttled));
    }
}

#[test]
fn exhausted_lane_waits_past_the_reset() {
    for (window, reset, millis) in [(60, 7, 7_500), (60, 0, 1_000), (1, 1, 1_050), (1, 0, 100)] {
        let pace = Pace { window_ns: window * SECOND, ..PACE };
        let (mut bench, lane) =
            Bench::with(paced(pace, Plan { has_slots: false, ..plan(vec![per_second("requests", 100)]) }));
        let permit = bench.submit_granted(lane, ask(Tier::High));
        let until = bench.now + std::time::Duration::from_millis(millis);
        let none = Report { limit: 100, remaining: 0, reset_ns: Some(reset * SECOND), ..Report::default() };
        assert_eq!(bench.on_response(permit, Feedback::Passed(Some(none))), Some(Notice::Exhausted { until }));
        assert_eq!(bench.submit_waiting(lane, ask(Tier::High)).1, Until::At(until));
    }
}

#[test]
fn refilled_units_are_spent_one_by_one() {
    let pace = Pace { counting: Counting::Bucket, ..PACE };
    let (mut bench, lane) =
        Bench::with(paced(pace, Plan { has_slots: false, ..plan(vec![per_second("requests", 100)]) }));
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let none = Report { limit: 100, remaining: 0, reset_ns: Some(SECOND), ..Report::default() };
    bench.on_response(permit, Feedback::Passed(Some(none)));
    let mut waiters: Vec<WaiterKey> = (0..20).map(|_| bench.submit_waiting(lane, ask(Tier::High)).0).collect();
    bench.advance_to(bench.now + std::time::Duration::from_millis(55));
    let sent = bench.start_granted(&mut waiters).len();
    assert!(sent <= 5, "{sent} of the five that came back in 55 ms");
}

/// One a millisecond for so long, from the lane's waiters.
fn send_each_millisecond(bench: &mut Bench, lane: LaneKey, millis: u64, word: impl Fn() -> Feedback) -> u32 {
    let mut waiters: Vec<WaiterKey> = Vec::new();
    let mut sent = 0;
    for _ in 0..millis {
        if waiters.is_empty() {
            match bench.submit(lane, ask(Tier::High)) {
                Answer::Granted(permit) => {
                    bench.on_response(permit, word());
                    sent += 1;
                }
                Answer::Wait { waiter, .. } => waiters.push(waiter),
                other => panic!("{other:?}"),
            }
        }
        bench.advance_to(bench.now + std::time::Duration::from_millis(1));
        for permit in bench.start_granted(&mut waiters) {
            bench.on_response(permit, word());
            sent += 1;
        }
    }
    for waiter in waiters {
        bench.engine.cancel(bench.now, waiter);
    }
    sent
}

#[test]
fn cut_rate_stays_during_a_pause() {
    let guess = || Feedback::Refused(Wait::Guess { most: 60 * SECOND }, None);
    let (mut bench, lane) = bench();
    let sent = send_each_millisecond(&mut bench, lane, 2_000, || Feedback::Passed(None));
    assert!(sent >= 150, "{sent}");
    // One is refused, and after pauses of 0.5, 1, 2 and 4 s those that go alone. Then one of 8.
    for round in 0..5 {
        let mut waiters = vec![bench.submit_waiting(lane, ask(Tier::High)).0];
        let permit = loop {
            let due = bench.engine.poll_timeout().unwrap();
            bench.advance_to(due);
            if let [permit] = bench.start_granted(&mut waiters)[..] {
                break permit;
            }
        };
        let cut = matches!(bench.on_response(permit, guess()), Some(Notice::Yielded { .. }));
        assert_eq!(cut, round == 0, "{round}");
    }
    bench.advance_to(bench.now + std::time::Duration::from_secs(16));
    // The one refusal may have been an accident: after a window all is tried again.
    let sent = [1_000, 1_000].map(|ms| send_each_millisecond(&mut bench, lane, ms, || Feedback::Passed(None)));
    assert!((52..=62).contains(&sent[0]), "{sent:?}: between half of the 80 that did pass and all of them");
    assert!(sent[1] >= 78, "{sent:?}");
}

#[test]
fn wrong_cut_is_undone_for_the_others() {
    let plan = with_endpoint(plan(vec![per_second("requests", 100)]), "poisoned", slots("poisoned", 1_000));
    let (mut bench, lane) = Bench::with(paced(PACE, plan));
    let guess = || Feedback::Refused(Wait::Guess { most: 2 * SECOND }, None);
    // A limit that is hardly used is not cut by one refusal.
    for _ in 0..50 {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.on_response(permit, Feedback::Passed(None));
        bench.advance_to(bench.now + std::time::Duration::from_millis(20));
    }
    let permit = bench.submit_granted(lane, Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) });
    let heard = bench.on_response(permit, guess());
    assert!(matches!(heard, Some(Notice::Yielded { .. })), "{heard:?}");
    bench.advance_to(bench.now + std::time::Duration::from_secs(1));
    // Another goes alone and passes, then the endpoint is tried for itself.
    let slow = send_each_millisecond(&mut bench, lane, 500, || Feedback::Passed(None));
    assert!(slow <= 23, "{slow}");
    let mut waiters = vec![bench.submit_waiting(lane, Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) }).0];
    while waiters.len() == 1 {
        let due = bench.engine.poll_timeout().unwrap();
        bench.advance_to(due);
        for permit in bench.start_granted(&mut waiters) {
            bench.on_response(permit, guess());
        }
    }
    let sent = send_each_millisecond(&mut bench, lane, 300, || Feedback::Passed(None));
    assert!(sent >= 23, "{sent}");
}

#[test]
fn scarcity_delays_low_tier_not_forever() {
    let (mut bench, lane) = bench();
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(
        permit,
        Feedback::Passed(Some(Report { limit: 100, remaining: 4, reset_ns: Some(600 * SECOND), ..Report::default() })),
    );
    let first = bench.submit_granted(lane, ask(Tier::Low));
    bench.advance_to(bench.now + std::time::Duration::from_millis(200));
    let (_, until) = bench.submit_waiting(lane, ask(Tier::Low));
    assert_eq!(until, Until::At(second_after_grant(&bench, first)));
    bench.submit_granted(lane, ask(Tier::High));
}

fn second_after_grant(bench: &Bench, permit: PermitKey) -> Time {
    bench.engine.permits[permit].granted() + std::time::Duration::from_secs(1)
}

#[test]
fn endpoint_limit_holds_up_no_other_endpoint() {
    let plan = with_endpoint(plan(vec![per_second("requests", 100)]), "small", per_second("small", 10));
    let mut plan = paced(PACE, plan);
    plan.own[1].pace.limit = 10;
    let (mut bench, lane) = Bench::with(plan);
    let permit = bench.submit_granted(lane, Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) });
    let nothing = Report { limit: 10, remaining: 0, reset_ns: Some(600 * SECOND), ..Report::default() };
    bench.on_response(permit, Feedback::Refused(Wait::Stated(SECOND), Some(nothing)));
    bench.submit_granted(lane, ask(Tier::High));
    bench.submit_waiting(lane, Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) });
}

#[test]
fn failure_takes_back_no_unclaimed_grant() {
    let (mut bench, lane) = Bench::with(paced(PACE, plan(vec![slots("slots", 2)])));
    let (first, second) = (bench.submit_granted(lane, ask(Tier::High)), bench.submit_granted(lane, ask(Tier::High)));
    let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
    bench.engine.finished(bench.now, first);
    assert!(matches!(bench.engine.waiters[waiter].state, waiting::WaiterState::Granted(_)));
    bench.on_response(second, Feedback::Failed);
    assert!(matches!(bench.engine.waiters[waiter].state, waiting::WaiterState::Granted(_)));
}

#[test]
fn operator_pause_keeps_the_vendors_pause() {
    let (mut bench, lane) = bench();
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.engine.pause(bench.now, lane);
    bench.on_response(permit, refusal_for(30));
    let until = bench.now + std::time::Duration::from_secs(30);
    let (_, waits) = bench.submit_waiting(lane, ask(Tier::High));
    assert_eq!(waits, Until::OnSettle(Time::MAX));
    assert_eq!(bench.engine.lanes[lane].own.as_slice()[0].throttle().unwrap().paused_until(EndpointHash::NONE), until);
}

#[test]
fn overtaken_report_is_ignored() {
    let (mut bench, lane) = bench();
    let older = bench.submit_granted(lane, ask(Tier::High));
    bench.now = bench.now + std::time::Duration::from_millis(1);
    let newer = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(newer, passed_with_left(29));
    assert_eq!(bench.on_response(older, passed_with_left(0)), None);
    assert!(matches!(bench.submit(lane, ask(Tier::High)), Answer::Granted(_)));
}

#[test]
fn caller_with_short_deadline_is_refused_early() {
    let (mut bench, lane) = bench();
    let start = bench.now;
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let give_up = |seconds| Ask { give_up: start + std::time::Duration::from_secs(seconds), ..ask(Tier::High) };
    let probe = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(permit, refusal_for(1));
    let (short, long) = (bench.submit_waiting(lane, give_up(20)).0, bench.submit_waiting(lane, give_up(2_000)).0);
    bench.on_response(probe, refusal_for(30));
    let at = start + std::time::Duration::from_secs(30);
    assert!(
        matches!(bench.engine.claim(bench.now, short), Claim::Refused(Refusal::RetryLater { at: told }) if told == at)
    );
    assert!(matches!(bench.engine.claim(bench.now, long), Claim::Waiting));
    assert!(matches!(bench.submit(lane, give_up(20)), Answer::Refused(Refusal::RetryLater { .. })));

    bench.advance_to(at);
    let Claim::Started(permit, _) = bench.engine.claim(bench.now, long) else { panic!() };
    bench.on_response(permit, refusal_for(3_000));
    assert!(
        matches!(bench.submit(lane, ask(Tier::High)), Answer::Refused(Refusal::RetryLater { .. })),
        "beyond max_hold"
    );
}

#[test]
fn abandoned_probe_is_followed_by_another() {
    let (mut bench, lane) = bench();
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(permit, refusal_for(1));
    let mut waiters: Vec<WaiterKey> = (0..3).map(|_| bench.submit_waiting(lane, ask(Tier::High)).0).collect();
    bench.advance_to(bench.now + std::time::Duration::from_secs(1));
    let probe = bench.start_granted(&mut waiters);
    bench.engine.not_sent(bench.now, probe[0]);
    assert_eq!(bench.start_granted(&mut waiters).len(), 1);
    assert!(bench.start_granted(&mut waiters).is_empty());
}

#[test]
fn operator_pause_holds_until_resumed() {
    let (mut bench, lane) = bench();
    bench.engine.pause(bench.now, lane);
    assert_eq!(bench.engine.paused_until(bench.now, lane), Some(Time::MAX));
    let mut waiters = vec![bench.submit_waiting(lane, ask(Tier::High)).0];
    bench.advance_to(bench.now + std::time::Duration::from_secs(100_000));
    assert!(bench.start_granted(&mut waiters).is_empty());
    bench.engine.resume(bench.now, lane);
    assert_eq!(bench.start_granted(&mut waiters).len(), 1);
    assert_eq!(bench.engine.paused_until(bench.now, lane), None);
}

#[test]
fn stated_time_is_never_undercut() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut refusals = 0_u32;
    let mut latest = 0;
    // A million take a minute: REFUSALS=1000000.
    let wanted = std::env::var("REFUSALS").ok().and_then(|text| text.parse().ok()).unwrap_or(50_000);
    while refusals < wanted {
        let (mut bench, lane) = bench();
        let mut not_before = Time::ZERO;
        let mut waiters: Vec<WaiterKey> = Vec::new();
        let mut flying: Vec<PermitKey> = Vec::new();
        for _ in 0..200 {
            match bench.submit(
                lane,
                Ask {
                    tier: Tier::ALL[usize::from(random.u8(0..3))],
                    attempt: Attempt::within(u64::MAX),
                    ..ask(Tier::High)
                },
            ) {
                Answer::Granted(permit) => {
                    assert!(bench.now >= not_before);
                    flying.push(permit);
                }
                Answer::Wait { waiter, .. } => waiters.push(waiter),
                Answer::Refused(Refusal::RetryLater { at }) => assert!(at.since(bench.now).as_secs() >= 900),
                other => panic!("{other:?}"),
            }
            if random.u8(0..4) == 0
                && let Some(due) = bench.engine.poll_timeout()
            {
                let late = random.u64(0..2_000_000);
                bench.advance_to(due.plus_nanos(late));
            }
            let started = bench.start_granted(&mut waiters);
            assert!(started.is_empty() || bench.now >= not_before, "{refusals}");
            if !started.is_empty() && not_before > Time::ZERO {
                latest = latest.max(1);
            }
            flying.extend(started);
            while flying.len() > random.usize(0..4) {
                let permit = flying.swap_remove(random.usize(0..flying.len()));
                if random.bool() {
                    let wait = match random.u8(0..8) {
                        0 => u64::MAX,
                        1 => 0,
                        _ => random.u64(0..100 * SECOND),
                    };
                    refusals += 1;
                    bench.on_response(permit, Feedback::Refused(Wait::Stated(wait), None));
                    not_before = not_before.max(bench.now.plus_nanos(wait));
                } else {
                    bench.on_response(permit, Feedback::Passed(None));
                }
            }
        }
    }
    assert!(latest > 0, "something went on after a refusal");
}

/// What was under way when a lane is left alone fails by the same cause, and makes the next pause no longer.
#[test]
fn failures_under_way_lengthen_no_pause() {
    let (mut bench, lane) = Bench::with(paced(PACE, plan(vec![slots("slots", 20)])));
    let under_way: Vec<PermitKey> = (0..20).map(|_| bench.submit_granted(lane, ask(Tier::High))).collect();
    for permit in under_way {
        bench.on_response(permit, Feedback::Failed);
    }
    let seconds = std::time::Duration::from_secs;
    assert_eq!(bench.engine.paused_until(bench.now, lane), Some(bench.now + seconds(1)));
    let mut probe = vec![bench.submit_waiting(lane, ask(Tier::High)).0];
    bench.advance_to(bench.now + seconds(1));
    let probe = bench.start_granted(&mut probe);
    bench.on_response(probe[0], Feedback::Failed);
    assert_eq!(
        bench.engine.paused_until(bench.now, lane),
        Some(bench.now + seconds(2)),
        "twice as long, not thirty seconds"
    );
}
