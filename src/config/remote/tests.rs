use super::http::address;
use super::*;

fn s(seconds: f64) -> Duration {
    Duration::from_millis((seconds * 1_000.0) as u64)
}

#[test]
fn waits_double_up_to_thirty_seconds() {
    let waits: Vec<Duration> = (1..=8).map(|times| wait_after(times, None, 0.0)).collect();
    assert_eq!(waits, [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0].map(s));
    assert_eq!((wait_after(0, None, 1.0), wait_after(u32::MAX, None, 1.0)), (s(0.75), s(22.5)));
}

#[test]
fn asked_wait_is_a_floor_and_capped() {
    assert_eq!(wait_after(1, Some(s(12.0)), 0.5), s(12.0));
    assert_eq!(wait_after(6, Some(s(1.0)), 0.0), s(30.0));
    assert_eq!(wait_after(1, Some(Duration::MAX), 0.0), LONGEST_ASKED);
}

#[test]
fn addresses_without_secrets_are_taken() {
    assert!(address("https://config.example.com/a?sig=x").is_ok());
    for (url, expected) in [
        ("vendors.toml", "no address"),
        ("file:///etc/vendors.toml", "must begin with https://"),
        ("https://user:hunter2@config.example.com/", "holds a user or a password"),
    ] {
        let why = address(url).unwrap_err().why;
        assert!(why.contains(expected) && !why.contains("hunter2"), "{why}");
    }
}

#[test]
fn debug_output_and_names_hold_no_secret() {
    let source = RemoteSource::http("https://c.example.com/v.toml?sig=hunter2").bearer("env:TOKEN");
    let shown = format!("{source:?} {}", source.name());
    assert!(shown.contains("https://c.example.com/v.toml") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn empty_answers_are_failures() {
    let found = |texts: &[&str]| Found {
        tag: None,
        texts: texts.iter().map(|text| ("a".to_owned(), (*text).to_owned())).collect(),
    };
    assert!(check(found(&["# nothing"])).is_ok());
    for texts in [&[][..], &[" \n"], &["x = 1", ""]] {
        assert!(check(found(texts)).is_err(), "{texts:?}");
    }
}

#[tokio::test]
async fn loopback_server_is_read() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let source = RemoteSource::http(format!("http://{}/vendors.toml", listener.local_addr().unwrap()));
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4_096];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n# nothing").await.unwrap();
        std::future::pending::<()>().await;
    };
    let loaded = tokio::select! {
        loaded = source.load() => loaded.unwrap(),
        () = serve => panic!("the server serves for ever"),
    };
    assert_eq!(loaded.hash(), Sources::new().file("vendors.toml", "# nothing").hash());
}

/// The copy is written into a pipe that no process reads: the write hangs, as on a file system that does not answer.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn hanging_write_of_a_copy_is_given_up() {
    let process = std::process::id();
    let folder = std::env::temp_dir().join(format!("ic-copy-hangs-{process}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    // The new file, which is then renamed.
    let pipe = folder.join(format!("copy.json.{process}"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let source = RemoteSource::http("https://c.example.com/v.toml").keep_copy_in(folder.join("copy.json"));
    for text in ["# first", "# second"] {
        let texts = Arc::new(vec![("v.toml".to_owned(), text.to_owned())]);
        source.state.lock().await.loaded = Some(texts);
        let taken = async {
            source.taken().await;
            source.clock.now()
        };
        let (began, time) = (source.clock.now(), async {
            for _ in 0..15 {
                tokio::time::advance(s(1.0)).await;
                assert!(source.state.try_lock().is_ok(), "a check would wait for the write");
            }
        });
        let (ended, ()) = tokio::join!(taken, time);
        assert!(ended.since(began) >= copy::PATIENCE && ended.since(began) <= s(12.0), "{text}: {ended:?}");
        assert!(source.state.lock().await.kept.is_none());
    }
    // The pipe ends when all writers have closed it.
    let written = std::fs::read_to_string(&pipe).unwrap();
    assert!(written.contains("# first") && !written.contains("# second"), "one write began: {written}");
    let _ = std::fs::remove_dir_all(&folder);
}

/// The environment of a running process cannot be changed safely, so the check runs in a child of its own.
#[test]
fn configuration_server_is_asked_without_proxy() {
    let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", trap.local_addr().unwrap());
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "config::remote::tests::loopback_server_is_read"])
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
