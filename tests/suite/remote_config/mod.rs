//! Configuration on servers: a new configuration is in force within one polling period, and a wrong one or a server
//! that is away stops nothing.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests: helpers unwrap and spawn too"
)]

mod etcd;
mod key_values;
mod server;
mod source_status;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use integration_client::config::{RemoteSource, StaticSource};
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{Error, ErrorKind, IntegrationClient, IntegrationClientBuilder, Priority, Request};

use crate::support::folder;
use server::{ConfigServer, ReceivedRequest, response_with, serve_file, serve_tagged, status};

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The configuration of a vendor `v` with `limit` requests a second, and of a tenant `a`.
fn config_with_limit(limit: u32) -> String {
    format!(
        "[vendors.v]\nbase_url = \"https://v.example.com\"\nauth = {{ scheme = \"none\" }}\n\
         [[vendors.v.limits]]\nname = \"second\"\nlimit = {limit}\nwindow = \"1s\"\n\
         [[tenants]]\nid = \"a\"\nvendor = \"v\"\n"
    )
}

fn builder(source: RemoteSource) -> IntegrationClientBuilder {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    IntegrationClient::builder()
        .without_catalogue()
        .config_source(source)
        .watch_config(POLL_INTERVAL)
        .transport(transport)
}

/// The limit in force.
fn limit_in_force(client: &IntegrationClient) -> String {
    format!("{:?}", client.config().current().vendor("v", "live").unwrap().limits[0].kind)
}

/// Waits until `holds` returns true, and fails after 10 s.
async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within 10 s: {what}");
}

/// Sets the clock of the client forward. Its sockets stay in real time.
async fn advance(by: Duration) {
    tokio::time::pause();
    tokio::time::advance(by).await;
    tokio::time::resume();
}

async fn refused(source: RemoteSource) -> Error {
    let error = builder(source).build().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    error
}

#[tokio::test]
async fn change_is_in_force_while_requests_go() {
    let server = ConfigServer::start(serve_file(config_with_limit(1_000))).await;
    let client = builder(RemoteSource::http(server.url("/vendors.toml"))).build().await.unwrap();
    let sender = client.clone();
    let sending = tokio::spawn(async move {
        for _ in 0..200 {
            sender.send("a", Priority::Normal, Request::get("v", "/")).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let last_tag = || server.received_requests().last().map(|asked| asked.header("if-none-match").to_owned());
    wait_until("the second check is made", || server.received_requests().len() >= 4).await;
    // Whether later requests have a tag depends on how long the first ones took.
    let first: Vec<String> =
        server.received_requests().iter().take(2).map(|asked| asked.header("if-none-match").to_owned()).collect();
    assert_eq!(first, ["", ""], "the tag is not sent before the text was read twice");
    advance(Duration::from_secs(4)).await;
    wait_until("the tag is sent", || last_tag().is_some_and(|tag| tag.starts_with('"'))).await;
    let asked = server.received_requests().len();
    wait_until("the next check is made", || server.received_requests().len() > asked).await;
    assert!(last_tag().is_some_and(|tag| tag.starts_with('"')), "{:?}", server.received_requests());
    assert_eq!(client.config().current().version(), 1, "an answer 304 is no change");
    server.answer(serve_file(config_with_limit(2_000)));
    wait_until("the new limit is in force", || limit_in_force(&client).contains("2000")).await;
    assert_eq!(client.config().problem(), None);
    sending.await.unwrap();
}

/// The first server that is asked has the change, and the second one does not have it yet.
#[tokio::test]
async fn change_behind_a_load_balancer_is_in_force() {
    let folder = folder("remote-balancer");
    for (has_tag, in_store) in [(true, false), (false, false), (true, true)] {
        let answer = move |asked: &ReceivedRequest, limit: u32| match has_tag {
            true => serve_file(config_with_limit(limit))(asked),
            false => response_with(200, &config_with_limit(limit), &[]),
        };
        let server = ConfigServer::start(move |asked| answer(asked, 1_000)).await;
        let builder = builder(RemoteSource::http(server.url("/vendors.toml")));
        let store = integration_client::store::Store::sqlite(folder.join("s.db"));
        let builder = if in_store { builder.store(store).config_in_store() } else { builder };
        let client = builder.build().await.unwrap();
        // The start asks once, and the first check twice. Each later check asks once, unless something is new.
        wait_until("the second check is made", || server.received_requests().len() >= 4).await;
        let count = AtomicUsize::new(0);
        server.answer(move |asked| match count.fetch_add(1, Ordering::Relaxed) {
            1 => answer(asked, 1_000),
            _ => answer(asked, 2_000),
        });
        wait_until("the new limit is in force", || limit_in_force(&client).contains("2000")).await;
        assert_eq!(client.config().problem(), None, "{has_tag} {in_store}");
    }
}

#[tokio::test]
async fn server_that_is_away_stops_nothing() {
    let server = ConfigServer::start(serve_file(config_with_limit(1_000))).await;
    let client = builder(RemoteSource::http(server.url("/vendors.toml"))).build().await.unwrap();
    server.answer(|_| status(500));
    wait_until("the problem is told", || client.config().problem().is_some()).await;
    let problem = client.config().problem().unwrap();
    assert!(problem.contains("the server answered 500") && problem.contains(&server.url("/vendors.toml")), "{problem}");
    client.send("a", Priority::Normal, Request::get("v", "/")).await.unwrap();
    assert!(limit_in_force(&client).contains("1000"));
    let away = client.config().checked_ago();
    assert_eq!(client.overview().config_problem, Some(problem));
    // The server returns the same configuration as before: the version does not change, but the problem is over.
    server.answer(serve_file(config_with_limit(1_000)));
    wait_until("the problem is over", || client.config().problem().is_none()).await;
    assert!(client.config().checked_ago() < away + POLL_INTERVAL * 20, "{:?} {away:?}", client.config().checked_ago());
    assert_eq!(client.config().current().version(), 1);
}

#[tokio::test]
async fn retry_after_of_the_server_is_obeyed() {
    let server = ConfigServer::start(serve_file(config_with_limit(1_000))).await;
    let client = builder(RemoteSource::http(server.url("/vendors.toml"))).build().await.unwrap();
    server.answer(|_| response_with(503, "", &[("retry-after", "60")]));
    wait_until("the problem is told", || client.config().problem().is_some()).await;
    let asked = server.received_requests().len();
    tokio::time::sleep(POLL_INTERVAL * 10).await;
    assert_eq!(server.received_requests().len(), asked, "nothing is asked before its time");
}

#[tokio::test]
async fn invalid_configuration_is_refused_whole() {
    let server = ConfigServer::start(serve_file(config_with_limit(1_000))).await;
    let client = builder(RemoteSource::http(server.url("/vendors.toml"))).build().await.unwrap();
    for (text, expected) in [
        (config_with_limit(2_000) + "[[tenants]]\nid = \"b\"\nvendor = \"w\"\n", "tenants"),
        (config_with_limit(2_000)[..60].to_owned(), "vendors.toml:3"),
        (String::new(), "is empty"),
    ] {
        server.answer(serve_file(text));
        wait_until(expected, || client.config().problem().is_some_and(|problem| problem.contains(expected))).await;
        assert!(limit_in_force(&client).contains("1000"), "{expected}");
        server.answer(serve_file(config_with_limit(1_000)));
        wait_until("the problem is over", || client.config().problem().is_none()).await;
    }
}

/// A response was cut on its way in a form that HTTP cannot detect: its body ends with the connection, or a proxy has
/// restated its length. The half is valid, and names no tenant. The server confirms it by the tag of the whole.
#[tokio::test]
async fn half_of_tagged_text_is_never_in_force() {
    let server = ConfigServer::start(serve_file(config_with_limit(1_000))).await;
    let client = builder(RemoteSource::http(server.url("/vendors.toml"))).build().await.unwrap();
    let whole = config_with_limit(2_000);
    let half = whole.split("[[tenants]]").next().unwrap().to_owned();
    let (count, rest) = (AtomicUsize::new(0), serve_tagged("\"a\"", whole));
    server.answer(move |asked| match count.fetch_add(1, Ordering::Relaxed) {
        0 => response_with(200, &half, &[("etag", "\"a\"")]),
        // Two checks need no more requests than these.
        1..=4 => rest(asked),
        _ => status(500),
    });
    wait_until("the new limit is in force", || limit_in_force(&client).contains("2000")).await;
    let config = client.config().current();
    assert_eq!((config.tenants().count(), config.version()), (1, 2), "the half has been in force");
}

/// A process that starts reads the text once, so it cannot tell the half. The next check reads the text in full.
#[tokio::test]
async fn half_at_the_start_is_replaced_at_the_next_check() {
    let whole = config_with_limit(2_000);
    let half = whole.split("[[tenants]]").next().unwrap().to_owned();
    let (count, rest) = (AtomicUsize::new(0), serve_tagged("\"a\"", whole));
    let server = ConfigServer::start(move |asked| match count.fetch_add(1, Ordering::Relaxed) {
        0 => response_with(200, &half, &[("etag", "\"a\"")]),
        _ => rest(asked),
    })
    .await;
    let client = builder(RemoteSource::http(server.url("/vendors.toml"))).build().await.unwrap();
    wait_until("the tenant is there", || client.config().current().tenants().count() == 1).await;
    assert_eq!(client.config().current().version(), 2);
}

/// A cache returns a damaged text until it reads the text anew, and the tag is the same before and after.
#[tokio::test]
async fn refused_text_is_read_in_full() {
    let server = ConfigServer::start(serve_file(config_with_limit(1_000))).await;
    let client = builder(RemoteSource::http(server.url("/vendors.toml"))).build().await.unwrap();
    server.answer(serve_tagged("\"a\"", config_with_limit(0)));
    wait_until("the problem is told", || client.config().problem().is_some()).await;
    advance(Duration::from_secs(4)).await;
    let asked = server.received_requests().len();
    wait_until("two more checks are made", || server.received_requests().len() >= asked + 2).await;
    server.answer(serve_tagged("\"a\"", config_with_limit(2_000)));
    wait_until("the new limit is in force", || limit_in_force(&client).contains("2000")).await;
    assert_eq!(client.config().problem(), None);
}

#[tokio::test]
async fn process_starts_with_last_used_copy() {
    let folder = folder("remote-copy");
    let copy = folder.join("copy.json");
    let server = ConfigServer::start(serve_file(config_with_limit(1_000))).await;
    let source = || RemoteSource::http(server.url("/vendors.toml?sig=hunter2")).keep_copy_in(&copy);
    let client = builder(source()).build().await.unwrap();
    server.answer(serve_file(config_with_limit(3_000)));
    wait_until("the new limit is in force", || limit_in_force(&client).contains("3000")).await;
    wait_until("the copy is of it", || std::fs::read_to_string(&copy).is_ok_and(|text| text.contains("3000"))).await;
    // A refused configuration is not kept as a copy.
    server.answer(serve_file(config_with_limit(0)));
    wait_until("the problem is told", || client.config().problem().is_some()).await;
    drop(client);
    // A process that starts meanwhile uses the copy, and leaves it as it is.
    let client = builder(source()).build().await.unwrap();
    assert!(limit_in_force(&client).contains("3000") && client.config().problem().is_some());
    client.send("a", Priority::Normal, Request::get("v", "/")).await.unwrap();
    drop(client);
    server.answer(|_| status(500));
    let text = std::fs::read_to_string(&copy).unwrap();
    assert!(!text.contains("hunter2") && text.contains("3000"), "{text}");

    let client = builder(source()).build().await.unwrap();
    assert!(limit_in_force(&client).contains("3000"));
    let problem = client.config().problem().unwrap();
    assert!(problem.contains("the copy of 20") && problem.contains("answered 500"), "{problem}");
    client.send("a", Priority::Normal, Request::get("v", "/")).await.unwrap();
    server.answer(serve_file(config_with_limit(4_000)));
    wait_until("the server's word is in force", || limit_in_force(&client).contains("4000")).await;
    assert_eq!(client.config().problem(), None);

    // No start without the server: the copy is of another address, is missing, or is not a copy.
    server.answer(|_| status(500));
    let other = RemoteSource::http(server.url("/other.toml")).keep_copy_in(&copy);
    assert!(refused(other).await.to_string().contains("answered 500"));
    refused(source().keep_copy_in(folder.join("none.json"))).await;
    std::fs::write(&copy, "{").unwrap();
    refused(source()).await;
}

#[tokio::test]
async fn source_stands_behind_files_and_texts() {
    let server = ConfigServer::start(serve_file("[[tenants]]\nid = \"b\"\nvendor = \"v\"\n".to_owned())).await;
    let builder = builder(RemoteSource::http(server.url("/tenants.toml"))).vendors_toml(config_with_limit(5));
    let client =
        builder.config_source(StaticSource::new(integration_client::config::Sources::new())).build().await.unwrap();
    let tenants: Vec<String> = client.config().current().tenants().map(|tenant| tenant.id.to_string()).collect();
    assert_eq!(tenants.len(), 2, "{tenants:?}");
    assert!(client.config().current().vendor("github", "live").is_err(), "the builder left the catalogue out");
}

#[tokio::test]
async fn token_arrives_and_is_never_shown() {
    let folder = folder("remote-token");
    let token = folder.join("token");
    std::fs::write(&token, "hunter2\n").unwrap();
    let authorized = |asked: &ReceivedRequest| {
        asked.header("authorization") == "Bearer hunter2" && asked.header("x-key") == "hunter2"
    };
    let server = ConfigServer::start(move |asked| match authorized(asked) {
        true => serve_file(config_with_limit(1_000))(asked),
        false => status(401),
    })
    .await;
    let reference = format!("file:{}", token.display());
    let url = server.url("/vendors.toml");
    let source = || RemoteSource::http(&url).bearer(&reference).header("x-key", &reference);
    builder(source()).build().await.unwrap();
    std::fs::write(&token, "hunter3").unwrap();
    let told = refused(source()).await;
    assert!(told.to_string().contains("401") && !format!("{told:?}").contains("hunter"), "{told:?}");
    std::fs::remove_file(&token).unwrap();
    assert!(refused(source()).await.to_string().contains("cannot be read"));
    assert!(refused(RemoteSource::http(&url).bearer("hunter2")).await.to_string().contains("not repeated here"));
}

#[tokio::test]
async fn malformed_configuration_answers_are_described() {
    let server = ConfigServer::start(|_| status(404)).await;
    let url = server.url("/vendors.toml");
    for (answer, expected) in [
        (
            response_with(302, "", &[("location", "https://evil.example.com/?sig=hunter2")]),
            "leads to https://evil.example.com/",
        ),
        (response_with(404, "", &[]), "nothing at this address"),
        (response_with(204, "", &[]), "that is no configuration"),
        (response_with(200, " \n", &[]), "is empty"),
    ] {
        server.answer(move |_| answer.clone());
        let told = refused(RemoteSource::http(&url)).await.to_string();
        assert!(told.contains(expected) && !told.contains("hunter2"), "{told}");
    }
    for (url, expected) in [
        ("http://config.example.com/", "use https"),
        ("https://127.0.0.1:1/", "cannot be reached"),
        ("ftp://config.example.com/", "must begin with https://"),
    ] {
        let told = refused(RemoteSource::http(url)).await.to_string();
        assert!(told.contains(expected), "{told}");
    }
}

#[tokio::test]
async fn endless_answer_is_cut_off() {
    let server = ConfigServer::start(|_| response_with(200, &"# nothing but comments\n".repeat(3_000_000), &[])).await;
    let told = refused(RemoteSource::http(server.url("/vendors.toml"))).await.to_string();
    assert!(told.contains("larger than 64 MiB"), "{told}");
}

/// The store keeps the copy instead of a file: a second process on the store starts without the server.
#[tokio::test]
async fn process_starts_with_copy_in_store() {
    let folder = folder("remote-copy-store");
    let server = ConfigServer::start(serve_file(config_with_limit(1_000))).await;
    let build = |store: &str| {
        let source = RemoteSource::http(server.url("/vendors.toml?sig=hunter2"));
        let store = integration_client::store::Store::sqlite(folder.join(store));
        // Rows of the store override the source, but the copy holds only the source's text.
        builder(source).store(store).config_in_store().work().build()
    };
    let client = build("s.db").await.unwrap();
    assert!(client.config().checked_ago() < Duration::from_secs(5));
    server.answer(serve_file(config_with_limit(3_000)));
    wait_until("the new limit is in force", || limit_in_force(&client).contains("3000")).await;
    tokio::time::sleep(POLL_INTERVAL * 6).await;
    client.shutdown(Duration::from_secs(5)).await;
    drop(client);
    server.answer(|_| status(500));
    // The time of a copy is kept in whole seconds.
    tokio::time::sleep(Duration::from_millis(2_100)).await;

    let client = build("s.db").await.unwrap();
    assert!(limit_in_force(&client).contains("3000"));
    let problem = client.config().problem().unwrap();
    assert!(problem.contains("the copy of 20") && problem.contains("answered 500"), "{problem}");
    let overview = client.overview();
    assert!(overview.config_checked_ago >= Duration::from_secs(2), "{:?}", overview.config_checked_ago);
    client.send("a", Priority::Normal, Request::get("v", "/")).await.unwrap();
    // The problem remains after the next failed request to the server.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let problem = client.overview().config_problem.unwrap();
    assert!(problem.contains("the copy of 20") && !problem.contains("hunter2"), "{problem}");
    server.answer(serve_file(config_with_limit(4_000)));
    wait_until("the server's word is in force", || limit_in_force(&client).contains("4000")).await;
    assert_eq!(client.config().problem(), None);
    assert!(client.config().checked_ago() < Duration::from_secs(2), "{:?}", client.config().checked_ago());
    client.shutdown(Duration::from_secs(5)).await;
    drop(client);

    // A store without a copy is no replacement for the server.
    server.answer(|_| status(500));
    assert_eq!(build("other.db").await.unwrap_err().kind(), ErrorKind::Config);
}
