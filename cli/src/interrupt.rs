//! Handles Ctrl-C, SIGTERM as service managers send it, and SIGHUP as a terminal sends it that is closed.
//!
//! A thread of its own waits for signals, so that no blocked write and no busy runtime delays them. The first signal
//! asks the command to end in good order. After the second signal the process ends within [`LAST`] with exit code 3, even if the
//! command does not react; a third ends it at once.

use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::watch;

use crate::output::{self, Failure};

/// The time from the second signal to the end of the process, if the command has not ended by itself.
const LAST: Duration = Duration::from_millis(1_500);

/// Counts the signals that the process has received.
#[derive(Clone)]
pub(crate) struct Signals {
    count: watch::Receiver<u32>,
}

impl Signals {
    /// Starts to listen for signals, which would end the process otherwise.
    pub(crate) fn listen() -> Result<Signals, Failure> {
        let failed = |error: std::io::Error| Failure::Input(format!("signals cannot be heard: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (count, counted) = watch::channel(0);
        let (listens, is_listening) = mpsc::channel();
        let listen = move || {
            runtime.block_on(async {
                let mut heard = Heard::new();
                let _ = listens.send(());
                for number in 1..=3 {
                    match number {
                        3 => tokio::select! {
                            () = heard.next() => {}
                            () = tokio::time::sleep(LAST) => {}
                        },
                        _ => heard.next().await,
                    }
                    count.send_replace(number);
                }
            });
            std::process::exit(output::INTERRUPTED.into());
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed)?;
        // Waits until the thread listens. An error means that it failed before that; signals then end the process, as
        // they do by default.
        let _ = is_listening.recv();
        Ok(Signals { count: counted })
    }

    /// The number of signals received so far.
    pub(crate) fn count(&self) -> u32 {
        *self.count.borrow()
    }

    /// Waits until more than `count` signals were received.
    pub(crate) async fn more_than(&self, count: u32) {
        let mut counted = self.count.clone();
        if counted.wait_for(|now| *now > count).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the first signal.
    pub(crate) async fn first(&self) {
        self.more_than(0).await;
    }
}

/// Lets the write to a file that has reached the limit on its size (`ulimit -f`) fail, as on a full disk. On Linux the
/// signal would end the process by default.
pub(crate) fn outlive_file_limits() {
    #[cfg(target_os = "linux")]
    {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        let _entered = runtime.enter();
        // The handler stays when its `Signal` and the runtime are dropped. With it, such a write fails with EFBIG.
        let _ = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::from_raw(FILE_TOO_LARGE));
    }
}

#[cfg(unix)]
struct Heard([Option<tokio::signal::unix::Signal>; 3]);

/// SIGXFSZ, for which tokio has no name. It has another number on MIPS alone, where this one is of no consequence.
#[cfg(target_os = "linux")]
const FILE_TOO_LARGE: i32 = 25;

#[cfg(unix)]
impl Heard {
    fn new() -> Heard {
        use tokio::signal::unix::{SignalKind, signal};
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok());
        // Only Linux has this file. Elsewhere the action of the signal is not known, and stays as it is.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = if is_hangup_heeded(&status) { signal(SignalKind::hangup()).ok() } else { None };
        Heard([interrupt, terminate, hangup])
    }

    /// Waits for the next signal. A signal whose handler could not be installed keeps its default action and ends the
    /// process.
    async fn next(&mut self) {
        async fn one(signal: &mut Option<tokio::signal::unix::Signal>) {
            match signal {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        }
        let Heard([interrupt, terminate, hangup]) = self;
        tokio::select! {
            () = one(interrupt) => {}
            () = one(terminate) => {}
            // A terminal that is closed may send it twice, itself and by its shell, and means one end in good order.
            () = one(hangup) => *hangup = None,
        }
    }
}

/// Whether SIGHUP ends this process, by the text of `/proc/self/status`, which has the ignored signals as a mask. `nohup`
/// starts a program so that it ignores the signal, and a handler would undo that.
#[cfg(unix)]
fn is_hangup_heeded(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The signal's number is 1, and its bit the lowest.
    ignored.is_some_and(|mask| mask & 1 == 0)
}

#[cfg(not(unix))]
struct Heard;

#[cfg(not(unix))]
impl Heard {
    fn new() -> Heard {
        Heard
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn ignored_hangup_stays_ignored() {
        let status =
            |mask: &str| format!("Name:\tintegration-cli\nSigBlk:\t0000000000000000\nSigIgn:\t{mask}\nSigCgt:\t1\n");
        assert!(is_hangup_heeded(&status("0000000000001000")), "only SIGPIPE is ignored");
        assert!(!is_hangup_heeded(&status("0000000000001001")), "nohup started it");
        assert!(!is_hangup_heeded(""), "nobody knows");
    }
}
