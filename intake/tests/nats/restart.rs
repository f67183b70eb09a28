//! A restart of the server.

use std::time::Duration;

use integration_client_intake::Nats;

use super::support::{client, line, run_script, store_path, wait_until};
use super::{add_consumer, context, publish, unsettled_messages, url};

/// The server states another creation time of the consumer after its first restart.
pub(super) async fn restart_ends_no_hand_over() {
    if std::env::var_os("IC_TEST_NATS_DIR").is_none() {
        return;
    }
    let made = publish("RESTARTED", std::iter::once((None, line("acme", "/before")))).await;
    add_consumer(&made, "RESTARTED", Duration::from_secs(30)).await;
    let (client, transport) = client(&store_path("nats-restarted"), |store| store).await;
    let source = Nats::connect(&format!("{}?stream=RESTARTED", url())).await.unwrap();
    let restarting = async {
        wait_until(async || transport.calls().len() == 1 && unsettled_messages(&made, "RESTARTED").await == 0).await;
        let restart = || ["kill", "serve"].into_iter().for_each(|what| run_script("nats.sh", what));
        tokio::task::spawn_blocking(restart).await.unwrap();
        context().await.publish("RESTARTED", line("acme", "/after").into()).await.unwrap().await.unwrap();
        wait_until(async || transport.calls().len() == 2).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    // The source looks at the consumer before its first request for messages, and again after the connection broke.
    assert_eq!(tokio::join!(client.outbox().feed_from(&source), restarting).0.unwrap(), 2);
}
