use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Method;
use http_body::{Frame, SizeHint};
use http_body_util::{Empty, Full};

use super::*;
use crate::config::{Config, Sources};

const ENTRIES: &str = r#"
    [vendors.v]
    extends = "none"
    base_url = "https://api.example/v1"
    auth = { scheme = "bearer" }
    unpublished = true

    [vendors.keyed]
    extends = "none"
    base_url = "https://keyed.example"
    auth = { scheme = "query", name = "api_key" }
    unpublished = true

    [[tenants]]
    id = "acme"
    vendor = "v"
    credential = "env:KEY"

    [[tenants]]
    id = "acme"
    vendor = "keyed"
    credential = "env:KEY"
"#;

fn route(vendor: &str) -> Arc<Route> {
    let config = Config::load(&Sources::new().file("vendors.toml", ENTRIES), 1).unwrap();
    Route::alone(Arc::unwrap_or_clone(config.tenant("acme", vendor).unwrap()))
}

async fn accept_request<B>(request: http::Request<B>, buffer_up_to: usize) -> Result<Accepted, Error>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    accept(request, &route("v"), &SendOptions::new(), buffer_up_to, None, Clock::system()).await
}

async fn get(uri: &str) -> Result<Request, Error> {
    let request = http::Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
    accept_request(request, 1024).await.map(|accepted| accepted.request)
}

/// A body of scripted pieces. It may state a wrong length or none, and may never end.
struct ScriptedBody {
    pieces: Vec<Result<&'static str, BoxError>>,
    length: Option<u64>,
    hangs: bool,
}

impl HttpBody for ScriptedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.pieces.is_empty() {
            return if self.hangs { Poll::Pending } else { Poll::Ready(None) };
        }
        let piece = self.pieces.remove(0);
        Poll::Ready(Some(piece.map(|text| Frame::data(Bytes::from_static(text.as_bytes())))))
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

fn post(pieces: Vec<Result<&'static str, BoxError>>, length: Option<u64>, hangs: bool) -> http::Request<ScriptedBody> {
    http::Request::post("/pay").body(ScriptedBody { pieces, length, hangs }).unwrap()
}

#[tokio::test]
async fn uris_resolve_below_the_base() {
    for (uri, path) in [
        ("/user?a=b", "/user?a=b"),
        ("/", "/"),
        ("/a%2Fb//c", "/a%2Fb//c"),
        ("https://api.example/v1/user?a=b", "/user?a=b"),
    ] {
        let request = get(uri).await.unwrap();
        match &request.parts.target {
            Target::Path { vendor, path: found } => assert_eq!((&**vendor, &**found), ("v", path), "{uri}"),
            Target::Url(url) => panic!("{uri}: {url}"),
        }
    }
    // The base URL itself cannot be expressed as a path below it.
    let base = get("https://api.example/v1").await.unwrap();
    assert!(matches!(&base.parts.target, Target::Url(url) if url.as_str() == "https://api.example/v1"));
}

#[tokio::test]
async fn other_hosts_are_refused_by_name() {
    for (uri, words) in [
        ("https://evil.example/v1/user", "evil.example"),
        ("http://api.example/v1/user", "api.example"),
        ("https://api.example:8443/v1/user", "api.example"),
        ("https://api.example/v2/user", "not below"),
        ("https://api.example/v1x", "not below"),
        ("https://user:pass@api.example/v1/user", "user name"),
    ] {
        let error = get(uri).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{uri}");
        let text = error.to_string();
        assert!(text.contains(words) && text.contains("api.example") && !text.contains("pass@"), "{uri}: {text}");
    }
    let tunnel = http::Request::builder().method(Method::CONNECT).uri("evil.example:443");
    let error = accept_request(tunnel.body(Empty::<Bytes>::new()).unwrap(), 0).await.unwrap_err();
    assert!(error.to_string().contains("CONNECT"), "{error}");
}

/// A wrong path is found when the request is sent; the conversion repairs nothing.
#[tokio::test]
async fn paths_are_not_changed() {
    for path in ["//evil.example/x", "/a/../b", "/a/..%2fb", "/a%00"] {
        let request = get(path).await.unwrap();
        assert!(matches!(&request.parts.target, Target::Path { path: found, .. } if found == path), "{path}");
    }
    // The conversion refuses a whole URL that parsing would change.
    for url in ["https://api.example/v1/../admin", "https://API.example:443/v1/user"] {
        let error = get(url).await.unwrap_err();
        assert!(error.to_string().contains("plain form"), "{url}: {error}");
    }
}

#[tokio::test]
async fn sdk_credential_is_dropped_from_the_query() {
    for (uri, expected) in [
        ("/a?api%5Fkey=theirs&x=1&api%5Fkey", "/a?x=1"),
        ("/a?api%5Fkey=theirs", "/a"),
        ("/a?apikey=1&&", "/a?apikey=1&&"),
        ("https://keyed.example/a?x=1&%61pi_key=theirs", "/a?x=1"),
    ] {
        let request = http::Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
        let accepted = accept(request, &route("keyed"), &SendOptions::new(), 0, None, Clock::system()).await.unwrap();
        assert!(matches!(&accepted.request.parts.target, Target::Path { path, .. } if path == expected), "{uri}");
    }
}

#[tokio::test]
async fn options_prefer_extensions_over_headers() {
    let mut request = http::Request::get("/a")
        .header("integration-priority", "low")
        .header("integration-endpoint", "by-header")
        .header("authorization", "Bearer theirs")
        .header("x-kept", "1")
        .body(Empty::<Bytes>::new())
        .unwrap();
    request.extensions_mut().insert(SendOptions::new().priority(Priority::High));
    let defaults = SendOptions::new().endpoint("default").deadline(Duration::from_secs(9)).max_wait(Duration::ZERO);
    let accepted = accept(request, &route("v"), &defaults, 0, None, Clock::system()).await.unwrap();
    let parts = &accepted.request.parts;
    assert_eq!((accepted.priority, accepted.immediate), (Priority::High, true));
    assert_eq!((parts.endpoint.as_deref(), parts.max_wait), (Some("by-header"), None));
    assert!(parts.deadline.is_some_and(|total| total <= Duration::from_secs(9)));
    assert_eq!(parts.headers.keys().map(http::HeaderName::as_str).collect::<Vec<_>>(), ["x-kept"]);

    let bad = http::Request::get("/a").header("integration-priority", "urgent").body(Empty::<Bytes>::new()).unwrap();
    let error = refusal_of(bad).await;
    assert!(error.to_string().contains("write high, normal or low"), "{error}");
}

async fn refusal_of(request: http::Request<Empty<Bytes>>) -> Error {
    let error = accept_request(request, 0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    error
}

#[tokio::test]
async fn short_bodies_alone_are_kept() {
    let full = |length: usize| http::Request::post("/pay").body(Full::<Bytes>::from(vec![b'x'; length])).unwrap();
    let kept = accept_request(full(8), 8).await.unwrap();
    assert_eq!(kept.request.body_bytes().map(Bytes::len), Some(8));
    assert!(kept.request.try_clone().is_some());
    assert_eq!(accept_request(full(9), 8).await.unwrap().request.body_bytes(), None);
    assert_eq!(accept_request(full(0), 0).await.unwrap().request.body_bytes().map(Bytes::len), Some(0));

    let unknown = accept_request(post(vec![Ok("a"), Ok("b")], None, false), 1024).await.unwrap();
    assert_eq!(unknown.request.body_bytes(), None);
    let mut body = unknown.request.parts.body;
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!((first, body.is_end_stream()), (Bytes::from_static(b"a"), false));
    assert_eq!(body.collect().await.unwrap().to_bytes(), Bytes::from_static(b"b"));
}

#[tokio::test(start_paused = true)]
async fn faulty_bodies_are_errors() {
    let long = post(vec![Ok("12345"), Ok("6789")], Some(5), false);
    let broken = post(vec![Ok("12"), Err("reset".into())], Some(5), false);
    for request in [long, broken] {
        let error = accept_request(request, 5).await.unwrap_err();
        assert_eq!((error.kind(), error.delivery()), (ErrorKind::InvalidRequest, crate::Delivery::NotSent));
    }
    let hanging = accept_request(post(vec![Ok("12")], Some(5), true), 5).await.unwrap_err();
    assert_eq!(hanging.kind(), ErrorKind::Deadline);
    let mut soon = post(vec![], Some(5), true);
    soon.extensions_mut().insert(SendOptions::new().deadline(Duration::from_millis(20)));
    assert_eq!(accept_request(soon, 5).await.unwrap_err().kind(), ErrorKind::Deadline);
}

/// A body of two pieces, each of which comes this long after the one before.
struct SlowBody {
    pause: Duration,
    left: u32,
    next: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for SlowBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let pause = self.pause;
        let next = self.next.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
        std::task::ready!(next.as_mut().poll(cx));
        (self.next, self.left) = (None, self.left - 1);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"12")))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(2 * u64::from(self.left))
    }
}

#[tokio::test(start_paused = true)]
async fn body_has_a_minute_for_each_piece() {
    let clock = Clock::system();
    for (pause, took) in [(59, Ok(118)), (61, Err(60))] {
        let body = SlowBody { pause: Duration::from_secs(pause), left: 2, next: None };
        let mut request = http::Request::post("/pay").body(body).unwrap();
        request.extensions_mut().insert(SendOptions::new().deadline(Duration::from_secs(31_536_000)));
        let began = clock.now();
        let accepted = accept_request(request, 4).await;
        let seconds = clock.now().since(began).as_secs();
        let accepted = accepted.map(|accepted| accepted.request.body_bytes().cloned()).map_err(|error| error.kind());
        match took {
            Ok(took) => assert_eq!((accepted, seconds), (Ok(Some(Bytes::from_static(b"1212"))), took)),
            Err(took) => assert_eq!((accepted, seconds), (Err(ErrorKind::Deadline), took)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn error_of_late_body_names_what_is_late() {
    for (deadline, said) in [(Some(50), "before its deadline; state a later one"), (None, "did not come within 60 s")] {
        let body = SlowBody { pause: Duration::from_secs(40), left: 2, next: None };
        let mut request = http::Request::post("/pay").body(body).unwrap();
        if let Some(seconds) = deadline {
            request.extensions_mut().insert(SendOptions::new().deadline(Duration::from_secs(seconds)));
        }
        let error = accept_request(request, 4).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Deadline && error.to_string().contains(said), "{error}");
    }
}

/// A body that is streamed, with this many seconds before each piece.
async fn streamed(pause: u64, answered: Option<Arc<AtomicBool>>) -> Body {
    let body = SlowBody { pause: Duration::from_secs(pause), left: 2, next: None };
    let request = http::Request::post("/pay").body(body).unwrap();
    let accepted = accept(request, &route("v"), &SendOptions::new(), 0, answered, Clock::system()).await.unwrap();
    assert_eq!(accepted.request.body_bytes(), None);
    accepted.request.parts.body
}

#[tokio::test(start_paused = true)]
async fn streamed_body_has_a_minute_for_each_piece() {
    let mut in_time = streamed(59, Some(Arc::default())).await;
    for _ in 0..2 {
        // The vendor takes nothing of the body for this time.
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(in_time.frame().await.unwrap().is_ok());
    }
    assert!(in_time.frame().await.is_none());
    let mut late = streamed(61, Some(Arc::default())).await;
    let error = late.frame().await.unwrap().unwrap_err();
    assert!(format!("{error:?}").contains("came for 60 s"), "{error:?}");
}

/// The program's own request, and one of the gateway's that the vendor answers before it goes on.
#[tokio::test(start_paused = true)]
async fn answered_request_may_be_silent() {
    let answered = Arc::<AtomicBool>::default();
    let own = streamed(3_600, None).await;
    let answering = streamed(3_600, Some(answered.clone())).await;
    for (mut silent, begins) in [(own, None), (answering, Some(&answered))] {
        let response = async {
            tokio::time::sleep(Duration::from_secs(59)).await;
            begins.into_iter().for_each(|answered| answered.store(true, Relaxed));
        };
        let (frame, ()) = tokio::join!(silent.frame(), response);
        assert!(frame.unwrap().is_ok());
    }
}

#[tokio::test]
async fn errors_of_no_kind_are_taken_too() {
    // A body with an error type other than the client's.
    let body = Full::<Bytes>::from("x").map_err(|never: Infallible| match never {});
    let request = http::Request::post("/pay").body(body).unwrap();
    assert!(accept_request(request, 8).await.is_ok());
}
