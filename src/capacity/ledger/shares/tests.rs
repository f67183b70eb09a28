use super::*;

fn claim(process: u64, want: [u32; 3]) -> Claim {
    Claim { process, want, held: 0, need: 0, granted: process, is_heard: true }
}

fn targets(parts: &[Part]) -> Vec<u32> {
    parts.iter().map(|p| p.target).collect()
}

#[test]
fn tiers_lend_units_they_do_not_want() {
    assert_eq!(water_fill(100.0, [200.0, 200.0, 200.0]), [60.0, 30.0, 10.0]);
    assert_eq!(water_fill(100.0, [0.0, 0.0, 200.0]), [0.0, 0.0, 100.0]);
    assert_eq!(water_fill(100.0, [20.0, 200.0, 200.0]), [20.0, 60.0, 20.0]);
    assert_eq!(water_fill(100.0, [1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]);
}

#[test]
fn small_wants_are_met_before_large_ones() {
    assert_eq!(level(&[1, 50, 60], 41.0), 20.0);
    assert_eq!(level(&[1, 2], 41.0), f64::INFINITY);
}

#[test]
fn low_work_alone_keeps_its_part() {
    let parts = divide(100, &[claim(1, [200, 0, 0]), claim(2, [0, 0, 200])]);
    assert_eq!(weights(parts[0].terms), [1_000, 500, 167]);
    assert!(parts[0].target.abs_diff(86) <= 1 && parts[1].target.abs_diff(14) <= 1);
}

#[test]
fn remainder_goes_to_the_longest_waiting() {
    let claims: Vec<Claim> = (1..=8).map(|p| claim(p, [0, 9, 0])).collect();
    assert_eq!(targets(&divide(10, &claims)), [2, 2, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn silent_process_gets_no_remainder() {
    let mut claims: Vec<Claim> = (1..=4).map(|p| claim(p, [0, 9, 0])).collect();
    claims[0].is_heard = false;
    assert_eq!(targets(&divide(2, &claims)), [0, 1, 1, 0]);
}

#[test]
fn turn_gets_its_need_first() {
    let claims: Vec<Claim> = (1..=4).map(|p| claim(p, [0, 900, 0])).collect();
    let parts = divide_turn(1_000, &claims, 3, 502);
    assert_eq!(targets(&parts), [166, 166, 166, 502]);
}

#[test]
fn idle_process_keeps_the_usual_weights() {
    assert_eq!(weights([0.0; 3]), Tier::WEIGHTS);
    assert_eq!(weights([12.0, 6.0, 0.0]), [1_000, 500, 167]);
}

#[test]
fn tier_without_requests_keeps_its_usual_weight() {
    assert_eq!(weights([0.0, 0.0, 7.0]), [1_000, 500, 167]);
    assert_eq!(weights([0.0, 9.0, 1.0]), [1_000, 500, 56], "nine of ten are more than the usual three of four");
    assert_eq!(
        weights([3.0, 0.0, 1.0]),
        [1_000, 1_000, 334],
        "three times that of low, which has the most by its weight"
    );
}
