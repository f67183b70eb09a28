use super::*;

#[test]
fn changing_calls_need_the_operate_right() {
    let paths = [
        ("session", Method::GET, None),
        ("login", Method::POST, None),
        ("logout", Method::POST, None),
        ("overview", Method::GET, Some(Access::View)),
        ("lanes", Method::GET, Some(Access::View)),
        ("lanes/acme/github", Method::GET, Some(Access::View)),
        ("lanes/acme/github/pause", Method::POST, Some(Access::Operate)),
        ("lanes/acme/github/resume", Method::POST, Some(Access::Operate)),
        ("queues", Method::GET, Some(Access::View)),
        ("workers", Method::GET, Some(Access::View)),
        ("letters", Method::GET, Some(Access::View)),
        ("letters/0190", Method::GET, Some(Access::View)),
        ("letters/redrive", Method::POST, Some(Access::Operate)),
        ("letters/purge", Method::POST, Some(Access::Operate)),
        ("events", Method::GET, Some(Access::View)),
        ("vendors", Method::GET, Some(Access::View)),
        ("processes", Method::GET, Some(Access::View)),
    ];
    for (path, method, needs) in paths {
        let path = format!("/api/{path}");
        let found = call(&method, &path).unwrap();
        assert_eq!(found.needs(), needs, "{path}");
        // Another site can cause a GET by a link or an image, so no call with the method GET may change anything.
        assert!(needs != Some(Access::Operate) || method == Method::POST, "{path}");
        let other = if method == Method::GET { Method::POST } else { Method::GET };
        let is_letter = path.starts_with("/api/letters/") && other == Method::GET;
        let allowed = if method == Method::GET { "GET, HEAD" } else { "POST" };
        assert!(is_letter || call(&other, &path) == Err(NoCall::Method(allowed)), "{path}");
    }
}

#[test]
fn path_names_are_decoded_once() {
    let lane = |path: &str| call(&Method::GET, path);
    assert_eq!(lane("/api/lanes/a%2Fb/c%20d"), Ok(Call::Lane("a/b".to_owned(), "c d".to_owned())));
    assert_eq!(lane("/api/lanes/%2561/v"), Ok(Call::Lane("%61".to_owned(), "v".to_owned())));
    for path in ["/api", "/api/", "/api/lanes/a", "/api/lanes/a/b/c", "/nothing", "/../x", "/api/nothing", "//"] {
        assert_eq!(call(&Method::GET, path), Err(NoCall::Path), "{path}");
    }
    assert!(matches!(call(&Method::HEAD, "/"), Ok(Call::File(_))));
    assert_eq!(call(&Method::POST, "/"), Err(NoCall::Method("GET, HEAD")));
    assert_eq!(call(&Method::GET, "/."), Ok(Call::Slash));
}
