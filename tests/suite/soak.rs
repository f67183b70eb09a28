//! A short run of scripts/soak.sh, and tests of its judge, which must find each kind of fault in a made-up record.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../examples/soak/main.rs"]
mod example;

use example::judge::{Outcome, Place, Record, Seen, Span, Told, VendorRecord, Verdict, judge};
use example::world::vendors;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Indices in [`vendors`].
const PARCELS: usize = 0;
const MAIL: usize = 1;

/// A request of `t0` that was answered after 50 ms.
fn seen_request(path: &str, at_ms: u64) -> Seen {
    Seen {
        at: at_ms * MS,
        finished: (at_ms + 50) * MS,
        key: "t0-a".to_owned(),
        account: "a".to_owned(),
        endpoint: String::new(),
        path: path.to_owned(),
        idempotency_key: format!("key of {path}"),
        status: 200,
        admitted: true,
        judged: true,
    }
}

fn record_request(record: &mut Record, vendor: usize, path: &str, ended: Option<Outcome>) {
    let ended = ended.map(|outcome| (SECOND, outcome));
    let vendor = vendors()[vendor].name.to_owned();
    record.told.insert(path.to_owned(), Told { vendor, tenant: "t0".to_owned(), asked: 0, ended, is_cut_off: false });
}

/// A record with one job, which was accepted as `id-1` and is at `place`.
fn record_with_job(vendor: usize, path: &str, place: Option<Place>, arrivals: &[Seen]) -> Record {
    let mut record = clean_record();
    record_request(&mut record, vendor, path, Some(Outcome::Accepted("id-1".to_owned())));
    record.places.extend(place.map(|place| ("id-1".to_owned(), place)));
    record.vendors[vendor].seen.extend_from_slice(arrivals);
    record
}

fn clean_record() -> Record {
    let vendors = vendors().map(|plan| VendorRecord { plan, seen: Vec::new(), outages: Vec::new() });
    let mut record = Record { vendors: vendors.into(), ..Record::default() };
    // The record needs a request, because the verdict on a record without any is not clean.
    record.vendors[2].seen.push(seen_request("/other/post-0.0-0", 0));
    record_request(&mut record, 2, "/other/post-0.0-0", Some(Outcome::Answered(200)));
    record
}

/// The numbers of requests that were refused, over a limit, lost, doubled and stuck.
fn figures(record: &Record) -> [u64; 5] {
    let verdict = judge(record);
    let Verdict { refused, over_limit, lost, doubled, stuck, .. } = verdict;
    assert_eq!(verdict.is_clean(), [refused, over_limit, lost, doubled, stuck] == [0; 5]);
    [refused, over_limit, lost, doubled, stuck]
}

#[test]
fn soak_judge_accepts_a_good_record() {
    assert_eq!(figures(&clean_record()), [0; 5]);
    let path = "/other/job-0.0-1";
    let delivered = record_with_job(MAIL, path, Some(Place::Delivered(200)), &[seen_request(path, 10)]);
    assert_eq!(figures(&delivered), [0; 5]);
}

#[test]
fn soak_judge_rejects_an_empty_record() {
    assert!(!judge(&Record::default()).is_clean(), "no request was sent");
}

#[test]
fn soak_judge_counts_refusals_and_exceeded_windows() {
    let mut record = clean_record();
    // 40 requests in two seconds are allowed. The vendor admitted the 41st, and refused the 42nd.
    record.vendors[PARCELS].seen.extend(
        (0..41).map(|n| Seen { finished: n * 40 * MS, ..seen_request(&format!("/other/post-0.0-{n}"), n * 40) }),
    );
    let refused =
        Seen { status: 429, admitted: false, finished: 1_700 * MS, ..seen_request("/other/post-0.0-99", 1_700) };
    assert_eq!(figures(&record), [0, 1, 0, 0, 0]);
    record.vendors[PARCELS].seen.push(refused);
    assert_eq!(figures(&record), [1, 2, 0, 0, 0]);
    // Two seconds later the limit has room again.
    record.vendors[PARCELS].seen.truncate(40);
    record.vendors[PARCELS].seen.push(seen_request("/other/post-0.0-100", 2_000));
    assert_eq!(figures(&record), [0; 5]);
}

#[test]
fn soak_judge_counts_requests_at_once() {
    let mut record = clean_record();
    // An account may send eight requests at once, by any of its tenants.
    let ninth = |key: &str, account: &str| Seen {
        key: key.to_owned(),
        account: account.to_owned(),
        ..seen_request("/other/get-0.0-9", 8)
    };
    record.vendors[PARCELS].seen.extend((0..8).map(|n| seen_request(&format!("/other/get-0.0-{n}"), n)));
    record.vendors[PARCELS].seen.push(ninth("t2-b", "b"));
    assert_eq!(figures(&record), [0; 5]);
    record.vendors[PARCELS].seen.push(Seen { path: "/other/get-0.0-10".to_owned(), ..ninth("t1-a", "a") });
    assert_eq!(figures(&record), [0, 1, 0, 0, 0]);
}

#[test]
fn soak_judge_counts_lost_jobs() {
    let path = "/other/job-0.0-1";
    assert_eq!(figures(&record_with_job(MAIL, path, None, &[])), [0, 0, 1, 0, 0], "accepted, and nowhere");
    let delivered = Some(Place::Delivered(200));
    assert_eq!(
        figures(&record_with_job(MAIL, path, delivered, &[])),
        [0, 0, 1, 0, 0],
        "delivered, and the vendor never saw it"
    );
}

#[test]
fn soak_judge_counts_jobs_buried_without_cause() {
    let path = "/other/job-0.0-1";
    let dead = || Some(Place::Dead { reason: "ambiguous".to_owned(), letter: String::new() });
    let mut record = record_with_job(MAIL, path, dead(), &[seen_request(path, 10)]);
    assert_eq!(figures(&record), [0, 0, 1, 0, 0], "the vendor answered, and nobody was killed");
    record.kills.push(20 * MS);
    assert_eq!(figures(&record), [0, 0, 1, 0, 0], "the kill did not find it under way");
    record.begun.insert("id-1".to_owned());
    assert_eq!(figures(&record), [0; 5]);

    let mut record = record_with_job(MAIL, path, dead(), &[seen_request(path, 10_000)]);
    record.vendors[MAIL].outages.push(Span { from: 0, until: 5 * SECOND });
    assert_eq!(figures(&record), [0, 0, 1, 0, 0], "the outage was over");
    record.vendors[MAIL].outages.push(Span { from: 10_020 * MS, until: 11 * SECOND });
    assert_eq!(figures(&record), [0; 5]);

    let mut record = record_with_job(PARCELS, path, dead(), &[seen_request(path, 10)]);
    record.begun.insert("id-1".to_owned());
    assert_eq!(figures(&record), [0, 0, 1, 0, 0], "one with a key is sent again");
}

/// A key is unknown in an account that it was not sent to.
#[test]
fn soak_judge_excuses_keyed_jobs_of_moved_tenants() {
    let path = "/other/job-0.0-1";
    let dead = || Some(Place::Dead { reason: "ambiguous".to_owned(), letter: String::new() });
    let seen = record_with_job(PARCELS, path, dead(), &[seen_request(path, 10)]);
    let mut killed = record_with_job(PARCELS, path, dead(), &[]);
    killed.kills.push(10 * MS);
    let move_at = |record: &mut Record, at, tenant: &str| record.moves.push((at, tenant.to_owned()));
    move_at(&mut killed, 30 * MS, "t0");
    assert_eq!(figures(&killed), [0, 0, 1, 0, 0], "the kill did not find it under way");
    killed.moves.clear();
    killed.begun.insert("id-1".to_owned());
    for mut record in [seen, killed] {
        assert_eq!(figures(&record), [0, 0, 1, 0, 0]);
        move_at(&mut record, 5 * MS, "t0");
        move_at(&mut record, 30 * MS, "t1");
        assert_eq!(figures(&record), [0, 0, 1, 0, 0], "it was sent after the move, and the other is another tenant");
        move_at(&mut record, 30 * MS, "t0");
        assert_eq!(figures(&record), [0; 5]);
    }
}

#[test]
fn soak_judge_counts_doubled_effects() {
    let path = "/other/job-0.0-1";
    let again = [seen_request(path, 10), seen_request(path, 900)];
    let mut record = record_with_job(MAIL, path, Some(Place::Delivered(200)), &again);
    record.begun.insert("id-1".to_owned());
    assert_eq!(figures(&record), [0, 0, 0, 1, 0], "without a key nothing excuses a second effect");

    let mut record = record_with_job(PARCELS, path, Some(Place::Delivered(200)), &again);
    assert_eq!(figures(&record), [0, 0, 0, 1, 0], "it was answered, and sent again with its key");
    record.begun.insert("id-1".to_owned());
    assert_eq!(figures(&record), [0; 5], "its outcome was lost with the worker");
    record.vendors[PARCELS].seen[1].idempotency_key = "another".to_owned();
    assert_eq!(figures(&record), [0, 0, 0, 1, 0], "with another key the vendor acts again");

    let mut record = record_with_job(PARCELS, path, Some(Place::Delivered(200)), &again);
    record.vendors[PARCELS].seen[0].status = 0;
    assert_eq!(figures(&record), [0; 5], "the vendor did not answer");
}

#[test]
fn soak_judge_counts_false_not_sent_errors() {
    for path in ["/other/post-0.0-1", "/other/job-0.0-1"] {
        let mut record = clean_record();
        let failed = Outcome::Failed("NotSent".to_owned(), "store".to_owned());
        record_request(&mut record, MAIL, path, Some(failed));
        record.stalls.push(Span { from: 0, until: 5 * SECOND });
        record.vendors[MAIL].seen.push(seen_request(path, 10));
        assert_eq!(figures(&record), [0, 0, 0, 1, 0], "{path}");
    }
}

#[test]
fn soak_judge_counts_what_does_not_move() {
    let path = "/other/job-0.0-1";
    assert_eq!(figures(&record_with_job(MAIL, path, Some(Place::Waiting), &[])), [0, 0, 0, 0, 1]);

    let mut record = clean_record();
    record_request(&mut record, MAIL, "/other/get-0.0-1", None);
    assert_eq!(figures(&record), [0, 0, 0, 0, 1], "it never ended");

    let deadline = Outcome::Failed("NotSent".to_owned(), "deadline".to_owned());
    let mut record = clean_record();
    record_request(&mut record, MAIL, "/other/get-0.0-1", Some(deadline.clone()));
    record.told.get_mut("/other/get-0.0-1").unwrap().ended = Some((20 * SECOND, deadline));
    record.vendors[MAIL].outages.push(Span { from: 4 * SECOND, until: 6 * SECOND });
    assert_eq!(figures(&record), [0, 0, 0, 0, 1], "ten seconds after the outage and the pause of three seconds");
    record.vendors[MAIL].outages[0].until = 11 * SECOND;
    assert_eq!(figures(&record), [0; 5]);

    // Successive outages make the pause longer. After a quiet time the pause is short again.
    record.vendors[MAIL].outages =
        vec![Span { from: 0, until: 2 * SECOND }, Span { from: 4 * SECOND, until: 6 * SECOND }];
    assert_eq!(figures(&record), [0; 5], "six seconds of failures, and a pause of seven");
    record.vendors[MAIL].outages[0].until = SECOND;
    assert_eq!(figures(&record), [0, 0, 0, 0, 1]);

    // A request that waits twenty seconds is not stuck while the same tenant's other requests go on at two a second.
    let others = |tenant: &str, count: u64| -> Vec<Seen> {
        let one = |number: u64| Seen {
            key: format!("{tenant}-a"),
            ..seen_request(&format!("/other/get-0.0-{}", number + 2), 500 * number + 100)
        };
        (0..count).map(one).collect()
    };
    record.vendors[MAIL].outages.clear();
    for (tenant, count, stuck) in [("t0", 40, 0), ("t0", 30, 1), ("t1", 40, 1)] {
        record.vendors[MAIL].seen = others(tenant, count);
        assert_eq!(figures(&record), [0, 0, 0, 0, stuck], "{count} of {tenant}");
    }
}

#[test]
fn soak_judge_excuses_failures_after_outage() {
    let connect = Outcome::Failed("NotSent".to_owned(), "connect".to_owned());
    let mut record = clean_record();
    record_request(&mut record, MAIL, "/other/get-0.0-1", Some(connect));
    let told = record.told.get_mut("/other/get-0.0-1").unwrap();
    (told.asked, told.ended.as_mut().unwrap().0) = (8 * SECOND, 8 * SECOND);
    assert_eq!(figures(&record), [0, 0, 0, 0, 1]);
    record.vendors[MAIL].outages.push(Span { from: 4 * SECOND, until: 6 * SECOND });
    assert_eq!(figures(&record), [0; 5], "the host is left alone until nine seconds");
}

/// Not a test: the soak starts this executable again for each of its programs, which run here.
#[test]
fn program_of_the_soak() {
    if let Some(result) = example::run_as_program() {
        result.unwrap();
        // Exits here, because the harness would print lines that are not the program's.
        std::process::exit(0);
    }
}

/// Runs the whole soak, with the same seeds each time, so that a new failure comes from a change of the code.
/// `scripts/soak.sh` draws other seeds.
#[test]
fn minute_of_disturbances_does_no_harm() {
    let stores: &[(&str, u64)] = match std::env::var_os("IC_TEST_POSTGRES") {
        Some(_) if cfg!(feature = "postgres") => &[("sqlite", 626_785), ("postgres", 314_765)],
        _ => &[("sqlite", 626_785)],
    };
    for (store, seed) in stores {
        let options = example::Options {
            // Less than a minute, after which the harness would print a warning among the program's lines.
            seconds: 25,
            store: (*store).to_owned(),
            seed: *seed,
            verbose: true,
            child_arguments: &["--exact", "soak::program_of_the_soak", "--nocapture", "--test-threads=2"],
            ..example::Options::new()
        };
        assert!(example::soak(&options).unwrap(), "see the lines above");
    }
}
