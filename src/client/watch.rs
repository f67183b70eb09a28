//! Looks whether the configuration has changed, and goes over to it.
//!
//! Every look asks the source for its fingerprint, and loads it only where that does not prove that nothing is new. What
//! is new is loaded twice, a moment apart, and taken when both are the same: a file that is still being written is
//! most often wrong, and at worst valid without its last limits. What is wrong is reported once for each content, and not
//! every second.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::config::{ConfigSource, Sources, run_blocking};
use crate::core::Core;
use crate::error::Error;

/// How long a change must stay the same before it is taken.
const SETTLE: Duration = Duration::from_millis(200);
/// How often a change that goes on changing is loaded in one look.
const LOADS: usize = 5;
/// After this a source that does not answer is reported.
const PATIENCE: Duration = Duration::from_secs(10);

/// Watches until the client is gone.
pub(crate) async fn watch(core: Weak<Core>, source: Arc<dyn ConfigSource>, every: Duration) {
    let mut watch = Watch { core, source, seen: None, reported: None };
    while watch.core.strong_count() > 0 {
        tokio::time::sleep(every).await;
        watch.look(SETTLE.min(every)).await;
    }
}

struct Watch {
    /// Not held while the source is asked, which may take for ever.
    core: Weak<Core>,
    source: Arc<dyn ConfigSource>,
    /// The fingerprint of what was taken, or was refused for what it says.
    seen: Option<u64>,
    /// What was reported last.
    reported: Option<Reported>,
}

#[derive(PartialEq)]
enum Reported {
    /// It could not be loaded, and why.
    Unreadable(String),
    /// What it says is wrong; by the hash of what it says.
    Wrong(u64),
    /// Some rows of it are wrong, and the others are used.
    Rows(String),
}

impl Watch {
    async fn look(&mut self, settle: Duration) {
        let source = self.source.clone();
        let fingerprint = self.answer(source.fingerprint()).await.unwrap_or(None);
        let is_readable = !matches!(self.reported, Some(Reported::Unreadable(_)));
        if fingerprint.is_some() && fingerprint == self.seen && is_readable {
            self.checked();
            return;
        }
        let Some(reloading) = self.core.upgrade().map(|core| core.registry.reload_order.clone()) else { return };
        let reloading = reloading.lock_owned().await;
        let sources = match self.load(&*source, settle).await {
            Ok(Some(sources)) => sources,
            Ok(None) => return self.checked(),
            Err(error) => return self.report(Reported::Unreadable(error.to_string()), &error),
        };
        self.checked();
        let Some(core) = self.core.upgrade() else { return };
        let hash = sources.hash();
        if hash == core.registry.config.load().hash() {
            self.seen = fingerprint;
            source.taken().await;
            if let Some(why) = sources.problem() {
                self.report_rows(&core, why);
            } else if self.reported.take().is_some() | core.registry.problem.lock().take().is_some() {
                tracing::info!(hash = format_args!("{hash:016x}"), "the configuration is again what is in use");
            }
            return;
        }
        if self.reported == Some(Reported::Wrong(hash)) {
            self.seen = fingerprint;
            return;
        }
        let rows = sources.problem().map(str::to_owned);
        let gone_over = run_blocking(move || {
            let _reloading = reloading;
            core.go_over_to(&sources)
        });
        match (gone_over.await.and_then(|result| result), rows) {
            (Ok(_), None) => {
                self.reported = None;
                source.taken().await;
            }
            (Ok(_), Some(why)) => {
                if let Some(core) = self.core.upgrade() {
                    self.report_rows(&core, &why);
                }
            }
            (Err(error), _) => self.report(Reported::Wrong(hash), &error),
        }
        self.seen = fingerprint;
    }

    /// The source has answered.
    fn checked(&self) {
        if let Some(core) = self.core.upgrade() {
            core.registry.checked();
        }
    }

    /// What the source says; nothing while that goes on changing.
    async fn load(&self, source: &dyn ConfigSource, settle: Duration) -> Result<Option<Sources>, Error> {
        let mut before: Option<u64> = None;
        for _ in 0..LOADS {
            let Some(loaded) = self.answer(source.load()).await else {
                return Err(Error::config("the source of the configuration panicked; that is a mistake in its code"));
            };
            let sources = loaded?;
            let hash = sources.hash();
            let in_use = self.core.upgrade().map(|core| core.registry.config.load().hash());
            if before == Some(hash) || in_use == Some(hash) || self.reported == Some(Reported::Wrong(hash)) {
                return Ok(Some(sources));
            }
            before = Some(hash);
            tokio::time::sleep(settle).await;
        }
        Ok(None)
    }

    /// The source has logged it.
    fn report_rows(&mut self, core: &Core, why: &str) {
        let error = Error::config(why);
        core.refused(&error);
        let what = Reported::Rows(why.to_owned());
        if self.reported.as_ref() != Some(&what) {
            core.tell_rejected(&error);
            self.reported = Some(what);
        }
    }

    fn report(&mut self, what: Reported, error: &Error) {
        let Some(core) = self.core.upgrade() else { return };
        core.refused(error);
        if self.reported.as_ref() == Some(&what) {
            return;
        }
        let version = core.registry.config.load().version();
        core.tell_rejected(error);
        tracing::error!(
            version,
            %error,
            "configuration refused, and the one in use stays: correct it, and it is read again by itself"
        );
        self.reported = Some(what);
    }

    /// Waits for the source, however long it takes; nothing where it panics. Asking it again meanwhile would only leave
    /// more threads hanging on a dead disk.
    async fn answer<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = pin!(answer);
        let mut contained = poll_fn(|context| {
            catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)))
                .map_or(std::task::Poll::Ready(None), |polled| polled.map(Some))
        });
        let mut reported = false;
        loop {
            match tokio::time::timeout(PATIENCE, &mut contained).await {
                Ok(answer) => return answer,
                Err(_) if self.core.strong_count() == 0 => return None,
                Err(_) if !std::mem::replace(&mut reported, true) => {
                    tracing::error!(seconds = PATIENCE.as_secs(), "the source of the configuration does not answer");
                }
                Err(_) => {}
            }
        }
    }
}
