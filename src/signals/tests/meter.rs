//! Costs that response bodies state, read while the caller reads the body.

use http::header::CONTENT_TYPE;

use super::*;
use crate::signals::meter::Meter;

const RULES: &str = r#"
    [vendors.llm]
    costs = { input = 1, output = 1 }
    [vendors.llm.dialect.costs]
    input = ["body#/usage/in + body#/usage/cached", "body#/message/usage/in"]
    output = "body#/usage/out"
"#;

fn meter(media: &str) -> Option<Meter> {
    let dialects = crate::config::dialects("rules.toml", RULES).unwrap();
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, media.parse().unwrap())]);
    Meter::new(&dialects["llm"], &headers)
}

fn costs(meter: Meter) -> Vec<(String, f64)> {
    meter.costs().into_iter().map(|stated| (stated.kind.to_string(), stated.units)).collect()
}

fn pairs(costs: &[(&str, f64)]) -> Vec<(String, f64)> {
    costs.iter().map(|(kind, units)| ((*kind).to_owned(), *units)).collect()
}

#[test]
fn last_events_state_a_streams_usage() {
    let events = "event: message_start\ndata: {\"message\":{\"usage\":{\"in\":25,\"out\":1}}}\n\n\
                  : a comment\r\ndata:{\"delta\":\"usage in out {\"}\r\n\r\n\
                  data: {\"usage\":{\"out\":7}}\n\ndata: {\"usage\":{\"out\":15}}\n\ndata: [DONE]\n\n";
    for size in [1, 2, 7, 64, events.len()] {
        let mut meter = meter("text/event-stream; charset=utf-8").unwrap();
        events.as_bytes().chunks(size).for_each(|piece| meter.piece(piece));
        assert_eq!(costs(meter), pairs(&[("input", 25.0), ("output", 15.0)]), "in pieces of {size}");
    }
}

#[test]
fn last_line_counts_without_its_end() {
    let mut meter = meter("application/x-ndjson").unwrap();
    meter.piece(b"{\"usage\":{\"in\":1}}\n{\"usage\":{\"in\":2}}");
    assert_eq!(costs(meter), pairs(&[("input", 2.0)]));
}

#[test]
fn long_line_is_skipped() {
    let mut meter = meter("text/event-stream").unwrap();
    meter.piece(b"data: {\"usage\":{\"out\":3},\"text\":\"");
    for _ in 0..100 {
        meter.piece(&[b'x'; 10_000]);
        assert!(meter.held() <= 2 * MAX_BODY, "{}", meter.held());
    }
    meter.piece(b"\"}\ndata: {\"usage\":{\"out\":4}}\n");
    assert_eq!(costs(meter), pairs(&[("output", 4.0)]));
}

#[test]
fn json_body_is_read_whole_or_ignored() {
    let body = format!("{{\"data\":\"{}\",\"usage\":{{\"in\":5,\"cached\":40,\"out\":null}}}}", "x".repeat(200_000));
    let mut whole = meter("application/json").unwrap();
    whole.rest(body.as_bytes());
    assert_eq!(costs(whole), pairs(&[("input", 45.0)]), "the sum of what is there");
    let mut pieces = meter("application/json").unwrap();
    let (first, rest) = body.as_bytes().split_at(100);
    pieces.piece(first);
    pieces.rest(rest);
    assert_eq!(costs(pieces), []);
}

#[test]
fn other_bodies_have_no_meter() {
    assert!(meter("image/png").is_none());
    assert!(Meter::new(&Default::default(), &HeaderMap::new()).is_none());
}

#[test]
fn hostile_numbers_are_no_costs() {
    for value in ["-5", "\"many\"", "{}", "[1]", "1e400", "true"] {
        let mut meter = meter("application/json").unwrap();
        meter.rest(format!("{{\"usage\":{{\"out\":{value}}}}}").as_bytes());
        assert_eq!(costs(meter), [], "{value}");
    }
}
