use super::*;

const SECOND: u64 = 1_000_000_000;

fn rules() -> [Rule; 5] {
    let (limit, window_ns) = (10, SECOND);
    [
        Rule::FixedWindow { limit, window_ns, phase: Phase::At(0) },
        Rule::SlidingWindow { limit, window_ns, both_ends: false },
        Rule::SlidingCounter { limit, window_ns, phase_ns: 0 },
        Rule::TokenBucket { capacity: limit, rate: limit, per_ns: window_ns, refill: Refill::Steady },
        Rule::LeakyBucket { capacity: limit, rate: limit, per_ns: window_ns },
    ]
}

#[test]
fn limiter_rules_have_the_same_outcomes() {
    for rule in rules() {
        let mut limiter = Limiter::new(rule);
        for left in (0..10).rev() {
            let outcome = limiter.check(SECOND, 1);
            assert_eq!((outcome.decision, outcome.limit, outcome.remaining), (Decision::Allowed, 10, left), "{rule:?}");
            assert!(outcome.is_allowed() && outcome.reset > SECOND);
        }
        let refused = limiter.check(SECOND, 1);
        assert!(matches!(refused.decision, Decision::Until(at) if at > SECOND), "{rule:?} {refused:?}");
        assert_eq!(limiter.check(SECOND, 11).decision, Decision::Never, "{rule:?}");
    }
}

#[test]
fn limiter_allows_exactly_at_announced_time() {
    let mut random = fastrand::Rng::with_seed(4);
    for rule in rules() {
        let (mut limiter, mut now, mut waits) = (Limiter::new(rule), SECOND, 0);
        for _ in 0..2_000 {
            let cost = random.u32(1..4);
            if let Decision::Until(at) = limiter.check(now, cost).decision {
                waits += 1;
                assert!(!limiter.clone().check(at - 1, cost).is_allowed(), "{rule:?}");
                assert!(limiter.check(at, cost).is_allowed(), "{rule:?}");
                now = at;
            }
            now += random.u64(0..SECOND / 10);
        }
        assert!(waits > 100, "{rule:?} {waits}");
    }
}
