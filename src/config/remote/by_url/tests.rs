use super::*;

#[test]
fn urls_name_sources() {
    for (url, secret, name) in [
        ("https://c.example.com/a/v.toml?sig=1", None, "https://c.example.com/a/v.toml"),
        ("http://127.0.0.1:8080/v.toml", Some("env:T"), "http://127.0.0.1:8080/v.toml"),
        ("consul+https://c:8500/ic/prod", None, "https://c:8500/ ic/prod"),
        ("etcd+http://localhost:2379/ic/", None, "http://localhost:2379/ ic/"),
        ("etcd+https://me@e:2379/ic/", Some("env:T"), "https://e:2379/ ic/"),
        ("azure-app-configuration:ic/*", Some("env:T"), "Azure App Configuration ic/*"),
        ("https://me:hunter2@c:port/v.toml", None, "https://c:port/v.toml"),
        ("https://me:pass#hunter2@c:port/v.toml?a=hunter2", None, "https://c:port/v.toml"),
    ] {
        assert_eq!(RemoteSource::by_url(url, secret).unwrap().name(), name);
    }
}

#[test]
fn other_urls_are_refused_in_words() {
    for (url, secret, expected) in [
        ("ftp://c/x", None, "a source is https://"),
        ("vendors.toml", None, "a source is https://"),
        ("consul+https://c:8500/", None, "the prefix of the keys is missing"),
        ("etcd+https://me@e/ic", None, "state the user's password"),
        ("etcd+https://me:hunter2@e/ic", Some("env:T"), "holds a password"),
        ("etcd+https://e/ic", Some("env:T"), "needs a user"),
        ("azure-app-configuration:ic/", None, "connection string"),
    ] {
        let told = RemoteSource::by_url(url, secret).unwrap_err().to_string();
        assert!(told.contains(expected) && !told.contains("hunter2"), "{told}");
    }
}
