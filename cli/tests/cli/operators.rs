//! What `intake` serves for operators, and the bounds of its store.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command};

use super::command;

const VENDORS: &str = "[vendors.v]\nbase_url = \"http://127.0.0.1:9\"\nauth = { scheme = \"none\" }\n\
    [[vendors.v.limits]]\nname = \"second\"\nlimit = 100\nwindow = \"1s\"\n[[tenants]]\nid = \"acme\"\nvendor = \"v\"\n";

/// A process in a folder of its own. It is killed at the end of its test, and the folder removed.
struct Service {
    folder: PathBuf,
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Service {
    fn start(name: &str, args: &[&str]) -> Service {
        let folder = std::env::temp_dir().join(format!("ic-operators-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("vendors.toml"), VENDORS).unwrap();
        let mut child = command(args)
            .args(["--vendors", "vendors.toml", "--store", "jobs.sqlite"])
            .current_dir(&folder)
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Service { folder, child, out }
    }

    /// The rest of the next line, which begins with `what`.
    #[track_caller]
    fn line(&mut self, what: &str) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().strip_prefix(what).unwrap_or_else(|| panic!("{what} is missing: {line}")).to_owned()
    }

    fn end(&mut self) -> (Option<i32>, String) {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The response to a GET request, or to a POST request with a body.
fn answer(url: &str, headers: &str, body: &str) -> String {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let method = if body.is_empty() { "GET" } else { "POST" };
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} /{path} HTTP/1.1\r\nhost: {address}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn intake_serves_health_metrics_and_console() {
    let mut intake = Service::start("console", &["intake", "table", "--listen", "127.0.0.1:0", "--console"]);
    let metrics = intake.line("metrics: ");
    let console = intake.line("console: ");
    let token = intake.line("token: ");
    let (token, what) = token.split_once(' ').unwrap();
    assert_eq!(what, "(for metrics and console; no [[callers]] are configured)");
    intake.line("taking requests from ic_intake");
    let bearer = format!("authorization: Bearer {token}\r\n");
    let shown = answer(&metrics, &bearer, "");
    assert!(shown.starts_with("HTTP/1.1 200") && shown.contains("\nintegration_client_"), "{shown}");
    assert!(answer(&metrics, "", "").starts_with("HTTP/1.1 401"));
    assert!(answer(&console, "", "").starts_with("HTTP/1.1 200"));
    let base = metrics.strip_suffix("/~/metrics").unwrap();
    assert!(answer(&format!("{base}/~/readyz"), "", "").starts_with("HTTP/1.1 200"));
    assert!(answer(&format!("{base}/acme/v/x"), &bearer, "").starts_with("HTTP/1.1 404"), "nothing is sent through it");
    let (code, rest) = intake.end();
    assert_eq!((code, rest.as_str()), (Some(0), "accepted 0\n"));
}

#[test]
fn metrics_of_loopback_need_no_token_if_told() {
    let mut intake = Service::start("open", &["intake", "table", "--listen", "127.0.0.1:0", "--no-token"]);
    let metrics = intake.line("metrics: ");
    intake.line("taking requests from ic_intake");
    assert!(answer(&metrics, "", "").starts_with("HTTP/1.1 200"));
    assert_eq!(intake.end().0, Some(0));
}

#[test]
fn intake_at_an_occupied_address_says_so() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let mut intake = Service::start("occupied", &["intake", "table", "--listen", &address]);
    let mut error = String::new();
    intake.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(intake.child.wait().unwrap().code(), Some(2), "{error}");
    assert!(error.contains(&address), "{error}");
}

#[test]
fn store_refuses_requests_beyond_its_stated_bound() {
    let args = ["serve", "--listen", "127.0.0.1:0", "--no-token", "--no-work", "--max-lane-backlog", "2"];
    let mut serve = Service::start("bound", &args);
    let base = serve.line("base URL: ").replace("TENANT/VENDOR", "acme/v/x");
    let codes: Vec<String> = (0..3)
        .map(|_| answer(&base, "integration-async: true\r\n", "{}").split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(codes, ["202", "202", "503"]);
}
