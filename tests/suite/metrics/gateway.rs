//! The metrics of a gateway, over sockets and in real time, because its callers are real.

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::*;

#[tokio::test]
async fn ends_of_a_gateways_requests_are_counted() {
    let recorder = DebuggingRecorder::new();
    let _local = metrics::set_default_local_recorder(&recorder);
    let client = builder(|call| match call.path() {
        "/base/reset" => FakeAnswer::reset(),
        _ => FakeAnswer::status(200),
    })
    .build()
    .await
    .unwrap();
    let gateway = Gateway::builder(client.clone()).max_connections(1).build();
    let serving = gateway.serve(Listen::loopback()).await.unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |method: &str, tenant: &str, path: &str, token: &str| {
        let url = format!("{}{path}", serving.base_url(tenant, "v"));
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let answer = http.request(method, url).bearer_auth(token).send().await.unwrap();
        let status = answer.status().as_u16();
        // The body is read to its end, so that the one connection can serve the next request.
        answer.bytes().await.unwrap();
        status
    };
    let token = serving.token().unwrap().to_owned();
    let asked = [
        ask("GET", "a", "/x", &token).await,
        ask("GET", "b", "/x", &token).await,
        ask("GET", "a", "/x", "wrong").await,
        ask("GET", "nobody", "/x", &token).await,
        ask("POST", "a", "/reset", &token).await,
    ];
    assert_eq!(asked, [200, 200, 401, 403, 422]);
    let mut second = TcpStream::connect(serving.address().unwrap()).await.unwrap();
    let mut told_at_once = String::new();
    second.read_to_string(&mut told_at_once).await.unwrap();
    assert!(told_at_once.starts_with("HTTP/1.1 503"), "it has the one connection that it may have: {told_at_once}");
    drop(second);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let told = recorded_series(&recorder);
    check(
        &told,
        "integration_client_gateway_requests_total",
        &[
            ("outcome=ambiguous", 1.0),
            ("outcome=answered", 2.0),
            ("outcome=not_sent", 1.0),
            ("outcome=unauthorized", 1.0),
        ],
    );
    check(&told, "integration_client_gateway_connections", &[("", 1.0)]);
    check(&told, "integration_client_gateway_turned_away_total", &[("", 1.0)]);
    check(&told, "integration_client_config_age_seconds", &[]);
}
