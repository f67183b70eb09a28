//! The bound on waiting requests, which several engines share: who gives way when it is reached.

use fastrand::Rng;

use super::*;

const NOBODY: [WaiterKey; 0] = [];

/// Engines that share a bound.
fn engines<const N: usize>(bound: &Bound) -> [Bench; N] {
    std::array::from_fn(|_| Bench { engine: Engine::new(bound.clone(), Default::default()), now: ms(0) })
}

/// A lane whose only slot is taken, and in which `count` requests wait: high, normal, low, high and so on.
fn busy_lane(bench: &mut Bench, tenant: &str, count: usize) -> (LaneKey, Vec<WaiterKey>) {
    let lane = bench.lane(tenant, tenant, &Arc::new(plan(vec![slots("slots", 1)])));
    bench.submit_granted(lane, ask(Tier::High));
    let waiters = (0..count).map(|n| bench.submit_waiting(lane, ask(Tier::ALL[n % 3])).0).collect();
    (lane, waiters)
}

/// Lets the engine decide, without time passing. Returns the requests that it evicts.
fn decide(bench: &mut Bench) -> Vec<WaiterKey> {
    bench.engine.poll(bench.now);
    let woken: Vec<WaiterKey> = bench.engine.woken().collect();
    for waiter in &woken {
        let claim = bench.engine.claim(bench.now, *waiter);
        assert!(matches!(claim, Claim::Refused(Refusal::AllFull { .. })), "{claim:?}");
    }
    woken
}

fn waiting(benches: &[Bench]) -> u32 {
    benches.iter().map(|bench| bench.engine.waiting()).sum()
}

#[track_caller]
fn assert_full(answer: Answer, all: u32) {
    assert!(matches!(answer, Answer::Refused(Refusal::AllFull { waiting }) if waiting == all), "{answer:?}");
}

#[test]
fn fullest_lane_gives_way_in_another_engine() {
    let [mut loud, mut quiet] = engines(&Bound::new(10));
    let (noisy, waiters) = busy_lane(&mut loud, "noisy", 10);
    let (modest, _) = busy_lane(&mut quiet, "modest", 0);
    assert_full(loud.submit(noisy, ask(Tier::High)), 10);

    let first = quiet.submit_waiting(modest, ask(Tier::Low)).0;
    assert!(loud.engine.is_quiet(), "the other engine has decided nothing yet");
    assert_eq!(decide(&mut quiet), NOBODY);
    assert_eq!(decide(&mut loud), [waiters[8]], "the last of the noisy lane's low tier");
    assert_eq!(decide(&mut loud), NOBODY);
    assert_eq!((loud.engine.waiting(), quiet.engine.waiting()), (9, 1));

    // It gives way at its next request just as well, which is refused: its lane is still the fullest.
    quiet.submit_waiting(modest, ask(Tier::Low));
    assert_full(loud.submit(noisy, ask(Tier::High)), 10);
    assert_eq!(loud.engine.woken().collect::<Vec<_>>(), [waiters[5]]);
    assert!(quiet.engine.is_quiet(), "{first:?} waits on");
    assert_eq!((loud.engine.waiting(), quiet.engine.waiting()), (8, 2));
}

#[test]
fn eighth_more_than_the_bound_may_wait_meanwhile() {
    let [mut loud, mut quiet] = engines(&Bound::new(16));
    let (_, waiters) = busy_lane(&mut loud, "noisy", 16);
    let lanes: Vec<LaneKey> = (0..3).map(|n| busy_lane(&mut quiet, &format!("modest {n}"), 0).0).collect();
    quiet.submit_waiting(lanes[0], ask(Tier::High));
    quiet.submit_waiting(lanes[1], ask(Tier::High));
    assert_full(quiet.submit(lanes[2], ask(Tier::High)), 18);
    assert_eq!(decide(&mut loud), [waiters[14], waiters[11]]);
    quiet.submit_waiting(lanes[2], ask(Tier::High));
    assert_eq!(decide(&mut loud), [waiters[8]]);
    assert_eq!(waiting(&[loud, quiet]), 16);
}

/// An immediate request is told which limit refuses it, and evicts no waiting request.
#[test]
fn immediate_request_displaces_nobody() {
    let [mut bench] = engines(&Bound::new(11));
    let (noisy, waiters) = busy_lane(&mut bench, "noisy", 10);
    let (modest, _) = busy_lane(&mut bench, "modest", 1);
    let now_or_never = Ask { immediate: true, ..ask(Tier::High) };
    for lane in [modest, noisy] {
        let answer = bench.submit(lane, now_or_never);
        assert!(matches!(answer, Answer::Refused(Refusal::NotNow { .. })), "{answer:?}");
        assert_eq!((decide(&mut bench), bench.engine.waiting()), (NOBODY.to_vec(), 11));
    }
    // A tier of a lane that is full of waiting requests is no reason either.
    let full = Plan { max_waiting: 1, ..plan(vec![slots("slots", 1)]) };
    let lane = bench.lane("full", "full", &Arc::new(full));
    let under_way = bench.submit_granted(lane, ask(Tier::High));
    bench.engine.cancel(bench.now, waiters[0]);
    bench.submit_waiting(lane, ask(Tier::High));
    let answer = bench.submit(lane, now_or_never);
    assert!(matches!(answer, Answer::Refused(Refusal::NotNow { .. })), "{answer:?}");
    bench.engine.finished(bench.now, under_way);
    assert_eq!(bench.engine.waiting(), 10, "the one that waited goes");
}

#[test]
fn equal_lanes_displace_nobody() {
    let [mut one, mut other] = engines(&Bound::new(8));
    let (first, _) = busy_lane(&mut one, "first", 4);
    let (second, _) = busy_lane(&mut other, "second", 4);
    assert_full(one.submit(first, ask(Tier::High)), 8);
    assert_full(other.submit(second, ask(Tier::High)), 8);
    assert_eq!(decide(&mut one), NOBODY);
    assert_eq!(decide(&mut other), NOBODY);

    // Nor do lanes in which one request waits each.
    let [mut one, mut other] = engines(&Bound::new(1));
    busy_lane(&mut one, "first", 1);
    let (second, _) = busy_lane(&mut other, "second", 0);
    assert_full(other.submit(second, ask(Tier::High)), 1);
    assert_eq!(decide(&mut one), NOBODY);
}

#[test]
fn fuller_lane_elsewhere_is_displaced_first() {
    let [mut loud, mut quiet] = engines(&Bound::new(20));
    let (_, waiters) = busy_lane(&mut loud, "noisy", 16);
    busy_lane(&mut quiet, "neighbour", 4);
    let (modest, _) = busy_lane(&mut quiet, "modest", 0);
    quiet.submit_waiting(modest, ask(Tier::High));
    assert_eq!(decide(&mut quiet), NOBODY, "the neighbour keeps its four");
    assert_eq!(decide(&mut loud), [waiters[14]]);
}

#[test]
fn place_that_became_free_displaces_nobody() {
    let [mut loud, mut quiet] = engines(&Bound::new(10));
    let (_, waiters) = busy_lane(&mut loud, "noisy", 10);
    let (modest, _) = busy_lane(&mut quiet, "modest", 0);
    quiet.submit_waiting(modest, ask(Tier::High));
    loud.engine.cancel(loud.now, waiters[0]);
    assert_eq!(decide(&mut loud), NOBODY, "ten wait, as many as may");
    assert_eq!(waiting(&[loud, quiet]), 10);
}

/// One decision makes a hundred of the evictions that are owed. The engine makes the rest although no request arrives.
#[test]
fn many_owed_evictions_are_made_within_milliseconds() {
    let [mut loud, mut quiet] = engines(&Bound::new(2_400));
    busy_lane(&mut loud, "noisy", 2_400);
    busy_lane(&mut quiet, "modest", 300);
    let until = loud.now + std::time::Duration::from_millis(10);
    assert_eq!(loud.run(until).len(), 300);
    assert_eq!((loud.engine.waiting(), quiet.engine.waiting()), (2_100, 300));
}

/// Tenants of three engines ask, are served and go away at random. The bound holds, and a refused lane has at least
/// half as many requests as any other, the refused one included.
#[test]
fn bound_and_shares_hold_under_random_arrivals() {
    const MOST: u32 = 20;
    const LIMIT: u32 = MOST + MOST / 8;
    let (mut refused, mut beyond) = (0, 0);
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let bound = Bound::new(MOST);
        let mut benches: [Bench; 3] = engines(&bound);
        let plan = Arc::new(plan(vec![slots("slots", 1)]));
        let mut lanes: Vec<(usize, LaneKey)> = Vec::new();
        for n in 0..9 {
            let tenant = format!("tenant {n}");
            lanes.push((n % 3, benches[n % 3].lane(&tenant, &tenant, &plan)));
        }
        let mut permits: Vec<(usize, PermitKey)> = Vec::new();
        let mut waiters: Vec<(usize, WaiterKey)> = Vec::new();
        for _ in 0..400 {
            // Some tenants ask far more often than others.
            let (at, lane) = lanes[random.usize(..9).min(random.usize(..9))];
            let bench = &mut benches[at];
            match random.u32(..10) {
                0..7 => match bench.submit(lane, ask(Tier::ALL[random.usize(..3)])) {
                    Answer::Granted(permit) => permits.push((at, permit)),
                    Answer::Wait { waiter, .. } => waiters.push((at, waiter)),
                    Answer::Refused(Refusal::AllFull { waiting: all }) => {
                        refused += 1;
                        let own: u32 = bench.engine.waiting_in(lane).iter().sum();
                        let total = |(at, lane): &(usize, LaneKey)| -> u32 {
                            benches[*at].engine.waiting_in(*lane).iter().sum()
                        };
                        let fullest = lanes.iter().map(total).max().unwrap();
                        assert!(all >= LIMIT || fullest <= 2 * (own + 1), "{own} of {fullest}, seed {seed}");
                    }
                    other => panic!("{other:?}, seed {seed}"),
                },
                7 if !permits.is_empty() => {
                    let (at, permit) = permits.swap_remove(random.usize(..permits.len()));
                    benches[at].engine.finished(ms(0), permit);
                }
                8 if !waiters.is_empty() => {
                    let (at, waiter) = waiters.swap_remove(random.usize(..waiters.len()));
                    benches[at].engine.cancel(ms(0), waiter);
                }
                _ => bench.engine.poll(ms(0)),
            }
            for (at, bench) in benches.iter_mut().enumerate() {
                let woken: Vec<WaiterKey> = bench.engine.woken().collect();
                for waiter in woken {
                    waiters.retain(|known| *known != (at, waiter));
                    if let Claim::Started(permit, _) = bench.engine.claim(ms(0), waiter) {
                        permits.push((at, permit));
                    }
                }
            }
            let waiting = waiting(&benches);
            assert!(waiting <= LIMIT, "{waiting} wait, seed {seed}");
            beyond += u32::from(waiting > MOST);
        }
        // The engines decide in turn until the fullest lane of all is where nothing is owed.
        (0..MOST).for_each(|_| benches.iter_mut().for_each(|bench| bench.engine.poll(ms(0))));
        assert!(waiting(&benches) <= MOST, "{} wait, seed {seed}", waiting(&benches));
        benches.iter_mut().for_each(|bench| bench.engine.shut_down(ms(0)));
        assert!(bound.is_clear(), "seed {seed}");
    }
    assert!(refused > 1_000 && beyond > 1_000, "{refused} refused, {beyond} times beyond the bound");
}
