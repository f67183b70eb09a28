//! Tests of the command `intake` from the outside: a process that takes requests from a message broker, and sends them to a
//! vendor over a socket. The brokers are those that `IC_TEST_RABBITMQ` and `IC_TEST_NATS` name.
//!
//! Tests of the crate `intake` may kill the same brokers at any moment, so each request to a broker is repeated until it
//! succeeds.
#![cfg(all(unix, feature = "nats", feature = "rabbitmq"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on says why")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

use integration_client::store::Store;
use integration_client::testing::{Delay, FakeVendor, FakeVendorBuilder, HeaderStyle, VendorLimit};
use integration_client::{BoxError, IntegrationClient, Priority, Request};
use tokio::net::TcpListener;

#[path = "intake/nats.rs"]
mod nats;
#[path = "intake/rabbitmq.rs"]
mod rabbitmq;

/// Requests that are published. The vendor takes [`PER_SECOND`] of them.
const REQUESTS: usize = 60;
const PER_SECOND: u32 = 20;
/// Requests that have reached the vendor when the first process gets its signal.
const BEFORE_SIGNAL: usize = 10;
/// How long a slow vendor takes for a request.
const SLOW: Duration = Duration::from_secs(5);
/// The part of the vendor's entry that says which idempotency keys the vendor reads.
const KEYS: &str = "[vendors.v.idempotency]\nheader = \"idempotency-key\"\n";
/// The content of a message that is no request.
const INVALID: &str = r#"{"tenant":"acme","vendor":"v","method":"POST"}"#;

/// A queue of a broker or a stream, for one test.
trait Source {
    /// The URL by which the program reads it.
    fn url(&self) -> String;

    /// Creates the source, and publishes messages with these ids. May be called again.
    async fn publish(&self, messages: &[(String, String)]) -> Result<(), BoxError>;

    /// The content of each refused message, and the reason.
    async fn refused(&self) -> Result<Vec<(String, String)>, BoxError>;

    /// The number of messages that are neither accepted nor refused.
    async fn left(&self) -> Result<u64, BoxError>;
}

/// Repeats an attempt until it succeeds.
async fn until<T>(what: &str, attempt: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..1_200 {
        if let Some(done) = attempt().await {
            return done;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within a minute: {what}");
}

/// A folder with a vendor's entry, a tenant and a store.
struct IntakeFolder {
    folder: PathBuf,
    vendor: FakeVendor,
}

impl IntakeFolder {
    async fn new(name: &str, vendor: FakeVendorBuilder) -> IntakeFolder {
        let limit = VendorLimit::sliding_window(PER_SECOND, Duration::from_secs(1));
        let vendor = vendor.limit(limit).headers(HeaderStyle::Silent).start().await.unwrap();
        let folder = std::env::temp_dir().join(format!("ic-cli-intake-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        // On one machine no request is under way for a second.
        let vendors =
            vendor.vendors_toml("v").replacen("\nauth", "\nmax_transit = \"1s\"\nconnect_timeout = \"1s\"\nauth", 1)
                + "\n"
                + KEYS
                + "\n[[tenants]]\nid = \"acme\"\nvendor = \"v\"\ncredential = \"env:IC_INTAKE_KEY\"\n";
        fs::write(folder.join("vendors.toml"), vendors).unwrap();
        IntakeFolder { folder, vendor }
    }

    /// A vendor that reads no keys, and takes so long for a request that the program fails meanwhile.
    async fn slow_without_keys(name: &str) -> IntakeFolder {
        let place = IntakeFolder::new(name, FakeVendor::builder().service_time(Delay::fixed(SLOW))).await;
        let path = place.folder.join("vendors.toml");
        fs::write(&path, fs::read_to_string(&path).unwrap().replace(KEYS, "")).unwrap();
        place
    }

    fn command(&self, url: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_integration-client"));
        command.args(["intake", url, "--store", "jobs.sqlite", "--vendors", "vendors.toml"]);
        // The test must not depend on the environment of the person who runs it.
        for name in ["INTAKE", "TENANTS", "REPLIES", "NO_WORK", "GRACE", "CONFIG_COPY", "SEAL_KEY", "INTAKE_LISTEN"] {
            command.env_remove(format!("INTEGRATION_CLIENT_{name}"));
        }
        command.current_dir(&self.folder).env("IC_INTAKE_KEY", "acme").env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts the program. It ends at once if the broker is away at that moment, and is started again then.
    async fn start(&self, url: &str) -> Program {
        until("the program takes requests", async || {
            let mut program = Program::new(self.command(url).spawn().unwrap());
            let mut first = String::new();
            tokio::task::block_in_place(|| program.out.read_line(&mut first)).unwrap();
            if first.starts_with("taking requests from ") {
                return Some(program);
            }
            let ended = program.wait();
            assert_eq!(ended.code, Some(2), "{first}{}", ended.err);
            None
        })
        .await
    }

    /// How often each request was accepted by the vendor, by its path.
    fn sent(&self) -> BTreeMap<String, u32> {
        let mut sent = BTreeMap::new();
        for arrival in self.vendor.arrivals() {
            if arrival.admitted && arrival.status == 200 {
                *sent.entry(arrival.path.to_string()).or_default() += 1;
            }
        }
        sent
    }

    async fn wait_until_sent(&self, requests: usize) {
        until("the vendor has the requests", async || (self.sent().len() >= requests).then_some(())).await;
    }

    async fn wait_until_under_way(&self) {
        until("the vendor gets the request", async || (self.vendor.summary().arrived > 0).then_some(())).await;
    }

    /// Starts the program with a request in the store. The broker closes the connection while the request is under way.
    /// Returns after the program has said the error.
    async fn start_unreachable(&self) -> Program {
        let store = Store::sqlite(self.folder.join("jobs.sqlite"));
        let builder = IntegrationClient::builder().vendors_file(self.folder.join("vendors.toml")).store(store);
        let client = builder.build().await.unwrap();
        client.outbox().enqueue("acme", Priority::Normal, Request::post("v", "/waits")).await.unwrap();
        client.shutdown(Duration::from_secs(1)).await;

        let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}?stream=NONE", broker.local_addr().unwrap());
        let mut program = Program::new(self.command(&url).spawn().unwrap());
        let connection = broker.accept().await.unwrap();
        self.wait_until_under_way().await;
        drop((connection, broker));
        let error = program.error();
        assert!(error.contains("nats:127.0.0.1:"), "{error}");
        let status = self.status();
        assert!(status.contains("0 waiting, 1 under way, 0 dead"), "{status}");
        program
    }

    /// What the store knows of its requests.
    fn status(&self) -> String {
        let mut status = Command::new(env!("CARGO_BIN_EXE_integration-client"));
        status.args(["status", "--store", "jobs.sqlite"]).current_dir(&self.folder).env("NO_COLOR", "1");
        String::from_utf8(status.output().unwrap().stdout).unwrap()
    }

    /// Asserts that the only request has its response, of which the store knows.
    fn assert_none_cut_off(&self) {
        let status = self.status();
        assert!(status.contains("0 waiting, 0 under way, 0 dead"), "{status}");
        assert_eq!(self.vendor.summary().arrived, 1);
    }
}

impl Drop for IntakeFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A running process, which is killed at the end of its test.
struct Program {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

/// The exit code and the output of a process.
struct Ended {
    code: Option<i32>,
    /// The number in the line `accepted`.
    accepted: usize,
    /// What was not read before.
    err: String,
}

impl Program {
    fn new(mut child: Child) -> Program {
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        Program { child, out, err }
    }

    /// Waits until the process says an error. Returns the error's first line.
    fn error(&mut self) -> String {
        tokio::task::block_in_place(|| {
            let mut lines = self.err.by_ref().lines().map(Result::unwrap);
            lines.find(|line| line.starts_with("error: ")).expect("the program says an error")
        })
    }

    /// Waits until the process has ended.
    fn wait(&mut self) -> Ended {
        tokio::task::block_in_place(|| {
            let (mut out, mut err) = (String::new(), String::new());
            self.out.read_to_string(&mut out).unwrap();
            self.err.read_to_string(&mut err).unwrap();
            let accepted = out.lines().find_map(|line| line.strip_prefix("accepted ")?.parse().ok());
            Ended { code: self.child.wait().unwrap().code(), accepted: accepted.unwrap_or_default(), err }
        })
    }

    fn signal(&self, option: &str) {
        let sent = Command::new("kill").args([option, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Ends the process by SIGTERM.
    fn end(mut self) -> Ended {
        self.signal("-TERM");
        self.wait()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Publishes requests and an invalid message among them. Ends the program by SIGTERM while the requests are sent, and lets
/// a second process do the rest.
async fn requests_are_sent_once(source: &impl Source, name: &str) {
    let place = IntakeFolder::new(name, FakeVendor::builder()).await;
    let line =
        |number| format!(r#"{{"tenant":"acme","vendor":"v","method":"POST","path":"/{number}","body":{{"a":1}}}}"#);
    let mut messages: Vec<_> = (0..REQUESTS).map(|number| (format!("m{number}"), line(number))).collect();
    messages.insert(REQUESTS / 2, ("invalid".to_owned(), INVALID.to_owned()));
    until("the messages are published", async || source.publish(&messages).await.ok()).await;

    let program = place.start(&source.url()).await;
    place.wait_until_sent(BEFORE_SIGNAL).await;
    let first = program.end();
    assert_eq!(first.code, Some(0), "{}", first.err);
    assert!(place.sent().len() < REQUESTS, "the signal came too late");

    let program = place.start(&source.url()).await;
    place.wait_until_sent(REQUESTS).await;
    let some = async || source.refused().await.ok().filter(|refused| !refused.is_empty());
    let refused = until("the invalid message is refused", some).await;
    let second = program.end();
    assert_eq!(second.code, Some(0), "{}", second.err);

    assert_eq!(first.accepted + second.accepted, REQUESTS);
    let sent = place.sent();
    assert!(sent.len() == REQUESTS && sent.values().all(|times| *times == 1), "{sent:?}");
    for (content, why) in refused {
        assert_eq!(content, INVALID);
        assert!(why.contains("missing field `path`"), "{why}");
    }
    until("the source is empty", async || source.left().await.ok().filter(|left| *left == 0)).await;
}

/// The error is said while the request is under way, and not again at the end.
#[tokio::test(flavor = "multi_thread")]
async fn unreachable_source_cuts_off_no_exchange() {
    let place = IntakeFolder::slow_without_keys("unreachable").await;
    let ended = place.start_unreachable().await.wait();
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    assert!(!ended.err.lines().any(|line| line.starts_with("error: ")), "{}", ended.err);
    place.assert_none_cut_off();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_signal_ends_the_grace_after_an_error() {
    let place = IntakeFolder::slow_without_keys("cut-short").await;
    let mut program = place.start_unreachable().await;
    // The line after the error. A signal before it would count as one that asks for the end.
    let mut line = String::new();
    tokio::task::block_in_place(|| program.err.read_line(&mut line)).unwrap();
    assert!(line.contains("a signal ends it at once"), "{line}");
    program.signal("-INT");
    let ended = program.wait();
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    // The process did not wait for the response.
    let status = place.status();
    assert!(!status.contains("0 waiting, 0 under way, 0 dead"), "{status}");
}
