//! Tests of `inspect --json`.

use integration_client::config::{Config, Sources};
use serde_json::Value;

use super::run;

#[test]
fn unreadable_line_holds_up_no_other() {
    let long = format!("{{\"id\": 8, \"status\": 200, \"body\": \"{}\"}}", "x".repeat(17 << 20));
    let input = [
        "{\"id\": 1, \"status\": 429, \"headers\": [[\"retry-after\", \"60\"]]}",
        "not json",
        "",
        "[1, 2]",
        "{\"id\": 5, \"headers\": []}",
        "{\"id\": 6, \"status\": 99}",
        "{\"id\": 7, \"status\": 200, \"now\": \"yesterday\"}",
        &long,
        "{\"id\": {\"any\": [\"thing\"]}, \"status\": 200, \"headers\": {\"retry-after\": \"1.5\"}, \"more\": 1}",
    ]
    .join("\n");
    let ran = run(&["inspect", "--json"], &input);
    assert_eq!((ran.code, &*ran.err), (1, ""));
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], r#"{"id":1,"throttled":true,"retry_after_s":60,"windows":[],"cost":null}"#);
    let errors: Vec<Value> = lines[1..7].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (error, (id, said)) in errors.iter().zip([
        (Value::Null, "line 2: not JSON: expected ident at column 2"),
        (Value::Null, "line 4: not an object"),
        (5.into(), "line 5: `status` is missing"),
        (6.into(), "line 6: `status` is 100 to 999, not 99"),
        (7.into(), "line 7: `now` is not a moment"),
        (Value::Null, "line 8: the line is longer than 16 MiB"),
    ]) {
        assert_eq!(error["id"], id, "{error}");
        assert!(error["error"].as_str().unwrap().starts_with(said), "{error}");
    }
    assert_eq!(lines[7], r#"{"id":{"any":["thing"]},"throttled":false,"retry_after_s":1.5,"windows":[],"cost":null}"#);
    assert_eq!(lines.len(), 8);
}

#[test]
fn unknown_vendor_is_an_error_of_its_line() {
    let line = |id: u32, vendor: &str| format!("{{\"id\": {id}, \"vendor\": {vendor}, \"status\": 200}}\n");
    let input = line(1, "\"githb\"") + &line(2, "\"github\"") + &line(3, "null");
    let ran = run(&["inspect", "--json"], &input);
    assert_eq!((ran.code, &*ran.err), (1, ""));
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let why = lines[0]["error"].as_str().unwrap();
    assert!(why.starts_with("line 1: vendor \"githb\" is not configured; did you mean `github`?"), "{why}");
    assert_eq!((&lines[0]["id"], lines.len()), (&1.into(), 3));
    assert!(lines[1..].iter().all(|line| line["throttled"] == false), "{}", ran.out);
}

#[test]
fn line_defaults_come_from_the_options() {
    let args = ["inspect", "--json", "--status", "429", "--now", "1768471200"];
    let ran = run(&args, "{\"headers\": [[\"Retry-After\", \"Thu, 15 Jan 2026 10:02:00 GMT\"]]}\n");
    assert_eq!(
        (ran.code, &*ran.out),
        (0, "{\"id\":null,\"throttled\":true,\"retry_after_s\":120,\"windows\":[],\"cost\":null}\n")
    );
    assert_eq!(run(&["inspect", "--json"], "").out, "");
}

#[test]
fn lines_never_make_it_panic() {
    let mut random = fastrand::Rng::with_seed(3);
    let whole = "{\"id\": \"é\", \"vendor\": \"github\", \"status\": 429, \"now\": \"2026-01-15T10:00:00Z\", \
                 \"headers\": [[\"x-ratelimit-reset\", \"ÿ\\u0000𝄞\"], [\"\", \"\"]], \"body\": \"é\"}";
    let mut input = Vec::new();
    for _ in 0..2_000 {
        let mut bytes = whole.as_bytes().to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, random.u8(..)),
            }
        }
        bytes.retain(|byte| *byte != b'\n');
        input.extend_from_slice(&bytes);
        input.push(b'\n');
    }
    let ran = super::run_command(super::command(&["inspect", "--json"]), &input);
    assert_eq!((ran.code, &*ran.err), (1, ""));
    assert!(ran.out.lines().count() >= 1_990, "{}", ran.out.lines().count());
}

/// Compares two values. Numbers are compared by their value: 1 and 1.0 are the same.
fn same(found: &Value, expected: &Value) -> bool {
    match (found.as_f64(), expected.as_f64()) {
        (Some(found), Some(expected)) => (found - expected).abs() < 1e-9,
        _ => found == expected,
    }
}

/// Whether a line of output differs from the expected reading. Windows may be in any order, and all their fields are
/// compared.
fn differs(found: &Value, expected: &Value) -> bool {
    let fields = ["name", "limit", "remaining", "used", "reset_in_s", "window_s"];
    let mut left: Vec<&Value> = expected["windows"].as_array().unwrap().iter().collect();
    let windows = found["windows"].as_array().unwrap();
    let all_there = windows.iter().all(|window| {
        let at = left.iter().position(|expected| fields.iter().all(|field| same(&window[field], &expected[field])));
        at.map(|at| left.swap_remove(at)).is_some()
    });
    let plain = ["throttled", "retry_after_s", "cost"].iter().all(|field| same(&found[field], &expected[field]));
    !(all_there && left.is_empty() && plain)
}

/// Runs the program on the cases of a file, and compares the output with the expected readings in the file.
#[track_caller]
fn check_cases(file: &str) -> usize {
    let text =
        std::fs::read_to_string(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(file)).unwrap();
    let mut cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    // Leaves out an invented vendor and two that the catalogue does not have: only the tests of the reader have their
    // dialects.
    let no_entry = ["own", "oracle-access-governance", "prisjakt"];
    cases.retain(|case| !no_entry.iter().any(|vendor| case["vendor"] == *vendor));
    // Without a vendor headers are read by their shape, as those of vendors that the catalogue does not have.
    let catalogue = Config::load(&Sources::new(), 1).unwrap();
    for case in &mut cases {
        if case["vendor"].as_str().is_some_and(|name| catalogue.vendor(name, "live").is_err()) {
            case["vendor"] = Value::Null;
        }
    }
    let lines: Vec<String> = cases.iter().map(Value::to_string).collect();
    let ran = run(&["inspect", "--json"], &lines.join("\n"));
    assert_eq!((ran.code, &*ran.err), (0, ""));
    let found: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.len(), cases.len());
    let mut wrong = Vec::new();
    for (found, case) in found.iter().zip(&cases) {
        assert_eq!(found["id"], case["id"]);
        if differs(found, &case["expect"]) {
            wrong.push(format!("{}:\n  found    {found}\n  expected {}", case["id"], case["expect"]));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    cases.len()
}

#[test]
fn inspect_reads_every_known_response() {
    assert_eq!(check_cases("fixtures/headers.json"), 260);
    assert!(check_cases("fixtures/headers-own.json") >= 60);
}
