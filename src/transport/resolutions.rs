//! Resolutions of secrets that are under way: one at a time for each key, in a task of its own.
//!
//! A caller whose deadline passes drops its future. A resolution inside that future would be cut off: in the middle of
//! a call that may have replaced a refresh token, or while a thread still reads the file, so that the next caller
//! occupies another thread. Here callers only wait for the outcome, each for as long as it likes.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use tokio::sync::SetOnce;

use crate::BoxError;

/// The outcome of a resolution, which all its callers share.
pub(super) type Resolved<V> = Result<V, Arc<BoxError>>;
/// Where a resolution leaves its outcome.
type Outcome<V> = Arc<SetOnce<Resolved<V>>>;
type Running<K, V> = Mutex<HashMap<K, Outcome<V>>>;

/// The resolutions under way, by key.
pub(super) struct Resolutions<K, V>(Arc<Running<K, V>>);

impl<K, V> Default for Resolutions<K, V> {
    fn default() -> Resolutions<K, V> {
        Resolutions(Arc::default())
    }
}

impl<K, V> Resolutions<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Returns the outcome of the resolution of `key` that is under way. If there is none, `resolution` begins. It goes
    /// on if this caller is dropped.
    pub(super) async fn outcome(
        &self,
        key: &K,
        resolution: impl Future<Output = Resolved<V>> + Send + 'static,
    ) -> Resolved<V> {
        let (outcome, begun) = self.join(key);
        if let Some(begun) = begun {
            let mut task = Box::pin(begun.run(resolution));
            // A resolution that has its outcome at hand needs no task.
            let has_ended = poll_fn(|context| Poll::Ready(task.as_mut().poll(context).is_ready())).await;
            if !has_ended {
                #[expect(clippy::disallowed_methods, reason = "a resolution outlives its callers, for a bounded time")]
                tokio::spawn(task);
            }
        }
        outcome.wait().await.clone()
    }

    /// Leaves the resolution of `key` to those who wait for it: the next caller begins another.
    pub(super) fn outdate(&self, key: &K) {
        self.0.lock().remove(key);
    }

    /// Waits for the resolutions that are under way now.
    pub(super) async fn settle(&self) {
        let running: Vec<_> = self.0.lock().values().cloned().collect();
        for outcome in running {
            outcome.wait().await;
        }
    }

    fn join(&self, key: &K) -> (Outcome<V>, Option<Begun<K, V>>) {
        let mut running = self.0.lock();
        if let Some(outcome) = running.get(key) {
            return (outcome.clone(), None);
        }
        let outcome = Arc::new(SetOnce::new());
        running.insert(key.clone(), outcome.clone());
        let begun = Begun { running: self.0.clone(), key: key.clone(), outcome: outcome.clone(), resolved: None };
        (outcome, Some(begun))
    }
}

/// A resolution that has begun. When it is dropped its callers get an outcome, also if its task did not end.
struct Begun<K: Eq + Hash, V> {
    running: Arc<Running<K, V>>,
    key: K,
    outcome: Outcome<V>,
    resolved: Option<Resolved<V>>,
}

impl<K: Eq + Hash, V> Begun<K, V> {
    async fn run(mut self, resolution: impl Future<Output = Resolved<V>>) {
        self.resolved = Some(resolution.await);
    }
}

impl<K: Eq + Hash, V> Drop for Begun<K, V> {
    fn drop(&mut self) {
        // Removed before its outcome is known: a caller that has seen a failure can begin another resolution.
        let mut running = self.running.lock();
        if running.get(&self.key).is_some_and(|now| Arc::ptr_eq(now, &self.outcome)) {
            running.remove(&self.key);
        }
        drop(running);
        let resolved = self.resolved.take().unwrap_or_else(|| Err(in_words("reading the secret was cut short")));
        // It is set here alone.
        let _ = self.outcome.set(resolved);
    }
}

pub(super) fn in_words(why: &str) -> Arc<BoxError> {
    Arc::new(why.into())
}
