use super::*;

#[test]
fn urls_are_read() {
    let etcd = Server::new("etcds://app:p%40ss@db.internal").unwrap();
    assert_eq!((etcd.server.as_str(), etcd.prefix.as_str()), ("https://db.internal:2379/", PREFIX));
    assert_eq!(etcd.user, Some(("app".to_owned(), "p@ss".to_owned())));
    let etcd = Server::new("etcd://[::1]:4001/shop/live/").unwrap();
    assert_eq!((etcd.server.as_str(), etcd.prefix.as_str()), ("http://[::1]:4001/", "shop/live"));
    assert_eq!(etcd.key("v/day"), BASE64_STANDARD.encode("shop/live/limit/v/day"));
    for wrong in ["etcd://", "etcd://host?x=1", "etcd://app@host", "etcd:host"] {
        assert!(Server::new(wrong).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn missing_ledger_is_read() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let etcd = Server::new(&format!("etcd://{}", listener.local_addr().unwrap())).unwrap();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4_096];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        std::future::pending::<()>().await;
    };
    let answered = tokio::select! {
        answered = etcd.read("v/day") => answered.unwrap(),
        () = serve => panic!("the server serves for ever"),
    };
    assert!(answered.found.is_none());
}

/// The environment of a running process cannot be changed safely, so the check runs in a child of its own.
#[test]
fn etcd_is_asked_without_a_proxy() {
    let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", trap.local_addr().unwrap());
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "capacity::etcd::tests::missing_ledger_is_read"])
        .envs(["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"].map(|name| (name, proxy.as_str())))
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    trap.set_nonblocking(true).unwrap();
    assert!(trap.accept().is_err(), "the proxy was used");
}

#[test]
fn refusals_say_what_to_do() {
    let said = refused(StatusCode::BAD_REQUEST, br#"{"error":"etcdserver: user name is empty","code":3}"#);
    assert!(said.contains("etcd://user:password@"), "{said}");
    assert!(refused(StatusCode::NOT_FOUND, b"404 page not found").contains("--enable-grpc-gateway"));
    let full = br#"{"error":"etcdserver: mvcc: database space exceeded","code":8}"#;
    let said = refused(StatusCode::TOO_MANY_REQUESTS, full);
    assert!(said.contains("NOSPACE") && said.contains("alarm disarm"), "{said}");
}

#[tokio::test]
async fn size_of_the_database_is_looked_at_once_an_hour() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let cases = [
        (r#"{"dbSize":"20480"}"#, false),
        (r#"{"dbSize":"1500000000"}"#, true),
        (r#"{"dbSize":"1500000000","dbSizeQuota":"8589934592"}"#, false),
        (r#"{"version":"3.4.23"}"#, false),
        ("none of etcd's", false),
    ];
    for (status, warns) in cases {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let etcd = Server::new(&format!("etcd://{}", listener.local_addr().unwrap())).unwrap();
        let asked = Mutex::new(Vec::new());
        let serve = async {
            let mut open = Vec::new();
            for _ in 0..9 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4_096];
                let read = stream.read(&mut request).await.unwrap();
                let path = String::from_utf8_lossy(&request[..read]).split(' ').nth(1).unwrap().to_owned();
                let body = if path.ends_with("/status") { status } else { r#"{"succeeded":true}"# };
                asked.lock().push(path);
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                open.push(stream);
            }
        };
        let writes = async {
            for _ in 0..2 {
                assert!(etcd.write("v/day", "{}".to_owned(), None).await.unwrap());
            }
        };
        tokio::select! {
            () = writes => {}
            () = serve => panic!("more is asked than expected"),
        }
        assert_eq!(*asked.lock(), ["/v3/kv/txn", "/v3/maintenance/status", "/v3/kv/txn"]);
        assert_eq!(etcd.next_look.lock().is_none(), warns, "{status}");
        assert!(!etcd.is_look_due());
    }
}
