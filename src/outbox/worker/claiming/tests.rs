use super::*;
use crate::store::jobs::Position;

#[test]
fn problem_keeps_jobs_of_missing_lane() {
    let lane = LaneTier { tenant: "acme".to_owned(), vendor: "v".to_owned(), tier: 1 };
    let mut lanes = Lanes::new([60, 30, 10]);
    lanes.due(lane.clone(), Position::LAST);
    let mut is_given_up =
        |may_be_known: bool, after: Duration| is_given_up(&mut lanes, &lane, may_be_known, Time::ZERO + after);
    let second = Duration::from_secs(1);
    assert!(!is_given_up(false, Duration::ZERO) && !is_given_up(false, 599 * second));
    // A row of the configuration is invalid for a while.
    assert!(!is_given_up(true, 600 * second) && !is_given_up(true, 6_000 * second));
    assert!(!is_given_up(false, 6_001 * second) && !is_given_up(false, 6_600 * second));
    assert!(is_given_up(false, 6_601 * second));
}

#[test]
fn claim_without_jobs_is_not_cut() {
    const MIB: usize = 1 << 20;
    assert!(!is_cut(0, 0, 32 * MIB, CLAIM_BYTES), "a store of large jobs whose lanes have nothing due");
    assert!(is_cut(1, 100, 32 * MIB, CLAIM_BYTES));
    assert!(is_cut(3, CLAIM_BYTES - MIB + 1, MIB, CLAIM_BYTES));
    assert!(!is_cut(3, CLAIM_BYTES - MIB, MIB, CLAIM_BYTES));
}
