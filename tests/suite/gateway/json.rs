//! The vendor's URLs in JSON bodies are replaced by the gateway's, for callers that ask for it.

use tokio::net::TcpListener;

use super::*;

/// Starts a vendor with three pages, whose bodies state the URL of the next page and are sent in chunks of `length`
/// bytes. Returns the vendor's base URL.
async fn start_paged_vendor(length: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let own = base.clone();
    let page = move |number: u32| match number {
        3 => format!(r#"{{"items":[3],"next":null,"self":"{own}/items?page=3","other":"https://other.example/"}}"#),
        _ => format!(r#"{{"items":[{number}],"next":"{}\/items?page={}"}}"#, own.replace('/', "\\/"), number + 1),
    };
    #[expect(clippy::disallowed_methods, reason = "a server of the test")]
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let number = head.split("page=").nth(1).and_then(|rest| rest[..1].parse().ok()).unwrap();
            let mut answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\netag: \"1\"\r\n\
                               digest: sha-256=x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
                .to_vec();
            for piece in page(number).as_bytes().chunks(length) {
                answer.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                answer.extend_from_slice(piece);
                answer.extend_from_slice(b"\r\n");
            }
            answer.extend_from_slice(b"0\r\n\r\n");
            stream.write_all(&answer).await.unwrap();
        }
    });
    base
}

async fn serve_with_rewrite(vendor: &str, rewrite: &str) -> Serving {
    let entry =
        format!("[vendors.shop]\nbase_url = \"{vendor}\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n");
    serve_gateway(entry + &callers("billing") + rewrite).await
}

#[tokio::test(flavor = "multi_thread")]
async fn body_pagination_stays_at_the_gateway() {
    for length in [1, 7, 4_096] {
        let vendor = start_paged_vendor(length).await;
        let serving = serve_with_rewrite(&vendor, "rewrite = \"json\"\n").await;
        let own = serving.base_url("acme", "shop");
        let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut url = format!("{own}/items?page=1");
        let mut items = Vec::new();
        let last = loop {
            let answer = sdk.get(&url).bearer_auth(TOKEN).send().await.unwrap();
            assert!(answer.headers().contains_key("etag") && !answer.headers().contains_key("digest"));
            let text = answer.text().await.unwrap();
            let page: serde_json::Value = serde_json::from_str(&text).unwrap();
            items.push(page["items"][0].as_u64().unwrap());
            match page["next"].as_str() {
                Some(next) => url = next.to_owned(),
                None => break text,
            }
            assert!(url.starts_with(&own), "{url}");
        };
        assert_eq!(items, [1, 2, 3]);
        let expected =
            format!(r#"{{"items":[3],"next":null,"self":"{own}/items?page=3","other":"https://other.example/"}}"#);
        assert_eq!(last, expected, "all else stays as it was written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_stay_unchanged_by_default() {
    let vendor = start_paged_vendor(4_096).await;
    let serving = serve_with_rewrite(&vendor, "").await;
    let got = send_raw(&serving, &get("/acme/shop/items?page=1", TOKEN)).await;
    assert!(got.head.contains("digest: sha-256=x") && got.body.contains(&vendor.replace('/', "\\/")), "{}", got.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn rewritten_body_states_no_length() {
    let body = "{\"a\":\"b\"}";
    let answer =
        format!("HTTP/1.1 404 No\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let vendor = FaultServer::answering(vec![Step::Write(answer.into_bytes())]).await;
    let serving = serve_with_rewrite(&vendor.url(), "rewrite = \"json\"\n").await;
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = sdk.get(serving.base_url("acme", "shop") + "/x").bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(answer.status(), 404);
    assert_eq!(answer.text().await.unwrap(), body);
}
