//! The console's API over real sockets: rights, sessions, other sites, dead letters, and the secrets that no response
//! may show.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says why")]

pub(crate) mod scene;
mod vendors_pages;

use std::time::Duration;

use integration_client::console::{Access, Console};
use integration_client::gateway::{Gateway, Listen};
use integration_client::{Priority, Request};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tower::Service as _;

use scene::{OPERATOR, SECRETS, SENDER, Scene, VIEWER};

/// Every call, with the least right that it needs.
const CALLS: &[(&str, &str, Option<&str>)] = &[
    ("GET", "api/overview", Some("view")),
    ("GET", "api/lanes", Some("view")),
    ("GET", "api/lanes/acme/v", Some("view")),
    ("GET", "api/queues", Some("view")),
    ("GET", "api/workers", Some("view")),
    ("GET", "api/letters", Some("view")),
    ("GET", "api/vendors", Some("view")),
    ("GET", "api/processes", Some("view")),
    ("POST", "api/lanes/acme/v/pause", Some("operate")),
    ("POST", "api/lanes/acme/v/resume", Some("operate")),
    ("POST", "api/letters/redrive", Some("operate")),
    ("POST", "api/letters/purge", Some("operate")),
    ("GET", "api/session", None),
    ("GET", "", None),
    ("GET", "console.js", None),
    ("GET", "console.css", None),
];

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_checked_for_every_call() {
    let scene = Scene::new("rights", false).await;
    let read_only = Scene::new("rights-read-only", true).await;
    for (method, path, needs) in CALLS {
        for (token, has) in
            [(None, None), (Some(SENDER), None), (Some(VIEWER), Some("view")), (Some(OPERATOR), Some("operate"))]
        {
            for (scene, has) in [(&scene, has), (&read_only, has.map(|_| "view"))] {
                let mut request = scene.http.request(method.parse().unwrap(), scene.url(path));
                if let Some(token) = token {
                    request = request.bearer_auth(token);
                }
                let status = request.send().await.unwrap().status();
                let may = needs.is_none() || has == Some("operate") || has == *needs;
                // A caller without any right to the console is refused at every call of the API.
                let is_stranger = token == Some(SENDER) && path.starts_with("api/");
                let expected = match (may && !is_stranger, token) {
                    // A POST without a token might come from a browser, and does not say from which page.
                    (false, None) if *method == "POST" => [StatusCode::FORBIDDEN; 2],
                    (true, _) => [StatusCode::OK, StatusCode::BAD_REQUEST],
                    (false, None) => [StatusCode::UNAUTHORIZED; 2],
                    (false, Some(_)) => [StatusCode::FORBIDDEN; 2],
                };
                assert!(expected.contains(&status), "{method} {path} by {token:?}: {status}");
            }
        }
    }
    let wrong = scene.http.get(scene.url("api/lanes")).bearer_auth("a-wrong-token-of-32-characters-00");
    assert_eq!(wrong.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_lasts_from_login_to_logout() {
    let scene = Scene::new("sessions", false).await;
    let lanes = |cookie: &str| {
        let request =
            scene.http.get(scene.url("api/lanes")).header("cookie", cookie).header("sec-fetch-site", "same-origin");
        async { request.send().await.unwrap().status() }
    };
    // A session id that an attacker planted in the browser is not accepted, before or after the login.
    let planted = "ic_session=00112233445566778899aabbccddeeff";
    let login = scene.login(OPERATOR).header("cookie", planted).send().await.unwrap();
    assert_eq!(login.status(), StatusCode::OK);
    let set = login.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(
        set.contains("; HttpOnly; SameSite=Strict; Max-Age=43200") && !set.contains("Path") && !set.contains("Secure")
    );
    let cookie = set.split(';').next().unwrap().to_owned();
    assert_ne!(cookie, planted);
    assert_eq!(lanes(planted).await, StatusCode::UNAUTHORIZED);
    assert_eq!(lanes(&cookie).await, StatusCode::OK);
    // A second login in the same browser ends the first session.
    let second = scene.login(OPERATOR).header("cookie", &cookie).send().await.unwrap();
    let second = second.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    assert_ne!(second, cookie);
    assert_eq!((lanes(&cookie).await, lanes(&second).await), (StatusCode::UNAUTHORIZED, StatusCode::OK));
    let out =
        scene.http.post(scene.url("api/logout")).header("cookie", &second).header("sec-fetch-site", "same-origin");
    assert!(out.send().await.unwrap().headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(lanes(&second).await, StatusCode::UNAUTHORIZED);
    // Under any other host name the cookie is sent over TLS only.
    let away =
        scene.http.post(scene.url("api/login")).json(&json!({ "token": VIEWER })).header("host", "console.example");
    let away = away.header("origin", "https://console.example").send().await.unwrap();
    assert!(away.headers()["set-cookie"].to_str().unwrap().ends_with("; Secure"));
    for token in [SENDER, "a-wrong-token-of-32-characters-00", ""] {
        let refused = scene.login(token).send().await.unwrap();
        assert!(refused.status().is_client_error() && !refused.headers().contains_key("set-cookie"), "{token}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_sites_cause_nothing() {
    let scene = Scene::new("sites", false).await;
    let cookie = scene.session(OPERATOR).await;
    let host = scene.address();
    for (given, expected) in [
        (vec![("sec-fetch-site", "same-origin".to_owned())], StatusCode::OK),
        (vec![("origin", format!("http://{host}"))], StatusCode::OK),
        (vec![("sec-fetch-site", "cross-site".to_owned())], StatusCode::FORBIDDEN),
        (vec![("sec-fetch-site", "same-site".to_owned())], StatusCode::FORBIDDEN),
        (vec![("origin", "http://evil.example".to_owned())], StatusCode::FORBIDDEN),
        (vec![("origin", "null".to_owned())], StatusCode::FORBIDDEN),
        (vec![], StatusCode::FORBIDDEN),
    ] {
        let mut request = scene.http.post(scene.url("api/lanes/acme/v/resume")).header("cookie", &cookie);
        for (name, value) in &given {
            request = request.header(*name, value);
        }
        assert_eq!(request.send().await.unwrap().status(), expected, "{given:?}");
    }
    // Another site may neither log in nor read.
    let login = scene.http.post(scene.url("api/login")).json(&json!({"token": OPERATOR}));
    assert_eq!(login.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    let read = scene.http.get(scene.url("api/lanes")).header("cookie", &cookie).header("sec-fetch-site", "cross-site");
    assert_eq!(read.send().await.unwrap().status(), StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_have_safe_headers_and_no_secret() {
    let scene = Scene::new("secrets", false).await;
    scene.letters(3).await;
    let ids = scene.get("api/letters").await["letters"].clone();
    let id = ids[0]["id"].as_str().unwrap().to_owned();
    let own =
        [format!("api/letters/{id}"), "api/letters/none".to_owned(), "api/nothing".to_owned(), "nothing".to_owned()];
    let paths = CALLS.iter().map(|(_, path, _)| (*path).to_owned()).chain(own);
    for path in paths {
        let answer = scene.http.get(scene.url(&path)).bearer_auth(OPERATOR).send().await.unwrap();
        let headers = answer.headers().clone();
        assert!(
            headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'; script-src 'self'")
        );
        assert!(headers["x-content-type-options"] == "nosniff" && headers["cache-control"] == "no-store", "{path}");
        assert!(!headers.contains_key("access-control-allow-origin"), "{path}");
        let body = answer.text().await.unwrap();
        for secret in SECRETS {
            assert!(!body.contains(secret), "{path} shows {secret}: {body}");
        }
    }
    let mut events = scene.http.get(scene.url("api/events?kind=all")).bearer_auth(VIEWER).send().await.unwrap();
    scene.client.send("acme", Priority::High, scene::letter_request()).await.unwrap();
    let mut text = String::new();
    while !text.contains("\"completed\"") {
        text.push_str(&String::from_utf8_lossy(&events.chunk().await.unwrap().unwrap()));
    }
    assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{text}");
    let redirect = scene.http.get(scene.url("").trim_end_matches('/')).send().await.unwrap();
    assert!(redirect.url().path().ends_with("/~/console/"), "{}", redirect.url());
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_changed_by_their_number_alone() {
    let scene = Scene::new("letters", false).await;
    scene.letters(5).await;
    let listed = scene.get("api/letters?reason=rejected&limit=2").await;
    assert_eq!((&listed["total"], listed["letters"].as_array().unwrap().len()), (&json!(5), 2));
    let next = scene.get(&format!("api/letters?limit=2&after_place={}", listed["next"])).await;
    assert_ne!(next["letters"][0]["id"], listed["letters"][0]["id"]);
    let upto = &listed["upto"];
    let change = async |call: &str, body: Value| scene.post(&format!("api/letters/{call}"), body).await;
    // With a wrong number nothing is deleted, and the response states the right one.
    let (status, told) = change("purge", json!({"filter": {"tenant": "acme"}, "upto": upto, "expect": 4})).await;
    assert_eq!((status, &told["count"]), (StatusCode::CONFLICT, &json!(5)));
    for bad in [
        json!({"filter": {}, "expect": 5}),
        json!({"ids": [], "expect": 0}),
        json!({"ids": ["x"], "filter": {}, "upto": upto, "expect": 5}),
        json!({"ids": ["x"], "versions": {"x": "1-rejected"}, "expect": 1}),
        json!({"filter": {"reason": "none"}, "upto": upto, "expect": 5}),
        json!({"all": true, "expect": 5}),
    ] {
        assert_eq!(change("purge", bad.clone()).await.0, StatusCode::BAD_REQUEST, "{bad}");
    }
    assert_eq!(scene.get("api/letters").await["total"], 5);
    // A letter that came after the listing is not deleted.
    scene.letters(6).await;
    let (status, done) = change("purge", json!({"filter": {"tenant": "acme"}, "upto": upto, "expect": 5})).await;
    assert_eq!((status, &done["purged"]), (StatusCode::OK, &json!(5)));
    let left = scene.get("api/letters").await;
    assert_eq!(left["total"], 1);
    // The letter is redriven: the vendor receives the request with its original idempotency key.
    let before = scene.vendor.arrivals();
    let id = left["letters"][0]["id"].clone();
    let (status, done) = change("redrive", json!({"ids": [id], "expect": 1})).await;
    assert_eq!((status, &done["redriven"]), (StatusCode::OK, &json!(1)));
    let again = scene.arrival_after(before.len()).await;
    assert!(
        before.iter().any(|first| first.idempotency_key == again.idempotency_key && !again.idempotency_key.is_empty())
    );
    let (status, done) = change("redrive", json!({"ids": ["0".repeat(32)], "expect": 1})).await;
    assert_eq!((status, &done["redriven"], &done["left"]), (StatusCode::OK, &json!(0), &json!(1)), "there is none");
}

/// None of the letters exists. Each has the longest version.
#[tokio::test(flavor = "multi_thread")]
async fn thousand_letters_are_named_with_versions() {
    let scene = Scene::new("thousand", false).await;
    let ids: Vec<String> = (0..1_000).map(|number| format!("{number:032x}")).collect();
    let version = format!("{}-not_configured", i64::MAX);
    let versions: Value = ids.iter().map(|id| (id.clone(), Value::from(version.as_str()))).collect();
    let body = json!({"ids": ids, "versions": versions, "expect": 1_000});
    let (status, done) = scene.post("api/letters/redrive", body).await;
    assert_eq!((status, done), (StatusCode::OK, json!({"redriven": 0, "left": 1_000, "left_out": 0})));
}

/// The vendor may have acted on an ambiguous letter, and may act twice.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_letters_are_sent_again_by_their_reason_alone() {
    let scene = Scene::new("ambiguous", false).await;
    // The vendor takes a key with the POST alone, and its 500 leaves open whether it acted on the other.
    let copy = Request::new(http::Method::from_bytes(b"COPY").unwrap(), "v", "/broken/ambiguous");
    for request in [Request::post("v", "/broken/exhausted"), copy] {
        scene.client.outbox().enqueue("acme", Priority::High, request).await.unwrap();
    }
    for (filter, matching, left_out, sent) in
        [(json!({}), 2, 1, "exhausted"), (json!({"reason": "ambiguous"}), 1, 0, "ambiguous")]
    {
        scene.until_letters(2).await;
        let (before, listed) = (scene.vendor.arrivals().len(), scene.get("api/letters").await);
        let body = json!({"filter": filter, "upto": listed["upto"], "expect": matching});
        let (status, done) = scene.post("api/letters/redrive", body).await;
        assert_eq!((status, done), (StatusCode::OK, json!({"redriven": 1, "left": 0, "left_out": left_out})));
        assert_eq!(&*scene.arrival_after(before).await.path, format!("/broken/{sent}"));
        scene.until_letters(2).await;
        assert_eq!(scene.vendor.arrivals().len(), before + 1, "{sent}");
    }
}

/// Another operator may have sent the letter again, whose job may have become another letter since.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_letter_is_named_with_its_version() {
    let scene = Scene::new("versions", false).await;
    let copy = Request::new(http::Method::from_bytes(b"COPY").unwrap(), "v", "/broken/ambiguous");
    scene.client.outbox().enqueue("acme", Priority::High, copy).await.unwrap();
    scene.until_letters(1).await;
    let listed = scene.get("api/letters").await["letters"][0].clone();
    assert_eq!(listed["reason"], "ambiguous");
    let (id, version) = (listed["id"].as_str().unwrap(), listed["version"].as_str().unwrap());
    let redrive = async |versions: Value| {
        let body = json!({"ids": [id], "versions": versions, "expect": 1});
        scene.post("api/letters/redrive", body).await
    };
    let left = json!({"redriven": 0, "left": 1, "left_out": 0});
    for versions in [json!({}), json!({id: "0-exhausted"})] {
        assert_eq!(redrive(versions.clone()).await, (StatusCode::OK, left.clone()), "{versions}");
    }
    let before = scene.vendor.arrivals().len();
    assert_eq!(redrive(json!({id: version})).await.1["redriven"], 1);
    scene.arrival_after(before).await;
    scene.until_letters(1).await;
    // The same call again names a letter that is not there any more.
    assert_eq!(redrive(json!({id: version})).await, (StatusCode::OK, left));
    let again = scene.get(&format!("api/letters/{id}")).await;
    assert_eq!(again["reason"], "ambiguous");
    assert_ne!(again["version"], version);
    assert_eq!(scene.vendor.arrivals().len(), before + 1);
    assert_eq!(redrive(json!({"other": version})).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_are_paged_paused_and_resumed() {
    let scene = Scene::new("lanes", false).await;
    let first = scene.get("api/lanes?search=bulk&sort=name&limit=40").await;
    assert_eq!((&first["total"], first["lanes"].as_array().unwrap().len()), (&json!(100), 40));
    let mut seen: Vec<String> = Vec::new();
    let mut after = String::new();
    loop {
        let page = scene.get(&format!("api/lanes?search=bulk&sort=name&limit=40&after={after}")).await;
        seen.extend(page["lanes"].as_array().unwrap().iter().map(|lane| lane["tenant"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = next.to_owned();
    }
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((seen.len(), &seen), (100, &sorted));
    let (status, told) = scene.post("api/lanes/bulk-042/v/pause", json!({})).await;
    assert_eq!((status, &told["pause"]["by"]), (StatusCode::OK, &json!("operator")));
    let worst = scene.get("api/lanes").await;
    assert_eq!((&worst["lanes"][0]["tenant"], &worst["lanes"][0]["state"]), (&json!("bulk-042"), &json!("held")));
    assert_eq!(scene.get("api/lanes?state=held").await["total"], 1);
    scene.post("api/lanes/bulk-042/v/resume", json!({})).await;
    assert_eq!(scene.get("api/lanes?state=held").await["total"], 0);
    let lane = scene.get("api/lanes/acme/v").await;
    assert!(lane["estimate"]["by_priority"]["high"]["expected_s"].is_number(), "{lane}");
    assert!(lane["status"]["limits"][0]["limit"].is_number());
    let vendors = scene.get("api/vendors").await;
    assert_eq!((&vendors["vendors"][0]["vendor"], &vendors["vendors"][0]["tenants"]), (&json!("v"), &json!(101)));
    for path in ["api/lanes/nobody/v", "api/lanes/acme/w"] {
        let answer = scene.http.get(scene.url(path)).bearer_auth(VIEWER).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
    }
    for path in ["api/lanes?sort=upwards", "api/lanes?limit=x", "api/lanes?nothing=1", "api/letters?before=then"] {
        let answer = scene.http.get(scene.url(path)).bearer_auth(VIEWER).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_waits_for_no_viewer() {
    let mut scene = Scene::new("shutdown", false).await;
    let mut events = scene.http.get(scene.url("api/events")).bearer_auth(VIEWER).send().await.unwrap();
    let serving = scene.serving.take().unwrap();
    let whole = tokio::time::timeout(Duration::from_secs(5), serving.shutdown(Duration::from_secs(60))).await;
    assert!(whole.unwrap(), "all ended by itself");
    while events.chunk().await.unwrap().is_some() {}
}

/// In a program that has its own login, the program decides who may do what, and the console has no login.
#[tokio::test(flavor = "multi_thread")]
async fn program_that_serves_it_decides_who_may() {
    let scene = Scene::new("nested", false).await;
    let access = |parts: &http::request::Parts| match parts.headers.get("x-role")?.as_bytes() {
        b"boss" => Some(Access::Operate),
        b"clerk" => Some(Access::View),
        _ => None,
    };
    let mut console = Console::builder(scene.client.clone()).access(access).build();
    for (method, path, role, expected) in [
        ("GET", "/api/lanes", "boss", 200),
        ("GET", "/api/lanes", "clerk", 200),
        ("GET", "/api/lanes", "other", 401),
        ("POST", "/api/lanes/acme/v/resume", "boss", 200),
        ("POST", "/api/lanes/acme/v/resume", "clerk", 403),
        ("POST", "/api/login", "boss", 404),
        ("GET", "/", "other", 200),
    ] {
        let request = http::Request::builder().method(method).uri(path).header("x-role", role);
        let request =
            request.header("sec-fetch-site", "same-origin").body(http_body_util::Full::<bytes::Bytes>::default());
        let answer = console.call(request.unwrap()).await.unwrap();
        assert_eq!(answer.status(), expected, "{method} {path} {role}");
    }
    let unstated = http::Request::post("/api/lanes/acme/v/resume").header("x-role", "boss");
    let answer = console.call(unstated.body(http_body_util::Full::<bytes::Bytes>::default()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN, "the program's own cookie may speak for the user");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_the_gateway_opens_the_console() {
    let client = integration_client::IntegrationClient::builder().without_catalogue().build().await.unwrap();
    let console = Console::builder(client.clone()).read_only().build();
    let gateway = Gateway::builder(client).without_tokens().console(&console).build();
    let serving = gateway.serve(Listen::loopback()).await.unwrap();
    let url = format!("http://{}/~/console/api/lanes", serving.address().unwrap());
    let http = reqwest::Client::new();
    assert_eq!(http.get(&url).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let answer = http.get(&url).bearer_auth(serving.token().unwrap()).send().await.unwrap();
    assert_eq!(answer.json::<Value>().await.unwrap()["total"], 0);
    let letters = format!("http://{}/~/console/api/letters", serving.address().unwrap());
    let answer = http.get(&letters).bearer_auth(serving.token().unwrap()).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "there is no store");
}

#[tokio::test(flavor = "multi_thread")]
async fn first_of_two_listeners_ends_at_once() {
    let client = integration_client::IntegrationClient::builder().without_catalogue().build().await.unwrap();
    let console = Console::builder(client.clone()).build();
    let gateway = Gateway::builder(client).console(&console).build();
    let first = gateway.serve(Listen::loopback()).await.unwrap();
    let second = gateway.serve(Listen::loopback()).await.unwrap();
    let http = reqwest::Client::new();
    let ask = |path: &str| {
        let url = format!("http://{}/~/console/{path}", second.address().unwrap());
        http.get(url).bearer_auth(second.token().unwrap()).send()
    };
    let mut events = ask("api/events").await.unwrap();
    let whole = tokio::time::timeout(Duration::from_secs(5), first.shutdown(Duration::from_secs(60))).await;
    assert!(whole.unwrap(), "the console's work in the background is no request");
    assert_eq!(ask("api/lanes").await.unwrap().status(), StatusCode::OK);
    let whole = tokio::time::timeout(Duration::from_secs(5), second.shutdown(Duration::from_secs(60))).await;
    assert!(whole.unwrap());
    while events.chunk().await.unwrap().is_some() {}
}

#[tokio::test]
async fn wrong_method_is_told_the_right_one() {
    let client = integration_client::IntegrationClient::builder().without_catalogue().build().await.unwrap();
    let mut console = Console::builder(client).access(|_| Some(Access::Operate)).build();
    for (method, path, allowed) in [
        ("POST", "/api/lanes", "GET, HEAD"),
        ("DELETE", "/api/letters/7", "GET, HEAD"),
        ("POST", "/console.js", "GET, HEAD"),
        ("GET", "/api/letters/purge", "POST"),
        ("PUT", "/api/lanes/acme/v/pause", "POST"),
    ] {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.body(http_body_util::Full::<bytes::Bytes>::default()).unwrap();
        let answer = console.call(request).await.unwrap();
        let told = answer.headers()["allow"].to_str().unwrap();
        assert_eq!((answer.status().as_u16(), told), (405, allowed), "{method} {path}");
    }
}
