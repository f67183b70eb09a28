//! Reports that the broker does not take, or takes late.

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

    fn refused<'a>(&'a self, _: &'a [(MessageRef, Error)]) -> BoxFuture<'a, Result<(), BoxError>> {
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

/// A source of invalid messages of 1 MiB, of which it returns four at a time. It puts none aside before it may.
struct Large {
    left: AtomicU32,
    asked: Mutex<Vec<usize>>,
    may_put_aside: AtomicBool,
}

impl IntakeSource for Large {
    fn name(&self) -> &str {
        "orders"
    }

    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        self.asked.lock().unwrap().push(most);
        let left = self.left.load(Relaxed);
        let some = left.min(4).min(u32::try_from(most).unwrap());
        self.left.store(left - some, Relaxed);
        let messages = (left - some..left).map(|number| Intake::json(number.to_string(), "x".repeat(1 << 20)));
        let messages: Vec<Intake> = messages.collect();
        Box::pin(async move { Ok(messages) })
    }

    fn taken<'a>(&'a self, messages: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        panic!("{messages:?}")
    }

    fn refused<'a>(&'a self, _: &'a [(MessageRef, Error)]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            while !self.may_put_aside.load(Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        })
    }
}

/// The source keeps a refused message until it has put it aside. All in hand may take 16 MiB.
#[tokio::test(flavor = "multi_thread")]
async fn refused_messages_count_until_put_aside() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store());
    let client = client(&transport, &store).build().await.unwrap();
    let (left, asked) = (AtomicU32::new(40), Mutex::default());
    let source = Large { left, asked, may_put_aside: AtomicBool::new(false) };
    let mut feeding = std::pin::pin!(client.outbox().feed_from(&source));
    let full = tokio::time::timeout(Duration::from_secs(3), &mut feeding).await;
    assert!(full.is_err(), "it goes on: {full:?}");
    let (asked, left) = (source.asked.lock().unwrap().clone(), source.left.load(Relaxed));
    assert!(asked.len() > 1 && asked[1..].iter().all(|most| *most <= 16), "{asked:?}");
    assert_eq!(left, 40 - 16, "{asked:?}");
    source.may_put_aside.store(true, Relaxed);
    let ended = tokio::time::timeout(Duration::from_secs(30), feeding).await;
    assert_eq!((ended.expect("all are put aside").unwrap(), source.left.load(Relaxed)), (0, 0));
}

/// A source that never ends to postpone messages. It delivers one message at a time, and the last one when it postpones.
struct Slow {
    broker: Broker,
    postpones: AtomicBool,
}

impl IntakeSource for Slow {
    fn name(&self) -> &str {
        self.broker.name()
    }

    fn fetch(&self, _: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        Box::pin(async move {
            let is_last = self.broker.messages.lock().unwrap().len() == 1;
            while is_last && !self.postpones.load(Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.broker.fetch(1).await
        })
    }

    fn taken<'a>(&'a self, messages: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        self.broker.taken(messages)
    }

    fn refused<'a>(&'a self, messages: &'a [(MessageRef, Error)]) -> BoxFuture<'a, Result<(), BoxError>> {
        self.broker.refused(messages)
    }

    fn can_postpone(&self) -> bool {
        true
    }

    fn later<'a>(&'a self, _: &'a [MessageRef], _: Duration) -> BoxFuture<'a, Result<(), BoxError>> {
        self.postpones.store(true, Relaxed);
        Box::pin(std::future::pending())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgement_waits_for_no_postponed_message() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store().max_lane_backlog(1));
    let client = client(&transport, &store).build().await.unwrap();
    let all = [("acme", "1", "a"), ("acme", "2", "b"), ("umbra", "3", "c")];
    let broker = Broker { never_ends: true, ..broker("orders", &all) };
    let source = Slow { broker, postpones: AtomicBool::new(false) };
    let looking = async {
        while source.broker.taken_ids() != ["1", "3"] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let looked = async {
        tokio::select! {
            fed = client.outbox().feed_from(&source) => panic!("it ended: {fed:?}"),
            () = looking => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(30), looked).await.expect("the other tenant's message is acknowledged");
}
