//! What the task tells the store, and how it ends.

use super::*;
use crate::config::{Config, Holds, Sources, TenantEntry};
use crate::dispatch::plan::Policy;
use crate::dispatch::{Dispatch, LaneRef};
use crate::engine::limit::Figures;
use crate::engine::plan::NO_ENDPOINT;
use crate::engine::tier::Tier;
use crate::engine::{Ask, Attempt};

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

/// 200 tenants of a vendor with a limit for each of them; `more` adds another.
fn config(more: &str) -> Config {
    let limit = "algorithm = \"sliding_window\"\nlimit = 100\nwindow = \"1m\"\n";
    let text = format!(
        "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"none\" }}\n\
         [[vendors.v.limits]]\nname = \"requests\"\nscope = \"tenant\"\n{limit}{more}"
    );
    let tenants = (0..200).map(|number| TenantEntry::new(format!("t{number}"), "v"));
    Config::load(&Sources::new().without_catalogue().file("v", &text).tenants(tenants), 1).unwrap()
}

/// Makes the lane wait for units and gives it five.
fn give_five(place: &LaneRef) {
    let ask = Ask::new(Tier::High, NO_ENDPOINT, 1, Attempt::within(30_000_000_000));
    place.shard.decide(|engine, now| {
        for _ in 0..10 {
            let answer = engine.submit(now, place.lane, &ask);
            assert!(matches!(answer, crate::engine::Answer::Wait { .. }), "{answer:?}");
        }
        let mut wanted = Vec::new();
        engine.wishes(now, |limit, name, _| wanted.extend(name.ends_with("requests").then_some(limit)));
        let got = Got { units: vec![(0, 5)], keep: 5, ..Got::default() };
        for limit in wanted {
            engine.hold(now, limit, &got, Time::MAX);
        }
    });
}

/// A reload wants to move a lane when its old shard has been asked for its wishes, and its new shard has not.
#[test]
fn moving_lane_claims_its_units_once() {
    let holds = Holds { windows_from: Duration::ZERO, name: "a test" };
    let dispatch = Dispatch::new(4, 10_000, Policy { pooled: Some(holds), ..Policy::USUAL }, Clock::system());
    let of_account = "[[vendors.v.limits]]\nname = \"all\"\nscope = \"account\"\nshared = false\n\
                      algorithm = \"sliding_window\"\nlimit = 1000\nwindow = \"1m\"\n";
    let (before, after) = (config(""), config(of_account));
    let number_of = |shard: &Arc<Shard>| dispatch.shards().iter().position(|other| Arc::ptr_eq(other, shard));
    let shards_of = |id: &str| {
        let homes = [&before, &after].map(|config| number_of(dispatch.home(&config.tenant(id, "v").unwrap())));
        homes.map(Option::unwrap)
    };
    let mut ids = before.tenants().map(|tenant| tenant.id.to_string());
    let moves = ids.find(|id| shards_of(id)[0] + 1 < shards_of(id)[1]).expect("a lane that moves over a shard");
    let [old, new] = shards_of(&moves);
    let mut ids = before.tenants().map(|tenant| tenant.id.to_string());
    let stays = ids.find(|id| (old + 1..new).contains(&shards_of(id)[0])).expect("a lane in between");
    for id in [&moves, &stays] {
        give_five(&dispatch.place(&before.tenant(id, "v").unwrap()));
    }
    let [moving, staying] = [&moves, &stays].map(|id| format!("live|v|tenant|{id}||requests"));
    let moved = after.tenant(&moves, "v").unwrap();
    let units_told = || {
        let mut told = Vec::new();
        each_wish(dispatch.shards(), &dispatch.moves, |shard, _, name, wish| {
            // Another thread would wait for the lock, and move the lane as soon as it has it.
            if name == staying && dispatch.moves.try_lock().is_some() {
                dispatch.update(&moved);
            }
            if name == moving {
                told.push((shard, wish.claim + wish.returned.iter().map(|(_, units)| units).sum::<u32>()));
            }
        });
        told
    };
    assert_eq!(units_told(), [(old, 5)]);
    dispatch.update(&moved);
    let told = units_told();
    assert!(matches!(told[..], [(shard, 1..=5)] if shard == new), "{told:?}");
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
        let mut task =
            StoreTask::new(pool, Vec::new(), Arc::default(), Clock::system(), Duration::from_secs(10), sharing);
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
