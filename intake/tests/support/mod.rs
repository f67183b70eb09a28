//! Shared by the tests of all brokers: clients, and a test that kills workers and checks that no message is lost or
//! doubled.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::outbox::{Reply, ReplyTarget};
use integration_client::store::Store;
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{BoxError, BoxFuture, IntegrationClient, IntegrationClientBuilder};

/// Messages of the test that kills workers.
#[allow(dead_code, reason = "fewer where the server is slow")]
pub(crate) const MESSAGES: usize = 10_000;
/// The number of workers that are killed.
const KILLS: u32 = 8;
/// The broker is killed too while the worker of this number runs, if the test may kill it.
const KILL_BROKER_AT: u32 = 4;

/// The content of a message: a request as a JSON object.
pub(crate) fn line(tenant: &str, path: &str) -> String {
    format!(r#"{{"tenant":"{tenant}","vendor":"v","method":"POST","path":"{path}","body":{{"order":1}}}}"#)
}

pub(crate) fn store_path(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ic-intake-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder.join("store.db")
}

fn builder(store: &Path, set: impl Fn(Store) -> Store) -> IntegrationClientBuilder {
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n\
        idempotency = { header = \"idempotency-key\" }\n";
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text);
    let builder = builder.tenant(TenantEntry::new("acme", "v")).tenant(TenantEntry::new("umbra", "v"));
    builder.store(set(Store::sqlite(store)))
}

/// A client that sends stored requests, and the transport that records what it sent.
pub(crate) async fn client(store: &Path, set: impl Fn(Store) -> Store) -> (IntegrationClient, FakeTransport) {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    (builder(store, set).transport(transport.clone()).work().build().await.unwrap(), transport)
}

/// A client that accepts requests and sends none.
pub(crate) async fn accepting_client(store: &Path, set: impl Fn(Store) -> Store) -> IntegrationClient {
    builder(store, set).transport(FakeTransport::new(|_| FakeAnswer::status(200))).build().await.unwrap()
}

pub(crate) async fn wait_until(is_so: impl AsyncFn() -> bool) {
    let waited = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited).await.expect("it did not happen within a minute");
}

/// Runs one of the repository's scripts, which controls a server.
#[allow(dead_code, reason = "not every broker is a server with a script")]
pub(crate) fn run_script(name: &str, what: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts").join(name);
    let status = Command::new(script).arg(what).status().unwrap();
    assert!(status.success(), "{name} {what}: {status}");
}

/// The lifetimes of workers that get messages immediately after their start.
#[allow(dead_code, reason = "not every broker gives messages at once")]
pub(crate) const WORKER_LIFETIMES: Range<Duration> = Duration::from_millis(60)..Duration::from_millis(500);

/// Runs in the worker process that is killed: accepts the broker's messages. Sends them and delivers the replies if there
/// is a place for replies; otherwise sends nothing.
pub(crate) async fn work() {
    let (Ok(url), Some(store)) = (std::env::var("IC_INTAKE_URL"), std::env::var_os("IC_INTAKE_STORE")) else { return };
    let store = PathBuf::from(store);
    // At the start a source reports that its broker is away, and later it waits for it. So only an error of the
    // hand-over ends this process.
    let source = loop {
        match integration_client_intake::open(&url).await {
            Ok(source) => break source,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let Ok(replies) = std::env::var("IC_INTAKE_REPLIES") else {
        accepting_client(&store, |store| store).await.outbox().feed_from(&*source).await.unwrap();
        return;
    };
    let target = ShortClaims(integration_client_intake::replies(&replies, None).await.unwrap());
    let outbox = client(&store, |store| store).await.0.outbox();
    let (fed, delivered) = tokio::join!(outbox.clone().feed_from(&*source), outbox.deliver_replies(&target));
    fed.unwrap();
    delivered.unwrap();
}

/// A place for replies whose claims end soon, so that the replies of a killed worker are delivered soon.
struct ShortClaims(Box<dyn ReplyTarget>);

impl ReplyTarget for ShortClaims {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn deliver<'a>(&'a self, replies: &'a [Reply]) -> BoxFuture<'a, Vec<Result<(), BoxError>>> {
        self.0.deliver(replies)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(2)
    }
}

/// A process that takes messages over from the broker.
struct Worker(Child);

impl Worker {
    fn start(url: &str, replies: Option<&str>, store: &Path) -> Worker {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker", "--ignored", "--nocapture"]);
        command.env("IC_INTAKE_URL", url).env("IC_INTAKE_STORE", store);
        if let Some(replies) = replies {
            command.env("IC_INTAKE_REPLIES", replies);
        }
        Worker(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Kills the process. Fails if it has ended by itself.
    fn kill(mut self, seed: u64) {
        assert_eq!(self.0.try_wait().unwrap(), None, "a worker ended by itself, seed {seed}");
    }
}

/// Kills the process with SIGKILL.
impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills workers at random moments, and the broker once in between, until all messages are in the store. Then sends the
/// stored requests, and checks that each message was sent exactly once.
///
/// `broker` is called with `kill` and with `serve`; it is `None` if the test may not kill the broker.
pub(crate) async fn kill_and_judge(
    source: &str,
    url: &str,
    messages: usize,
    broker: Option<&dyn Fn(&str)>,
    lives: Range<Duration>,
    is_empty: impl AsyncFn() -> bool,
) {
    let (least, most) = (lives.start.as_millis() as u64, lives.end.as_millis() as u64);
    let seed = fastrand::u64(..);
    fastrand::seed(seed);
    let store = store_path(source);
    #[expect(clippy::disallowed_methods, reason = "a test measures")]
    let began = Instant::now();
    for kill in 1..=KILLS {
        let worker = Worker::start(url, None, &store);
        tokio::time::sleep(Duration::from_millis(fastrand::u64(least..most))).await;
        if let Some(broker) = broker.filter(|_| kill == KILL_BROKER_AT) {
            broker("kill");
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..500))).await;
            broker("serve");
            // Gives the worker time to reconnect.
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..1_500))).await;
        }
        worker.kill(seed);
    }
    // The broker redelivers the messages of a killed worker only when it has noticed that the worker is gone.
    loop {
        let worker = Worker::start(url, None, &store);
        wait_until(&is_empty).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        worker.kill(seed);
        tokio::time::sleep(Duration::from_millis(300)).await;
        if is_empty().await {
            break;
        }
    }
    let took = began.elapsed();
    let (client, transport) = client(&store, |store| store).await;
    // Waits until no request was sent for a second, so that lost messages fail the assertion below instead of a
    // timeout.
    let mut before = usize::MAX;
    while transport.calls().len() != before {
        before = transport.calls().len();
        tokio::time::sleep(Duration::from_millis(1_000)).await;
    }
    client.shutdown(Duration::from_secs(5)).await;
    let mut sent: HashMap<String, u32> = HashMap::new();
    for call in transport.calls() {
        *sent.entry(call.path().to_owned()).or_default() += 1;
    }
    let lost = messages - sent.len().min(messages);
    let doubled = sent.values().filter(|times| **times > 1).count();
    let per_s = (messages as f64 / took.as_secs_f64()) as u64;
    println!("intake: source={source} messages={messages} lost={lost} doubled={doubled} per_s={per_s} seed={seed}");
    assert_eq!((sent.len(), lost, doubled), (messages, 0, 0), "seed {seed}");
}

/// Kills workers that deliver replies at random moments. Then lets one run until every message of the broker has a reply,
/// and checks that none is lost and that only replies under the same id were delivered twice. `replies` is the URL of the
/// place for replies, and `ids` returns the ids of all replies there so far.
#[allow(dead_code, reason = "for one broker")]
pub(crate) async fn kill_while_replying(
    target: &str,
    url: &str,
    replies: &str,
    messages: usize,
    mut ids: impl AsyncFnMut() -> Vec<String>,
) {
    let store = store_path(&format!("{target}-replies"));
    let (mut times, mut under_way): (HashMap<String, u32>, u32) = (HashMap::new(), 0);
    for kill in 1..=10 * KILLS {
        let worker = Worker::start(url, Some(replies), &store);
        // As long as none has delivered a reply, each lives a little longer than the one before: on a busy machine a
        // worker needs longer to begin, and on a quiet one it delivers all in half a second.
        let life = if times.is_empty() { u64::from(100 + 50 * kill) } else { fastrand::u64(150..600) };
        tokio::time::sleep(Duration::from_millis(life)).await;
        drop(worker);
        ids().await.into_iter().for_each(|id| *times.entry(id).or_default() += 1);
        under_way += u32::from(!times.is_empty() && times.len() < messages);
        if kill >= KILLS && (under_way > 0 || times.len() >= messages) {
            break;
        }
    }
    let worker = Worker::start(url, Some(replies), &store);
    let mut quiet = 0;
    // Replies that a killed worker had claimed are delivered when its claim ends.
    while times.len() < messages && quiet < 1_200 {
        let some = ids().await;
        quiet = if some.is_empty() { quiet + 1 } else { 0 };
        some.into_iter().for_each(|id| *times.entry(id).or_default() += 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(worker);
    let repeated = times.values().filter(|times| **times > 1).count();
    let lost = messages.abs_diff(times.len());
    println!(
        "replies: target={target} messages={messages} lost={lost} repeated={repeated} kills_under_way={under_way}"
    );
    assert_eq!((times.len(), lost), (messages, 0));
    assert!(under_way > 0, "no worker was killed while replies were delivered");
}
