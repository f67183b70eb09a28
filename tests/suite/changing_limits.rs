//! Vendors that change a limit during the day and announce the new figure in the headers of every response, in virtual
//! time: what the change costs, and how much of the new limit is used, for each scope and each way of counting.
#![allow(clippy::print_stdout, reason = "figures are printed")]

use std::ops::Range;
use std::sync::LazyLock;
use std::time::Duration;

use integration_client::testing::saturation::{
    Case, Cell, Counting, LimitChange, LimitScope, Reset, SharedKey, StatedHeaders, Travel, Usage,
};

/// The limit that the client's configuration states, in requests per window.
const LIMIT: u32 = 100;
/// The lower limit, and the higher one.
const LOWERED: u32 = 50;
const RAISED: u32 = 200;
const WINDOW: Duration = Duration::from_secs(1);
/// The first window of the other limit, the first window in which the vendor returns to `LIMIT`, and the number of
/// windows of a run. With `safety` 0.8 the bucket of 80 units begins with a burst of 80, which is smaller by 20 in each
/// window after that, so bursts are over when the limit changes.
const FROM: u64 = 12;
const UNTIL: u64 = 27;
const END: u64 = 40;
/// The longest time that a request or a response travels with `Travel::EachWay`, in milliseconds.
const LONGEST_WAY_MS: u64 = 50;
/// Phases in which a fixed window of the vendor has passed by 75, 44 and 93 % when the limit changes. In the first and
/// the last it then holds more requests than the lower limit.
const PHASES: [u64; 3] = [10, 2, 1];
const HEADERS: StatedHeaders = StatedHeaders::Windows(Reset::Exact);

#[derive(Clone, Copy, Debug)]
struct Setting {
    scope: LimitScope,
    counting: Counting,
    travel: Travel,
    safety: f64,
    /// The number of the phase of the vendor's windows.
    phase: u64,
}

impl Setting {
    /// All scopes, ways of counting, latencies and shares of the limit. What a phase changes shows with one scope.
    fn all() -> Vec<Setting> {
        let mut all = Vec::new();
        for (scope, counting) in LimitScope::ALL.into_iter().flat_map(|scope| Cell::COUNTINGS.map(|of| (scope, of))) {
            let phases = if scope == LimitScope::Tenant { &PHASES[..] } else { &PHASES[..1] };
            for travel in [Travel::Instant, Travel::EachWay] {
                for safety in [0.8, 1.0] {
                    all.extend(phases.iter().map(|&phase| Setting { scope, counting, travel, safety, phase }));
                }
            }
        }
        all
    }

    /// The use of one client that always has more to send. The vendor's limit is `limit` from `FROM` to `until`.
    fn run(self, limit: u32, until: u64, stated: StatedHeaders) -> Usage {
        let case = Case::new(self.counting, LIMIT, WINDOW, self.safety, self.travel).scope(self.scope);
        let change = (limit != LIMIT).then_some(LimitChange { limit, from: FROM, until });
        let key = SharedKey { case, stated, clients: 1, other: None, change };
        key.run(END, self.phase).expect("the case is valid").swap_remove(0)
    }

    /// The most requests that the vendor may refuse because it lowered its limit.
    ///
    /// Let `g` be the moment of the first grant after the change. Its request arrives after the change, so its response
    /// announces the new limit, and is back one round trip after `g` at the latest. A request that the new limit
    /// refuses and the old one would not was granted before that, and arrived after the change, so it was granted at
    /// most one way before the change. At an even pace of at most `LIMIT` that makes the requests of one way, the one
    /// at `g`, and those of one round trip.
    ///
    /// Not all go at an even pace. A client that uses the whole of a limit (`safety` 1) sends all units in its first
    /// burst, and again whenever the log or counter of its guard gives them back together. A limit whose algorithm is
    /// unknown has a bucket of a tenth.
    fn most_refused(self) -> u64 {
        use Counting::{FixedWindow, SlidingCounter, SlidingWindow, UnknownBucket, UnknownCounter, UnknownWindow};
        let limit = u64::from(LIMIT);
        let way_ms = if self.travel == Travel::Instant { 0 } else { LONGEST_WAY_MS };
        let sent_in = |ms: u64| limit * ms / 1_000;
        let burst = match self.counting {
            _ if self.safety < 1.0 => 0,
            FixedWindow | SlidingWindow | SlidingCounter => limit,
            UnknownCounter | UnknownWindow | UnknownBucket => limit / 10,
            _ => 0,
        };
        (sent_in(way_ms) + 1 + sent_in(2 * way_ms) + burst).min(limit)
    }

    /// The share of a limit that is used at least. A request in flight counts in the client's guard for as long as it
    /// may arrive, so a guard that must stay below the whole limit lets no more through than a window divided by a
    /// window and a round trip. Of the lower limit each unit is 2 %, and such a guard costs some: a counter leaves one
    /// unit free, and grants that are spaced out do not make up for time that was lost.
    fn least_share(self) -> f64 {
        if self.safety < 1.0 {
            return 0.95 * self.safety;
        }
        let window = WINDOW.as_nanos() as f64;
        0.9 * window / (window + self.travel.mean_round_trip_ns() as f64)
    }
}

fn runs(limit: u32, until: u64) -> Vec<(Setting, Usage)> {
    Setting::all().into_iter().map(|setting| (setting, setting.run(limit, until, HEADERS))).collect()
}

/// Runs in which the vendor lowers its limit, and later returns to the first one.
static LOWERING: LazyLock<Vec<(Setting, Usage)>> = LazyLock::new(|| runs(LOWERED, UNTIL));
/// The same runs with a vendor that changes nothing.
static STEADY: LazyLock<Vec<(Setting, Usage)>> = LazyLock::new(|| runs(LIMIT, END));

fn sum(counts: &[u64], windows: Range<u64>) -> u64 {
    counts[windows.start as usize..windows.end as usize].iter().sum()
}

fn per_window(counts: &[u64], windows: Range<u64>) -> f64 {
    let length = (windows.end - windows.start) as f64;
    sum(counts, windows) as f64 / length
}

/// A line of figures for one run, and whether they keep to the bounds.
type Line = (Setting, String, bool);

/// Prints all lines, and asserts that all runs keep to the bounds.
#[track_caller]
fn assert_all(lines: impl Iterator<Item = Line>) {
    let (mut all, mut short) = (0, Vec::new());
    for (Setting { scope, counting, travel, safety, phase }, figures, holds) in lines {
        let (scope, counting, travel) = (scope.name(), counting.name(), travel.name());
        let line = format!("{scope} {counting} travel={travel} safety={safety} phase={phase}: {figures}");
        println!("{line}");
        all += 1;
        if !holds {
            short.push(line);
        }
    }
    assert!(all > 0 && short.is_empty(), "{} of {all} runs fall short:\n{}", short.len(), short.join("\n"));
}

/// What the vendor refused in a run in which it lowered its limit. The bound: only as many as in
/// [`Setting::most_refused`], none of them granted after the client had been told, and none from two windows later on,
/// not even when the vendor returns to the first limit.
fn cost_of_lowering(setting: Setting, usage: &Usage) -> Line {
    // The vendor's clock may be ahead of the one by which these windows are counted, by 50 millionths.
    let refused = sum(&usage.refused, FROM - 1..FROM + 2);
    let at_other_times = sum(&usage.refused, 0..END) - refused;
    let forewarned = sum(&usage.forewarned, 0..END);
    let most = setting.most_refused();
    let windows: Vec<usize> = (0..END as usize).filter(|window| usage.refused[*window] > 0).collect();
    let figures = format!(
        "refused={refused} most={most} at_other_times={at_other_times} forewarned={forewarned} windows={windows:?}"
    );
    (setting, figures, refused <= most && at_other_times == 0 && forewarned == 0)
}

#[test]
fn lowered_limit_costs_one_round_trip() {
    assert_all(LOWERING.iter().map(|(setting, usage)| cost_of_lowering(*setting, usage)));
}

/// A refusal pauses the client: it states a second at most, to which the client adds up to a tenth. Before that the
/// refusal comes back, and after that a probe goes and comes back, each of which takes up to 0.1 s with
/// `Travel::EachWay`. Then the rate grows from a tenth of the configured one: it reaches the lower one after 0.44 s,
/// which costs 7 requests of the 40 of a window. So the two windows after that of the change lose 0.1 windows to the
/// added tenth, 0.2 to the travel and 0.18 to the growth: they hold 86 % of their requests, or 76 % with
/// `Travel::EachWay`. The bounds leave 2 % for requests that arrive in the next window.
#[test]
fn lowering_costs_one_pause_at_most() {
    let of_usual_share = LOWERING.iter().filter(|(setting, _)| setting.safety < 1.0);
    assert_all(of_usual_share.map(|(setting, usage)| {
        let share = per_window(&usage.admitted, FROM + 1..FROM + 3) / f64::from(LOWERED) / setting.safety;
        let least = if setting.travel == Travel::Instant { 0.84 } else { 0.74 };
        (*setting, format!("{:.1} %, least {:.1} %", 100.0 * share, 100.0 * least), share >= least)
    }));
}

#[test]
fn lowered_limit_is_used_up() {
    assert_all(LOWERING.iter().map(|(setting, usage)| {
        let share = per_window(&usage.admitted, FROM + 3..UNTIL) / f64::from(LOWERED);
        let least = setting.least_share();
        (*setting, format!("{:.1} %, least {:.1} %", 100.0 * share, 100.0 * least), share >= least)
    }));
}

/// The first response after the change announces the first limit, so full use begins a round trip later. Compared with
/// the same windows of a client whose vendor changes nothing.
#[test]
fn restored_limit_is_used_again() {
    assert_all(LOWERING.iter().zip(STEADY.iter()).map(|((setting, usage), (_, steady))| {
        let windows = UNTIL + 2..END;
        let share = per_window(&usage.admitted, windows.clone()) / per_window(&steady.admitted, windows);
        let refused = sum(&usage.refused, UNTIL..END);
        let figures = format!("{:.1} % of the steady use, refused={refused}", 100.0 * share);
        (*setting, figures, share >= 0.95 && refused == 0)
    }));
}

/// The client keeps to its configured limit, as if the vendor had changed nothing.
#[test]
fn raised_limit_changes_nothing() {
    let raised = runs(RAISED, END);
    assert_all(raised.iter().zip(STEADY.iter()).map(|((setting, usage), (_, steady))| {
        let share = per_window(&usage.admitted, FROM..END) / per_window(&steady.admitted, FROM..END);
        let refused = sum(&usage.refused, 0..END) + sum(&steady.refused, 0..END);
        let figures = format!("{:.1} % of the steady use, refused={refused}", 100.0 * share);
        (*setting, figures, (0.99..=1.01).contains(&share) && refused == 0)
    }));
}

/// The vendor's headers call the limit by a name of their own. The client knows by the figure which limit is meant, and
/// must still know it when the figure has changed: for all tenants who share the limit.
#[test]
fn limit_of_another_name_is_lowered() {
    let countings = [Counting::FixedWindow, Counting::SlidingWindow, Counting::TokenBucket];
    let (travel, safety, phase) = (Travel::EachWay, 0.8, PHASES[0]);
    let settings = LimitScope::ALL.into_iter().flat_map(|scope| countings.map(|counting| (scope, counting)));
    assert_all(settings.map(|(scope, counting)| {
        let setting = Setting { scope, counting, travel, safety, phase };
        cost_of_lowering(setting, &setting.run(LOWERED, UNTIL, StatedHeaders::Named(Reset::Exact)))
    }));
}
