//! octocrab, GitHub's SDK, through the client: `cargo run -p sdks --bin octocrab`.
//!
//! octocrab accepts a lane, which is a service, in place of its own transport. The tenant's key replaces the SDK's, and
//! requests for further pages, which GitHub names by complete URLs, go through the lane too.

#![allow(clippy::print_stdout, reason = "a program for the command line")]
#![allow(clippy::disallowed_methods, reason = "programs spawn and measure; the library does not")]

use http::header::{HeaderValue, LINK};
use http::request::Parts;
use http::{StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use octocrab::service::middleware::auth_header::AuthHeaderLayer;
use octocrab::service::middleware::base_uri::BaseUriLayer;
use octocrab::{AuthState, Octocrab, OctocrabBuilder};
use sdks::{AT_ONCE, Answer, BREAK, Behaviour, BoxError, CALLERS_TOKEN, KEY, Vendor, answer, forgotten, has_key};
use serde_json::Value;
use tokio::task::JoinSet;

/// The number of pages of the issue list.
const PAGES: usize = 4;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let vendor = Vendor::start(Behaviour { is_right: has_key, answer: github }).await?;

    let own = Client::builder(TokioExecutor::new()).build_http();
    let base: Uri = vendor.url().parse()?;
    let direct = OctocrabBuilder::new_empty()
        .with_service(own)
        .with_layer(&BaseUriLayer::new(base.clone()))
        // octocrab by itself sends a credential only to GitHub's hosts.
        .with_layer(&AuthHeaderLayer::new(Some(format!("Bearer {KEY}").parse()?), base.clone(), base))
        .with_auth(AuthState::None)
        .build()?;
    let expected = calls(&direct).await?;
    forgotten().await;
    vendor.reset();

    let client = vendor.client("bearer").await?;
    let paced = OctocrabBuilder::new_empty()
        .with_service(client.lane("acme", "vendor")?.service())
        // octocrab requires a credential for some calls. The tenant's credential replaces it, whatever it is.
        .with_auth(AuthState::AccessToken { token: CALLERS_TOKEN.into() })
        .build()?;
    let found = calls(&paced).await?;
    if found != expected {
        return Err(format!("through the lane: {found:?}; by a direct call: {expected:?}").into());
    }

    let mut at_once = JoinSet::new();
    for _ in 0..AT_ONCE {
        let paced = paced.clone();
        at_once.spawn(async move { paced.get::<Value, _, ()>("/user", None).await });
    }
    for user in at_once.join_all().await {
        if user?["login"] != "octo" {
            return Err("an answer is not the vendor's".into());
        }
    }
    // A POST that may have arrived is not repeated.
    vendor.check_broken(paced.issues("a", "b").create(BREAK).send().await)?;
    println!("{}", vendor.report("octocrab", 3 + PAGES + AT_ONCE)?);
    Ok(())
}

/// Makes one call of each kind: a GET of JSON, a POST of text, and a list with several pages.
async fn calls(github: &Octocrab) -> Result<(Value, String, Vec<Value>), BoxError> {
    let user = github.get("/user", None::<&()>).await?;
    let rendered = github.markdown().render_raw("*hello*").await?;
    let first = github.get("/repos/a/b/issues", None::<&()>).await?;
    Ok((user, rendered, github.all_pages(first).await?))
}

fn github(parts: &Parts, body: &[u8], base: &str) -> Answer {
    match parts.uri.path() {
        "/user" => answer(StatusCode::OK, "application/json", r#"{"login":"octo","id":1}"#),
        "/markdown/raw" => answer(StatusCode::OK, "text/html", format!("<p>{}</p>", String::from_utf8_lossy(body))),
        "/repos/a/b/issues" => {
            let query = parts.uri.query().unwrap_or_default();
            let page: usize = query.strip_prefix("page=").and_then(|page| page.parse().ok()).unwrap_or(1);
            let issues = format!(r#"[{{"number":{}}},{{"number":{}}}]"#, 2 * page - 1, 2 * page);
            let mut answer = answer(StatusCode::OK, "application/json", issues);
            let next = format!("<{base}/repos/a/b/issues?page={}>; rel=\"next\"", page + 1);
            if let Ok(next) = HeaderValue::from_str(&next)
                && page < PAGES
            {
                answer.headers_mut().insert(LINK, next);
            }
            answer
        }
        _ => answer(StatusCode::NOT_FOUND, "application/json", r#"{"message":"not found"}"#),
    }
}
