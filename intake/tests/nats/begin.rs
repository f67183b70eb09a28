//! The first start with a stream that has old messages.

use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use integration_client_intake::{Begin, Nats, begin_at};

use super::support::{client, line, store_path, wait_until};
use super::{publish, unsettled_messages, url, why};

pub(super) async fn beginning_is_set_before_first_start() {
    let context = publish("BEGUN", (0..3).map(|number| (None, line("acme", &format!("/{number}"))))).await;
    let url = format!("{}?stream=BEGUN", url());
    let (client, transport) =
        client(&store_path("nats-begun"), |store| store.keep_seen(Duration::from_millis(100))).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let without = why(client.outbox().feed_from(&Nats::connect(&url).await.unwrap()).await);
    assert!(without.contains("if this intake has never run") && without.contains("--begin-at first"), "{without}");

    let set = begin_at(&url, Begin::First).await.unwrap();
    assert!(set.contains("the consumer integration-client begins in the stream BEGUN at the first message"), "{set}");
    let again = begin_at(&url, Begin::New).await.unwrap_err().to_string();
    assert!(again.contains("has the consumer integration-client already"), "{again}");
    let source = Nats::connect(&url).await.unwrap();
    let looking = async {
        wait_until(async || transport.calls().len() == 3 && unsettled_messages(&context, "BEGUN").await == 0).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(client.outbox().feed_from(&source), looking).0.unwrap(), 3);

    let stream = context.get_stream("BEGUN").await.unwrap();
    for (begin, pending) in
        [(Begin::New, 0), (Begin::Last(Duration::from_secs(3_600)), 3), (Begin::Last(Duration::ZERO), 0)]
    {
        stream.delete_consumer("integration-client").await.unwrap();
        begin_at(&url, begin).await.unwrap();
        let mut consumer: PullConsumer = stream.get_consumer("integration-client").await.unwrap();
        assert_eq!(consumer.info().await.unwrap().num_pending, pending, "{begin:?}");
    }
}
