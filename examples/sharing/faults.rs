//! Faults of a process or of the store in the middle of a run.

use std::process::Command;
use std::time::Duration;

use crate::Fallible;
use crate::process::Worker;

/// Applies the fault to the first process or to the `store`. Returns the processes that are left.
pub(crate) fn happen(fault: &str, store: &str, mut workers: Vec<Worker>) -> Fallible<Vec<Worker>> {
    match fault {
        "none" => {}
        "kill" => drop(workers.remove(0).kill()?),
        "term" => {
            let mut worker = workers.remove(0);
            worker.signal("-TERM")?;
            if !worker.ends_within(Duration::from_secs(5))? {
                return Err("a process did not end within 5 s of SIGTERM".into());
            }
        }
        "stop5" => stop(&workers[0], Duration::from_secs(5))?,
        "stop15" => stop(&workers[0], Duration::from_secs(15))?,
        "store-stop" | "store-away" => {
            for (signal, wait) in [("STOP", if fault == "store-away" { 60 } else { 5 }), ("CONT", 0)] {
                match store {
                    "postgres" => signal_postgres(signal)?,
                    _ => server(store, &["signal", signal])?,
                }
                std::thread::sleep(Duration::from_secs(wait));
            }
        }
        "store-kill" | "store-restart" => {
            server(store, &["kill"])?;
            std::thread::sleep(Duration::from_secs(if fault == "store-kill" { 2 } else { 0 }));
            server(store, &["serve"])?;
        }
        "store-flush" => server(store, &["flush"])?,
        "store-promote" => server(store, &["promote"])?,
        "store-ahead" => server(store, &["step", "+8"])?,
        "store-behind" => server(store, &["step", "-8"])?,
        other => return Err(format!("--fault {other}: there is no such fault").into()),
    }
    Ok(workers)
}

fn stop(worker: &Worker, time: Duration) -> Fallible<()> {
    worker.signal("-STOP")?;
    std::thread::sleep(time);
    worker.signal("-CONT")
}

/// Runs a command of the store's server script. Fails if the script fails.
fn server(store: &str, command: &[&str]) -> Fallible<()> {
    let done = Command::new(format!("scripts/{store}.sh")).args(command).status()?;
    if done.success() { Ok(()) } else { Err(format!("scripts/{store}.sh {} failed", command.join(" ")).into()) }
}

/// Signals all processes of the PostgreSQL server.
fn signal_postgres(signal: &str) -> Fallible<()> {
    let folder = std::env::var("IC_TEST_POSTGRES_DIR").map_err(|_| "IC_TEST_POSTGRES_DIR names no folder")?;
    let pid = std::fs::read_to_string(format!("{folder}/data/postmaster.pid"))?;
    let pid = pid.lines().next().ok_or("the server's pid file is empty")?.to_owned();
    let children = Command::new("pgrep").args(["-P", &pid]).output()?;
    let children = String::from_utf8(children.stdout)?;
    let all: Vec<&str> = [pid.as_str()].into_iter().chain(children.lines()).collect();
    // Not checked, because a process of the server may have ended meanwhile.
    Command::new("kill").arg(format!("-{signal}")).args(&all).status()?;
    Ok(())
}
