use std::time::Duration;

use super::*;

const WEIGHTS: [u32; 3] = [6, 3, 1];

fn lane(tenant: &str) -> LaneTier {
    at("v", tenant, 1)
}

fn at(vendor: &str, tenant: &str, tier: i64) -> LaneTier {
    LaneTier { tenant: tenant.to_owned(), vendor: vendor.to_owned(), tier }
}

fn due(lanes: &mut Lanes, lane: LaneTier) {
    lanes.due(lane, Position::LAST);
}

fn pool(jobs: usize) -> Pool {
    Pool::new(Amount { jobs, bytes: usize::MAX / 64 })
}

#[test]
fn empty_lane_leaves_the_queue_until_told() {
    let (mut lanes, mut pool) = (Lanes::new(WEIGHTS), pool(100));
    due(&mut lanes, lane("a"));
    assert_eq!(lanes.wanted(&mut pool, 10, |_, _| Some(5)), [(lane("a"), 5)]);
    lanes.claimed(&mut pool, &lane("a"), 5, 5, false);
    assert_eq!(lanes.len(), 1, "there may be more");
    assert_eq!(lanes.wanted(&mut pool, 10, |_, _| Some(5)), [(lane("a"), 5)]);
    due(&mut lanes, lane("a"));
    lanes.claimed(&mut pool, &lane("a"), 5, 2, false);
    assert_eq!(lanes.len(), 1, "it got one while it was asked about");
    assert_eq!(lanes.wanted(&mut pool, 10, |_, _| Some(5)), [(lane("a"), 5)]);
    lanes.claimed(&mut pool, &lane("a"), 5, 0, false);
    assert_eq!(lanes.len(), 0);
    assert_eq!(pool.free(), self::pool(100).free(), "what did not come is given back");
}

#[test]
fn lanes_take_turns_within_their_room() {
    let (mut lanes, mut pool) = (Lanes::new(WEIGHTS), pool(100));
    for tenant in ["a", "b", "c"] {
        due(&mut lanes, lane(tenant));
    }
    assert_eq!(lanes.wanted(&mut pool, 1, |_, _| Some(4)), [(lane("a"), 4)]);
    lanes.not_claimed(&mut pool, &lane("a"), 4);
    assert_eq!(lanes.wanted(&mut pool, 1, |_, _| Some(4)), [(lane("b"), 4)]);
    lanes.not_claimed(&mut pool, &lane("b"), 4);
    lanes.gauge(&lane("a")).waiting.store(2, Relaxed);
    lanes.gauge(&lane("b")).waiting.store(3, Relaxed);
    assert_eq!(
        lanes.wanted(&mut pool, 10, |_, _| Some(5)),
        [(lane("c"), 5), (lane("a"), 3)],
        "b has more than half of what it may"
    );
}

#[test]
fn lane_cut_from_a_claim_goes_first() {
    let (mut lanes, mut pool) = (Lanes::new(WEIGHTS), pool(100));
    due(&mut lanes, lane("a"));
    due(&mut lanes, lane("b"));
    assert_eq!(lanes.wanted(&mut pool, 10, |_, _| Some(2)), [(lane("a"), 2), (lane("b"), 2)]);
    lanes.claimed(&mut pool, &lane("a"), 2, 2, true);
    lanes.claimed(&mut pool, &lane("b"), 2, 0, true);
    assert_eq!(lanes.wanted(&mut pool, 10, |_, _| Some(2)), [(lane("b"), 2), (lane("a"), 2)]);
}

#[test]
fn lane_with_unknown_tier_is_asked_once() {
    for tier in [-1, 3, i64::MAX] {
        let (mut lanes, mut pool) = (Lanes::new(WEIGHTS), pool(100));
        due(&mut lanes, at("v", "a", tier));
        assert_eq!(lanes.wanted(&mut pool, 10, |_, _| Some(5)), [(at("v", "a", tier), 5)]);
        lanes.claimed(&mut pool, &at("v", "a", tier), 5, 0, false);
        assert_eq!((lanes.len(), lanes.wanted(&mut pool, 10, |_, _| Some(5)).len()), (0, 0), "{tier}");
    }
}

#[test]
fn scarce_pool_is_shared_by_tier_weights() {
    for most in [1, 5, 100] {
        let (mut lanes, mut pool, mut rng) = (Lanes::new(WEIGHTS), pool(most), fastrand::Rng::with_seed(3));
        let (mut held, mut claimed) = (Vec::new(), [0u32; 3]);
        (0..3).for_each(|tier| due(&mut lanes, at("v", "a", tier)));
        while claimed.iter().sum::<u32>() < 10_000 {
            for (lane, count) in lanes.wanted(&mut pool, 256, |_, _| Some(64)) {
                lanes.claimed(&mut pool, &lane, count, count, false);
                claimed[tier_of(&lane)] += count;
                for _ in 0..count {
                    pool.add(&lane, Amount { jobs: 1, bytes: 1 });
                    held.push(lane.clone());
                }
            }
            for _ in 0..rng.usize(1..=held.len()) {
                let lane = held.swap_remove(rng.usize(..held.len()));
                pool.remove(&lane, Amount { jobs: 1, bytes: 1 });
            }
        }
        let all: u32 = claimed.iter().sum();
        let percent = claimed.map(|count| count * 100 / all);
        assert!(
            percent[0].abs_diff(60) <= 2 && percent[1].abs_diff(30) <= 2 && percent[2].abs_diff(10) <= 2,
            "{percent:?} of a pool of {most}"
        );
    }
}

#[test]
fn idle_tier_catches_up_on_no_turns() {
    let (mut lanes, mut pool) = (Lanes::new([1, 1, 1]), pool(1_000_000));
    due(&mut lanes, at("v", "a", 0));
    for _ in 0..1_000 {
        for (lane, count) in lanes.wanted(&mut pool, 256, |_, _| Some(8)) {
            lanes.claimed(&mut pool, &lane, count, count, false);
        }
    }
    due(&mut lanes, at("v", "a", 1));
    let mut small = self::pool(4);
    let mut first = [0; 3];
    for _ in 0..20 {
        for (lane, count) in lanes.wanted(&mut small, 256, |_, _| Some(4)) {
            lanes.claimed(&mut small, &lane, count, count, false);
            first[tier_of(&lane)] += count;
        }
    }
    assert!(first[0] >= 32, "{first:?}: the one that had no work until now does not go alone");
}

/// A hundred tenants of a vendor that never responds, and single jobs of a tenant of another vendor.
#[test]
fn hanging_vendor_delays_no_other_vendor() {
    let (mut lanes, mut pool) = (Lanes::new(WEIGHTS), pool(1_000));
    let mut hanging = VecDeque::new();
    for step in 0..5_000 {
        for tenant in 0..100 {
            (0..3).for_each(|tier| due(&mut lanes, at("hangs", &tenant.to_string(), tier)));
        }
        let well = at("well", "acme", i64::from(step % 3));
        due(&mut lanes, well.clone());
        let mut came = false;
        for (lane, count) in lanes.wanted(&mut pool, 256, |_, _| Some(64)) {
            let count_of_it = if lane == well { 1 } else { count };
            lanes.claimed(&mut pool, &lane, count, count_of_it, false);
            came |= lane == well;
            for _ in 0..if lane == well { 0 } else { count } {
                pool.add(&lane, Amount { jobs: 1, bytes: 100 });
                hanging.push_back((step, lane.clone()));
            }
        }
        assert!(came, "step {step}");
        assert!(hanging.len() >= 900, "step {step}: {} of 1,000 are used", hanging.len());
        // Jobs of the hanging vendor time out after 300 steps.
        while hanging.front().is_some_and(|(since, _)| since + 300 < step) {
            if let Some((_, lane)) = hanging.pop_front() {
                pool.remove(&lane, Amount { jobs: 1, bytes: 100 });
            }
        }
    }
}

#[test]
fn gauge_asks_at_half_and_at_none() {
    let (mut lanes, mut pool) = (Lanes::new(WEIGHTS), pool(100));
    due(&mut lanes, lane("a"));
    assert_eq!(lanes.wanted(&mut pool, 10, |_, drained| Some(10 + drained)), [(lane("a"), 10)]);
    lanes.claimed(&mut pool, &lane("a"), 10, 10, false);
    let gauge = lanes.gauge(&lane("a"));
    (0..10).for_each(|_| gauge.begin());
    let asks: Vec<bool> = (0..10).map(|_| gauge.end()).collect();
    let expected = [false, false, false, false, true, false, false, false, false, true];
    assert_eq!(asks, expected, "at five and at none");
    assert_eq!(lanes.wanted(&mut pool, 10, |_, drained| Some(10 + drained)), [(lane("a"), 20)], "ten were drained");
    lanes.claimed(&mut pool, &lane("a"), 20, 20, false);
    assert_eq!(lanes.wanted(&mut pool, 10, |_, drained| Some(10 + drained)), [(lane("a"), 10)], "and none since");
}

/// Lanes that leave and come back leave entries behind in the queue, each of which is dropped at its turn.
#[test]
fn returned_lanes_are_asked_once_a_turn() {
    let (mut lanes, mut pool) = (Lanes::new(WEIGHTS), pool(1_000));
    for _ in 0..50 {
        for tenant in ["a", "b", "c"] {
            due(&mut lanes, lane(tenant));
        }
        let wanted = lanes.wanted(&mut pool, 10, |_, _| Some(4));
        assert_eq!(wanted.len(), 3, "{wanted:?}");
        for (lane, count) in wanted {
            assert_eq!(count, 4);
            lanes.claimed(&mut pool, &lane, count, 1, false);
        }
        assert_eq!(lanes.len(), 0);
    }
    assert!(lanes.wanted(&mut pool, 10, |_, _| Some(4)).is_empty());
    assert!(lanes.tiers.iter().all(|tier| tier.vendors.is_empty()), "nothing is left behind");
    assert_eq!(pool.free(), self::pool(1_000).free());
}

#[test]
fn search_begins_at_the_earliest_position_left() {
    let at = |run_at| Position { run_at, seq: 1 };
    let mut lanes = Lanes::new(WEIGHTS);
    lanes.due(lane("a"), at(5));
    assert_eq!(lanes.search(&lane("a")), Position::default(), "nothing is known of a new lane");
    lanes.searched(&lane("a"), at(7));
    lanes.due(lane("a"), Position::LAST);
    assert_eq!(lanes.search(&lane("a")), at(7));
    // A look finds an earlier job while the claim is made, which may not have seen it.
    lanes.due(lane("a"), at(3));
    lanes.searched(&lane("a"), at(9));
    assert_eq!(lanes.search(&lane("a")), at(3));
    lanes.searched(&lane("a"), at(9));
    lanes.due(lane("a"), at(8));
    assert_eq!(lanes.search(&lane("a")), at(8));
    // A job was given back; then the store released claims whose replies were lost.
    lanes.searched(&lane("a"), at(9));
    lanes.searched(&lane("a"), at(2));
    assert_eq!(lanes.search(&lane("a")), at(2));
    lanes.search_all_anew();
    assert_eq!(lanes.search(&lane("a")), Position::default());
}

fn after(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

/// One lane has work, the others are of paused tenants. A claim is made every 5 ms.
#[test]
fn blocked_lanes_delay_no_lane_with_work() {
    const BLOCKED_LANES: usize = 50_000;
    let (mut lanes, mut pool, well) = (Lanes::new(WEIGHTS), pool(1_000), lane("well"));
    (0..BLOCKED_LANES / 2).for_each(|tenant| due(&mut lanes, lane(&tenant.to_string())));
    due(&mut lanes, well.clone());
    (BLOCKED_LANES / 2..BLOCKED_LANES).for_each(|tenant| due(&mut lanes, lane(&tenant.to_string())));
    let mut all = 0;
    for claim in 0..400 {
        lanes.look_again(after(claim * 5));
        let mut visited = 0;
        let wanted = lanes.wanted(&mut pool, 256, |lane, _| {
            visited += 1;
            Some(if *lane == well { 64 } else { 0 })
        });
        all += visited;
        assert!(visited <= BLOCKED + 1, "claim {claim} looked at {visited} lanes");
        let is_new = claim * 4_096 < 50_000;
        assert!(is_new || wanted == [(well.clone(), 64)], "claim {claim}: {wanted:?}");
        assert_eq!(lanes.is_cut, (claim + 1) * 4_096 <= 50_000, "claim {claim}");
        wanted.iter().for_each(|(lane, count)| lanes.claimed(&mut pool, lane, *count, *count, false));
    }
    // Once when they came, and then every half second.
    assert!((3 * BLOCKED_LANES..=4 * BLOCKED_LANES + 400).contains(&all), "looked at {all} lanes");
    assert_eq!(lanes.len(), BLOCKED_LANES + 1);
}

/// More lanes of a vendor have lost their room than one claim looks at.
#[test]
fn blocked_lanes_of_a_vendor_delay_no_other_vendor() {
    let (mut lanes, mut pool, well) = (Lanes::new(WEIGHTS), pool(1_000), at("well", "acme", 1));
    (0..3 * BLOCKED).for_each(|tenant| due(&mut lanes, lane(&tenant.to_string())));
    due(&mut lanes, well.clone());
    let mut wanted = || lanes.wanted(&mut pool, 256, |lane, _| Some(if *lane == well { 4 } else { 0 }));
    assert!(wanted().is_empty());
    assert_eq!(wanted(), [(well.clone(), 4)]);
    assert!(lanes.has_more());
}

#[test]
fn lane_that_gets_room_is_found_soon() {
    let (mut lanes, mut pool) = (Lanes::new(WEIGHTS), pool(1_000));
    let mut look = |lanes: &mut Lanes, ms: u64, room: u32| {
        lanes.look_again(after(ms));
        let mut visited = 0;
        let wanted = lanes.wanted(&mut pool, 256, |_, _| {
            visited += 1;
            Some(room)
        });
        wanted.iter().for_each(|(lane, count)| lanes.claimed(&mut pool, lane, *count, *count, false));
        (visited, wanted.len())
    };
    assert_eq!(look(&mut lanes, 1_000, 0), (0, 0));
    (0..100).for_each(|tenant| due(&mut lanes, lane(&tenant.to_string())));
    assert_eq!(look(&mut lanes, 1_000, 0), (100, 0));
    // They get jobs, which gives them no room.
    (0..100).for_each(|tenant| due(&mut lanes, lane(&tenant.to_string())));
    assert_eq!(look(&mut lanes, 1_249, 4), (0, 0));
    assert_eq!((lanes.look_at(), lanes.has_more()), (after(1_250), false));
    assert_eq!(look(&mut lanes, 1_250, 0), (100, 0));
    // Usage of earlier processes has been read: a hundred lanes are looked at after a millisecond.
    lanes.look_early();
    assert_eq!(look(&mut lanes, 1_250, 4), (0, 0));
    assert_eq!(lanes.look_at(), after(1_251));
    assert_eq!(look(&mut lanes, 1_251, 4), (100, 100));
    assert_eq!(look(&mut lanes, 1_251, 4), (100, 100), "they stay in the queue");
}

/// The jobs of a removed tenant are given up although its lane has no room.
#[test]
fn lane_that_is_asked_aside_returns() {
    let (mut lanes, mut pool) = (Lanes::new(WEIGHTS), pool(1_000));
    due(&mut lanes, lane("gone"));
    for ms in 0..300 {
        lanes.look_again(after(ms));
        let mut visited = 0;
        let wanted = lanes.wanted(&mut pool, 256, |_, _| {
            visited += 1;
            None
        });
        assert_eq!((visited, wanted.len()), (1, 0), "{ms}");
        lanes.asked(&mut pool, &lane("gone"), 16);
        lanes.claimed(&mut pool, &lane("gone"), 16, 16, false);
    }
    lanes.asked(&mut pool, &lane("gone"), 16);
    lanes.claimed(&mut pool, &lane("gone"), 16, 3, false);
    assert_eq!(lanes.len(), 0);
    lanes.look_again(after(1_000));
    assert!(lanes.wanted(&mut pool, 256, |_, _| Some(4)).is_empty());
}

/// The tenant is missing twice, hours apart. Between them it is paused, so that its lane is aside, and is never asked for
/// jobs.
#[test]
fn lane_without_room_is_known_again() {
    let (mut lanes, mut pool, paused) = (Lanes::new(WEIGHTS), pool(1_000), lane("paused"));
    let mut look = |lanes: &mut Lanes, ms: u64, room: Option<u32>| {
        lanes.look_again(after(ms));
        let mut visited = 0;
        let wanted = lanes.wanted(&mut pool, 256, |_, _| {
            visited += 1;
            room
        });
        assert_eq!((visited, wanted.len()), (1, 0), "{ms}");
    };
    due(&mut lanes, paused.clone());
    look(&mut lanes, 1_000, None);
    assert_eq!(lanes.is_known(&paused, false, after(1_000)), Some(after(1_000)));
    look(&mut lanes, 4_000, None);
    assert_eq!(lanes.is_known(&paused, false, after(4_000)), Some(after(1_000)), "it is missing still");
    look(&mut lanes, 5_000, Some(0));
    look(&mut lanes, 9_000_000, None);
    assert_eq!(lanes.is_known(&paused, false, after(9_000_000)), Some(after(9_000_000)));
}
