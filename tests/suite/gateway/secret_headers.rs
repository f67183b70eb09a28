//! A header with a secret that a vendor needs beside the credential.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn callers_secret_header_is_replaced() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok".to_vec();
    let vendor = FaultServer::answering(vec![Step::Write(answer)]).await;
    let entry = format!(
        "[vendors.shop]\nbase_url = \"{}\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n\
         secret_headers = {{ X-Second = \"kept:second\" }}\n",
        vendor.url()
    );
    let serving = serve_gateway(entry + &callers("billing")).await;
    let given = "x-second: of-the-caller\r\nX-SECOND: of-the-sdk\r\n";
    let got = send_raw(&serving, &post("/acme/shop/x", given, "")).await;
    assert_eq!(got.status, 200, "{}", got.body);
    let seen = vendor.requests();
    let head = seen[0].head.to_lowercase();
    assert!(head.contains("\r\nx-second: the-vendors-secret"), "{head}");
    assert!(head.matches("x-second").count() == 1 && !head.contains("of-the-"), "{head}");
}
