//! Requests that are accepted again after their vendor's entry has changed `at_rest`.

use integration_client::testing::{FakeAnswer, FakeTransport};

use super::*;
use crate::support::text_source::TextSource;

/// 32 bytes in base64.
const SEAL_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

fn configuration(at_rest: &str) -> String {
    format!(
        "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"none\" }}\nunpublished = true\n\
         at_rest = \"{at_rest}\"\nidempotency = {{ header = \"idempotency-key\" }}\n\
         [[tenants]]\nid = \"acme\"\nvendor = \"v\"\n"
    )
}

#[tokio::test]
async fn same_key_is_accepted_once_after_sealing_has_changed() {
    for (before, after) in [("plain", "sealed"), ("sealed", "plain"), ("redacted", "sealed")] {
        let transport = FakeTransport::new(|_| FakeAnswer::status(200));
        let store = Store::sqlite(folder().join("s.db")).seal_key(SEAL_KEY);
        let source = TextSource::new(configuration(before));
        let builder = || {
            let builder = IntegrationClient::builder().config_source(source.clone());
            builder.transport(transport.clone()).store(store.clone())
        };
        let accepting = builder().build().await.unwrap();
        let enqueue = |path| accepting.outbox().enqueue("acme", Priority::Normal, post(path).idempotency_key("k-1"));
        let first = enqueue("/a").await.unwrap();
        source.set(configuration(after));
        accepting.config().reload().await.unwrap();
        let again = enqueue("/a").await.unwrap();
        assert!(again.was_accepted_before(), "{before}, then {after}");
        assert_eq!(again.id(), first.id(), "{before}, then {after}");
        let error = enqueue("/b").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KeyReused, "{before}, then {after}: {error}");
        accepting.shutdown(Duration::from_secs(5)).await;
        let working = builder().work().build().await.unwrap();
        let status = until_ended(&working.outbox().receipt(&first.id()).unwrap()).await;
        assert!(matches!(status, Status::Delivered { .. }), "{status:?}");
        assert_eq!(transport.calls().len(), 1, "{before}, then {after}");
    }
}
