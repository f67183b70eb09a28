//! One of the processes: it sends as much as it may until its input ends.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::store::Store;
use integration_client::{IntegrationClient, IntegrationClientBuilder, Priority, Request};

use crate::process::Worker;
use crate::{Fallible, Options};

/// How many requests each tier has waiting.
const WAITING: usize = 40;

/// Starts this program again, as worker `number`.
pub(crate) fn start(options: &Options, vendors: &str, store: &str, number: u32) -> Fallible<Worker> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env("SHARING_WORKER", number.to_string()).env("SHARING_VENDORS", vendors).env("SHARING_STORE", store);
    command.env("SHARING_DEMAND", &options.demand).env("SHARING_OF", options.processes.to_string());
    command.env("SHARING_JOBS", options.jobs.to_string()).env("SHARING_FLOOR", options.floor.to_string());
    command.env("SHARING_KEY", "key").env("SHARING_LEASE", options.lease.as_millis().to_string());
    Worker::start(command, false)
}

pub(crate) fn work(number: &str) -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(send(number.parse()?))
}

/// The tiers in which a process has requests waiting.
fn tiers(demand: &str, number: u32) -> Vec<Priority> {
    match demand {
        // Some processes have all tiers, some only the lowest: the tiers' shares hold over all processes.
        "tiers" if number.is_multiple_of(2) => vec![Priority::High, Priority::Normal, Priority::Low],
        "tiers" => vec![Priority::Low],
        _ => vec![Priority::Normal],
    }
}

/// A builder for a client with the run's only tenant.
pub(crate) fn client_of(vendors: &str) -> IntegrationClientBuilder {
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendors)
        .tenant(TenantEntry::new("acme", "v").credential("env:SHARING_KEY"))
}

async fn send(number: u32) -> Fallible<()> {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
    let demand = variable("SHARING_DEMAND")?;
    let of: u32 = variable("SHARING_OF")?.parse()?;
    let drains = variable("SHARING_JOBS")? != "0";
    let builder = client_of(&variable("SHARING_VENDORS")?);
    let store = variable("SHARING_STORE")?;
    let floor: f64 = variable("SHARING_FLOOR")?.parse()?;
    let builder = if floor > 0.0 { builder.sharing_floor(floor, of) } else { builder };
    let client = match drains {
        true => builder.store(Store::url(&store)).work().share_through("store"),
        false => builder.share_through(store),
    };
    let client = client
        .sharing_lease(Duration::from_millis(variable("SHARING_LEASE")?.parse()?))
        .default_deadline(Duration::from_secs(300))
        .build()
        .await?;
    println!("ready");
    let began = Instant::now();
    let cold = Arc::new(AtomicU64::new(0));
    for tier in if drains { Vec::new() } else { tiers(&demand, number) } {
        for _ in 0..WAITING {
            let (client, demand, cold) = (client.clone(), demand.clone(), cold.clone());
            tokio::spawn(async move {
                let path = format!("/{number}/{tier:?}");
                loop {
                    let hot = match demand.as_str() {
                        "hot" => 0,
                        "moving" => (began.elapsed().as_secs() / 10) as u32 % of,
                        _ => number,
                    };
                    if hot != number {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        continue;
                    }
                    match client.send("acme", tier, Request::get("v", path.as_str())).await {
                        Ok(_) => {
                            if cold.load(Relaxed) == 0 {
                                cold.store(u64::try_from(began.elapsed().as_millis()).unwrap_or(0).max(1), Relaxed);
                            }
                        }
                        Err(error) if error.kind() == integration_client::ErrorKind::Shutdown => return,
                        Err(error) => {
                            println!("failed {error}");
                            tokio::time::sleep(Duration::from_millis(100)).await;
                        }
                    }
                }
            });
        }
    }
    let input = tokio::task::spawn_blocking(|| std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new()));
    #[cfg(unix)]
    let terminated = async {
        let mut signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        signal.recv().await;
        std::io::Result::Ok(())
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<std::io::Result<()>>();
    tokio::select! {
        read = input => drop(read??),
        ended = terminated => ended?,
    }
    client.shutdown(Duration::from_millis(300)).await;
    println!("cold_ms {}", cold.load(Relaxed));
    std::process::exit(0);
}
