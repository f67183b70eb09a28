//! Sources that panic or hang when they are told that their configuration is in use.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use integration_client::config::{ConfigSource, LoadFuture, Sources, TakenFuture};

use super::watching::ErrorCounter;
use super::*;

#[derive(Clone, Copy, Debug)]
enum Fault {
    Panic,
    Hang,
}

/// A source whose next call of `taken` fails.
#[derive(Clone, Debug, Default)]
struct FaultySource {
    text: Arc<Mutex<String>>,
    fault: Arc<Mutex<Option<Fault>>>,
}

impl FaultySource {
    /// Changes the limit, and states what `taken` does next.
    fn set(&self, limit: u32, fault: Option<Fault>) {
        *self.text.lock().unwrap() = vendor(&[("requests", &per_second(limit, 1))]);
        *self.fault.lock().unwrap() = fault;
    }

    async fn client(&self) -> IntegrationClient {
        let builder = builder("", &transport_with_delay(Duration::ZERO)).config_source(self.clone());
        builder.watch_config(ms(1_000)).build().await.unwrap()
    }
}

impl ConfigSource for FaultySource {
    fn load(&self) -> LoadFuture<'_> {
        let sources = Sources::new().without_catalogue().file("faulty.toml", self.text.lock().unwrap().as_str());
        Box::pin(async move { Ok(sources) })
    }

    fn taken(&self) -> TakenFuture<'_> {
        let fault = self.fault.lock().unwrap().take();
        match fault {
            Some(Fault::Panic) => panic!("a mistake of the source"),
            Some(Fault::Hang) => Box::pin(std::future::pending()),
            None => Box::pin(async {}),
        }
    }
}

fn version(client: &IntegrationClient) -> u64 {
    client.config().current().version()
}

#[tokio::test(start_paused = true)]
async fn change_after_a_panic_of_taken_is_in_force() {
    let log = ErrorCounter::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let source = FaultySource::default();
    source.set(10, None);
    let client = source.client().await;
    source.set(20, Some(Fault::Panic));
    tokio::time::sleep(ms(3_000)).await;
    assert_eq!((version(&client), log.0.load(Ordering::Relaxed)), (2, 1));
    source.set(30, None);
    tokio::time::sleep(ms(3_000)).await;
    assert_eq!((version(&client), log.0.load(Ordering::Relaxed)), (3, 1));
    assert_eq!(client.config().problem(), None);
}

#[tokio::test(start_paused = true)]
async fn hanging_taken_is_given_up() {
    let log = ErrorCounter::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let source = FaultySource::default();
    let reload = async |client: &IntegrationClient| {
        let reloaded = tokio::time::timeout(ms(21_000), client.config().reload()).await;
        reloaded.expect("the client waits 20 s for `taken`").unwrap()
    };
    source.set(10, Some(Fault::Hang));
    let client = tokio::time::timeout(ms(21_000), source.client()).await.unwrap();
    assert_eq!(log.0.load(Ordering::Relaxed), 1);
    source.set(20, Some(Fault::Hang));
    assert_eq!(reload(&client).await, 2);
    assert_eq!(log.0.load(Ordering::Relaxed), 2);

    // The same in the check of the client.
    source.set(30, Some(Fault::Hang));
    tokio::time::timeout(ms(3_000), async {
        while source.fault.lock().unwrap().is_some() {
            tokio::time::sleep(ms(10)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(version(&client), 3);
    source.set(40, None);
    assert_eq!(reload(&client).await, 4);
    assert_eq!((log.0.load(Ordering::Relaxed), client.config().problem()), (3, None));
}
