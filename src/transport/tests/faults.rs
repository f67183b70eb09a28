//! Each way in which a vendor or a network misbehaves must yield a clear kind, a truthful `Sent`, and a bounded time.

use super::server::{FaultServer, Step};
use super::*;

fn write(text: &str) -> Step {
    Step::Write(text.as_bytes().to_vec())
}

const OK_HEAD: &str = "HTTP/1.1 200 OK\r\n";

fn gzip_bomb() -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        encoder.write_all(&[0; 1024 * 1024]).unwrap();
    }
    let body = encoder.finish().unwrap();
    let mut out = format!("{OK_HEAD}content-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    out.extend(body);
    out
}

#[tokio::test]
async fn transport_faults_have_kind_and_phase() {
    use ErrorKind::{Protocol, ResponseTooLarge, Timeout};
    use Sent::{Answered, MaybeSent};
    let slow = Duration::from_millis(50);
    let cases: Vec<(&str, Vec<Step>, Sent, ErrorKind)> = vec![
        ("silence", vec![Step::Stall], MaybeSent, Timeout),
        ("half a status line, then silence", vec![write("HTTP/1.1 2"), Step::Stall], MaybeSent, Timeout),
        ("headers byte by byte", vec![Step::Drip(OK_HEAD.repeat(9).into(), slow)], MaybeSent, Timeout),
        ("reset before the answer", vec![Step::Reset], MaybeSent, Protocol),
        ("closed before the answer", vec![], MaybeSent, Protocol),
        ("half closed before the answer", vec![Step::HalfClose], MaybeSent, Protocol),
        ("reset in the headers", vec![write("HTTP/1.1 200 OK\r\nx-a"), Step::Reset], MaybeSent, Protocol),
        ("not HTTP", vec![write("SSH-2.0-OpenSSH_9.9\r\n\r\n"), Step::Stall], MaybeSent, Protocol),
        ("endless fields", vec![write(OK_HEAD), Step::Repeat(b"x-a: b\r\n".to_vec())], MaybeSent, ResponseTooLarge),
        (
            "an endless field",
            vec![write("HTTP/1.1 200 OK\r\nx: "), Step::Repeat(vec![b'a'; 4096])],
            MaybeSent,
            ResponseTooLarge,
        ),
        (
            "large fields",
            vec![write(&format!("{OK_HEAD}x: {}\r\ncontent-length: 0\r\n\r\n", "a".repeat(70_000)))],
            MaybeSent,
            ResponseTooLarge,
        ),
        ("endless 100s", vec![Step::Repeat(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec())], MaybeSent, Timeout),
        (
            "two lengths",
            vec![write("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab")],
            MaybeSent,
            Protocol,
        ),
        (
            "stall in the body",
            vec![write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"), Step::Stall],
            Answered,
            Timeout,
        ),
        (
            "body byte by byte",
            vec![write("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n"), Step::Drip(vec![b'a'; 99], slow)],
            Answered,
            Timeout,
        ),
        ("length too long", vec![write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc")], Answered, Protocol),
        (
            "reset in the body",
            vec![write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"), Step::ReadBytes(0), Step::Reset],
            Answered,
            Protocol,
        ),
        (
            "truncated chunk",
            vec![write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nabc")],
            Answered,
            Protocol,
        ),
        (
            "no last chunk",
            vec![write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")],
            Answered,
            Protocol,
        ),
        (
            "bad chunk size",
            vec![write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n")],
            Answered,
            Protocol,
        ),
        (
            "endless chunk extensions",
            vec![write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;"), Step::Repeat(b"a=b;".repeat(1024))],
            Answered,
            Protocol,
        ),
        (
            "endless trailers",
            vec![
                write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"),
                Step::Repeat(b"x-a: b\r\n".repeat(512)),
            ],
            Answered,
            Protocol,
        ),
        (
            "stated length over the cap",
            vec![write("HTTP/1.1 200 OK\r\ncontent-length: 65537\r\n\r\n"), Step::Stall],
            Answered,
            ResponseTooLarge,
        ),
        (
            "endless body",
            vec![write("HTTP/1.1 200 OK\r\n\r\n"), Step::Repeat(vec![b'a'; 4096])],
            Answered,
            ResponseTooLarge,
        ),
        ("gzip bomb", vec![Step::Write(gzip_bomb())], Answered, ResponseTooLarge),
        (
            "not gzip",
            vec![write("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nabcd")],
            Answered,
            Protocol,
        ),
    ];
    for (name, steps, sent, kind) in cases {
        let server = FaultServer::answering(steps).await;
        // Only cases that end by timeout get a short one: the others must not time out on a busy machine.
        let wait = if kind == Timeout { 500 } else { 10_000 };
        let error = exchange(&server.url(), wait).await.expect_err(name);
        assert_eq!((error.sent(), error.kind()), (sent, kind), "{name}: {error:?}");
        assert_eq!(server.requests().len(), 1, "{name}: one exchange is one request");
        let shown = error.into_error(&tenant(vendor(AuthScheme::Bearer)));
        assert_eq!(shown.delivery(), sent.delivery(), "{name}");
        assert_no_secret(&format!("{shown} {shown:?}"));
    }
}

#[tokio::test]
async fn response_reset_is_never_not_sent() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-a: b\r\n\r\nhello";
    for cut in 0..answer.len() {
        let server = FaultServer::answering(vec![Step::Write(answer[..cut].to_vec()), Step::Reset]).await;
        let error = exchange(&server.url(), 2000).await.expect_err("it was cut");
        assert_ne!(error.sent(), Sent::NotSent, "cut at {cut}");
        assert_eq!(error.kind(), ErrorKind::Protocol, "cut at {cut}: {error:?}");
    }
}

/// The vendor has read a part of the request: the error must not claim that it was not sent.
#[tokio::test]
async fn request_reset_is_never_not_sent() {
    // Larger than the socket buffers, so that the last byte is never on its way when the reset comes.
    let body = vec![b'x'; 16 << 20];
    for read in [1, 2, 16, 100, 1_000, 100_000, 1 << 20] {
        let server = FaultServer::start(vec![vec![Step::ReadBytes(read), Step::Reset]]).await;
        let request = Request::post("acme-api", "/things").body(body.clone());
        let sent = exchange_with(&ReqwestTransport::new(), request, &server.url(), Duration::from_secs(10)).await;
        let error = sent.expect_err("it was cut");
        assert_eq!((error.sent(), error.kind()), (Sent::MaybeSent, ErrorKind::Protocol), "{read} bytes: {error:?}");
        assert_eq!(server.connections(), 1, "{read} bytes");
    }
}

/// The way there may become as narrow as the way back.
#[tokio::test]
async fn stalled_upload_ends_at_the_deadline() {
    let server = FaultServer::start(vec![vec![Step::ReadBytes(1000), Step::Idle(Duration::from_secs(60))]]).await;
    let request = Request::post("acme-api", "/things").body(vec![b'x'; 16 << 20]);
    let sent = exchange_with(&ReqwestTransport::new(), request, &server.url(), Duration::from_millis(500)).await;
    let error = sent.unwrap_err();
    assert_eq!((error.sent(), error.kind()), (Sent::MaybeSent, ErrorKind::Timeout), "{error:?}");
}

/// A server accepts the connection and then does not respond to the handshake.
#[tokio::test]
async fn connect_timeout_ends_a_hanging_connection() {
    let server = FaultServer::start(vec![vec![Step::Stall]]).await;
    let url = server.url().replace("http:", "https:");
    // The bound is the connect timeout of `vendor`: two seconds.
    let error = exchange(&url, 20_000).await.unwrap_err();
    assert_eq!((error.sent(), error.kind()), (Sent::NotSent, ErrorKind::Connect), "{error:?}");
    assert!(error.to_string().contains("connect timeout"), "{error}");
}

/// Gzip is decoded if it is the only coding. The client asks for no other; one that a vendor uses unasked is passed on
/// unchanged.
#[tokio::test]
async fn encodings_in_encodings_are_not_unpacked() {
    for encoding in ["gzip, gzip", "br", "zstd", "deflate"] {
        let answer = format!("{OK_HEAD}content-encoding: {encoding}\r\ncontent-length: 6\r\n\r\npacked");
        let server = FaultServer::answering(vec![write(&answer)]).await;
        let (_, body) = exchange(&server.url(), 5000).await.expect(encoding);
        assert_eq!(&body[..], b"packed", "{encoding}");
    }
}

#[tokio::test]
async fn short_body_arrives_with_headers_or_streams() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n";
    let later = |text: &str| Step::Drip(text.into(), Duration::from_millis(30));
    let ended = Err((Sent::Answered, ErrorKind::Protocol));
    let cases = [
        ("whole", vec![Step::Read, write(&format!("{head}abcdef"))], true, Ok("abcdef")),
        ("none", vec![Step::Read, write("HTTP/1.1 204 No Content\r\n\r\n")], true, Ok("")),
        ("in two parts", vec![Step::Read, write(&format!("{head}abc")), later("def")], false, Ok("abcdef")),
        ("later", vec![Step::Read, write(head), later("abcdef")], false, Ok("abcdef")),
        ("cut short", vec![Step::Read, write(&format!("{head}abc"))], false, ended),
    ];
    for (name, script, at_once, whole) in cases {
        let server = FaultServer::start(vec![script]).await;
        let mut ready = prepare(Request::get("acme-api", "/"), AuthScheme::None, &server.url()).unwrap();
        let exchange = ready.exchange(attempt(None, Duration::from_secs(2))).unwrap();
        let answer = ReqwestTransport::new().execute(exchange).await.unwrap();
        // If the body is cut, its end may have arrived by now as well.
        assert!(answer.body.has_arrived() == at_once || whole.is_err(), "{name}");
        let read = answer.body.collect().await;
        assert_eq!(read.as_deref().map_err(|error| (error.sent(), error.kind())), whole.map(str::as_bytes), "{name}");
    }
}

#[tokio::test]
async fn bytes_after_content_length_are_ignored() {
    let server = FaultServer::answering(vec![write("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcdef")]).await;
    let (status, body) = exchange(&server.url(), 2000).await.unwrap();
    assert_eq!((status.as_u16(), &body[..]), (200, &b"abc"[..]));
}

#[tokio::test]
async fn missing_connection_means_not_sent() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = exchange(&format!("http://127.0.0.1:{port}"), 2000).await.unwrap_err();
    assert_eq!((refused.sent(), refused.kind()), (Sent::NotSent, ErrorKind::Connect));
    assert_no_secret(&format!("{refused} {refused:?}"));

    let unresolvable = exchange("https://no-such-host.invalid", 5000).await.unwrap_err();
    assert_eq!((unresolvable.sent(), unresolvable.kind()), (Sent::NotSent, ErrorKind::Connect), "{unresolvable:?}");

    // A TLS handshake with something that does not speak it.
    let server =
        FaultServer::start(vec![vec![Step::ReadBytes(5), Step::Write(b"HTTP/1.1 400 no\r\n\r\n".to_vec())]]).await;
    let tls = exchange(&server.url().replace("http:", "https:"), 2000).await.unwrap_err();
    assert_eq!((tls.sent(), tls.kind()), (Sent::NotSent, ErrorKind::Connect), "{tls:?}");
}

#[tokio::test]
async fn redirect_is_an_answer() {
    let other = FaultServer::answering(vec![write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")]).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("HTTP/1.1 {status} Moved\r\nlocation: {}/x\r\ncontent-length: 0\r\n\r\n", other.url());
        let server = FaultServer::answering(vec![write(&location)]).await;
        let request = Request::post("acme-api", "/things").body("private");
        let sent = exchange_with(&ReqwestTransport::new(), request, &server.url(), Duration::from_secs(2)).await;
        assert_eq!(sent.unwrap().0.as_u16(), status);
        assert_eq!(server.requests().len(), 1);
    }
    assert_eq!(other.connections(), 0, "the other host must see nothing");
}

/// hyper-util sends a request again when a pooled connection closes before the request is written, and reqwest cannot
/// switch that off. It may do so only while the vendor has seen nothing: so the vendor counts.
#[tokio::test]
async fn exchange_is_one_request_on_dying_connections() {
    let answer = write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let endings = [
        vec![Step::Read, answer.clone()],
        vec![Step::Read, answer.clone(), Step::Reset],
        vec![Step::Read, answer.clone(), Step::Read],
        vec![Step::Read, answer.clone(), Step::Read, Step::Reset],
        vec![Step::Read, answer.clone(), Step::ReadBytes(10), Step::Reset],
    ];
    for (n, script) in endings.into_iter().enumerate() {
        let server = FaultServer::start(vec![script]).await;
        let transport = ReqwestTransport::new();
        let (mut answered, mut failed) = (0, 0);
        for pause in 0..40 {
            let request = Request::post("acme-api", "/things").body("once");
            match exchange_with(&transport, request, &server.url(), Duration::from_secs(2)).await {
                Ok(_) => answered += 1,
                Err(error) if error.sent() == Sent::NotSent => {}
                Err(_) => failed += 1,
            }
            // Sometimes before the close is noticed, sometimes after.
            tokio::time::sleep(Duration::from_micros(pause % 4 * 100)).await;
        }
        let seen = server.requests().len();
        assert!(seen >= answered && seen <= answered + failed, "script {n}: {seen} seen, {answered} + {failed} made");
        assert!(answered > 0, "script {n}");
    }
}

#[tokio::test]
async fn failing_request_stream_is_reported_once() {
    struct BrokenStream(u8);
    impl futures_core::Stream for BrokenStream {
        type Item = Result<bytes::Bytes, std::io::Error>;
        fn poll_next(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Self::Item>> {
            self.0 += 1;
            std::task::Poll::Ready(Some(match self.0 {
                1 => Ok(bytes::Bytes::from_static(b"first")),
                _ => Err(std::io::Error::other("no more")),
            }))
        }
    }
    let server = FaultServer::answering(vec![Step::Stall]).await;
    let request = Request::post("acme-api", "/things").body(Body::stream(BrokenStream(0)));
    let error =
        exchange_with(&ReqwestTransport::new(), request, &server.url(), Duration::from_secs(2)).await.unwrap_err();
    assert_eq!((error.sent(), error.kind()), (Sent::MaybeSent, ErrorKind::InvalidRequest), "{error:?}");
}
