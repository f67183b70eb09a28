//! Tests of `run --console`.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use super::*;

/// Sends a request to the console, and returns the status and the body of the response.
fn ask(address: &str, method: &str, path: &str, token: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: 2\r\nconnection: close\r\n\r\n{{}}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn console_ends_with_its_run() {
    let place = RunFolder::new(FakeVendor::builder().limit(VendorLimit::sliding_window(5, SECOND))).await;
    place.jobs("jobs.jsonl", 1..=300);
    let mut child = place.start(&["jobs.jsonl", "--console", "--quiet"]);
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("console: ") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "the run ended and said nothing of a console");
    }
    let (url, token) = line.trim().split_once(" (token: ").unwrap();
    let token = token.trim_end_matches(')');
    let address = url.split_once("http://").unwrap().1.trim_end_matches("/~/console/").to_owned();
    place.wait_until_sent(2).await;
    let (status, lanes) = ask(&address, "GET", "/~/console/api/lanes", token);
    assert_eq!((status, lanes.contains("\"acme\"")), (200, true), "{lanes}");
    assert_eq!(ask(&address, "GET", "/~/console/api/lanes", "wrong").0, 401);
    let (status, told) = ask(&address, "POST", "/acme/v/jobs/1", token);
    assert_eq!((status, told.contains("nothing is sent through this server")), (404, true), "{told}");
    let (status, told) = ask(&address, "POST", "/~/console/api/lanes/acme/v/pause", token);
    assert_eq!(status, 403, "{told}");
    signal(&child, "INT");
    let ran = wait(child).await;
    assert_eq!(ran.code, 3);
    assert!(TcpStream::connect(&address).is_err(), "nobody listens any more");
}
