//! Retires stale tenants on a schedule: those that a source of active tenants no longer names. `cleanup.rs` does it on request.
//!
//! Only a complete answer retires tenants: a source that fails, hangs, panics or returns an empty set changes nothing,
//! and a tenant that was set or changed after the source was asked stays.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::BoxError;
use crate::BoxFuture;
use crate::core::Core;
use crate::error::panic::{catch_panic, catch_panic_in};

/// Timeout of the source, unless the time between two cleanups is longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A source that says which tenants are still needed, for
/// [`IntegrationClientBuilder::cleanup_every`](crate::IntegrationClientBuilder::cleanup_every).
///
/// Closures are sources too: `|| async { Ok(ids_of_customers().await?) }`.
pub trait ActiveTenants: Send + Sync + 'static {
    /// Returns the ids of all tenants that are to stay, whatever their vendors.
    ///
    /// # Errors
    /// After an error no tenant is retired. The error's text is logged, so it must hold no secret.
    fn active(&self) -> BoxFuture<'_, Result<HashSet<String>, BoxError>>;
}

impl<S, A> ActiveTenants for S
where
    S: Fn() -> A + Send + Sync + 'static,
    A: Future<Output = Result<HashSet<String>, BoxError>> + Send + 'static,
{
    fn active(&self) -> BoxFuture<'_, Result<HashSet<String>, BoxError>> {
        Box::pin(self())
    }
}

/// The settings of the scheduled cleanup.
pub(crate) struct Cleaning {
    pub(crate) every: Duration,
    pub(crate) source: Arc<dyn ActiveTenants>,
    /// Whether an empty set retires all tenants. Otherwise it counts as an error.
    pub(crate) may_be_empty: bool,
}

/// Cleans up on schedule until the client shuts down or is dropped.
pub(crate) async fn clean_up(core: Weak<Core>, cleaning: Cleaning) {
    let Some(mut stopped) = core.upgrade().map(|core| core.cleanups.stopped()) else { return };
    let run = async {
        loop {
            tokio::time::sleep(cleaning.every).await;
            let came = once(&core, &cleaning).await;
            if let Err(problem) = &came {
                tracing::error!(problem, "stale tenants were not cleaned up; the next look is after the usual time");
            }
            let Some(core) = core.upgrade() else { return };
            core.cleanups.note(&came);
        }
    };
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stopped| *stopped) => {}
        () = run => {}
    }
}

/// Makes one cleanup. Returns how many tenants it retired, or why it retired none.
async fn once(core: &Weak<Core>, cleaning: &Cleaning) -> Result<usize, String> {
    const GONE: &str = "the client is gone";
    // Taken before the source is asked, because its answer cannot include tenants that are added later.
    let Some(mut stale) = core.upgrade().map(|core| core.registry.routes.snapshot()) else {
        return Err(GONE.to_owned());
    };
    let patience = cleaning.every.max(PATIENCE);
    let asked = catch_panic(|| cleaning.source.active()).map(catch_panic_in);
    let answer = match asked {
        Some(asked) => tokio::time::timeout(patience, asked).await,
        None => Ok(None),
    };
    let active = match answer {
        Ok(Some(Ok(active))) => active,
        Ok(Some(Err(error))) => {
            return Err(catch_panic(|| error.to_string()).unwrap_or_else(|| "an error that cannot be shown".to_owned()));
        }
        Ok(None) => return Err("the source of active tenants panicked; that is a mistake in its code".to_owned()),
        Err(_) => return Err(format!("the source of active tenants has not answered within {} s", patience.as_secs())),
    };
    if active.is_empty() && !cleaning.may_be_empty && !stale.is_empty() {
        return Err("the source of active tenants names nobody, which would retire everybody; if it is meant, \
                    say so by `IntegrationClientBuilder::cleanup_may_retire_all`"
            .to_owned());
    }
    stale.retain(|tenant| !active.contains(&*tenant.id));
    match core.upgrade() {
        Some(core) => Ok(core.retire_all(&stale).await.len()),
        None => Err(GONE.to_owned()),
    }
}
