//! Shares of the tiers, turns of the lanes, order inside a queue.

use super::*;
use crate::plan::{Counting, Pace};
use crate::throttle::{Mode, Report};
use crate::tier::Tier;

/// Sends requests that are granted at once, and that end at once.
fn send(bench: &mut Bench, lane: LaneKey, tier: Tier, requests: usize) {
    for _ in 0..requests {
        let permit = bench.submit_granted(lane, ask(tier));
        bench.engine.finished(bench.now, permit);
    }
}

/// Grants, in order, as indexes into `waiters`.
fn order(grants: &[(Time, WaiterKey)], waiters: &[WaiterKey]) -> Vec<usize> {
    grants.iter().map(|(_, waiter)| waiters.iter().position(|other| other == waiter).unwrap()).collect()
}

#[test]
fn busy_lane_holds_60_30_10() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 100)]));
    let mut tiers = std::collections::HashMap::new();
    // High empties the bucket: if a lower tier did, its share would be used up, and high alone would go in this second.
    send(&mut bench, lane, Tier::High, 80);
    for n in 0..3000u32 {
        let tier = Tier::ALL[(n % 3) as usize];
        tiers.insert(bench.submit_waiting(lane, ask(tier)).0, tier);
    }
    let until = bench.now + std::time::Duration::from_secs(20);
    let grants = bench.serve(until, 20_000_000);
    assert!(grants.len() > 1400, "{}", grants.len());
    let grants: Vec<Tier> = grants.iter().map(|(_, waiter)| tiers[waiter]).collect();
    for window in grants[..1400].windows(100) {
        let count = |tier: Tier| window.iter().filter(|other| **other == tier).count() as i64;
        assert!(
            (count(Tier::High) - 60).abs() <= 1
                && (count(Tier::Normal) - 30).abs() <= 1
                && (count(Tier::Low) - 10).abs() <= 1
        );
    }
}

/// Everybody always waits, in all tiers of six lanes in two accounts: the shares of each lane's tiers, in percent.
fn shares_of_each_lane(plan: Plan) -> Vec<[u32; 3]> {
    let (mut bench, plan) = (Bench::new(), Arc::new(plan));
    let lanes: Vec<LaneKey> =
        (0..6).map(|n| bench.lane(&format!("lane{n}"), &format!("account{}", n % 2), &plan)).collect();
    let (mut who, mut counts) = (std::collections::HashMap::new(), [[0u32; 3]; 6]);
    let mut again: Vec<(usize, Tier)> = (0..6).flat_map(|lane| (0..9).map(move |n| (lane, Tier::ALL[n % 3]))).collect();
    for _ in 0..60_000 {
        for (lane, tier) in again.drain(..) {
            if let Answer::Wait { waiter, .. } = bench.submit(lanes[lane], ask(tier)) {
                who.insert(waiter, (lane, tier));
            }
        }
        let Some(due) = bench.engine.poll_timeout() else { break };
        bench.now = due;
        bench.engine.poll(due);
        for waiter in bench.engine.woken().collect::<Vec<_>>() {
            let Claim::Started(permit, _) = bench.engine.claim(due, waiter) else { continue };
            bench.engine.finished(due, permit);
            let (lane, tier) = who.remove(&waiter).unwrap();
            counts[lane][tier.index()] += 1;
            again.push((lane, tier));
        }
    }
    let all = |count: &[u32; 3]| count.iter().sum::<u32>().max(1);
    counts.iter().map(|count| count.map(|tier| (tier * 1_000 / all(count)).div_ceil(10))).collect()
}

#[test]
fn lane_below_shared_limit_holds_60_30_10() {
    let own = || plan(vec![bucket("own", 1, 10.0)]);
    let vendor = || vec![bucket("vendor", 100, 10_000.0)];
    let account = || vec![bucket("account", 1, 20.0)];
    for (what, plan) in [
        ("own", with_shared(own(), vec![], vendor())),
        ("own, account", with_shared(own(), vec![bucket("account", 100, 1_000.0)], vendor())),
        ("account", with_shared(plan(vec![]), account(), vendor())),
        ("account, own", with_shared(own(), account(), vendor())),
        ("vendor", with_shared(own(), account(), vec![bucket("vendor", 1, 25.0)])),
    ] {
        let shares = shares_of_each_lane(plan);
        let fair = |share: &[u32; 3]| (57..=63).contains(&share[0]) && (8..=12).contains(&share[2]);
        assert!(shares.iter().all(fair), "{what}: {shares:?}");
    }
}

#[test]
fn unused_share_is_lent_at_once() {
    let (mut bench, lane) = Bench::with(plan(vec![bucket("requests", 1, 100.0)]));
    bench.submit_granted(lane, ask(Tier::Low));
    for _ in 0..200 {
        let _ = bench.submit_waiting(lane, ask(Tier::Low));
    }
    let until = bench.now + std::time::Duration::from_secs(1);
    assert_eq!(bench.serve(until, 0).len(), 100, "low alone has everything");
}

#[test]
fn retries_precede_first_attempts_in_order() {
    let (mut bench, lane) = Bench::with(plan(vec![bucket("requests", 1, 100.0)]));
    bench.submit_granted(lane, ask(Tier::High));
    let retry = Ask { retry: true, ..ask(Tier::High) };
    let asks = [ask(Tier::High), ask(Tier::High), retry, retry, ask(Tier::High)];
    let waiters: Vec<WaiterKey> = asks.into_iter().map(|ask| bench.submit_waiting(lane, ask).0).collect();
    let until = bench.now + std::time::Duration::from_secs(1);
    let grants = bench.serve(until, 0);
    assert_eq!(order(&grants, &waiters), [2, 3, 0, 1, 4]);
}

#[test]
fn lanes_take_turns_by_weight() {
    let shared = vec![bucket("account", 1, 1000.0)];
    let mut bench = Bench::new();
    let light = Arc::new(with_shared(plan(vec![]), shared.clone(), vec![]));
    let heavy = Arc::new(Plan { weight: 3, ..with_shared(plan(vec![]), shared, vec![]) });
    let lanes = [bench.lane("a", "x", &light), bench.lane("b", "x", &heavy), bench.lane("c", "x", &light)];
    bench.submit_granted(lanes[0], ask(Tier::Normal));
    let mut owner = std::collections::HashMap::new();
    for (number, lane) in lanes.into_iter().enumerate() {
        for _ in 0..1000 {
            let _ = owner.insert(bench.submit_waiting(lane, ask(Tier::Normal)).0, number);
        }
    }
    let until = bench.now + std::time::Duration::from_secs(1);
    let grants = bench.serve(until, 0);
    let count = |number| grants.iter().filter(|(_, waiter)| owner[waiter] == number).count() as i64;
    assert!((count(0) - 200).abs() <= 2 && (count(1) - 600).abs() <= 2 && (count(2) - 200).abs() <= 2);
}

#[test]
fn blocked_lane_reserves_no_shared_unit() {
    let mut bench = Bench::new();
    let slow = Arc::new(with_shared(plan(vec![bucket("own", 1, 1.0)]), vec![], vec![bucket("vendor", 1, 100.0)]));
    let fast = Arc::new(with_shared(plan(vec![bucket("own", 100, 100.0)]), vec![], vec![bucket("vendor", 1, 100.0)]));
    let (a, b) = (bench.lane("a", "a", &slow), bench.lane("b", "b", &fast));
    bench.submit_granted(a, ask(Tier::High));
    for _ in 0..50 {
        let _ = bench.submit_waiting(a, ask(Tier::High));
    }
    let mut of_b = std::collections::HashSet::new();
    for _ in 0..200 {
        let _ = of_b.insert(bench.submit_waiting(b, ask(Tier::Low)).0);
    }
    let until = bench.now + std::time::Duration::from_secs(1);
    let grants = bench.serve(until, 0);
    let b_grants = grants.iter().filter(|(_, waiter)| of_b.contains(waiter)).count();
    assert!(b_grants >= 98, "{b_grants} of about 99");
}

#[test]
fn blocked_endpoint_blocks_no_other() {
    let whole = plan(vec![bucket("requests", 10, 100.0)]);
    let plan =
        with_endpoint(with_endpoint(whole, "search", bucket("search", 1, 1.0)), "users", bucket("users", 10, 100.0));
    let (mut bench, lane) = Bench::with(plan);
    bench.submit_granted(lane, Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) });
    let stuck: Vec<WaiterKey> =
        (0..20).map(|_| bench.submit_waiting(lane, Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) }).0).collect();
    let mut granted = 0;
    for _ in 0..100 {
        bench.now = bench.now + std::time::Duration::from_millis(10);
        bench.engine.poll(bench.now);
        if let Answer::Granted(permit) = bench.submit(lane, Ask { endpoint: EndpointId::at(1), ..ask(Tier::Low) }) {
            bench.engine.finished(bench.now, permit);
            granted += 1;
        }
    }
    assert_eq!(granted, 100);
    assert!(stuck.len() == 20);
}

#[test]
fn expensive_request_is_not_starved() {
    let (mut bench, lane) = Bench::with(plan(vec![bucket("points", 50, 10.0)]));
    bench.submit_granted(lane, Ask { cost: 50.into(), ..ask(Tier::Normal) });
    let mut cheap = Vec::new();
    (0..300).for_each(|_| cheap.push(bench.submit_waiting(lane, ask(Tier::High)).0));
    let (expensive, _) = bench.submit_waiting(lane, Ask { cost: 40.into(), ..ask(Tier::Low) });
    let until = bench.now + std::time::Duration::from_secs(60);
    let grants = bench.serve(until, 0);
    let at = grants.iter().position(|(_, waiter)| *waiter == expensive).expect("it is granted");
    assert!(at <= 8, "after {at} cheap ones");
}

#[test]
fn waiter_of_own_limit_reserves_nothing_shared() {
    let mut bench = Bench::new();
    let shared = || vec![bucket("vendor", 10, 10.0)];
    let poor = Arc::new(with_shared(plan(vec![bucket("own", 10, 1.0)]), vec![], shared()));
    let rich = Arc::new(with_shared(plan(vec![bucket("own", 10, 100.0)]), vec![], shared()));
    let (a, b) = (bench.lane("a", "a", &poor), bench.lane("b", "b", &rich));
    bench.submit_granted(a, Ask { cost: 10.into(), ..ask(Tier::High) });
    bench.submit_waiting(a, Ask { cost: 10.into(), ..ask(Tier::High) });
    for _ in 0..30 {
        let _ = bench.submit_waiting(b, ask(Tier::Low));
    }
    let until = bench.now + std::time::Duration::from_secs(2);
    assert_eq!(bench.serve(until, 0).len(), 20);
}

#[test]
fn low_cannot_black_out_high() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 100)]));
    for _ in 0..80 {
        bench.submit_granted(lane, ask(Tier::Low));
    }
    for _ in 0..100 {
        let _ = bench.submit_waiting(lane, ask(Tier::Low));
    }
    let until = bench.now + std::time::Duration::from_millis(300);
    assert_eq!(bench.serve(until, 0).len(), 0, "low may use 80 of 100 a second");
    let high: Vec<Answer> = (0..20).map(|_| bench.submit(lane, ask(Tier::High))).collect();
    let granted = high.iter().filter(|answer| matches!(answer, Answer::Granted(_))).count();
    assert_eq!(granted, 20, "the bucket has refilled 24, and the last 20 of the window are high's");
}

#[test]
fn lower_tier_at_its_share_holds_up_no_high_request() {
    for lower in [Tier::Normal, Tier::Low] {
        let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 100)]));
        send(&mut bench, lane, lower, 80);
        bench.submit_waiting(lane, ask(lower));
        assert_eq!(bench.serve(ms(300), 0).len(), 0, "its share of this second is used");
        for _ in 0..20 {
            bench.submit_granted(lane, ask(Tier::High));
        }
    }
}

/// The window is full for all tiers at first. The units of high are back half a window before those of normal.
#[test]
fn full_window_holds_up_high_until_its_units_are_back() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 100)]));
    send(&mut bench, lane, Tier::High, 20);
    bench.now = ms(500);
    send(&mut bench, lane, Tier::Normal, 80);
    let (_, until) = bench.submit_waiting(lane, ask(Tier::Normal));
    assert!(until.not_before() > ms(1_500), "{until:?}");
    let (high, _) = bench.submit_waiting(lane, ask(Tier::High));
    let grants = bench.serve(ms(1_100), 0);
    assert_eq!(order(&grants, &[high]), [0]);
    assert!(grants[0].0 < ms(1_002), "{grants:?}");
    send(&mut bench, lane, Tier::High, 19);
}

#[test]
fn reservation_ends_when_only_the_reserve_lacks() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 100)]));
    send(&mut bench, lane, Tier::High, 20);
    bench.now = ms(500);
    send(&mut bench, lane, Tier::Normal, 80);
    bench.submit_waiting(lane, ask(Tier::Normal));
    let (low, _) = bench.submit_waiting(lane, ask(Tier::Low));
    assert_eq!(bench.serve(ms(1_100), 0).len(), 0);
    // All that wait ask again.
    bench.engine.cancel(bench.now, low);
    for _ in 0..20 {
        bench.submit_granted(lane, ask(Tier::High));
    }
}

/// Little is left of the rate, so that low goes once a second. Low has reserved the slot when it is free.
#[test]
fn reservation_ends_when_its_tier_waits_for_scarce_units() {
    let pace =
        Pace { unit_ns: 12_500_000, limit: 100, window_ns: SECOND, counting: Counting::Windows, mode: Mode::Bands };
    let (mut bench, lane) = Bench::with(paced(pace, plan(vec![per_second("requests", 100), slots("slots", 1)])));
    let little = Report { limit: 100, remaining: 8, reset_ns: Some(SECOND), ..Report::default() };
    let first = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(first, Feedback::Passed(Some(little)));
    let second = bench.submit_granted(lane, ask(Tier::Low));
    bench.now = ms(200);
    let (low, _) = bench.submit_waiting(lane, ask(Tier::Low));
    let (high, _) = bench.submit_waiting(lane, ask(Tier::High));
    bench.on_response(second, Feedback::Passed(None));
    let mut waiters = vec![low, high];
    assert_eq!(bench.start_granted(&mut waiters).len(), 1);
    assert_eq!(waiters, [low]);
}

/// Single units of the lower tiers' share come back one after the other, and normal has a request for each of them.
#[test]
fn expensive_lower_request_is_not_starved_at_its_share() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 100)]));
    for n in 0..80 {
        bench.now = ms(0).plus_nanos(n * 12_500_000);
        send(&mut bench, lane, Tier::Normal, 1);
    }
    bench.now = ms(1_000);
    let (expensive, _) = bench.submit_waiting(lane, Ask { cost: 15.into(), ..ask(Tier::Low) });
    for _ in 0..50 {
        bench.submit_waiting(lane, ask(Tier::Normal));
    }
    send(&mut bench, lane, Tier::High, 5);
    let grants = bench.serve(ms(1_300), 0);
    assert_eq!(grants[0].1, expensive);
    assert!(grants[0].0 < ms(1_180), "{:?}", grants[0].0);
}

/// 100 in each window without a pace, of which the last 20 are for high.
fn windowed(name: &str, window: u64) -> LimitSpec {
    let guard = GuardSpec::Log(LogSpec::new(100, 20, window, TRANSIT));
    let kind = LimitKind::Rate { bucket: BucketSpec::new(1_000, 1_000.0, SECOND, 0), guard };
    LimitSpec { kind, ..bucket(name, 1, 1.0) }
}

/// Low waits for an endpoint's limit. Then the part of the lane's limit that low may use is used up. Low waits for it
/// alone, or behind normal.
#[test]
fn lower_tier_at_its_share_holds_up_high_at_no_endpoint() {
    for (user, waiting) in [(Tier::Low, &[Tier::Low][..]), (Tier::Normal, &[Tier::Normal, Tier::Low][..])] {
        let plan = with_endpoint(plan(vec![windowed("requests", 3_600 * SECOND)]), "b", bucket("b", 1, 1.0));
        let (mut bench, lane) = Bench::with(plan);
        let to_b = |tier: Tier| Ask { endpoint: EndpointId::at(0), ..ask(tier) };
        send(&mut bench, lane, user, 80);
        bench.submit_granted(lane, to_b(Tier::High));
        bench.submit_waiting(lane, to_b(Tier::Low));
        for tier in waiting {
            bench.submit_waiting(lane, ask(*tier));
        }
        for seconds in [2, 4, 6] {
            bench.advance_to(ms(1_000 * seconds));
            bench.submit_granted(lane, to_b(Tier::High));
        }
    }
}

/// The same for an endpoint's limit and one of all requests, which the lanes of an account or a vendor share.
#[test]
fn lower_tier_at_its_share_holds_up_high_at_no_shared_endpoint() {
    let all = || SharedSpec { spec: windowed("all", 3_600 * SECOND), endpoint: None };
    let limits = || vec![all(), endpoint_spec("b", bucket("b", 1, 1.0))];
    let named = || with_endpoint(plan(vec![]), "b", slots("own", 100));
    let of_account = Plan { account: limits().into(), ..named() };
    let of_vendor = Plan { vendor_wide: limits().into(), ..named() };
    for plan in [of_account, of_vendor] {
        let (mut bench, lane) = Bench::with(plan);
        let to_b = |tier: Tier| Ask { endpoint: EndpointId::at(0), ..ask(tier) };
        send(&mut bench, lane, Tier::Low, 80);
        bench.submit_granted(lane, to_b(Tier::High));
        bench.submit_waiting(lane, to_b(Tier::Low));
        bench.submit_waiting(lane, ask(Tier::Low));
        for seconds in [2, 4, 6] {
            bench.advance_to(ms(1_000 * seconds));
            bench.submit_granted(lane, to_b(Tier::High));
        }
    }
}

/// Low waits for a limit of its tenant, of its tenant's endpoint or of its account. Then another tenant has used up what
/// the lower tiers may take from a limit of the account or the vendor.
#[test]
fn lower_tier_at_its_share_holds_up_high_at_no_narrower_limit() {
    let all = || vec![windowed("all", 3_600 * SECOND)];
    let narrow = || bucket("narrow", 1, 1.0);
    let of_lane = || with_endpoint(plan(vec![narrow()]), "b", slots("slots", 100));
    let of_endpoint = || with_endpoint(plan(vec![]), "b", narrow());
    let of_none = || with_endpoint(plan(vec![]), "b", slots("slots", 100));
    let in_account = |plan: Plan| with_shared(plan, all(), vec![]);
    let in_vendor = |plan: Plan| with_shared(plan, vec![], all());
    for (plan, other_plan, other_account) in [
        (in_account(of_lane()), in_account(of_none()), "account"),
        (in_account(of_endpoint()), in_account(of_none()), "account"),
        (in_vendor(of_lane()), in_vendor(of_none()), "account"),
        (in_vendor(of_endpoint()), in_vendor(of_none()), "account"),
        (with_shared(of_none(), vec![narrow()], all()), in_vendor(of_none()), "another"),
    ] {
        let mut bench = Bench::new();
        let lane = bench.lane("one", "account", &Arc::new(plan));
        let other = bench.lane("other", other_account, &Arc::new(other_plan));
        let to_b = |tier: Tier| Ask { endpoint: EndpointId::at(0), ..ask(tier) };
        send(&mut bench, other, Tier::Low, 80);
        bench.submit_granted(lane, to_b(Tier::High));
        bench.submit_waiting(lane, to_b(Tier::Low));
        bench.submit_waiting(other, ask(Tier::Low));
        for seconds in [2, 4, 6] {
            bench.advance_to(ms(1_000 * seconds));
            bench.submit_granted(lane, to_b(Tier::High));
        }
    }
}

/// Two lanes of an account. Low of the first has reserved at the endpoint, low of the second waits behind it, and then low's
/// part of the account's limit is used up, so that the first gives its reservation up. `own` are the limits of each lane.
/// Returns the first lane, and what waits in the second.
fn given_up_turn(own: Vec<LimitSpec>) -> (Bench, LaneKey, WaiterKey) {
    let all = SharedSpec { spec: windowed("all", 10 * SECOND), endpoint: None };
    let limits = vec![all, endpoint_spec("b", bucket("b", 1, 1.0))];
    let plan = Arc::new(Plan { account: limits.into(), ..with_endpoint(plan(own), "b", slots("slots", 100)) });
    let mut bench = Bench::new();
    let [one, two] = ["one", "two"].map(|tenant| bench.lane(tenant, "account", &plan));
    let to_b = |tier: Tier| Ask { endpoint: EndpointId::at(0), ..ask(tier) };
    send(&mut bench, one, Tier::Low, 80);
    bench.submit_granted(one, to_b(Tier::High));
    bench.submit_waiting(one, to_b(Tier::Low));
    let (other, _) = bench.submit_waiting(two, to_b(Tier::Low));
    bench.submit_waiting(one, ask(Tier::Low));
    (bench, one, other)
}

/// Low of another lane waits behind the reservation that low gives up.
#[test]
fn lower_tier_that_gave_up_its_turn_at_an_endpoint_wakes_those_behind_it() {
    let (mut bench, ..) = given_up_turn(vec![]);
    assert_eq!(bench.serve(ms(20_000), 0).len(), 3);
}

/// The lane whose request gave up its turn cannot go on for an hour.
#[test]
fn lower_tier_that_gave_up_its_turn_at_an_endpoint_holds_up_no_other_lane() {
    let (mut bench, one, other) = given_up_turn(vec![bucket("own", 82, 0.001)]);
    bench.advance_to(ms(2_000));
    bench.submit_granted(one, ask(Tier::High));
    let served = bench.serve(ms(20_000), 0);
    assert!(served.iter().any(|(_, waiter)| *waiter == other), "{served:?}");
}

/// Low waits for its part of the lane's limit for half a second.
#[test]
fn lower_tier_keeps_its_turn_at_an_endpoint_in_a_short_wait() {
    let plan = with_endpoint(plan(vec![windowed("requests", SECOND)]), "b", bucket("b", 1, 0.1));
    let (mut bench, lane) = Bench::with(plan);
    let to_b = |tier: Tier| Ask { endpoint: EndpointId::at(0), ..ask(tier) };
    send(&mut bench, lane, Tier::Low, 80);
    bench.submit_granted(lane, to_b(Tier::High));
    bench.advance_to(ms(500));
    bench.submit_waiting(lane, to_b(Tier::Low));
    bench.submit_waiting(lane, ask(Tier::Low));
    let waiting = bench.engine.lanes[lane].waiting.as_ref().unwrap();
    assert!(waiting.endpoint_wait_points.iter().any(|(_, point)| point.reserved != Key::NONE));
}
