//! Kills and restarts the store's server while two workers go on.

use std::process::Command;
use std::time::{Duration, Instant};

use integration_client::testing::Delay;

use crate::judge::{Judge, World};
use crate::process::Worker;
use crate::{Fallible, Options, database};

/// The longest time after a restart until requests are accepted and sent again.
const BACK: Duration = Duration::from_secs(2);

pub(crate) fn run(options: &Options, restarts: u32) -> Fallible<bool> {
    if options.store != "postgres" {
        return Err("--store-restarts: SQLite has no server; --store postgres".into());
    }
    let service = Delay::fixed(Duration::from_millis(5)).jitter(Duration::from_millis(40));
    let world = World { limit: 240, service, lease: Duration::from_secs(20), workers: 2 };
    let mut judge = Judge::new(options, &world)?;
    let mut random = fastrand::Rng::with_seed(options.seed);
    let working = [judge.start("0")?, judge.start("1")?];
    let mut worst = Duration::ZERO;
    for restart in 1..=restarts {
        std::thread::sleep(Duration::from_millis(random.u64(300..1_500)));
        server("kill")?;
        std::thread::sleep(Duration::from_millis(random.u64(0..2_500)));
        let began = Instant::now();
        let up = {
            let store = judge.orders.store.clone();
            let look = judge.runtime.spawn(async move {
                while database::count(&store, "SELECT 1::bigint").await.is_err() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Instant::now()
            });
            server("serve")?;
            judge.runtime.block_on(look)?
        };
        judge.count_begun()?;
        let back = wait_for_both(&mut judge, &working, up)?;
        println!("crash-test: restart {restart}: the server took {:.0?}, and we {back:.0?} more", up - began);
        worst = worst.max(back);
    }
    for worker in working {
        let ended = worker.finish()?;
        judge.bury(ended);
    }
    judge.count_begun()?;
    let more = format!(" back_ms={}", worst.as_millis());
    Ok(judge.verdict(&format!("store_restarts={restarts}"), &more, true)? && worst <= BACK)
}

/// Returns how long after `up` it took until each worker had accepted a request and the vendor had received one.
fn wait_for_both(judge: &mut Judge, working: &[Worker], up: Instant) -> Fallible<Duration> {
    let sent = judge.vendor.arrivals().len();
    let mut accepted = vec![None; working.len()];
    let mut arrived = None;
    while up.elapsed() < Duration::from_secs(30) {
        for (accepted, worker) in accepted.iter_mut().zip(working) {
            for (at, line) in worker.heard() {
                if line.starts_with("accepted") && at > up {
                    accepted.get_or_insert(at - up);
                }
                judge.hear([line]);
            }
        }
        if arrived.is_none() && judge.vendor.arrivals().len() > sent {
            arrived = Some(up.elapsed());
        }
        let all: Option<Vec<Duration>> = accepted.iter().copied().chain([arrived]).collect();
        if let Some(all) = all {
            return Ok(all.into_iter().max().unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!("30 s after the server's restart: accepted after {accepted:?}, sent after {arrived:?}").into())
}

fn server(command: &str) -> Fallible<()> {
    let done = Command::new("scripts/postgres.sh").arg(command).status()?;
    if done.success() { Ok(()) } else { Err(format!("scripts/postgres.sh {command} failed").into()) }
}
