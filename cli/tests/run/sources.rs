//! Runs whose configuration comes from a server: `status` says when the server last confirmed it, and what is wrong.
#![cfg(unix)]

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;

/// Serves a text until `is_broken` is set, and 500 from then on. Returns the address.
#[expect(clippy::disallowed_methods, reason = "a server beside the test")]
fn serve(text: String, is_broken: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                head.extend(byte);
            }
            let (status, body) = if is_broken.load(Relaxed) { ("500 Broken", "") } else { ("200 OK", &*text) };
            let length = body.len();
            // A process that ends closes its connection.
            let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn status_names_failing_configuration_server() {
    let place = RunFolder::new(FakeVendor::builder().limit(VendorLimit::sliding_window(5, SECOND))).await;
    place.jobs("jobs.jsonl", 1..=1_000);
    let is_broken = Arc::<AtomicBool>::default();
    let address = serve(fs::read_to_string(place.path("vendors.toml")).unwrap(), is_broken.clone());
    let url = format!("http://{address}/vendors.toml");
    let with_secret = format!("{url}?sig=hunter2");
    let mut command = place.command(&["run", "jobs.jsonl", "--vendors", &with_secret, "--quiet"]);
    // A proxy of this machine must not be asked for a server on loopback.
    let child = command.env("NO_PROXY", "127.0.0.1").spawn().unwrap();
    place.wait_until_sent(2).await;
    let status = async |args: &[&str]| {
        let args = [&["status", "--store", "jobs.jsonl.sqlite"], args].concat();
        wait(place.command(&args).spawn().unwrap()).await.out
    };
    // Long lines are wrapped.
    let words = async || status(&[]).await.split_whitespace().collect::<Vec<_>>().join(" ");
    let fine = format!("1 process at work configuration: {url}, confirmed ");
    let mut seen = String::new();
    for _ in 0..100 {
        seen = words().await;
        if seen.contains(&fine) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(seen.contains(&fine) && !seen.contains("; problem for "), "{seen}");
    is_broken.store(true, Relaxed);
    for _ in 0..300 {
        seen = words().await;
        if seen.contains("; problem for ") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(seen.contains(&fine) && seen.contains(": the server answered 500"), "{seen}");
    let json: Value = serde_json::from_str(&status(&["--json"]).await).unwrap();
    let sources = json["workers"][0]["config_sources"].as_array().unwrap();
    let names: Vec<&Value> = sources.iter().map(|source| &source["name"]).collect();
    assert_eq!(names, [&*url, "table ic_config"]);
    let away = &sources[0];
    assert!(away["age_s"].as_f64() >= away["problem_for_s"].as_f64() && away["is_copy"] == false, "{away}");
    assert!(away["problem"].as_str().unwrap().contains("the server answered 500"), "{away}");
    signal(&child, "INT");
    let ran = wait(child).await;
    assert!(ran.code == 3 && !seen.contains("hunter2") && !json.to_string().contains("hunter2"), "{}", ran.err);
}
