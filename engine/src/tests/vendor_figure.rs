//! What is left is the lower of our own count and of what the vendor says, wherever somebody is told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::scopes::{
    COUNTED, FREE, SCOPES, Scope, WINDOW, lanes_sharing_limit, limit, report_with_left, request_to, tenants,
};
use super::*;
use crate::plan::Counting;
use crate::throttle::{About, Mode, Report};

const MODES: [Mode; 4] = [Mode::Bands, Mode::Adaptive, Mode::Pace, Mode::Off];

fn headroom(bench: &mut Bench, lane: LaneKey, endpoint: EndpointId) -> Option<(u32, u32)> {
    let told = bench.engine.headroom(bench.now, lane, endpoint);
    let check = bench.engine.check(bench.now, lane, endpoint, Tier::High).unwrap().left;
    assert_eq!(check.map(|left| (left.remaining, left.limit)), told, "a check says the same");
    told
}

fn overview(bench: &mut Bench) -> Option<(u32, u32)> {
    let mut sums = BTreeMap::new();
    bench.engine.survey(bench.now, 0, 100, &mut sums);
    sums.values().next().unwrap().tightest
}

/// The only limit in the status of a lane.
fn status(bench: &mut Bench, lane: LaneKey) -> (u32, u32) {
    let seen = bench.engine.view(bench.now, lane).unwrap().limits;
    assert_eq!(seen.len(), 1);
    (seen[0].left, seen[0].limit)
}

#[test]
fn vendors_headroom_is_reduced_by_later_use() {
    for (scope, mode) in SCOPES.into_iter().flat_map(|scope| MODES.map(|mode| (scope, mode))) {
        let (mut bench, lanes) = tenants(scope, mode);
        let shared = lanes_sharing_limit(scope, &lanes).to_vec();
        let permit = bench.submit_granted(lanes[0], request_to(COUNTED));
        let heard =
            bench.engine.answered_with(bench.now, permit, Feedback::Passed(Some(report_with_left(60))), &[], true);
        assert_eq!(heard.headroom, Some((60, 100)), "{scope:?} {mode:?}: others took 39");
        let until = bench.now + Duration::from_secs(WINDOW);
        for number in 0..3 {
            bench.now = bench.now + Duration::from_secs(1);
            let lane = shared[number % shared.len()];
            let permit = bench.submit_granted(lane, request_to(COUNTED));
            bench.engine.finished(bench.now, permit);
        }
        for lane in &lanes {
            let is_shared = shared.contains(lane);
            let expected = if is_shared { (57, 100) } else { (100, 100) };
            assert_eq!(headroom(&mut bench, *lane, COUNTED), Some(expected), "{scope:?} {mode:?}");
            assert_eq!(status(&mut bench, *lane), expected, "{scope:?} {mode:?}");
            let is_whole = !matches!(scope, Scope::Endpoint | Scope::AccountEndpoint);
            assert_eq!(headroom(&mut bench, *lane, FREE), is_whole.then_some(expected), "{scope:?} {mode:?}");
        }
        match scope {
            Scope::Endpoint | Scope::AccountEndpoint => assert_eq!(overview(&mut bench), None),
            _ => assert_eq!(overview(&mut bench), Some((57, 100)), "{scope:?} {mode:?}"),
        }
        bench.now = until;
        let own = headroom(&mut bench, lanes[0], COUNTED).unwrap();
        assert!(own.0 >= 96, "{scope:?} {mode:?}: the report holds no more, and {own:?} is our own count");
    }
}

#[test]
fn own_count_wins_where_lower() {
    for (scope, mode) in SCOPES.into_iter().flat_map(|scope| MODES.map(|mode| (scope, mode))) {
        let (mut bench, lanes) = tenants(scope, mode);
        let permits: Vec<PermitKey> = (0..5).map(|_| bench.submit_granted(lanes[0], request_to(COUNTED))).collect();
        for permit in permits {
            let heard =
                bench.engine.answered_with(bench.now, permit, Feedback::Passed(Some(report_with_left(99))), &[], true);
            assert_eq!(heard.headroom, Some((95, 100)), "{scope:?} {mode:?}");
        }
    }
}

#[test]
fn overtaken_answer_leaves_headroom_unchanged() {
    for mode in MODES {
        let (mut bench, lanes) = tenants(Scope::Account, mode);
        let first = bench.submit_granted(lanes[0], request_to(COUNTED));
        bench.now = bench.now + Duration::from_secs(1);
        let second = bench.submit_granted(lanes[1], request_to(COUNTED));
        bench.engine.answered_with(bench.now, second, Feedback::Passed(Some(report_with_left(40))), &[], true);
        bench.engine.answered_with(bench.now, first, Feedback::Passed(Some(report_with_left(41))), &[], true);
        // The first was under way while the second was answered, and may not have been counted in its answer.
        assert_eq!(headroom(&mut bench, lanes[2], COUNTED), Some((39, 100)), "{mode:?}");
    }
}

#[test]
fn later_requests_reduce_the_answers_figure() {
    let (mut bench, lanes) = tenants(Scope::Vendor, Mode::Bands);
    let first = bench.submit_granted(lanes[0], request_to(COUNTED));
    bench.engine.answered_with(bench.now, first, Feedback::Passed(Some(report_with_left(80))), &[], true);
    let mut permits = Vec::new();
    for _ in 0..4 {
        bench.now = bench.now + Duration::from_millis(500);
        permits.push(bench.submit_granted(lanes[1], request_to(COUNTED)));
    }
    // Two went after it; the one before it is under way too, and the vendor has counted it.
    let heard =
        bench.engine.answered_with(bench.now, permits[1], Feedback::Passed(Some(report_with_left(50))), &[], true);
    assert_eq!(heard.headroom, Some((48, 100)));
}

#[test]
fn units_of_a_bucket_come_back_meanwhile() {
    let mut spec = limit(Mode::Bands);
    spec.pace.counting = Counting::Bucket;
    let (mut bench, lane) = Bench::with(Plan { has_slots: false, ..plan(vec![spec]) });
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let said = Report { reset_ns: Some(WINDOW * SECOND / 2), ..report_with_left(50) };
    bench.engine.answered_with(bench.now, permit, Feedback::Passed(Some(said)), &[], true);
    assert_eq!(bench.engine.headroom(bench.now, lane, NO_ENDPOINT), Some((50, 100)));
    bench.now = bench.now + Duration::from_secs(WINDOW / 5);
    assert_eq!(bench.engine.headroom(bench.now, lane, NO_ENDPOINT), Some((70, 100)));
}

#[test]
fn lower_stated_limit_scales_headroom() {
    let (mut bench, lanes) = tenants(Scope::Account, Mode::Bands);
    let permit = bench.submit_granted(lanes[0], request_to(COUNTED));
    let said = Report { limit: 50, ..report_with_left(30) };
    bench.engine.answered_with(bench.now, permit, Feedback::Passed(Some(said)), &[], true);
    assert_eq!(headroom(&mut bench, lanes[1], COUNTED), Some((30, 50)));
    let permit = bench.submit_granted(lanes[0], request_to(COUNTED));
    let said = Report { limit: 5_000, ..report_with_left(90) };
    bench.engine.answered_with(bench.now, permit, Feedback::Passed(Some(said)), &[], true);
    assert_eq!(headroom(&mut bench, lanes[1], COUNTED), Some((90, 100)));
}

#[test]
fn discovered_limits_headroom_is_known() {
    let (mut bench, lane) = Bench::with(Plan { has_slots: false, ..plan(Vec::new()) });
    assert_eq!(headroom(&mut bench, lane, NO_ENDPOINT), None);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let about = About { window_ns: Some(WINDOW * SECOND), ..About::default() };
    let word = Feedback::Passed(Some(Report { about, ..report_with_left(70) }));
    let heard = bench.engine.answered_with(bench.now, permit, word, &[], true);
    assert_eq!(heard.headroom, Some((70, 100)));
    bench.now = bench.now + Duration::from_secs(3);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.engine.finished(bench.now, permit);
    assert_eq!(headroom(&mut bench, lane, NO_ENDPOINT), Some((69, 100)));
    assert_eq!((status(&mut bench, lane), overview(&mut bench)), ((69, 100), Some((69, 100))));
    bench.now = bench.now + Duration::from_secs(WINDOW);
    assert_eq!(headroom(&mut bench, lane, NO_ENDPOINT), Some((100, 100)), "nothing is known to be used");
}

/// What the vendor says slows nothing down as long as much is left, and is forgotten with its window.
#[test]
fn ample_headroom_slows_nothing() {
    for mode in [Mode::Bands, Mode::Off] {
        let (mut bench, lanes) = tenants(Scope::Tenant, mode);
        let permit = bench.submit_granted(lanes[0], request_to(COUNTED));
        bench.engine.answered_with(bench.now, permit, Feedback::Passed(Some(report_with_left(60))), &[], true);
        for _ in 0..50 {
            let permit = bench.submit_granted(lanes[0], request_to(COUNTED));
            bench.engine.finished(bench.now, permit);
        }
        bench.assert_clean();
        let lane = bench.engine.upsert(bench.now, "a", "account", &Arc::new(plan(vec![limit(mode)])), None);
        assert!(!bench.engine.lanes[lane].own.as_slice().iter().any(|cell| cell.is_throttled()));
    }
}
