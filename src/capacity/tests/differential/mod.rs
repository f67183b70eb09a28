//! Random calls, each answered by a store and by the pure ledger: both must say the same, and keep the same.
//!
//! The stores are the real ones: a file of SQLite, the server of `IC_TEST_POSTGRES`, that of `IC_TEST_REDIS`. Their clock alone is
//! replaced: the test says what it shows, so that leases and windows end within a run, and the clock can step.
//!
//! A few thousand calls about one limit are made unless `SHARING_CALLS` says how many; `SHARING_SEED` has others made.

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
trait Keeps {
    const NAME: &str;
    /// What the store knows after it was emptied.
    const LOSS: Loss;

    /// Answers a call at the moment `clock_us` of the store's clock.
    async fn exchange(&mut self, clock_us: u64, call: &Call) -> Answer;
    /// All that the store keeps: whatever names it uses, with their texts.
    async fn all(&mut self) -> Vec<Row>;
    /// Puts `rows` in the place of all that the store keeps.
    async fn replace(&mut self, rows: &[Row]);
    /// The ledgers among `rows`, by the limits' names.
    fn ledgers(rows: &[Row]) -> BTreeMap<String, String>;
    /// What is left of `rows` when the store has lost what it can lose.
    fn after_loss(rows: &[Row]) -> Vec<Row>;
}

/// Where a text is kept, under which name, and the text.
type Row = (&'static str, String, String);

/// What a run has compared.
#[derive(Debug, Default)]
struct Tally {
    /// Calls, each of which is about one limit.
    calls: usize,
    differing: usize,
    /// How often the store lost its ledgers, and was given those of a backup.
    losses: usize,
    restores: usize,
    /// The first difference.
    example: Option<String>,
}

impl Tally {
    fn differs(&mut self, what: impl FnOnce() -> String) {
        self.differing += 1;
        self.example.get_or_insert_with(what);
    }
}

fn variable(name: &str) -> Option<usize> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Makes `calls` random calls. `forgets`: the store's writings of the second half are undone, of which the reference knows nothing.
async fn compare<S: Keeps>(store: &mut S, calls: usize, forgets: bool) -> Tally {
    let seed = variable("SHARING_SEED").unwrap_or(1) as u64;
    // One statement or script is about many limits where many calls are made.
    let widest = (calls / 200).clamp(20, 500);
    let mut callers = Callers::new(seed, widest);
    let mut reference = Reference::new(S::LOSS);
    let mut tally = Tally::default();
    let mut earlier = None;
    for round in 0usize.. {
        if tally.calls >= calls {
            break;
        }
        match callers.happens(round) {
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
        let (clock_us, call) = callers.next();
        let (theirs, ours) = (store.exchange(clock_us, &call).await, reference.exchange(clock_us, &call));
        if theirs.clock_us != clock_us {
            tally.differs(|| format!("round {round}: the clock is {clock_us}, the answer says {}", theirs.clock_us));
        }
        assert_eq!(theirs.got.len(), ours.len());
        for ((entry, theirs), ours) in call.lines.iter().zip(&theirs.got).zip(&ours) {
            if theirs != ours {
                tally.differs(|| {
                    format!(
                        "round {round}, process {}, {entry:?}:\n{} {theirs:?}\nledger {ours:?}",
                        call.process,
                        S::NAME
                    )
                });
            }
        }
        tally.calls += call.lines.len();
        callers.answered(clock_us, &call, &theirs);
        if let Some(before) = before {
            store.replace(&before).await;
        }
        if round.is_multiple_of(50) || tally.calls >= calls {
            kept_alike::<S>(&store.all().await, &reference, round, &mut tally);
        }
    }
    println!("differential: store={} calls={} differing={}", S::NAME, tally.calls, tally.differing);
    println!("losses={} restores={}", tally.losses, tally.restores);
    println!("{}", callers.seen());
    tally
}

/// What is kept is compared as what it means: of a number there are several ways to write it.
fn kept_alike<S: Keeps>(rows: &[Row], reference: &Reference, round: usize, tally: &mut Tally) {
    let kept = S::ledgers(rows);
    if !kept.keys().eq(reference.ledgers.keys()) {
        tally.differs(|| format!("round {round}: {} keeps the ledgers of {:?}", S::NAME, kept.keys()));
    }
    for (limit, ours) in &reference.ledgers {
        let Some(text) = kept.get(limit) else { continue };
        if serde_json::from_str(text).ok().as_ref() != Some(ours) {
            tally.differs(|| format!("round {round}: {} keeps of {limit} {text}\nledger {ours:?}", S::NAME));
        }
    }
}

/// The same as the pure ledger, for all of a run.
async fn alike<S: Keeps>(store: &mut S) {
    let tally = compare(store, variable("SHARING_CALLS").unwrap_or(4_000), false).await;
    assert_eq!(tally.differing, 0, "{}", tally.example.unwrap_or_default());
    assert!(tally.restores > 0, "no backup came back");
    assert!(S::LOSS == Loss::Never || tally.losses > 0, "nothing was lost");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_answers_as_the_ledger_does() {
    alike(&mut sql::sqlite().await).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn postgres_answers_as_the_ledger_does() {
    alike(&mut sql::postgres().await).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn redis_answers_as_the_ledger_does() {
    alike(&mut redis::redis().await).await;
}

/// A store that loses what it has acknowledged is found out.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn writings_that_are_lost_are_found() {
    let tally = compare(&mut sql::sqlite().await, 400, true).await;
    assert!(tally.differing > 0);
}
