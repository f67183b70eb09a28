use std::sync::Arc;

use base64::engine::general_purpose::STANDARD;
use http::HeaderName;

use super::*;
use crate::clock::Time;
use crate::route::Secrets;
use crate::transport::target;

fn concealed(scheme: &AuthScheme, secret: &str, text: &str) -> String {
    Authorization::new(scheme, Arc::new(SecretString::from(secret)), Time::MAX).conceal(scheme, text, true, "")
}

#[test]
fn secret_is_found_however_it_is_written() {
    let secret = "k3y/+\"é&x%41";
    let (percent, scheme) = (target::encode(secret).to_string(), AuthScheme::Query { name: "key".to_owned() });
    for written in [
        secret,
        "k3y\\/+\\\"é&x%41",
        "k3y/\\u002B\\\"\\u00e9\\u0026x%41",
        &percent,
        &percent.to_lowercase(),
        "k3y&#x2F;&#43;&quot;é&amp;x%41",
    ] {
        let text = format!("à {written}, {written}: 100 % \\ & é");
        assert_eq!(concealed(&scheme, secret, &text), "à ***, ***: 100 % \\ & é", "{written}");
    }
    let other = "k3y/+\"é&x%42 \\u12 %4 &#; &#x110000; \\ud800";
    assert_eq!(concealed(&scheme, secret, other), other);
}

#[test]
fn each_part_of_a_basic_credential_is_concealed() {
    let (secret, encoded) = ("account-7:pass:word", STANDARD.encode("account-7:pass:word"));
    let text = format!("{encoded}|{secret}|pass:word|account-7|7");
    let shown = concealed(&AuthScheme::Basic, secret, &text);
    assert_eq!(shown.trim_start_matches(['*', '=']), "|***|***|***|7");
    assert_eq!(concealed(&AuthScheme::Basic, "api:secret-key", "the api has no secret-key"), "the api has no ***");
    assert_eq!(concealed(&AuthScheme::Bearer, "ab:cdef", "cdef ab"), "cdef ab", "it is no pair");
}

#[test]
fn user_in_the_url_of_the_request_stays() {
    let known = Authorization::new(&AuthScheme::Basic, Arc::new(SecretString::from("AC123456:password")), Time::MAX);
    let shown = |url: &str| known.conceal(&AuthScheme::Basic, "/AC123456/calls/7?p=password&e=pass", false, url);
    assert_eq!(shown("https://v.example/AC123456/calls"), "/AC123456/calls/7?p=***&e=pass");
    assert_eq!(shown("https://v.example/calls"), "/***/calls/7?p=***&e=pass");
}

#[test]
fn cut_secret_leaves_no_part() {
    let whole = "no such key: \\u0073upersecret";
    for length in 14..=whole.len() {
        let shown = concealed(&AuthScheme::Bearer, "supersecret", &whole[..length]);
        assert!(!shown.contains("uper"), "{shown}");
    }
    assert_eq!(concealed(&AuthScheme::Bearer, "supersecret", "it is super"), "it is ***");
    assert_eq!(concealed(&AuthScheme::Bearer, "supersecret", "it was sup"), "it was sup");
}

#[test]
fn beginnings_count_in_cut_texts_alone() {
    assert!(places("it is super", &["supersecret"], true).contains(&(6..11)));
    assert!(places("it is super", &["supersecret"], false).is_empty());
    assert_eq!(places("a%2Fb, a/b", &["a/b"], false), [7..10, 7..10, 0..5, 7..10, 7..10]);
}

#[test]
fn short_secret_and_empty_text_stay() {
    assert_eq!(concealed(&AuthScheme::Bearer, "order", "the order is empty"), "the order is empty");
    assert_eq!(concealed(&AuthScheme::Bearer, "supersecret", ""), "");
}

#[test]
fn secrets_of_headers_are_concealed() {
    let second = (HeaderName::from_static("x-second"), Arc::new(SecretString::from("second/secret")));
    for credential in [None, Some(Arc::new(SecretString::from("first-secret")))] {
        let is_alone = credential.is_none();
        let secrets = Secrets { credential, headers: vec![second.clone()] };
        let known = Authorization::new(&AuthScheme::Bearer, secrets, Time::MAX);
        let shown = known.conceal(&AuthScheme::Bearer, "first-secret and second%2Fsecret", true, "");
        assert_eq!(shown, if is_alone { "first-secret and ***" } else { "*** and ***" });
    }
}
