//! Checks whether the configuration has changed, and switches to the new one.
//!
//! Every check asks the source for its fingerprint, and loads the configuration only if the fingerprint does not prove
//! that nothing has changed. A change is loaded twice, a moment apart, and taken when both texts are the same: a file
//! that is still being written is usually invalid, and at worst valid without its last limits. Each invalid text is
//! reported once, and not every second. One that only does not fit a tenant that the program has added is tried again
//! after the program has changed its tenants. A source of which no two loads agree is reported, and not used.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::reload::Refused;
use crate::config::{ConfigProblem, ConfigSource, ProblemKind, Sources, run_blocking};
use crate::core::Core;
use crate::error::Error;

/// How long a change must stay the same before the client switches to it.
const SETTLE: Duration = Duration::from_millis(200);
/// Most loads within one check, for a source that keeps changing.
const LOADS: usize = 5;
/// A source whose loads do not agree in this many checks in a row is reported.
const UNSETTLED_LOOKS: u32 = 2;
/// Time after which a source that does not answer is reported.
const PATIENCE: Duration = Duration::from_secs(10);

/// Watches until the client is dropped.
pub(crate) async fn watch(core: Weak<Core>, source: Arc<dyn ConfigSource>, every: Duration) {
    let mut watch = Watch { core, source, seen: None, unsettled_looks: 0, reported: None, misfit_at: None };
    while watch.core.strong_count() > 0 {
        tokio::time::sleep(every).await;
        watch.look(SETTLE.min(every)).await;
    }
}

struct Watch {
    /// Weak, so that the client can be dropped while the source is asked, which may take for ever.
    core: Weak<Core>,
    source: Arc<dyn ConfigSource>,
    /// The fingerprint of the configuration that was loaded last, and the version of the one in use after that.
    seen: Option<(u64, u64)>,
    /// The number of checks in a row in which no two loads agreed.
    unsettled_looks: u32,
    /// The problem that was reported last.
    reported: Option<Reported>,
    /// The number of changes of tenants by the program when the content that was refused last did not fit them. It is
    /// tried again after another change; `None` if it is invalid by itself.
    misfit_at: Option<u64>,
}

#[derive(PartialEq)]
enum Reported {
    /// The source could not be loaded, with the reason.
    Unreadable(String),
    /// The content with this hash was refused, with the reason.
    Wrong { hash: u64, why: String },
    /// Some rows are invalid, and the others are used; with the reason.
    Rows(String),
}

impl Watch {
    /// Whether the content with this hash was refused, and would be refused again.
    fn is_refused(&self, hash: u64) -> bool {
        matches!(&self.reported, Some(Reported::Wrong { hash: wrong, .. }) if *wrong == hash) && !self.may_fit_now()
    }

    /// Whether the program has changed its tenants since the content that was refused last did not fit them.
    fn may_fit_now(&self) -> bool {
        let Some(changes) = self.misfit_at else { return false };
        self.core.upgrade().is_some_and(|core| core.registry.routes.single_changes() != changes)
    }

    async fn look(&mut self, settle: Duration) {
        let source = self.source.clone();
        let fingerprint = self.answer(source.fingerprint()).await.unwrap_or(None);
        let problem = self.core.upgrade().and_then(|core| core.registry.problem_kind());
        let has_problem = match &self.reported {
            Some(Reported::Unreadable(_)) => true,
            // A reload that the program asked for has failed since: the source could not be read.
            Some(_) if problem == Some(ProblemKind::Unreadable) => true,
            Some(Reported::Wrong { .. }) => self.may_fit_now(),
            Some(Reported::Rows(_)) => false,
            // A reload that the program asked for has failed.
            None => problem.is_some(),
        };
        // If the program has reloaded since, the configuration in use may not be the one with this fingerprint.
        let stated = fingerprint.zip(self.version_in_use());
        if stated.is_some() && stated == self.seen && !has_problem {
            self.unsettled_looks = 0;
            self.checked();
            return;
        }
        let Some(reloading) = self.core.upgrade().map(|core| core.registry.reload_order.clone()) else { return };
        let reloading = reloading.lock_owned().await;
        let sources = match self.load(&*source, settle).await {
            Ok(Some(sources)) => sources,
            Ok(None) => return self.note_unsettled(),
            Err(error) => return self.report(Reported::Unreadable(error.to_string()), &error),
        };
        self.unsettled_looks = 0;
        self.checked();
        // Behind a load balancer, the fingerprint of this check may come from a server that has newer content than the
        // one that was loaded. With the fingerprint of the loaded content, a later check loads the newer content. For a
        // source that does not state it, the last one that it stated counts, which is too old if this check got none.
        let loaded = fingerprint.and(sources.fingerprint());
        self.seen = loaded.zip(self.version_in_use());
        let Some(core) = self.core.upgrade() else { return };
        let hash = sources.hash();
        if hash == core.registry.config.load().hash() {
            source.taken().await;
            if let Some(problem) = sources.problem() {
                self.report_rows(&core, problem);
            } else if self.reported.take().is_some() | core.registry.problem.lock().take().is_some() {
                tracing::info!(hash = format_args!("{hash:016x}"), "the configuration is again what is in use");
            }
            return;
        }
        if self.is_refused(hash) {
            self.stays_refused(&core);
            return;
        }
        let tenants = core.registry.routes.single_changes();
        let rows = sources.problem().cloned();
        let gone_over = run_blocking(move || (core.go_over_to(&sources), reloading)).await;
        // What is taken is what the source has loaded last, so nothing may load it again before.
        let (gone_over, _reloading) = match gone_over {
            Ok((gone_over, reloading)) => (gone_over, Some(reloading)),
            Err(error) => (Err(error.into()), None),
        };
        match gone_over {
            Ok(version) => {
                self.seen = loaded.map(|loaded| (loaded, version));
                source.taken().await;
                let Some(problem) = rows else {
                    self.reported = None;
                    return;
                };
                // What is not of these rows is in force.
                if let Some(core) = self.core.upgrade() {
                    self.report_rows(&core, &problem);
                }
            }
            Err(Refused { error, misfits_tenant }) => {
                self.misfit_at = misfits_tenant.then_some(tenants);
                self.report(Reported::Wrong { hash, why: error.to_string() }, &error);
            }
        }
    }

    /// The version of the configuration in use.
    fn version_in_use(&self) -> Option<u64> {
        self.core.upgrade().map(|core| core.registry.config.load().version())
    }

    /// Records a check in which no two loads agreed. The source has answered, but if that goes on, no change of it is
    /// ever used.
    fn note_unsettled(&mut self) {
        self.unsettled_looks = self.unsettled_looks.saturating_add(1);
        if self.unsettled_looks < UNSETTLED_LOOKS {
            return self.checked();
        }
        let error = Error::config(
            "the source of the configuration reads differently each time, so no change of it can be used; remove what \
             differs from one reading to the next, such as a time or a counter",
        );
        self.report(Reported::Unreadable(error.to_string()), &error);
    }

    /// Records that the source has answered.
    fn checked(&self) {
        if let Some(core) = self.core.upgrade() {
            core.registry.checked();
        }
    }

    /// Loads the source until two loads agree; `None` if it keeps changing.
    async fn load(&self, source: &dyn ConfigSource, settle: Duration) -> Result<Option<Sources>, Error> {
        let mut before: Option<u64> = None;
        for _ in 0..LOADS {
            let Some(loaded) = self.answer(source.load()).await else {
                return Err(Error::config("the source of the configuration panicked; that is a mistake in its code"));
            };
            let sources = loaded?;
            let hash = sources.hash();
            let in_use = self.core.upgrade().map(|core| core.registry.config.load().hash());
            if before == Some(hash) || in_use == Some(hash) || self.is_refused(hash) {
                return Ok(Some(sources));
            }
            before = Some(hash);
            tokio::time::sleep(settle).await;
        }
        Ok(None)
    }

    /// Reports invalid rows without logging them, because the source has logged them.
    fn report_rows(&mut self, core: &Core, problem: &ConfigProblem) {
        core.set_problem(problem.clone());
        let what = Reported::Rows(problem.why.clone());
        if self.reported.as_ref() != Some(&what) {
            core.tell_rejected(&Error::config(&*problem.why));
            self.reported = Some(what);
        }
    }

    /// Records again why the content was refused, in case that the source could not be read since.
    fn stays_refused(&self, core: &Core) {
        if let Some(Reported::Wrong { why, .. }) = &self.reported {
            core.registry.refused(why);
            core.set_problem(ConfigProblem::invalid(&**why));
        }
    }

    fn report(&mut self, what: Reported, error: &Error) {
        let Some(core) = self.core.upgrade() else { return };
        let is_away = matches!(what, Reported::Unreadable(_));
        core.set_problem(match is_away {
            true => ConfigProblem::unreadable(error.to_string()),
            false => ConfigProblem::invalid(error.to_string()),
        });
        if self.reported.as_ref() == Some(&what) {
            return;
        }
        let version = core.registry.config.load().version();
        self.reported = Some(what);
        if is_away {
            tracing::error!(version, %error, "the source of the configuration cannot be read; the one in use stays");
            return;
        }
        core.tell_rejected(error);
        tracing::error!(
            version,
            %error,
            "configuration refused, and the one in use stays: correct it, and it is read again by itself"
        );
    }

    /// Waits for the source, however long it takes; returns `None` if it panics. Asking it again meanwhile would only
    /// leave more threads hanging on a dead disk.
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
