//! What a caller can take of the gateway: connections, time for a request's head, and guesses at tokens.

use std::io::ErrorKind::WouldBlock;
use std::sync::mpsc;

use super::ending::read_until;
use super::*;

/// An entry of a vendor that no request reaches.
const UNREACHED: &str =
    "[vendors.shop]\nbase_url = \"http://127.0.0.1:1\"\nauth = { scheme = \"bearer\" }\nunpublished = true\n";

/// Keeps the paused time of a test from moving by itself until the returned value is dropped. The runtime moves paused
/// time to the next timer whenever all tasks wait, also if they wait for sockets, but not while a blocking task runs.
fn freeze_time() -> mpsc::Sender<()> {
    let (end, ended) = mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || ended.recv());
    end
}

/// Sends a request on a connection, and leaves the connection open.
async fn ask(stream: &mut TcpStream) {
    let request = get("/acme/shop/x", TOKEN).replace("connection: close\r\n", "");
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read_until(stream, "{\"ok\":true}").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_above_the_most_is_refused() {
    for most in [3, 1_000] {
        let vendor = start_shop_vendor().await;
        let client = client(vendor.vendors_toml("shop") + &callers("billing")).await;
        let serving = Gateway::builder(client).max_connections(most).build().serve(Listen::loopback()).await.unwrap();
        let mut open = Vec::new();
        for _ in 0..most {
            open.push(TcpStream::connect(serving.address().unwrap()).await.unwrap());
        }
        // Connections are accepted in the order in which they were made: once the last one is served, all are accepted.
        ask(&mut open[most - 1]).await;

        let request = get("/acme/shop/x", TOKEN);
        let refused = send_raw(&serving, &request).await;
        assert_eq!(refused.status, 503, "{} {}", refused.head, refused.body);
        for line in [
            "connection: close",
            "content-type: application/problem+json",
            "proxy-status: integration-client; error=connection_limit_reached",
            "integration-delivery: not_sent",
            "retry-after: 1",
        ] {
            assert!(refused.head.lines().any(|found| found == line), "{line}: {}", refused.head);
        }
        assert!(!refused.head.contains("x-should-retry"), "the caller may repeat it: {}", refused.head);
        let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
        assert_eq!((&problem["kind"], &problem["status"]), (&"connections".into(), &503.into()), "{problem}");

        for at in [0, most / 2, most - 1] {
            ask(&mut open[at]).await;
        }
        assert_eq!(vendor.arrivals().len(), 4, "all but the refused request");
        drop(open.pop());
        // The gateway sees the end of the connection a moment later.
        let next = async {
            loop {
                let got = send_raw(&serving, &request).await;
                if got.status != 503 {
                    break got.status;
                }
            }
        };
        let next = tokio::time::timeout(10 * SECOND, next).await;
        assert_eq!(next.expect("the closed connection still counts"), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn slow_head_is_cut_off() {
    let gateway = Gateway::builder(client(UNREACHED.to_owned()).await).max_connections(1).build();
    let serving = gateway.serve(Listen::loopback()).await.unwrap();
    let _frozen = freeze_time();
    let mut slow = TcpStream::connect(serving.address().unwrap()).await.unwrap();
    let probe = async || send_raw(&serving, &get("/~/livez", TOKEN)).await.status;
    for byte in *b"GET /~/liv" {
        slow.write_all(&[byte]).await.unwrap();
        // The byte came before the probe, so the gateway has read it when the probe is answered.
        assert_eq!(probe().await, 503, "the slow connection is open, and no other is accepted");
        tokio::time::advance(Duration::from_millis(999)).await;
    }
    assert_eq!(probe().await, 503, "9.99 s after the first byte");
    tokio::time::advance(Duration::from_millis(10)).await;
    let mut probes = 0;
    while probe().await != 200 {
        probes += 1;
        assert!(probes < 100, "the slow connection still counts");
    }
    let mut answer = Vec::new();
    assert_eq!(slow.read_to_end(&mut answer).await.unwrap(), 0, "it is closed without an answer");
}

#[tokio::test(start_paused = true)]
async fn eleventh_wrong_token_waits_a_second() {
    let builder = Gateway::builder(client(UNREACHED.to_owned()).await);
    let serving = builder.metrics(|| "calls_total 1\n".to_owned()).build().serve(Listen::loopback()).await.unwrap();
    let right = get("/~/metrics", serving.token().unwrap());
    let wrong = get("/acme/shop/x", "wrong-token-of-32-characters-0000");
    let _frozen = freeze_time();
    for _ in 0..10 {
        assert_eq!(send_raw(&serving, &wrong).await.status, 401);
    }
    let mut eleventh = TcpStream::connect(serving.address().unwrap()).await.unwrap();
    eleventh.write_all(wrong.as_bytes()).await.unwrap();
    // A right token from the same address waits for nothing. Its request came after the wrong one, so the gateway has
    // read both when it is answered.
    assert_eq!(send_raw(&serving, &right).await.status, 200);
    let early = eleventh.try_read(&mut [0; 1]);
    assert!(early.as_ref().is_err_and(|error| error.kind() == WouldBlock), "answered at once: {early:?}");
    // Another address waits for nothing. Only Linux has a second loopback address without any configuration.
    #[cfg(target_os = "linux")]
    {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other = socket.connect(serving.address().unwrap()).await.unwrap();
        other.write_all(wrong.as_bytes()).await.unwrap();
        assert!(read_until(&mut other, "\r\n\r\n").await.starts_with("HTTP/1.1 401"));
    }
    tokio::time::advance(SECOND).await;
    let late = read_until(&mut eleventh, "\r\n\r\n").await;
    assert!(late.starts_with("HTTP/1.1 401") && late.contains("www-authenticate: Bearer realm="), "{late}");
    assert_eq!(send_raw(&serving, &wrong).await.status, 401, "the next second has ten of its own");
}
