//! The bodies and headers of responses in the results of a run.

use integration_client::testing::{Fault, Reply, When};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn json_response_is_written_as_sent() {
    let sent = "{ \"id\": 12345678901234567890123,\n  \"price\": 1.10, \"tag\": \"a b\", \"tag\": \"c\" }";
    let place = RunFolder::new(FakeVendor::builder().reply(Reply::json(200, sent))).await;
    place.jobs("jobs.jsonl", 1..=1);
    let ran = place.run(&["jobs.jsonl", "--out", "results.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([1, 0, 0], 0), "{}", ran.err);
    let results = fs::read_to_string(place.path("results.jsonl")).unwrap();
    let body = r#""body":{"id":12345678901234567890123,"price":1.10,"tag":"a b","tag":"c"}"#;
    assert!(results.contains(body) && results.lines().count() == 1, "{results}");
}

#[tokio::test(flavor = "multi_thread")]
async fn results_say_where_responses_point() {
    let vendor = FakeVendor::builder().fault(When::path("/jobs/1"), Fault::Status(303));
    let place = RunFolder::new(vendor.fault(When::path("/jobs/2"), Fault::Status(302))).await;
    place.jobs("jobs.jsonl", 1..=2);
    let ran = place.run(&["jobs.jsonl", "--out", "results.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([1, 0, 1], 1), "{}", ran.err);
    let results = place.results("results.jsonl");
    assert_eq!((lines_of(&results, "done"), lines_of(&results, "dead")), (vec![1], vec![2]));
    assert!(results.iter().all(|result| result["headers"]["location"] == "/"), "{results:?}");
}

/// An empty body would pass for the vendor's.
#[tokio::test(flavor = "multi_thread")]
async fn torn_response_is_not_kept() {
    let place = RunFolder::new(FakeVendor::builder().fault(When::path("/jobs/1"), Fault::HalfBody)).await;
    place.jobs("jobs.jsonl", 1..=1);
    let ran = place.run(&["jobs.jsonl", "--out", "results.jsonl"]).await;
    assert_eq!((ran.figures(), ran.code), ([1, 0, 0], 0), "{}", ran.err);
    let result = place.results("results.jsonl").remove(0);
    assert!(result["outcome"] == "done" && result["body"].is_null() && result["body_kept"] == false, "{result}");
    assert!(result["error"].as_str().is_some_and(|why| why.contains("broke off")), "{result}");
}
