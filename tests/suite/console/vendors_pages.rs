//! Vendors' responses come from the console's origin. A vendor's page must not act as the console's user.

use integration_client::IntegrationClient;
use integration_client::config::TenantEntry;
use integration_client::console::Console;
use integration_client::gateway::{Gateway, Listen};

use crate::support::fault::{FaultServer, Step};

const PAGE: &str = "<script>fetch('/~/console/api/letters/purge', { method: 'POST' })</script>";

/// Opens a vendor's page through a gateway, as a browser does whose user follows a link in a mail. Returns the policies
/// of the response, and whether its type may be guessed.
async fn open_page(status: &str, has_console: bool) -> (Vec<String>, String) {
    let length = PAGE.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n\
         content-security-policy: img-src 'none'\r\nx-content-type-options: guess\r\n\r\n{PAGE}"
    );
    let steps = vec![Step::Loop(vec![Step::Read, Step::Write(answer.into_bytes())])];
    let vendor = FaultServer::start(vec![steps]).await;
    let entry = format!(
        "[vendors.shop]\nbase_url = \"{}\"\nauth = {{ scheme = \"none\" }}\nunpublished = true\n\
         [vendors.shop.retry]\nmax_retries = 1\nfirst_wait = \"100ms\"\n",
        vendor.url()
    );
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(entry);
    let client = builder.tenant(TenantEntry::new("acme", "shop")).build().await.unwrap();
    let builder = Gateway::builder(client.clone()).without_tokens();
    let builder = if has_console { builder.console(&Console::builder(client).build()) } else { builder };
    let serving = builder.build().serve(Listen::loopback()).await.unwrap();
    let browser = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = browser.get(serving.base_url("acme", "shop") + "/page").header("sec-fetch-mode", "navigate");
    let answer = request.header("sec-fetch-site", "none").send().await.unwrap();
    assert!(status.starts_with(answer.status().as_str()), "{}", answer.status());
    let policies = answer.headers().get_all("content-security-policy").iter();
    let policies = policies.map(|policy| policy.to_str().unwrap().to_owned()).collect();
    let guesses = answer.headers()["x-content-type-options"].to_str().unwrap().to_owned();
    assert_eq!(answer.text().await.unwrap(), PAGE);
    (policies, guesses)
}

#[tokio::test(flavor = "multi_thread")]
async fn vendors_page_is_not_of_the_consoles_origin() {
    // The second is the last response of a request that was retried.
    for status in ["200 OK", "500 Internal Server Error"] {
        let own = "img-src 'none'".to_owned();
        let expected = (vec![own.clone(), "sandbox".to_owned()], "nosniff".to_owned());
        assert_eq!(open_page(status, true).await, expected, "{status}");
        assert_eq!(open_page(status, false).await, (vec![own], "guess".to_owned()), "{status} without a console");
    }
}
