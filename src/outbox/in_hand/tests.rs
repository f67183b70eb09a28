//! Tests of what a worker may hold.

use super::*;

const JOB: Amount = Amount { jobs: 1, bytes: 10 };

fn lane(vendor: &str, tenant: &str) -> LaneTier {
    LaneTier { tenant: tenant.to_owned(), vendor: vendor.to_owned(), tier: 1 }
}

fn fill(pool: &mut Pool, lane: &LaneTier, job: Amount) -> usize {
    let mut taken = 0;
    while pool.lane_room(lane) > 0 {
        pool.add(lane, job);
        taken += 1;
    }
    taken
}

#[test]
fn single_lane_takes_all_that_is_configured() {
    for most in [1, 2, 3, 10, 100, 1_000, 100_000] {
        let mut pool = Pool::new(Amount { jobs: most, bytes: 1 << 40 });
        assert_eq!(fill(&mut pool, &lane("v", "a"), JOB), most);
        let mut pool = Pool::new(Amount { jobs: most, bytes: 1 << 40 });
        let many = (0..5_000).map(|tenant| fill(&mut pool, &lane("v", &tenant.to_string()), JOB)).sum::<usize>();
        let (least, largest) = (most * 9 / 10, most * 9 / 8 + SPARE_JOBS);
        assert!((least..=largest).contains(&many), "{many} of {most} for all tenants of one vendor together");
        assert!(pool.lane_room(&lane("other", "a")) > 0, "{most}");
    }
}

#[test]
fn full_lane_leaves_room_for_others() {
    let mut pool = Pool::new(Amount { jobs: 1_000, bytes: 1 << 40 });
    assert_eq!(fill(&mut pool, &lane("hangs", "a"), JOB), 1_000);
    let other = fill(&mut pool, &lane("well", "c"), JOB);
    assert!(other >= 100, "{other}");
    assert!(pool.lane_room(&lane("third", "d")) > 0, "and for one more");
}

#[test]
fn hanging_tenant_leaves_room_at_its_vendor() {
    let mut pool = Pool::new(Amount { jobs: 500, bytes: 1 << 40 });
    assert_eq!(fill(&mut pool, &lane("v", "a"), JOB), 500);
    assert!(pool.lane_room(&lane("v", "b")) >= 50);
}

#[test]
fn pool_bounds_bytes_and_jobs() {
    let job = Amount { jobs: 1, bytes: 500 << 10 };
    let mut pool = Pool::new(Amount { jobs: 1_000, bytes: 64 << 20 });
    let taken = fill(&mut pool, &lane("v", "a"), job);
    assert!((130..=132).contains(&taken), "{taken} jobs of 500 KiB are 64 MiB");
    assert!(pool.lane_room(&lane("other", "a")) > 0);
    for _ in 0..taken {
        pool.remove(&lane("v", "a"), job);
    }
    assert_eq!((pool.held, pool.vendors.len()), (Amount::default(), 0), "nothing is left of it");
}

#[test]
fn pool_is_never_exceeded_by_random_use() {
    let mut rng = fastrand::Rng::with_seed(7);
    let most = Amount { jobs: 50, bytes: 5_000 };
    let (mut pool, mut held) = (Pool::new(most), Vec::new());
    for _ in 0..100_000 {
        let lane = lane(["u", "v", "w"][rng.usize(..3)], ["a", "b", "c", "d"][rng.usize(..4)]);
        if rng.bool() && pool.lane_room(&lane) > 0 {
            let amount = Amount { jobs: 1, bytes: rng.usize(0..500) };
            pool.add(&lane, amount);
            held.push((lane, amount));
        } else if !held.is_empty() {
            let (lane, amount) = held.swap_remove(rng.usize(..held.len()));
            pool.remove(&lane, amount);
        }
        assert!(pool.held.jobs <= pool.whole.jobs && pool.held.bytes <= pool.whole.bytes + 500);
    }
    held.into_iter().for_each(|(lane, amount)| pool.remove(&lane, amount));
    assert_eq!((pool.held, pool.vendors.len()), (Amount::default(), 0));
}
