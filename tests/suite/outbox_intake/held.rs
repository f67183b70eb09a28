//! Messages without room: for how long they are held, and how those that were accepted before are recognised.

use super::*;

/// For how long the ids of messages are kept in these tests.
const SHORT: Duration = Duration::from_secs(2);

fn short(store: Store) -> Store {
    store.keep_seen(SHORT)
}

/// The source delivers the messages behind it again, whose ids would be forgotten at some time.
#[tokio::test(flavor = "multi_thread")]
async fn message_that_is_held_too_long_ends_the_hand_over() {
    let all = [("acme", "1", "a"), ("acme", "2", "b"), ("umbra", "3", "c")];
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), short(store().max_lane_backlog(1)));
    let accepting = client(&transport, &store).build().await.unwrap();
    let messages = Broker { never_ends: true, in_order: true, ..broker("orders", &all) };
    let fed = tokio::time::timeout(Duration::from_secs(20), accepting.outbox().feed_from(&messages)).await;
    let error = fed.expect("it ends").unwrap_err();
    assert_eq!((error.kind(), messages.taken_ids()), (ErrorKind::QueueFull, vec!["1".to_owned(), "3".to_owned()]));
    let shown = error.to_string();
    assert!(shown.contains("the message 2 had no room") && shown.contains("`max_lane_backlog`"), "{shown}");
    // A source that acknowledges each message by itself waits for as long as it takes.
    let accepting = client(&transport, &short(self::store().max_lane_backlog(1))).build().await.unwrap();
    let messages = broker("orders", &all);
    let feeding = tokio::time::timeout(Duration::from_secs(3), accepting.outbox().feed_from(&messages)).await;
    assert!(feeding.is_err() && messages.taken_ids() == ["1", "3"], "it goes on");
}

/// No message behind it is accepted, so no id can be forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn message_for_full_outbox_is_held_without_end() {
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), short(store().max_backlog(1)));
    let accepting = client(&transport, &store).build().await.unwrap();
    accepting.outbox().enqueue("acme", Priority::Normal, Request::post("v", "/first")).await.unwrap();
    let all = [("acme", "1", "a"), ("umbra", "2", "b")];
    let messages = Broker { never_ends: true, in_order: true, ..broker("orders", &all) };
    let feeding = tokio::time::timeout(Duration::from_secs(3), accepting.outbox().feed_from(&messages)).await;
    assert!(feeding.is_err() && messages.taken_ids().is_empty(), "it goes on: {feeding:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn message_for_a_failing_store_is_held_without_end() {
    let down = Arc::new(UnwritableStore(AtomicBool::new(true)));
    let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), short(store()));
    let client = client(&transport, &store.watched_by(down.clone())).build().await.unwrap();
    let messages = Broker { in_order: true, ..broker("orders", &[("acme", "1", "a"), ("umbra", "2", "b")]) };
    let mut feeding = std::pin::pin!(client.outbox().feed_from(&messages));
    let away = tokio::time::timeout(2 * SHORT, &mut feeding).await;
    assert!(away.is_err() && messages.taken_ids().is_empty(), "it waits: {away:?}");
    down.0.store(false, Relaxed);
    let ended = tokio::time::timeout(Duration::from_secs(30), feeding).await;
    assert_eq!((ended.unwrap().unwrap(), messages.taken_ids().len()), (2, 2));
}

/// While it waited for room, its id could be forgotten, and the request would be sent again.
#[tokio::test(flavor = "multi_thread")]
async fn known_message_needs_no_room() {
    for can_postpone in [false, true] {
        let (transport, store) = (FakeTransport::new(|_| FakeAnswer::status(200)), store().max_lane_backlog(1));
        let accepting = client(&transport, &store).build().await.unwrap();
        let first = broker("orders", &[("acme", "1", "a")]);
        assert_eq!(accepting.outbox().feed_from(&first).await.unwrap(), 1);
        let again = [("acme", "1", "a"), ("acme", "1", "other"), ("acme", "2", "b")];
        let again = Broker { can_postpone, ..broker("orders", &again) };
        let feeding = tokio::time::timeout(Duration::from_secs(2), accepting.outbox().feed_from(&again)).await;
        assert_eq!(feeding.is_err(), !can_postpone, "the new message is held, or postponed");
        assert_eq!(again.taken_ids(), ["1"]);
        assert_eq!(*again.refused.lock().unwrap(), [("1".to_owned(), ErrorKind::KeyReused)]);
        let postponed: &[&str] = if can_postpone { &["2"] } else { &[] };
        assert_eq!(again.postponed_ids(), postponed);
    }
}
