//! Tests of which client makes an exchange, and until when the exchange counts there.

use std::task::Poll;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::AnswerBody;
use super::super::client_settings::replaceable_settings;
use super::*;
use crate::config::Connection;

fn settings() -> ClientSettings {
    let connect_timeout = Duration::from_secs(1);
    ClientSettings { connection: Connection::default(), certificate: None, connect_timeout, hosts_vary: false }
}

/// All clients of the tests are the same, because building one takes milliseconds.
fn client() -> reqwest::Client {
    settings().build(replaceable_settings()).unwrap()
}

fn clients() -> Clients {
    Clients::new(settings(), client())
}

/// How many exchanges are under way at each client.
fn counts(clients: &Clients) -> Vec<usize> {
    let further = clients.further.load();
    iter::once(&clients.first).chain(further.iter()).map(|client| client.count()).collect()
}

/// Takes places over HTTP/2 for as long as there are any.
fn fill(clients: &Clients) -> Vec<UnderWay> {
    iter::from_fn(|| clients.take(true)).take(STREAMS + 1).collect()
}

#[test]
fn first_client_with_room_is_used() {
    let clients = clients();
    let mut at_first = fill(&clients);
    assert_eq!((at_first.len(), counts(&clients)), (STREAMS, vec![STREAMS]));
    let at_second = clients.add(client());
    assert_eq!(counts(&clients), [STREAMS, 1]);
    let next = clients.take(true).unwrap();
    assert_eq!(counts(&clients), [STREAMS, 2]);
    at_first.pop();
    at_first.push(clients.take(true).unwrap());
    assert_eq!(counts(&clients), [STREAMS, 2], "the first has had room again");
    drop((at_first, at_second, next));
    assert_eq!(counts(&clients), [0, 0]);
}

#[test]
fn full_list_uses_the_least_busy_client() {
    let (clients, client) = (clients(), client());
    let mut under_way = fill(&clients);
    for _ in 1..MOST {
        assert!(clients.take(true).is_none(), "{:?}", counts(&clients));
        under_way.push(clients.add(client.clone()));
        under_way.extend(iter::from_fn(|| clients.take(true)).take(STREAMS - 1));
    }
    assert_eq!((clients.len(), counts(&clients)), (MOST, vec![STREAMS; MOST]));
    let more: Vec<UnderWay> = (0..MOST).map(|_| clients.take(true).unwrap()).collect();
    assert_eq!(counts(&clients), vec![STREAMS + 1; MOST], "each got one more");
    drop(more);
    assert_eq!(counts(&clients), vec![STREAMS; MOST]);
}

#[test]
fn threads_never_overfill_a_client() {
    let clients = clients();
    let taken: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| fill(&clients))).collect();
        let taken: Vec<Vec<UnderWay>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        taken.iter().map(Vec::len).sum()
    });
    assert!(taken <= STREAMS, "{taken}");
    assert_eq!(counts(&clients), [0]);
}

#[test]
fn vendor_without_http2_needs_one_client() {
    let unknown = clients();
    let full = fill(&unknown);
    assert!(unknown.take(true).is_none() && unknown.take(false).is_some(), "TLS may negotiate HTTP/2");
    full[0].answered_by(Version::HTTP_11);
    assert!(unknown.take(true).is_some(), "each exchange has a connection of its own");
    full[0].answered_by(Version::HTTP_2);
    assert!(unknown.take(true).is_none() && unknown.take(false).is_none());
    full[0].answered_by(Version::HTTP_10);
    assert!(unknown.take(true).is_none(), "another host of the vendor has answered");
}

#[test]
fn failed_build_is_not_repeated_for_a_second() {
    let (clients, now) = (clients(), Time::from_nanos(3_600_000_000_000));
    assert!(clients.may_grow(now));
    clients.failed(now);
    assert!(!clients.may_grow(now) && !clients.may_grow(now + Duration::from_millis(999)));
    assert!(clients.may_grow(now + Duration::from_secs(1)));
}

#[expect(clippy::disallowed_methods, reason = "the deadline is far away")]
fn far_deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// The body of an HTTP/2 response of `clients`.
async fn body_of(clients: &Clients, content: &'static str) -> AnswerBody {
    let mut response = http::Response::new(reqwest::Body::from(content));
    *response.version_mut() = Version::HTTP_2;
    let (mut response, mut under_way) = (Some(reqwest::Response::from(response)), clients.take(true));
    std::future::poll_fn(|cx| {
        Poll::Ready(AnswerBody::from_reqwest(response.take().unwrap(), under_way.take(), 1_024, far_deadline(), cx))
    })
    .await
}

#[tokio::test]
async fn exchange_counts_until_its_body_ends() {
    let clients = clients();
    let (mut read, dropped) = (body_of(&clients, "content").await, body_of(&clients, "content").await);
    assert_eq!(counts(&clients), [2]);
    drop(dropped);
    assert_eq!(counts(&clients), [1]);
    assert_eq!(read.read().await.unwrap(), Bytes::from_static(b"content"));
    assert_eq!(counts(&clients), [0], "though the body is not dropped");
    drop(read);
    assert_eq!(counts(&clients), [0]);
}

/// Each host has a connection of its own, and a further client would make a further one to each.
#[test]
fn varying_hosts_need_no_further_client() {
    let clients = Clients::new(ClientSettings { hosts_vary: true, ..settings() }, client());
    let under_way: Vec<UnderWay> = (0..2 * STREAMS).map_while(|_| clients.take(true)).collect();
    under_way.iter().for_each(|exchange| exchange.answered_by(Version::HTTP_2));
    assert!(clients.take(true).is_some());
    assert_eq!((under_way.len(), counts(&clients)), (2 * STREAMS, vec![2 * STREAMS]));
}
