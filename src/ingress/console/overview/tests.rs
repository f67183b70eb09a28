use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::capacity::status::SharingMode;

fn limit(number: usize, problem: Option<&str>) -> SharedLimit {
    SharedLimit {
        limit: format!("live|v|account|{number:04}||requests").into(),
        units: 10,
        processes: 2,
        held: 8,
        wanted: 4,
        held_here: 3,
        withheld: 0,
        figures_differ: false,
        problem: problem.map(Arc::from),
    }
}

/// A long list is cut at its end, and these limits are what a user looks for.
#[test]
fn limits_without_an_answer_come_first() {
    let status = SharingStatus {
        limits: 1_001,
        answered: 7,
        failed: 0,
        leases_lost: 0,
        away_for: None,
        mode: SharingMode::Sharing,
        lease_left: Duration::from_secs(9),
        floor_left: Duration::ZERO,
        is_learning: false,
        limits_failing: 1,
    };
    let last = MAX_SHARED;
    let limits = (0..=last).map(|number| limit(number, (number == last).then_some("the disk fails")));
    let shown = sharing(Some(status), limits.collect());
    assert_eq!((&shown["sharing"]["limits_failing"], &shown["is_cut"]), (&json!(1), &json!(true)));
    let limits = shown["limits"].as_array().unwrap();
    assert_eq!((limits.len(), &limits[0]["problem"]), (MAX_SHARED, &json!("the disk fails")));
    assert_eq!((&limits[0]["limit"], &limits[1]["problem"]), (&json!("live|v|account|1000||requests"), &json!(null)));
    assert_eq!(limits[1]["limit"], "live|v|account|0000||requests");
    assert_eq!(sharing(None, Vec::new())["sharing"], json!(null));
}
