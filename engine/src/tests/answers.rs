//! An answer that is whole when it is heard: one decision says the same as the three that it stands for.

use std::collections::VecDeque;
use std::time::Duration;

use super::*;

/// Two engines go the same way; in one of them each answer is heard, finished and asked about one after the other.
fn same_in_one_decision(plan: Plan, endpoint: EndpointId, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let plan = Arc::new(plan);
    let (mut one, mut three) = (Bench::new(), Bench::new());
    let lanes = [&mut one, &mut three].map(|bench| bench.lane("acme", "acme", &plan));
    let mut under_way: VecDeque<[PermitKey; 2]> = VecDeque::new();
    let (mut granted, mut refused) = (0, 0);
    for _ in 0..2_000 {
        let now = one.now + Duration::from_millis(random.u64(0..40));
        one.advance_to(now);
        three.advance_to(now);
        if random.bool() {
            let ask = Ask { endpoint, immediate: true, ..ask(Tier::ALL[usize::from(random.u8(0..3))]) };
            match (one.submit(lanes[0], ask), three.submit(lanes[1], ask)) {
                (Answer::Granted(a), Answer::Granted(b)) => {
                    under_way.push_back([a, b]);
                    granted += 1;
                }
                (Answer::Refused(a), Answer::Refused(b)) => {
                    assert_eq!(a, b);
                    refused += 1;
                }
                other => panic!("they differ: {other:?}"),
            }
        } else if let Some([a, b]) = under_way.pop_front() {
            let heard = one.engine.answered_with(now, a, Feedback::Passed(None), &[], true);
            assert!(three.engine.on_response(now, b, Feedback::Passed(None), &[]).is_empty());
            three.engine.finished(now, b);
            assert_eq!(heard.headroom, three.engine.headroom(now, lanes[1], endpoint));
            assert!(heard.notices.is_empty());
        }
    }
    assert!(granted > 100 && refused > 100, "{granted} granted, {refused} refused");
    for [a, b] in under_way {
        one.engine.answered_with(one.now, a, Feedback::Passed(None), &[], true);
        three.engine.finished(three.now, b);
    }
    one.assert_clean();
    three.assert_clean();
}

#[test]
fn whole_answer_is_one_decision() {
    let own = || plan(vec![per_second("rate", 20), slots("slots", 4)]);
    for seed in 0..20 {
        same_in_one_decision(own(), NO_ENDPOINT, seed);
        same_in_one_decision(with_endpoint(own(), "search", per_second("search", 10)), EndpointId::at(0), seed);
        same_in_one_decision(with_shared(own(), vec![per_second("account", 15)], vec![]), NO_ENDPOINT, seed);
    }
}

#[test]
fn answer_states_how_long_it_took() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("rate", 100)]));
    for whole in [true, false] {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        let answered = bench.now + Duration::from_millis(70);
        bench.advance_to(answered);
        let heard = bench.engine.answered_with(answered, permit, Feedback::Passed(None), &[], whole);
        assert_eq!(heard.took, Duration::from_millis(70));
        assert!(heard.headroom.is_some());
        bench.engine.finished(answered, permit);
    }
    bench.assert_clean();
    let gone = bench.engine.answered_with(bench.now, Key::NONE, Feedback::Passed(None), &[], true);
    assert_eq!((gone.headroom, gone.took), (None, Duration::ZERO));
}
