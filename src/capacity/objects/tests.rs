use super::*;

#[test]
fn wrong_url_is_refused_in_words() {
    for (url, wrong) in [
        ("s3:bucket", "names no bucket"),
        ("az:///prefix", "no container"),
        ("s3://bucket?colour=red", "`colour`"),
        ("s3://user:hunter2@bucket", "variables"),
        ("s3://bucket?endpoint=", "no address"),
        ("s3://bucket?endpoint=ftp://here", "no address"),
        ("s3://bucket?endpoint=https://here&region=a b", "region"),
        ("az://container?endpoint=here&account_name=a", "no address"),
    ] {
        let error = Bucket::new(url).map(drop).unwrap_err();
        assert!(error.contains(wrong) && !error.contains("hunter2"), "{url}: {error}");
    }
}

#[test]
fn server_error_shows_code_but_no_token() {
    let said = "400: <Error><Code>ExpiredToken</Code><Message>expired</Message><Token-0>hunter2</Token-0></Error>";
    assert_eq!(without_body(said), "ExpiredToken");
    assert_eq!(without_body("503: <html>hunter2"), "503: ");
    assert_eq!(without_body("nothing\nlistens"), "nothinglistens");
}

#[test]
fn objects_are_below_the_prefix() {
    let bucket = Bucket::new("s3://bucket/shop/live/?region=eu-west-1").unwrap();
    assert_eq!(bucket.path("v/day").as_ref(), "shop/live/integration-client/v%2Fday");
    let bucket = Bucket::new("az://container?account_name=here").unwrap();
    assert_eq!(bucket.path("v").as_ref(), "integration-client/v");
}
