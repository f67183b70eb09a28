//! A pause is told of once, and its end once, whatever began and ended it, with the limit where one is known.

use std::sync::Arc;
use std::time::Duration;

use super::scopes::{
    COUNTED, FREE, SCOPES, Scope, WINDOW, lanes_sharing_limit, limit, report_with_left, request_to, tenants,
};
use super::*;
use crate::throttle::{Mode, Notice, Report, Wait};

/// Heard notices, but for those that a pause lasts longer.
fn notice_names(heard: &[Noticed]) -> Vec<&'static str> {
    let word = |noticed: &Noticed| match noticed.notice {
        Notice::Exhausted { .. } => Some("exhausted"),
        Notice::Recovered => Some("recovered"),
        Notice::Slower { .. } => Some("slower"),
        Notice::Held => Some("held"),
        Notice::Yielded { .. } => Some("yielded"),
        Notice::Longer { .. } => None,
    };
    heard.iter().filter_map(word).collect()
}

fn limit_of_scope(scope: Scope) -> OfLimit {
    let (holder, endpoint) = match scope {
        Scope::Tenant => (Holder::Lane, None),
        Scope::Endpoint => (Holder::Endpoint(COUNTED), Some("counted")),
        Scope::Account => (Holder::Account, None),
        Scope::AccountEndpoint => (Holder::Account, Some("counted")),
        Scope::Vendor => (Holder::Vendor, None),
    };
    OfLimit { limit: Some("requests".into()), holder, endpoint: endpoint.map(Arc::from) }
}

/// One request of each of these lanes goes, as soon as it can, and is answered so.
fn send_when_possible(bench: &mut Bench, lane: LaneKey, ask: Ask, word: Feedback) -> Vec<Noticed> {
    let mut waiter = match bench.submit(lane, ask) {
        Answer::Granted(permit) => return bench.notices_on_response(permit, word),
        Answer::Wait { waiter, .. } => vec![waiter],
        other => panic!("{other:?}"),
    };
    for _ in 0..1_000 {
        if let [permit] = bench.start_granted(&mut waiter)[..] {
            return bench.notices_on_response(permit, word);
        }
        let due = bench.engine.poll_timeout().unwrap();
        bench.advance_to(due);
    }
    panic!("it does not go");
}

const REFUSALS: [Wait; 2] = [Wait::Stated(10 * SECOND), Wait::Guess { most: 10 * SECOND }];

#[test]
fn refusals_and_their_end_are_reported_once() {
    for (scope, wait) in SCOPES.into_iter().flat_map(|scope| REFUSALS.map(|wait| (scope, wait))) {
        let (mut bench, lanes) = tenants(scope, Mode::Bands);
        let shared = lanes_sharing_limit(scope, &lanes).to_vec();
        let permits: Vec<PermitKey> =
            (0..12).map(|n| bench.submit_granted(shared[n % shared.len()], request_to(COUNTED))).collect();
        let mut heard = Vec::new();
        permits
            .into_iter()
            .for_each(|permit| heard.extend(bench.notices_on_response(permit, Feedback::Refused(wait, None))));
        heard.retain(|noticed| !matches!(noticed.notice, Notice::Yielded { .. }));
        assert_eq!(notice_names(&heard), ["exhausted"], "{scope:?} {wait:?}");
        assert_eq!(heard[0].of, limit_of_scope(scope));
        // Who finds out is refused too: the pause lasts longer, and is the same.
        let last = shared[shared.len() - 1];
        let again = send_when_possible(&mut bench, last, request_to(COUNTED), Feedback::Refused(wait, None));
        assert!(notice_names(&again).is_empty(), "{scope:?} {wait:?}: {again:?}");
        assert!(again.iter().any(|noticed| matches!(noticed.notice, Notice::Longer { .. })), "{again:?}");
        let over = send_when_possible(&mut bench, last, request_to(COUNTED), Feedback::Passed(None));
        assert_eq!(over, [Noticed { notice: Notice::Recovered, of: limit_of_scope(scope) }], "{scope:?} {wait:?}");
        for lane in shared {
            assert!(send_when_possible(&mut bench, lane, request_to(COUNTED), Feedback::Passed(None)).is_empty());
        }
    }
}

#[test]
fn exhaustion_and_its_end_are_reported_once() {
    let modes = [Mode::Bands, Mode::Pace, Mode::Off];
    for (scope, mode) in SCOPES.into_iter().flat_map(|scope| modes.map(|mode| (scope, mode))) {
        for word in [Feedback::Passed(None), Feedback::Passed(Some(report_with_left(99)))] {
            let (mut bench, lanes) = tenants(scope, mode);
            let shared = lanes_sharing_limit(scope, &lanes).to_vec();
            let permits: Vec<PermitKey> =
                (0..8).map(|n| bench.submit_granted(shared[n % shared.len()], request_to(COUNTED))).collect();
            let mut heard = Vec::new();
            permits.into_iter().for_each(|it| {
                heard.extend(bench.notices_on_response(it, Feedback::Passed(Some(report_with_left(0)))))
            });
            let until = bench.now + Duration::from_millis(WINDOW * 1_000 + 500);
            assert_eq!(heard, [Noticed { notice: Notice::Exhausted { until }, of: limit_of_scope(scope) }], "{mode:?}");
            let over = send_when_possible(&mut bench, shared[shared.len() - 1], request_to(COUNTED), word);
            assert!(bench.now >= until);
            assert_eq!(
                over,
                [Noticed { notice: Notice::Recovered, of: limit_of_scope(scope) }],
                "{scope:?} {mode:?} {word:?}"
            );
        }
    }
}

/// Of a large limit, less than one percent is not nothing.
#[test]
fn exhaustion_is_reported_after_scarcity() {
    let (mut bench, lanes) = tenants(Scope::Account, Mode::Bands);
    let said = |remaining| Feedback::Passed(Some(Report { limit: 10_000, ..report_with_left(remaining) }));
    let permits: Vec<PermitKey> = (0..3).map(|_| bench.submit_granted(lanes[0], request_to(COUNTED))).collect();
    let words_of =
        [50, 10, 0].into_iter().zip(permits).map(|(left, permit)| bench.notices_on_response(permit, said(left)));
    let mut all = notice_names(&words_of.flatten().collect::<Vec<_>>());
    all.retain(|word| *word != "yielded");
    assert_eq!(all, ["slower", "exhausted"]);
}

#[test]
fn band_is_reported_once_with_its_limit() {
    for scope in SCOPES {
        let (mut bench, lanes) = tenants(scope, Mode::Bands);
        let shared = lanes_sharing_limit(scope, &lanes).to_vec();
        let permits: Vec<PermitKey> =
            (0..8).map(|n| bench.submit_granted(shared[n % shared.len()], request_to(COUNTED))).collect();
        let mut told = Vec::new();
        for (remaining, permit) in [31, 29, 28, 19, 18, 9, 8, 7].into_iter().zip(permits) {
            for noticed in bench.notices_on_response(permit, Feedback::Passed(Some(report_with_left(remaining)))) {
                assert_eq!(noticed.of, limit_of_scope(scope));
                match noticed.notice {
                    Notice::Slower { remaining_pct, .. } => told.push(remaining_pct),
                    // Nobody here has taken what is gone.
                    Notice::Yielded { .. } => {}
                    _ => panic!("{noticed:?}"),
                }
            }
        }
        assert_eq!(told, [29, 19, 9], "{scope:?}");
    }
}

/// Some vendors state the largest number that they can write for "unlimited".
#[test]
fn share_of_a_huge_limit_is_exact() {
    let limit = i64::MAX.unsigned_abs();
    for mode in [Mode::Bands, Mode::Adaptive] {
        for (remaining, expected) in [(limit - 1, None), (limit / 2, None), (limit / 5, Some(19))] {
            let (mut bench, lanes) = tenants(Scope::Tenant, mode);
            let permit = bench.submit_granted(lanes[0], request_to(COUNTED));
            let said = Report { limit, ..report_with_left(remaining) };
            let told = match bench.on_response(permit, Feedback::Passed(Some(said))) {
                Some(Notice::Slower { remaining_pct, .. }) => Some(remaining_pct),
                None => None,
                other => panic!("{other:?}"),
            };
            assert_eq!(told, expected, "{mode:?}: {remaining}");
        }
    }
}

#[test]
fn wait_beside_success_is_reported_once() {
    let (mut bench, lanes) = tenants(Scope::Account, Mode::Bands);
    let permits: Vec<PermitKey> = (0..4).map(|_| bench.submit_granted(lanes[0], request_to(COUNTED))).collect();
    let mut heard = Vec::new();
    permits
        .into_iter()
        .for_each(|it| heard.extend(bench.notices_on_response(it, Feedback::PassedFor(10 * SECOND, None))));
    assert_eq!(notice_names(&heard), ["exhausted"]);
    assert_eq!(heard[0].of, OfLimit { limit: None, holder: Holder::Lane, endpoint: None });
    let over = send_when_possible(&mut bench, lanes[0], request_to(COUNTED), Feedback::Passed(None));
    assert_eq!(notice_names(&over), ["recovered"]);
}

#[test]
fn failures_and_their_end_are_reported_once() {
    let (mut bench, lanes) = tenants(Scope::Account, Mode::Bands);
    let permits: Vec<PermitKey> = (0..9).map(|_| bench.submit_granted(lanes[0], request_to(COUNTED))).collect();
    let mut heard = Vec::new();
    permits.into_iter().for_each(|permit| heard.extend(bench.notices_on_response(permit, Feedback::Failed)));
    assert_eq!(notice_names(&heard), ["exhausted"]);
    for _ in 0..3 {
        assert!(
            notice_names(&send_when_possible(&mut bench, lanes[0], request_to(COUNTED), Feedback::Failed)).is_empty()
        );
    }
    assert_eq!(
        notice_names(&send_when_possible(&mut bench, lanes[0], request_to(COUNTED), Feedback::Passed(None))),
        ["recovered"]
    );
}

#[test]
fn operator_pause_and_its_end_are_reported() {
    for scope in SCOPES {
        let (mut bench, lanes) = tenants(scope, Mode::Bands);
        let (now, lane) = (bench.now, lanes[0]);
        assert_eq!(notice_names(&bench.engine.pause(now, lane)), ["held"]);
        assert!(bench.engine.pause(now, lane).is_empty());
        assert_eq!(notice_names(&bench.engine.resume(now, lane)), ["recovered"]);
        assert!(bench.engine.resume(now, lane).is_empty());
        for word in [Feedback::Refused(Wait::Stated(10 * SECOND), None), Feedback::Passed(Some(report_with_left(0)))] {
            let permit = bench.submit_granted(lane, request_to(COUNTED));
            assert_eq!(notice_names(&bench.notices_on_response(permit, word)), ["exhausted"], "{scope:?} {word:?}");
            let over = bench.engine.resume(now, lane);
            assert_eq!(over, [Noticed { notice: Notice::Recovered, of: limit_of_scope(scope) }], "{word:?}");
        }
    }
}

#[test]
fn account_refusal_without_limit_is_reported_once() {
    for (whose, account) in [(Whose::Account, Some("account")), (Whose::Vendor, None)] {
        let mut bench = Bench::new();
        let plan = Arc::new(Plan { has_slots: false, ..plan(Vec::new()) });
        let lanes = ["a", "b", "c", "d"].map(|tenant| bench.lane(tenant, "account", &plan));
        let group = Group { vendor: "vendor", environment: "live", account };
        let permits = lanes.map(|lane| bench.submit_granted(lane, ask(Tier::High)));
        let mut heard = Vec::new();
        for (permit, tenant) in permits.into_iter().zip(["a", "b", "c", "d"]) {
            heard.extend(
                bench.notices_on_response(permit, Feedback::RefusedFor(whose, Wait::Stated(10 * SECOND), None)),
            );
            let until = bench.now.plus_nanos(10 * SECOND);
            bench.engine.pause_group(bench.now, group, tenant, until, 900 * SECOND);
        }
        assert_eq!(notice_names(&heard), ["exhausted"], "{whose:?}");
        let holder = if account.is_some() { Holder::Account } else { Holder::Vendor };
        assert_eq!(heard[0].of, OfLimit { limit: None, holder, endpoint: None });
        let mut over = Vec::new();
        lanes.into_iter().for_each(|lane| {
            over.extend(send_when_possible(&mut bench, lane, ask(Tier::High), Feedback::Passed(None)))
        });
        assert_eq!(notice_names(&over), ["recovered"], "{whose:?}");
    }
}

#[test]
fn ambiguous_refusal_is_reported_without_a_limit() {
    let mut day = limit(Mode::Bands);
    day.name = "day".into();
    let plan = Arc::new(with_shared(plan(vec![limit(Mode::Bands)]), vec![day], Vec::new()));
    let mut bench = Bench::new();
    let [first, second] = ["first", "second"].map(|tenant| bench.lane(tenant, "account", &plan));
    let permit = bench.submit_granted(first, ask(Tier::High));
    let heard = bench.notices_on_response(permit, Feedback::Refused(Wait::Stated(10 * SECOND), None));
    assert_eq!(notice_names(&heard), ["exhausted"]);
    assert_eq!(heard[0].of, OfLimit { limit: None, holder: Holder::Account, endpoint: None });
    let mut over = send_when_possible(&mut bench, second, ask(Tier::High), Feedback::Passed(None));
    over.extend(send_when_possible(&mut bench, first, ask(Tier::High), Feedback::Passed(None)));
    assert_eq!(notice_names(&over), ["recovered"]);
}

#[test]
fn endpoint_pause_is_reported_by_name() {
    let (mut bench, lanes) = tenants(Scope::Tenant, Mode::Bands);
    let plan = Plan { has_slots: false, own: Vec::new(), whole: 0, ..(*bench.engine.lanes[lanes[0]].plan).clone() };
    let lane = bench.lane("other", "other", &Arc::new(plan));
    let permits: Vec<PermitKey> = (0..3).map(|_| bench.submit_granted(lane, request_to(FREE))).collect();
    let word = Feedback::RefusedFor(Whose::Endpoint, Wait::Stated(10 * SECOND), None);
    let mut heard = Vec::new();
    permits.into_iter().for_each(|permit| heard.extend(bench.notices_on_response(permit, word)));
    assert_eq!(notice_names(&heard), ["exhausted"]);
    assert_eq!(heard[0].of, OfLimit { limit: None, holder: Holder::Endpoint(FREE), endpoint: Some("free".into()) });
    let permit = bench.submit_granted(lane, request_to(COUNTED));
    assert!(bench.notices_on_response(permit, Feedback::Passed(None)).is_empty(), "that is another endpoint");
    assert_eq!(
        notice_names(&send_when_possible(&mut bench, lane, request_to(FREE), Feedback::Passed(None))),
        ["recovered"]
    );
}

#[test]
fn unused_pause_ends_when_forgotten() {
    for (scope, word) in SCOPES.into_iter().flat_map(|scope| {
        [(scope, Feedback::Refused(Wait::Stated(SECOND), None)), (scope, Feedback::Passed(Some(report_with_left(0))))]
    }) {
        let (mut bench, lanes) = tenants(scope, Mode::Bands);
        let permit = bench.submit_granted(lanes[0], request_to(COUNTED));
        assert_eq!(notice_names(&bench.notices_on_response(permit, word)), ["exhausted"]);
        bench.sweep(bench.now, true);
        assert!(bench.engine.forgotten().is_empty(), "{scope:?}: it stands");
        bench.now = bench.now + Duration::from_secs(4_000);
        bench.sweep(bench.now, true);
        let forgotten = bench.engine.forgotten();
        assert_eq!(forgotten.len(), 1, "{scope:?} {word:?}");
        let is_shared = !matches!(scope, Scope::Tenant | Scope::Endpoint);
        assert_eq!((forgotten[0].of.holder, forgotten[0].tenant.is_none()), (limit_of_scope(scope).holder, is_shared));
        bench.sweep(bench.now, true);
        assert!(bench.engine.forgotten().is_empty());
    }
}
