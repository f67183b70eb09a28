//! Ctrl-C, and SIGTERM as service managers send it.
//!
//! They are heard on a thread of their own, so that no blocked write and no busy runtime keeps them from being heard. The
//! first asks a command to end in good order; the second ends the process, if need be without anybody's consent.

use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::watch;

use crate::output::{self, Failure};

/// From the second signal to the end of the process, where the command has not ended by itself.
const LAST: Duration = Duration::from_millis(1_500);

/// How many signals have come.
#[derive(Clone)]
pub(crate) struct Signals {
    count: watch::Receiver<u32>,
}

impl Signals {
    /// Listens from now on, instead of letting the first signal end the process.
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
        // An error would say that the thread is gone: then signals end the process as they do without it.
        let _ = is_listening.recv();
        Ok(Signals { count: counted })
    }

    /// How many have come.
    pub(crate) fn count(&self) -> u32 {
        *self.count.borrow()
    }

    /// Waits until more than `count` have come.
    pub(crate) async fn more_than(&self, count: u32) {
        let mut counted = self.count.clone();
        if counted.wait_for(|now| *now > count).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the first.
    pub(crate) async fn first(&self) {
        self.more_than(0).await;
    }
}

#[cfg(unix)]
struct Heard([Option<tokio::signal::unix::Signal>; 2]);

#[cfg(unix)]
impl Heard {
    fn new() -> Heard {
        use tokio::signal::unix::{SignalKind, signal};
        Heard([SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok()))
    }

    /// The next of them. One that cannot be heard ends the process, as it does by default.
    async fn next(&mut self) {
        async fn one(signal: &mut Option<tokio::signal::unix::Signal>) {
            match signal {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        }
        let Heard([interrupt, terminate]) = self;
        tokio::select! {
            () = one(interrupt) => {}
            () = one(terminate) => {}
        }
    }
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
