//! Limits that count kinds of points. The cost comes from the request, from the vendor's entry, or from the response.

use std::sync::Arc;

use integration_client::dead_letter::{DeadLetter, MemorySink};

use super::*;
use crate::support::text_source::TextSource;

/// A vendor that counts requests and two kinds of tokens, as vendors of language models do.
const TOKENS: &str = r#"
[vendors.v]
base_url = "https://v.example"
auth = { scheme = "none" }
retry = { max_retries = 0 }
costs = { input_tokens = 100, output_tokens = 50 }

[[vendors.v.limits]]
name = "requests"
limit = 100
window = "1m"
safety = 1.0
algorithm = "fixed_window"

[[vendors.v.limits]]
name = "input_tokens"
limit = 10_000
window = "1m"
safety = 1.0
algorithm = "fixed_window"
unit = "input_tokens"

[[vendors.v.limits]]
name = "output_tokens"
limit = 2_000
window = "1m"
safety = 1.0
algorithm = "fixed_window"
unit = "output_tokens"

[vendors.v.endpoints.embed]
paths = ["/embed"]
costs = { input_tokens = 400 }

[vendors.v.dialect.costs]
input_tokens = ["body#/usage/input_tokens + body#/usage/cache_creation_input_tokens", "body#/message/usage/input_tokens", "x-input-tokens"]
output_tokens = ["body#/usage/output_tokens", "x-output-tokens"]
"#;

/// The used units of the limits on requests, input tokens and output tokens.
fn used_units(client: &IntegrationClient) -> [u32; 3] {
    let status = client.status("a", "v").unwrap();
    ["requests", "input_tokens", "output_tokens"].map(|name| {
        let limit = status.limits.iter().find(|limit| *limit.name == *name).unwrap();
        limit.limit - limit.remaining
    })
}

fn transport_with_typed_body(body: impl Into<Vec<u8>>, media: &'static str) -> FakeTransport {
    let body = body.into();
    FakeTransport::new(move |_| FakeAnswer::status(200).header("content-type", media).body(body.clone()))
}

async fn client_with_tokens(transport: &FakeTransport) -> IntegrationClient {
    builder(TOKENS, transport).build().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn kinds_are_counted_side_by_side() {
    let client = client_with_tokens(&transport_with_delay(ms(0))).await;
    let send = |request: Request| client.send("a", Priority::High, request.deadline(ms(600_000)));
    send(get("/")).await.unwrap();
    assert_eq!(used_units(&client), [1, 100, 50], "the entry's defaults");
    send(get("/embed")).await.unwrap();
    assert_eq!(used_units(&client), [2, 500, 100], "the endpoint's, and of the other kind the entry's");
    send(get("/embed").cost("input_tokens", 1_000).cost("output_tokens", 0)).await.unwrap();
    assert_eq!(used_units(&client), [3, 1_500, 101], "the request's, and nothing costs nothing");
    let start = now();
    send(get("/").cost("output_tokens", 1_950)).await.unwrap();
    assert!(start.elapsed() >= ms(55_000), "the output tokens of a minute are used: {:?}", start.elapsed());
    let error = send(get("/").cost("output_tokens", 2_001)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CostAboveCapacity, "{error}");
}

#[tokio::test(start_paused = true)]
async fn permits_by_hand_cost_as_configured() {
    let client = client_with_tokens(&transport_with_delay(ms(0))).await;
    client.try_acquire("a", "v", Priority::High, 1).unwrap().finish();
    assert_eq!(used_units(&client), [1, 100, 50], "by a new lane");
    client.try_acquire("a", "v", Priority::High, 1).unwrap().finish();
    assert_eq!(used_units(&client), [2, 200, 100], "by a known one");
    let lane = client.lane("a", "v").unwrap().endpoint("embed").unwrap();
    lane.try_acquire(Priority::High, 1).unwrap().finish();
    lane.acquire(Priority::High, 1).await.unwrap().finish();
    assert_eq!(used_units(&client), [4, 1_000, 200]);
    client.send("a", Priority::High, get("/").cost("output_tokens", 900)).await.unwrap();
    assert_eq!(client.check("a", "v", None, Priority::High).unwrap().limit, Some(2_000), "the tightest is asked");
}

#[tokio::test(start_paused = true)]
async fn usage_in_a_body_settles_the_cost() {
    let body = r#"{"id":"x","usage":{"input_tokens":30,"cache_creation_input_tokens":7,"output_tokens":600}}"#;
    let client = client_with_tokens(&transport_with_typed_body(body, "application/json")).await;
    client.send("a", Priority::High, get("/").cost("output_tokens", 1_000)).await.unwrap().bytes().await.unwrap();
    assert_eq!(used_units(&client), [1, 37, 600], "too much was believed of both, and is given back");
    client.send("a", Priority::High, get("/").cost("output_tokens", 1)).await.unwrap().bytes().await.unwrap();
    assert_eq!(used_units(&client), [2, 74, 1_200], "too little was believed, and is taken once");
}

#[tokio::test(start_paused = true)]
async fn usage_after_long_body_settles_cost() {
    let text = "x".repeat(300_000);
    let body = format!(r#"{{"data":"{text}","usage":{{"input_tokens":4000,"output_tokens":1}}}}"#);
    let client = client_with_tokens(&transport_with_typed_body(body, "application/json")).await;
    let response = client.send("a", Priority::High, get("/")).await.unwrap();
    assert_eq!(used_units(&client), [1, 100, 50], "not read yet");
    response.bytes().await.unwrap();
    assert_eq!(used_units(&client), [1, 4_000, 1]);
}

#[tokio::test(start_paused = true)]
async fn usage_in_a_header_settles_the_cost() {
    let transport = FakeTransport::new(|_| {
        FakeAnswer::status(200).header("x-input-tokens", "12").header("x-output-tokens", "0").body("done")
    });
    let client = client_with_tokens(&transport).await;
    client.send("a", Priority::High, get("/")).await.unwrap();
    assert_eq!(used_units(&client), [1, 12, 1], "a request that was answered was counted");
}

const EVENTS: &str = "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n\
                      data: {\"delta\":\"Hello\"}\n\n\
                      data: {\"usage\":{\"output_tokens\":3}}\n\ndata: {\"usage\":{\"output_tokens\":9}}\n\ndata: [DONE]\n\n";

#[tokio::test(start_paused = true)]
async fn usage_in_event_stream_settles_cost() {
    let client = client_with_tokens(&transport_with_typed_body(EVENTS, "text/event-stream")).await;
    let mut response = client.send("a", Priority::High, get("/")).await.unwrap();
    assert_eq!(used_units(&client), [1, 100, 50], "the stream has not been read");
    while response.chunk().await.unwrap().is_some() {}
    assert_eq!(used_units(&client), [1, 25, 9], "read piece by piece");
    client.send("a", Priority::High, get("/")).await.unwrap().text().await.unwrap();
    assert_eq!(used_units(&client), [2, 50, 18], "read as a whole");
    drop(client.send("a", Priority::High, get("/")).await.unwrap());
    assert_eq!(used_units(&client), [3, 150, 68], "of a stream that nobody reads the beliefs stand");
}

#[tokio::test(start_paused = true)]
async fn hostile_usage_stops_nobody_for_long() {
    let body = r#"{"usage":{"input_tokens":99999999999999999999,"output_tokens":-5}}"#;
    let client = client_with_tokens(&transport_with_typed_body(body, "application/json")).await;
    for _ in 0..3 {
        client.send("a", Priority::High, get("/")).await.unwrap().bytes().await.unwrap();
    }
    let start = now();
    client.send("a", Priority::High, get("/")).await.unwrap();
    assert!(start.elapsed() <= ms(300_000), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn stated_costs_of_a_lane_stay_in_its_copies() {
    let client = client_with_tokens(&transport_with_delay(ms(0))).await;
    let lane = client.lane("a", "v").unwrap().costing("input_tokens", 7).unwrap();
    lane.clone().acquire(Priority::High, 1).await.unwrap().finish();
    assert_eq!(used_units(&client), [1, 7, 50], "a clone");
    lane.endpoint("embed").unwrap().acquire(Priority::High, 1).await.unwrap().finish();
    assert_eq!(used_units(&client), [2, 14, 100], "an endpoint");
    lane.costing("output_tokens", 1).unwrap().clone().acquire(Priority::High, 1).await.unwrap().finish();
    assert_eq!(used_units(&client), [3, 21, 101], "a second kind");
}

/// A new kind that sorts before the others gives them other numbers.
#[tokio::test(start_paused = true)]
async fn handle_costs_what_is_configured_now() {
    let source = TextSource::new(TOKENS);
    let transport = transport_with_delay(ms(0));
    let client = builder("", &transport).config_source(source.clone()).build().await.unwrap();
    let lane = client.lane("a", "v").unwrap();
    let (stated, embed) = (lane.costing("input_tokens", 7).unwrap(), lane.endpoint("embed").unwrap());
    source.set(
        TOKENS.replace("{ input_tokens = 100,", "{ a_tokens = 3, input_tokens = 500,")
            + "[[vendors.v.limits]]\nname = \"a_tokens\"\nlimit = 10\nwindow = \"1m\"\nsafety = 1.0\n\
               algorithm = \"fixed_window\"\nunit = \"a_tokens\"\n",
    );
    client.config().reload().await.unwrap();
    let used = || {
        let status = client.status("a", "v").unwrap();
        let limit = status.limits.iter().find(|limit| &*limit.name == "a_tokens").unwrap();
        (limit.limit - limit.remaining, used_units(&client))
    };
    lane.try_acquire(Priority::High, 1).unwrap().finish();
    assert_eq!(used(), (3, [1, 500, 50]));
    stated.acquire(Priority::High, 1).await.unwrap().finish();
    assert_eq!(used(), (6, [2, 507, 100]));
    embed.try_acquire(Priority::High, 1).unwrap().finish();
    assert_eq!(used(), (9, [3, 907, 150]));
    // The kind is gone: the handle counts in what is left.
    source.set(TOKENS.replace("input_tokens", "other_tokens"));
    client.config().reload().await.unwrap();
    stated.try_acquire(Priority::High, 1).unwrap().finish();
}

#[tokio::test(start_paused = true)]
async fn redriven_letter_costs_what_it_stated() {
    let transport = FakeTransport::new(|call| FakeAnswer::status(if call.number < 2 { 503 } else { 200 }));
    let text = TOKENS.replace("max_retries = 0", "max_retries = 1");
    let text = text.replacen("\nauth", "\ndead_letters = \"whole\"\nauth", 1);
    let sink = Arc::new(MemorySink::new(1));
    let client = builder(&text, &transport).dead_letter_sink(sink.clone()).build().await.unwrap();
    let error = client.send("a", Priority::High, get("/").cost("output_tokens", 300)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    tokio::time::sleep(ms(10)).await;
    let letter: DeadLetter = serde_json::from_str(&serde_json::to_string(&sink.letters()[0]).unwrap()).unwrap();
    assert_eq!(letter.costs.get("output_tokens"), Some(&300));
    let [_, _, before] = used_units(&client);
    client.redrive(&letter).await.unwrap();
    assert_eq!(used_units(&client)[2], before + 300);
}
