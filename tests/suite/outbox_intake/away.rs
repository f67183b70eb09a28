//! The end of a hand-over while the broker is away.

use super::*;

/// A source that takes no report.
struct Away {
    broker: Broker,
    told: AtomicU32,
    ended: AtomicU32,
}

impl IntakeSource for Away {
    fn name(&self) -> &str {
        self.broker.name()
    }

    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        self.broker.fetch(most)
    }

    fn taken<'a>(&'a self, _: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        self.told.fetch_add(1, Relaxed);
        Box::pin(std::future::pending())
    }

    fn refused<'a>(&'a self, _: &'a MessageRef, _: &'a Error) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(std::future::pending())
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        self.ended.fetch_add(1, Relaxed);
        Box::pin(async {})
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_ends_while_broker_is_away() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store());
    let client = client(&transport, &store).build().await.unwrap();
    let broker = Broker { never_ends: true, ..broker("orders", &[("acme", "1", "a"), ("umbra", "2", "b")]) };
    let source = Away { broker, told: AtomicU32::new(0), ended: AtomicU32::new(0) };
    let feeding = client.outbox().feed_from(&source);
    let stopping = async {
        while source.told.load(Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        client.shutdown(Duration::from_secs(5)).await;
    };
    let both = async { tokio::join!(feeding, stopping) };
    let (fed, ()) = tokio::time::timeout(Duration::from_secs(30), both).await.expect("it ends");
    assert_eq!((fed.unwrap(), source.told.load(Relaxed), source.ended.load(Relaxed)), (2, 1, 1));
}
