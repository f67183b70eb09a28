//! Whether a request could go now: the answer is that of the request itself.

use super::*;
use crate::plan::NO_ENDPOINT;
use crate::tier::Tier;

/// Whether a request of this tier, to this endpoint, is told that it may go; and whether it may.
fn check_and_submit(bench: &mut Bench, lane: LaneKey, endpoint: EndpointId, tier: Tier) -> (bool, bool) {
    let told = bench.engine.check(bench.now, lane, endpoint, tier).unwrap().stop.is_none();
    let answer = bench.submit(lane, Ask { endpoint, immediate: true, ..ask(tier) });
    let Answer::Granted(permit) = answer else { return (told, false) };
    bench.engine.not_sent(bench.now, permit);
    (told, true)
}

#[test]
fn check_answers_as_the_request_would() {
    let (mut agreed, mut allowed) = (0, 0);
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bench = Bench::new();
        let own = plan(vec![per_second("own", 5), slots("slots", 4)]);
        let plan = with_shared(own, vec![per_second("account", 8)], vec![slots("vendor", 6)]);
        let plan = Arc::new(with_endpoint(plan, "export", slots("exports", 1)));
        let lanes: Vec<LaneKey> = (0..3).map(|n| bench.lane(&format!("t{n}"), &format!("a{}", n / 2), &plan)).collect();
        let mut under_way: Vec<PermitKey> = Vec::new();
        let mut waiters: Vec<WaiterKey> = Vec::new();
        for _ in 0..300 {
            let lane = lanes[random.usize(..lanes.len())];
            let endpoint = if random.bool() { EndpointId::at(0) } else { NO_ENDPOINT };
            match random.u32(..10) {
                0..4 => match bench.submit(lane, Ask { endpoint, ..ask(Tier::ALL[usize::from(random.u8(0..3))]) }) {
                    Answer::Granted(permit) => under_way.push(permit),
                    Answer::Wait { waiter, .. } => waiters.push(waiter),
                    Answer::Refused(_) => {}
                },
                4..6 if !under_way.is_empty() => {
                    let permit = under_way.swap_remove(random.usize(..under_way.len()));
                    bench.engine.finished(bench.now, permit);
                }
                6..8 => {
                    let later = bench.now + std::time::Duration::from_millis(random.u64(1..200));
                    bench.advance_to(later);
                }
                _ => {
                    let (told, is) =
                        check_and_submit(&mut bench, lane, endpoint, Tier::ALL[usize::from(random.u8(0..3))]);
                    assert_eq!(told, is, "seed {seed}");
                    agreed += 1;
                    allowed += u32::from(is);
                }
            }
            under_way.extend(bench.start_granted(&mut waiters));
        }
    }
    assert!(agreed > 5_000 && allowed > 500 && agreed - allowed > 500, "{allowed} of {agreed}");
}

#[test]
fn check_takes_nothing_and_states_headroom() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("second", 10), slots("slots", 2)]));
    for _ in 0..1_000 {
        assert!(bench.engine.check(bench.now, lane, NO_ENDPOINT, Tier::High).unwrap().stop.is_none());
    }
    let left = bench.engine.check(bench.now, lane, NO_ENDPOINT, Tier::High).unwrap().left.unwrap();
    assert_eq!((&*left.name, left.limit, left.remaining, left.full), ("second", 10, 10, Some(bench.now)));
    let first = bench.submit_granted(lane, ask(Tier::High));
    let check = bench.engine.check(bench.now, lane, NO_ENDPOINT, Tier::High).unwrap();
    let left = check.left.unwrap();
    assert_eq!((&*left.name, left.limit, left.remaining, left.full), ("slots", 2, 1, None), "until it ends");
    bench.submit_granted(lane, ask(Tier::High));
    bench.submit_waiting(lane, ask(Tier::High));
    let check = bench.engine.check(bench.now, lane, NO_ENDPOINT, Tier::High).unwrap();
    let (reason, until) = check.stop.unwrap();
    assert_eq!((check.pending, reason.limit.as_deref()), (1, Some("slots")));
    assert!(matches!(until, Until::OnSettle(_) | Until::Turn(_)), "{until:?}");
    bench.engine.finished(bench.now, first);
}
