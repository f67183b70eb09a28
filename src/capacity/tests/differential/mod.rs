//! Random calls, each answered by a store and by the pure ledger. Both must give the same answers and keep the same
//! ledgers.
//!
//! The stores are real: a SQLite file, the server of `IC_TEST_POSTGRES` and that of `IC_TEST_REDIS`. Only their clock
//! is replaced by one that the test sets, so that leases and windows end within a run, and the clock can step.
//!
//! A run makes a few thousand calls about one limit each, unless `SHARING_CALLS` gives another number. `SHARING_SEED`
//! changes the calls.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

mod calls;
#[cfg(feature = "redis")]
mod redis;
mod reference;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql;

use std::collections::BTreeMap;

use self::calls::Callers;
use self::reference::{Loss, Reference};
use crate::capacity::call::{Answer, Call};

/// A store under test.
trait LedgerStore {
    const NAME: &str;
    /// What the store knows after it has been emptied.
    const LOSS: Loss;

    /// Answers a call at the moment `clock_us` of the store's clock.
    async fn exchange(&mut self, clock_us: u64, call: &Call) -> Answer;
    /// All that the store keeps: its names, with their texts.
    async fn all(&mut self) -> Vec<Row>;
    /// Replaces all that the store keeps with `rows`.
    async fn replace(&mut self, rows: &[Row]);
    /// The ledgers among `rows`, by the names of their limits.
    fn ledgers(rows: &[Row]) -> BTreeMap<String, String>;
    /// The part of `rows` that remains after the store has lost all that it can lose.
    fn after_loss(rows: &[Row]) -> Vec<Row>;
}

/// The place of a text in the store, its name there, and the text.
type Row = (&'static str, String, String);

/// The counts of a comparison.
#[derive(Debug, Default)]
struct Tally {
    /// Number of calls, counted once per limit.
    calls: usize,
    differing: usize,
    /// How often the store lost its ledgers. `restores` counts how often it was reset to a backup.
    losses: usize,
    restores: usize,
    /// The first difference.
    example: Option<String>,
}

impl Tally {
    fn record_difference(&mut self, what: impl FnOnce() -> String) {
        self.differing += 1;
        self.example.get_or_insert_with(what);
    }
}

fn variable(name: &str) -> Option<usize> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Makes `calls` random calls. If `forgets`, the store's writes in the second half of the run are undone, unknown to
/// the reference.
async fn compare<S: LedgerStore>(store: &mut S, calls: usize, forgets: bool) -> Tally {
    let seed = variable("SHARING_SEED").unwrap_or(1) as u64;
    // The more calls a run makes, the more limits one statement or script covers.
    let widest = (calls / 200).clamp(20, 500);
    let mut callers = Callers::new(seed, widest);
    let mut reference = Reference::new(S::LOSS);
    let mut tally = Tally::default();
    let mut earlier = None;
    for round in 0usize.. {
        if tally.calls >= calls {
            break;
        }
        match callers.draw_event(round) {
            calls::Event::Loss if S::LOSS != Loss::Never => {
                let left = S::after_loss(&store.all().await);
                store.replace(&left).await;
                reference.lose();
                earlier = None;
                tally.losses += 1;
            }
            calls::Event::Backup => earlier = Some((store.all().await, reference.clone())),
            calls::Event::Restore => {
                if let Some((rows, then)) = &earlier {
                    store.replace(rows).await;
                    reference = then.clone();
                    tally.restores += 1;
                }
            }
            _ => {}
        }
        let before = if forgets && tally.calls * 2 > calls { Some(store.all().await) } else { None };
        let (clock_us, call) = callers.next_call();
        let (theirs, ours) = (store.exchange(clock_us, &call).await, reference.exchange(clock_us, &call));
        if theirs.clock_us != clock_us {
            tally.record_difference(|| {
                format!("round {round}: the clock is {clock_us}, the answer says {}", theirs.clock_us)
            });
        }
        assert_eq!(theirs.got.len(), ours.len());
        for ((entry, theirs), ours) in call.lines.iter().zip(&theirs.got).zip(&ours) {
            if theirs.as_ref() != Ok(ours) {
                tally.record_difference(|| {
                    format!(
                        "round {round}, process {}, {entry:?}:\n{} {theirs:?}\nledger {ours:?}",
                        call.process,
                        S::NAME
                    )
                });
            }
        }
        tally.calls += call.lines.len();
        callers.deliver_answer(clock_us, &call, &theirs);
        if let Some(before) = before {
            store.replace(&before).await;
        }
        if round.is_multiple_of(50) || tally.calls >= calls {
            compare_kept_ledgers::<S>(&store.all().await, &reference, round, &mut tally);
        }
    }
    println!("differential: store={} calls={} differing={}", S::NAME, tally.calls, tally.differing);
    println!("losses={} restores={}", tally.losses, tally.restores);
    println!("{}", callers.summary());
    tally
}

/// Compares the stored ledgers by value, because a number can be written in several ways.
fn compare_kept_ledgers<S: LedgerStore>(rows: &[Row], reference: &Reference, round: usize, tally: &mut Tally) {
    let kept = S::ledgers(rows);
    if !kept.keys().eq(reference.ledgers.keys()) {
        tally.record_difference(|| format!("round {round}: {} keeps the ledgers of {:?}", S::NAME, kept.keys()));
    }
    for (limit, ours) in &reference.ledgers {
        let Some(text) = kept.get(limit) else { continue };
        if serde_json::from_str(text).ok().as_ref() != Some(ours) {
            tally.record_difference(|| format!("round {round}: {} keeps of {limit} {text}\nledger {ours:?}", S::NAME));
        }
    }
}

/// Asserts that a store agrees with the pure ledger for a whole run.
async fn assert_agrees_with_ledger<S: LedgerStore>(store: &mut S) {
    let tally = compare(store, variable("SHARING_CALLS").unwrap_or(4_000), false).await;
    assert_eq!(tally.differing, 0, "{}", tally.example.unwrap_or_default());
    assert!(tally.restores > 0, "no backup came back");
    assert!(S::LOSS == Loss::Never || tally.losses > 0, "nothing was lost");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_answers_as_the_ledger_does() {
    assert_agrees_with_ledger(&mut sql::sqlite().await).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn postgres_answers_as_the_ledger_does() {
    assert_agrees_with_ledger(&mut sql::postgres().await).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn redis_answers_as_the_ledger_does() {
    assert_agrees_with_ledger(&mut redis::redis().await).await;
}

/// Negative control: a store that loses acknowledged writes is detected.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn lost_writes_are_detected() {
    let tally = compare(&mut sql::sqlite().await, 400, true).await;
    assert!(tally.differing > 0);
}
