//! The status lists each source of a configuration, with its age and its problem.

use integration_client::config::SourceKind;
use integration_client::status::SourceStatus;
use integration_client::store::Store;

use super::*;

fn status_of(client: &IntegrationClient, kind: SourceKind) -> SourceStatus {
    client.overview().config_sources.into_iter().find(|source| source.kind == kind).unwrap()
}

#[tokio::test]
async fn status_shows_age_and_problem_of_source() {
    let file = folder("source-status").join("tenants.toml");
    std::fs::write(&file, "[[tenants]]\nid = \"b\"\nvendor = \"v\"\n").unwrap();
    let server = ConfigServer::start(serve_file(config_with_limit(1_000))).await;
    let source = RemoteSource::http(server.url("/vendors.toml?sig=hunter2"));
    let client = builder(source).vendors_file(&file).build().await.unwrap();
    let sources = client.overview().config_sources;
    let listed: Vec<_> = sources.iter().map(|source| (source.kind, &*source.name)).collect();
    let url = server.url("/vendors.toml");
    assert_eq!(listed, [(SourceKind::File, &*file.display().to_string()), (SourceKind::Server, &*url)]);
    for source in &sources {
        assert_eq!((source.is_copy, &source.problem, source.problem_for), (false, &None, None));
        assert!(source.age < Duration::from_secs(5), "{source:?}");
    }

    server.answer(|_| status(500));
    wait_until("the problem is told", || status_of(&client, SourceKind::Server).problem.is_some()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sources = client.overview().config_sources;
    let (file, away) = (&sources[0], &sources[1]);
    let problem = away.problem.as_deref().unwrap();
    assert!(problem.starts_with("the server answered 500") && !problem.contains("hunter2"), "{problem}");
    assert!(away.problem_for >= Some(Duration::from_millis(900)) && away.problem_for <= Some(away.age), "{away:?}");
    assert!(!away.is_copy && file.problem.is_none() && file.age < away.age, "the file can still be read: {sources:?}");
    let json = serde_json::to_value(away).unwrap();
    assert_eq!((&json["name"], &json["kind"], &json["is_copy"]), (&(&*url).into(), &"server".into(), &false.into()));
    assert!(json["age_s"].as_f64() > Some(0.9) && json["problem_for_s"].as_f64() >= Some(0.9), "{json}");

    server.answer(serve_file(config_with_limit(1_000)));
    wait_until("the problem is over", || status_of(&client, SourceKind::Server).problem.is_none()).await;
    assert!(status_of(&client, SourceKind::Server).age < Duration::from_secs(1));
    // The server answers, but what is in force is not what it holds now.
    server.answer(serve_file(config_with_limit(0)));
    let is_refused = |source: SourceStatus| source.problem.is_some_and(|problem| problem.contains("limit"));
    wait_until("the refusal is told", || is_refused(status_of(&client, SourceKind::Server))).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let sources = client.overview().config_sources;
    assert!(sources[1].age >= Duration::from_millis(500) && sources[0].problem.is_none(), "{sources:?}");
    server.answer(serve_file(config_with_limit(2_000)));
    wait_until("the problem is over", || status_of(&client, SourceKind::Server).problem.is_none()).await;
    assert!(limit_in_force(&client).contains("2000"));
}

/// The status that the process publishes in the store tells the copy, too.
#[tokio::test]
async fn status_tells_a_copy_from_its_source() {
    let folder = folder("source-status-copy");
    let server = ConfigServer::start(serve_file(config_with_limit(1_000))).await;
    let build = || {
        let builder = builder(RemoteSource::http(server.url("/vendors.toml")));
        let builder = builder.store(Store::sqlite(folder.join("s.db"))).config_in_store().work();
        builder.publish_status(Duration::from_millis(100)).build()
    };
    let client = build().await.unwrap();
    client.shutdown(Duration::from_secs(5)).await;
    drop(client);
    server.answer(|_| status(500));
    // The time of a copy is kept in whole seconds.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let client = build().await.unwrap();
    let source = status_of(&client, SourceKind::Server);
    assert!(source.is_copy && source.age >= Duration::from_secs(2), "{source:?}");
    let problem = source.problem.unwrap();
    assert!(problem.starts_with("the server answered 500") && problem.contains("the copy of 20"), "{problem}");
    let mut published = serde_json::Value::Null;
    for _ in 0..500 {
        let workers = client.outbox().workers().await.unwrap();
        let mut sources = workers.iter().flat_map(|worker| &worker.config_sources);
        if let Some(source) = sources.find(|source| source["is_copy"] == true) {
            published = source.clone();
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((&published["name"], &published["kind"]), (&server.url("/vendors.toml").into(), &"server".into()));

    server.answer(serve_file(config_with_limit(1_000)));
    wait_until("the server is heard", || !status_of(&client, SourceKind::Server).is_copy).await;
    let source = status_of(&client, SourceKind::Server);
    assert!(source.problem.is_none() && source.age < Duration::from_secs(2), "{source:?}");
    // The rows of the store are a source too.
    assert_eq!(status_of(&client, SourceKind::Store).problem, None);
    client.config().set_stored("bad", Some("[[tenants]\n")).await.unwrap();
    let row_is_bad = || status_of(&client, SourceKind::Store).problem.is_some_and(|why| why.contains("row `bad`"));
    wait_until("the bad row is told", row_is_bad).await;
    client.config().set_stored("bad", None).await.unwrap();
    wait_until("the rows are good again", || status_of(&client, SourceKind::Store).problem.is_none()).await;
    client.shutdown(Duration::from_secs(5)).await;
}
