//! What the task tells the store, and how it ends.

use super::*;
use crate::config::Holds;
use crate::engine::limit::Figures;

fn wish(claim: u32, returned: Vec<(u64, u32)>, want: u32) -> Wish {
    let figures = Figures { units: 100, again_ns: 1_000_000_000, transit_ns: 0, travels: true };
    Wish { claim, returned, want: [0, want, 0], need: want.min(1), figures, ..Wish::default() }
}

#[test]
fn limit_of_two_shards_has_one_line() {
    let mut lines = Lines::default();
    let numbers = [
        lines.add("moved".to_owned(), wish(40, vec![(5, 3)], 0)),
        lines.add("other".to_owned(), wish(1, Vec::new(), 1)),
        lines.add("moved".to_owned(), Wish { is_starved: true, ..wish(2, vec![(0, 1)], 7) }),
    ];
    assert_eq!(numbers, [0, 1, 0]);
    let expected = Wish { is_starved: true, ..wish(42, vec![(5, 3), (0, 1)], 7) };
    assert_eq!(lines.wishes, [("moved".to_owned(), expected), ("other".to_owned(), wish(1, Vec::new(), 1))]);
    let asked = [(0, (0, 40)), (1, (1, 1)), (0, (7, 2))];
    assert_eq!(main_places(asked.into_iter(), 2), [Some(2), Some(1)], "where requests wait");
}

/// Processes that were restored from one snapshot may have `fastrand` begin equally.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn process_ids_differ_with_equal_seeds() {
    let through = format!("sqlite:{}", crate::store::tests::folder().join("capacity.db").display());
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (pool, _task) = crate::capacity::open(&through, None).await.expect("a pool");
        let sharing = Arc::new(Sharing::new(pool.pace()));
        fastrand::seed(7);
        let mut task = StoreTask::new(pool, Vec::new(), Clock::system(), Duration::from_secs(10), sharing);
        ids.push(task.process.call(Time::ZERO, Vec::new(), false).process);
    }
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn end_without_units_is_short() {
    let longest = Duration::from_secs(5);
    for (returned, expected) in [(vec![(5, 3)], (longest, true)), (Vec::new(), (FAREWELL, false))] {
        let mut process = Process::new(1, Duration::from_secs(10));
        process.call(Time::ZERO, vec![("a".to_owned(), wish(0, returned, 1))], false);
        let call = process.call(Time::ZERO, Vec::new(), true);
        assert_eq!((call.lines.len(), last_call(&call, longest)), (1, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn leave_waits_for_two_calls() {
    let longest = Duration::from_secs(1);
    let holds = Holds { windows_from: Duration::ZERO, name: "a test" };
    let timing = CallTiming { every: (longest, longest), call: longest, leases: (longest, longest), holds };
    let sharing = Sharing::new(timing);
    // A renewal is under way when the client leaves, and both calls take nearly the longest time.
    let calls = async {
        tokio::time::sleep(longest.mul_f64(1.9)).await;
        sharing.ended.send_replace(true);
    };
    let leave = async {
        sharing.leave().await;
        *sharing.ended.borrow()
    };
    let (has_ended, ()) = tokio::join!(leave, calls);
    assert!(has_ended, "the units were given back");
}
