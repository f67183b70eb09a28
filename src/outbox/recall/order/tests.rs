//! Tests of which lanes' stored usage is read, and when.

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn names(lanes: &[(Lane, Left)]) -> Vec<&str> {
    lanes.iter().map(|((tenant, _), _)| &**tenant).collect()
}

fn lane(tenant: &str) -> Lane {
    (tenant.into(), "v".into())
}

fn at(minute: u64) -> Time {
    Time::ZERO + Duration::from_secs(60 * minute)
}

impl Lanes {
    /// Adds a tenant of the vendor `v`, with an account of its own.
    fn appears(&mut self, tenant: &str, now: Time) -> bool {
        self.add(&tenant.into(), &"v".into(), &tenant.into(), Some(HOUR), now)
    }

    /// Adds a tenant of the vendor `v`, or has its account changed.
    fn appears_in(&mut self, tenant: &str, account: &str) {
        assert!(!self.add(&tenant.into(), &"v".into(), &account.into(), Some(HOUR), Time::ZERO));
    }

    /// Whether a job of the tenant may be claimed, which counts against limits of this account.
    fn is_ready_in(&mut self, tenant: &str, account: &str) -> bool {
        self.is_ready(&tenant.into(), &"v".into(), Shares::Account(&account.into()))
    }

    /// Reads all lanes that wait, completely. Returns their names.
    fn read_all(&mut self) -> Vec<String> {
        let lanes = self.next(usize::MAX);
        lanes.iter().for_each(|(lane, _)| self.read(lane, None, Time::ZERO));
        names(&lanes).into_iter().map(str::to_owned).collect()
    }
}

fn lanes(tenants: &[&str]) -> Lanes {
    let mut lanes = Lanes::default();
    tenants.iter().for_each(|tenant| assert!(!lanes.appears(tenant, Time::ZERO)));
    lanes
}

#[test]
fn lane_with_jobs_is_replayed_first() {
    let mut lanes = lanes(&["a", "b", "c"]);
    assert!(!lanes.is_ready(&"c".into(), &"v".into(), Shares::Nothing));
    assert!(!lanes.is_ready(&"c".into(), &"v".into(), Shares::Nothing));
    let first = lanes.next(1);
    assert_eq!(names(&first), ["c"]);
    assert!(!lanes.is_ready(&"c".into(), &"v".into(), Shares::Nothing), "it is being read");
    lanes.read(&first[0].0, None, Time::ZERO);
    assert!(lanes.is_ready(&"c".into(), &"v".into(), Shares::Nothing));
    assert_eq!(names(&lanes.next(10)), ["a", "b"]);
    assert!(lanes.next(10).is_empty());
}

#[test]
fn shared_limit_waits_for_the_vendors_lanes() {
    let mut lanes = lanes(&["a", "b"]);
    lanes.add(&"x".into(), &"w".into(), &"x".into(), Some(HOUR), Time::ZERO);
    assert!(!lanes.is_ready(&"b".into(), &"v".into(), Shares::Vendor));
    lanes.appears("c", Time::ZERO);
    let read = lanes.next(3);
    assert_eq!(names(&read), ["b", "a", "c"], "the other vendor's lane is not urgent");
    read[..2].iter().for_each(|(lane, _)| lanes.read(lane, None, Time::ZERO));
    assert!(!lanes.is_ready(&"b".into(), &"v".into(), Shares::Vendor), "c has not been read");
    lanes.read(&read[2].0, None, Time::ZERO);
    assert!(lanes.is_ready(&"b".into(), &"v".into(), Shares::Vendor));
    assert_eq!(names(&lanes.next(3)), ["x"]);
}

#[test]
fn account_waits_for_its_own_lanes_alone() {
    let mut lanes = lanes(&["a", "b"]);
    lanes.appears_in("c", "one");
    lanes.appears_in("d", "one");
    assert!(!lanes.is_ready_in("c", "one"));
    let read = lanes.next(2);
    assert_eq!(names(&read), ["c", "d"], "the lanes of other accounts are not urgent");
    lanes.read(&lane("c"), None, Time::ZERO);
    assert!(!lanes.is_ready_in("c", "one"), "d has not been read");
    lanes.read(&lane("d"), None, Time::ZERO);
    assert!(lanes.is_ready_in("c", "one") && lanes.is_ready_in("d", "one"));
    assert_eq!(lanes.read_all(), ["a", "b"]);
    // Thousands of tenants of other accounts come while the client runs.
    (0..5_000).for_each(|number| assert!(!lanes.appears(&number.to_string(), Time::ZERO)));
    assert!(lanes.is_ready_in("c", "one") && lanes.is_ready_in("a", "a"));
    // One of the account comes.
    lanes.appears_in("e", "one");
    assert!(!lanes.is_ready_in("c", "one"));
    assert_eq!(names(&lanes.next(1)), ["e"]);
    lanes.forget("e", "v", Time::ZERO);
    assert!(!lanes.is_ready_in("c", "one"), "a page of it may be counted");
    lanes.read(&lane("e"), None, Time::ZERO);
    assert!(lanes.is_ready_in("c", "one"));
    assert!(!lanes.is_ready(&"c".into(), &"v".into(), Shares::Vendor), "a limit of all waits for all");
    assert_eq!(lanes.read_all().len(), 5_000);
    assert!(lanes.accounts.is_empty() && lanes.account_of.is_empty() && lanes.unread.is_empty());
}

#[test]
fn account_is_shared_with_the_tenant_of_its_name() {
    let mut lanes = lanes(&["x", "a"]);
    lanes.appears_in("b", "a");
    assert!(!lanes.is_ready_in("b", "a"));
    assert_eq!(names(&lanes.next(2)), ["b", "a"]);
    lanes.read(&lane("b"), None, Time::ZERO);
    assert!(!lanes.is_ready_in("b", "a"), "the other one's usage counts too");
    lanes.read(&lane("a"), None, Time::ZERO);
    assert!(lanes.is_ready_in("b", "a") && lanes.is_ready_in("a", "a"));
}

#[test]
fn account_waits_for_a_lane_that_moves_to_it() {
    let mut lanes = lanes(&["a"]);
    assert_eq!(lanes.read_all(), ["a"]);
    lanes.appears_in("b", "one");
    assert!(lanes.is_ready_in("a", "a"));
    lanes.appears_in("b", "a");
    assert!(!lanes.is_ready_in("a", "a"));
    lanes.appears_in("b", "two");
    assert!(lanes.is_ready_in("a", "a"), "it has moved on");
    assert_eq!(lanes.read_all(), ["b"]);
    lanes.appears_in("b", "a");
    assert!(lanes.is_ready_in("a", "a"), "it has been read");
    assert!(lanes.accounts.is_empty() && lanes.account_of.is_empty());
}

/// Thousands of tenants come to an account, and a job of it asks after each one.
#[test]
fn lanes_that_join_an_account_with_jobs_are_urgent() {
    let mut lanes = lanes(&["a"]);
    lanes.appears_in("b", "two");
    lanes.appears_in("c", "one");
    assert!(!lanes.is_ready_in("c", "one"));
    for number in 0..1_000 {
        lanes.appears_in(&number.to_string(), "one");
        assert!(lanes.accounts[&lane("one")].is_urgent, "the next question looks at none of its lanes");
        assert!(!lanes.is_ready_in("c", "one"));
    }
    assert_eq!(lanes.urgent.len(), 1_001, "each lane is queued once");
    // One that waits already moves to the account, and one is named again.
    lanes.appears_in("b", "one");
    lanes.appears_in("c", "one");
    assert_eq!(lanes.urgent.len(), 1_002);
    let read = lanes.next(1_002);
    assert_eq!((names(&read)[0], names(&read)[1], names(&read)[1_001]), ("c", "0", "b"));
    assert_eq!(names(&lanes.next(2)), ["a"]);
    // The last one leaves, and its account is forgotten.
    read.iter().for_each(|(of, _)| lanes.read(of, None, Time::ZERO));
    lanes.appears_in("d", "one");
    assert!(!lanes.accounts[&lane("one")].is_urgent);
}

#[test]
fn rest_of_a_lane_is_read_before_others_that_have_no_jobs() {
    let mut lanes = lanes(&["a", "b", "c"]);
    let rest = Left { is_restored: true, tables: vec![(Table::Requests, Mark::START)] };
    assert_eq!(names(&lanes.next(1)), ["a"]);
    lanes.read(&lane("a"), Some(rest.clone()), Time::ZERO);
    assert!(!lanes.is_ready(&"c".into(), &"v".into(), Shares::Nothing));
    let read = lanes.next(2);
    assert_eq!(names(&read), ["c", "a"]);
    assert_eq!(read[1].1, rest, "its pauses are not restored again");
    lanes.read(&lane("a"), Some(rest.clone()), Time::ZERO);
    lanes.forget("a", "v", Time::ZERO);
    assert!(!lanes.appears("a", Time::ZERO));
    let again = (lane("a"), Left { is_restored: false, ..rest });
    assert!(lanes.next(2).contains(&again), "its pauses may have gone with it");
}

#[test]
fn unread_tenant_is_read_on_return() {
    let mut lanes = lanes(&["a", "b"]);
    lanes.forget("a", "v", Time::ZERO);
    assert!(lanes.gone.is_empty(), "nothing of it counts");
    assert_eq!(lanes.read_all(), ["b"]);
    assert!(lanes.is_ready(&"b".into(), &"v".into(), Shares::Vendor));
    assert!(!lanes.appears("a", Time::ZERO));
    assert!(!lanes.is_ready(&"b".into(), &"v".into(), Shares::Vendor));
    assert_eq!(names(&lanes.next(10)), ["a"]);
    lanes.forget("a", "v", Time::ZERO);
    lanes.read(&lane("a"), None, Time::ZERO);
    assert!(lanes.is_ready(&"b".into(), &"v".into(), Shares::Vendor));
    assert!(!lanes.is_ready(&"a".into(), &"v".into(), Shares::Nothing), "its tenant is gone");
}

#[test]
fn returning_tenant_is_not_read_twice() {
    let mut lanes = lanes(&["a", "b"]);
    assert_eq!(lanes.read_all(), ["a", "b"]);
    for minute in 0..3 {
        lanes.forget("a", "v", at(minute));
        assert!(lanes.appears("a", at(minute + 1)));
        assert!(lanes.is_ready(&"a".into(), &"v".into(), Shares::Vendor));
    }
    assert!(lanes.gone.is_empty() && lanes.ends.is_empty());
    // What was read counts no longer, and other processes may have used more.
    lanes.forget("a", "v", at(3));
    assert!(!lanes.appears("a", at(63)));
    assert_eq!(lanes.read_all(), ["a"]);
    // A vendor's longest window decides.
    lanes.add(&"c".into(), &"v".into(), &"c".into(), Some(2 * HOUR), at(63));
    lanes.forget("a", "v", at(63));
    assert!(lanes.appears("a", at(182)));
}

#[test]
fn departure_during_a_read_repeats_no_part() {
    let rest = || Left { is_restored: false, tables: vec![(Table::Units, Mark::START)] };
    let mut lanes = lanes(&["a"]);
    assert_eq!(lanes.next(10)[0].1.tables.len(), 2);
    // It goes, comes back and goes again, while one read is under way.
    lanes.forget("a", "v", at(0));
    assert!(!lanes.appears("a", at(1)));
    assert!(lanes.next(10).is_empty());
    lanes.forget("a", "v", at(2));
    lanes.read(&lane("a"), Some(rest()), at(3));
    assert!(lanes.unread.is_empty() && lanes.next(10).is_empty());
    assert!(!lanes.appears("a", at(4)));
    // It goes while the rest waits to be read.
    lanes.forget("a", "v", at(5));
    assert!(!lanes.appears("a", at(6)));
    assert_eq!(lanes.next(10), [(lane("a"), rest())]);
    // It has come back before the read ends, which has missed a part.
    lanes.forget("a", "v", at(7));
    assert!(!lanes.appears("a", at(8)));
    lanes.read(&lane("a"), Some(rest()), at(9));
    assert!(!lanes.is_ready(&"a".into(), &"v".into(), Shares::Vendor), "the part is missing");
    assert_eq!(lanes.next(10), [(lane("a"), rest())]);
    lanes.read(&lane("a"), None, at(10));
    assert!(lanes.is_ready(&"a".into(), &"v".into(), Shares::Vendor));
    assert!(lanes.left.is_empty() && lanes.unread.is_empty());
}

#[test]
fn remembered_departures_are_bounded() {
    let mut lanes = Lanes::default();
    let name = |number: usize| number.to_string();
    (0..MOST_GONE + 2).for_each(|number| assert!(!lanes.appears(&name(number), Time::ZERO)));
    lanes.read_all();
    (0..MOST_GONE + 2).for_each(|number| lanes.forget(&name(number), "v", at(number as u64 % 60)));
    assert!(lanes.known.is_empty());
    assert_eq!((lanes.gone.len(), lanes.ends.len()), (MOST_GONE, MOST_GONE));
    // Those that went in the first minute.
    assert!(!lanes.appears("0", at(59)));
    assert!(lanes.appears(&name(MOST_GONE), at(59)));
    assert_eq!(lanes.read_all(), ["0"]);
    lanes.forget("0", "v", at(500));
    assert_eq!(lanes.gone.len(), 1);
}

#[test]
fn usage_is_read_once_a_limit_counts_by_time() {
    let (tenant, vendor) = (Arc::<str>::from("a"), Arc::<str>::from("v"));
    let mut lanes = Lanes::default();
    let add = |lanes: &mut Lanes, counts| assert!(!lanes.add(&tenant, &vendor, &tenant, counts, Time::ZERO));
    add(&mut lanes, None);
    let [(of, left)] = &lanes.next(10)[..] else { panic!() };
    assert!(left.tables.is_empty(), "only the pauses are read");
    lanes.read(of, None, Time::ZERO);
    assert!(lanes.is_ready(&tenant, &vendor, Shares::Nothing));
    add(&mut lanes, None);
    assert!(lanes.next(10).is_empty());
    // A reload brings a limit.
    add(&mut lanes, Some(HOUR));
    assert!(!lanes.is_ready(&tenant, &vendor, Shares::Nothing));
    assert_eq!(lanes.next(10)[0].1.tables.len(), 2);

    // The same while the pauses wait to be read, and while they are read.
    for is_under_way in [false, true] {
        let mut lanes = Lanes::default();
        add(&mut lanes, None);
        if is_under_way {
            assert_eq!(lanes.next(10).len(), 1);
        }
        add(&mut lanes, Some(HOUR));
        if is_under_way {
            lanes.read(&lane("a"), None, Time::ZERO);
            assert!(!lanes.is_ready(&tenant, &vendor, Shares::Nothing), "its usage has not been read");
        }
        assert_eq!(lanes.next(10)[0].1.tables.len(), 2);
    }
}

#[test]
fn uncounted_lane_is_unknown_once_its_tenant_is_gone() {
    for is_under_way in [false, true] {
        let mut lanes = Lanes::default();
        lanes.add(&"a".into(), &"v".into(), &"a".into(), None, Time::ZERO);
        if is_under_way {
            lanes.next(10);
        }
        lanes.forget("a", "v", Time::ZERO);
        lanes.read(&lane("a"), None, Time::ZERO);
        assert!(!lanes.appears("a", Time::ZERO), "nothing of it counts");
        assert_eq!(lanes.next(10)[0].1.tables.len(), 2);
        assert!(lanes.uncounted.is_empty());
    }
}

/// Its tenant is removed and set again while its pauses are read.
#[test]
fn uncounted_lane_that_was_gone_is_read_again() {
    for is_reported in [false, true] {
        let mut lanes = Lanes::default();
        lanes.add(&"a".into(), &"v".into(), &"a".into(), None, Time::ZERO);
        assert_eq!(lanes.next(10), [(lane("a"), Left::default())]);
        if is_reported {
            lanes.forget("a", "v", Time::ZERO);
            lanes.add(&"a".into(), &"v".into(), &"a".into(), None, Time::ZERO);
        }
        lanes.read(&lane("a"), Some(Left::default()), Time::ZERO);
        assert!(!lanes.is_ready(&"a".into(), &"v".into(), Shares::Nothing), "its pauses are not known");
        assert_eq!(lanes.next(10), [(lane("a"), Left::default())]);
        lanes.read(&lane("a"), None, Time::ZERO);
        assert!(lanes.is_ready(&"a".into(), &"v".into(), Shares::Nothing));
        assert!(lanes.unread.is_empty());
    }
}
