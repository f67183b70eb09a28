//! Configurations in files and in faulty sources, which change while requests wait.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use integration_client::config::{ConfigSource, Sources};
use integration_client::events::EventKind;

use super::*;

/// A folder that is deleted with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("integration-client-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A subscriber that counts the errors in the log.
#[derive(Clone, Default)]
pub(super) struct ErrorCounter(pub(super) Arc<AtomicUsize>);

impl tracing::Subscriber for ErrorCounter {
    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        *of.level() == tracing::Level::ERROR
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

fn vendor_with_limit(limit: u32) -> String {
    vendor(&[("requests", &per_second(limit, 1))])
}

async fn client_of_file(path: &Path, transport: &FakeTransport) -> IntegrationClient {
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_file(path)
        .transport(transport.clone())
        .tenant(TenantEntry::new("a", "v"))
        .build()
        .await
        .unwrap()
}

/// Waits until the client uses another configuration, and returns how long that took.
async fn next_version(client: &IntegrationClient) -> Duration {
    let (version, began) = (client.config().current().version(), now());
    while client.config().current().version() == version {
        assert!(began.elapsed() < ms(10_000), "nothing happens: {:?}", client.config().problem());
        tokio::time::sleep(ms(10)).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn changed_file_is_used_within_two_seconds() {
    let folder = Folder::new("changed");
    let path = folder.file("vendors.toml");
    std::fs::write(&path, vendor_with_limit(10)).unwrap();
    let transport = transport_with_delay(Duration::ZERO);
    let client = client_of_file(&path, &transport).await;
    let sends: Vec<_> = (0..80).map(|n| spawn(&client, Priority::Normal, get(&format!("/{n}")))).collect();
    wait_for_waiters(&client, 79).await;
    tokio::time::sleep(ms(1_050)).await;
    assert_eq!(client.config().current().version(), 1, "nothing is new");

    let (began, hash) = (now(), client.config().current().hash());
    std::fs::write(&path, vendor_with_limit(100)).unwrap();
    let took = next_version(&client).await;
    assert!(took <= ms(2_000), "{took:?}");
    assert_ne!(client.config().current().hash(), hash);
    for send in sends {
        send.await.unwrap().unwrap().text().await.unwrap();
    }
    assert!(began.elapsed() < ms(3_000), "80 a second and not 8: {:?}", began.elapsed());
    assert_eq!(transport.calls().len(), 80);

    // The same content is written again: the file has another time, but the client makes no new version.
    std::fs::write(&path, vendor_with_limit(100)).unwrap();
    tokio::time::sleep(ms(8_000)).await;
    assert_eq!((client.config().current().version(), client.config().problem()), (2, None));
    assert_idle(&client);
}

#[tokio::test(start_paused = true)]
async fn invalid_file_is_reported_once_and_ignored() {
    let log = ErrorCounter::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let folder = Folder::new("wrong");
    let path = folder.file("vendors.toml");
    let good = vendor_with_limit(10);
    std::fs::write(&path, &good).unwrap();
    let client = client_of_file(&path, &transport_with_delay(Duration::ZERO)).await;
    let half = &good[..good.len() / 2];
    let wrong: [(&str, &dyn Fn()); 6] = [
        ("half of it", &|| std::fs::write(&path, half).unwrap()),
        ("empty", &|| std::fs::write(&path, "").unwrap()),
        ("gone", &|| std::fs::remove_file(&path).unwrap()),
        ("unreadable", &|| std::fs::create_dir(&path).unwrap()),
        ("not UTF-8", &|| std::fs::write(&path, [b'#', 0xff]).unwrap()),
        ("without the tenants' vendor", &|| {
            std::fs::write(&path, vendor_with_limit(10).replace("s.v", "s.w")).unwrap()
        }),
    ];
    for (number, (what, damage)) in wrong.iter().enumerate() {
        damage();
        tokio::time::sleep(ms(5_500)).await;
        assert_eq!(log.0.load(Ordering::Relaxed), number + 1, "{what}: said once");
        let problem = client.config().problem().unwrap();
        assert!(problem.contains("vendors.toml") || problem.contains("tenant"), "{what}: {problem}");
        assert_eq!(client.config().current().version(), 1, "{what}");
        client.send("a", Priority::Normal, get("/")).await.unwrap();
        if *what == "unreadable" {
            std::fs::remove_dir(&path).unwrap();
        }
    }
    std::fs::write(&path, &good).unwrap();
    tokio::time::sleep(ms(1_500)).await;
    assert_eq!(
        (client.config().current().version(), client.config().problem()),
        (1, None),
        "what was in use is in use"
    );
    std::fs::write(&path, vendor_with_limit(20)).unwrap();
    next_version(&client).await;
    assert_eq!(log.0.load(Ordering::Relaxed), wrong.len());
}

/// Nobody is asked to correct a configuration that cannot be read.
#[tokio::test(start_paused = true)]
async fn unreadable_source_is_no_rejected_configuration() {
    let folder = Folder::new("away");
    let path = folder.file("vendors.toml");
    std::fs::write(&path, vendor_with_limit(10)).unwrap();
    let client = client_of_file(&path, &transport_with_delay(Duration::ZERO)).await;
    let mut events = client.events();
    let mut rejected = async || {
        let mut count = 0;
        while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
            count += u32::from(matches!(event.kind, EventKind::ConfigRejected { .. }));
        }
        count
    };
    std::fs::remove_file(&path).unwrap();
    tokio::time::sleep(ms(5_500)).await;
    assert!(client.config().problem().is_some());
    assert_eq!(rejected().await, 0);
    std::fs::write(&path, "[vendors.v]\nnonsense = 1\n").unwrap();
    tokio::time::sleep(ms(5_500)).await;
    assert_eq!(rejected().await, 1);
}

/// A file that only does not fit a tenant of the program is used once the tenant is gone, although the file has not
/// changed since it was refused.
#[tokio::test(start_paused = true)]
async fn refused_file_is_used_after_its_tenant_is_removed() {
    let log = ErrorCounter::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let folder = Folder::new("misfit");
    let path = folder.file("vendors.toml");
    let other = "[vendors.w]\nbase_url = \"https://w.example\"\nauth = { scheme = \"none\" }\n";
    std::fs::write(&path, vendor_with_limit(10) + other).unwrap();
    let builder = IntegrationClient::builder().without_catalogue().vendors_file(&path);
    let builder = builder.tenant(TenantEntry::new("a", "v")).tenant(TenantEntry::new("x", "w"));
    let client = builder.transport(transport_with_delay(Duration::ZERO)).build().await.unwrap();

    std::fs::write(&path, vendor_with_limit(20)).unwrap();
    // With an old modification time the fingerprint proves that the file is the one that was refused.
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
    tokio::time::sleep(ms(5_500)).await;
    let problem = client.config().problem().unwrap();
    assert!(problem.contains("a tenant added while running does not fit"), "{problem}");
    // Another tenant's change makes no difference, and the same problem is not reported again.
    client.tenants().set(TenantEntry::new("b", "v")).unwrap();
    tokio::time::sleep(ms(5_500)).await;
    assert_eq!((client.config().current().version(), log.0.load(Ordering::Relaxed)), (1, 1));

    client.tenants().remove("x", "w", OnRemove::Drain).unwrap();
    let took = next_version(&client).await;
    assert!(took <= ms(2_000), "{took:?}");
    assert_eq!((client.config().problem(), log.0.load(Ordering::Relaxed)), (None, 1));
}

/// A source that states whether it has changed, and counts how often it is loaded.
#[derive(Clone, Debug, Default)]
struct CountedSource {
    text: Arc<Mutex<String>>,
    changes: Arc<AtomicUsize>,
    loads: Arc<AtomicUsize>,
}

impl ConfigSource for CountedSource {
    fn load(&self) -> Pin<Box<dyn Future<Output = Result<Sources, Error>> + Send + '_>> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        let sources = Sources::new().without_catalogue().file("counted.toml", self.text.lock().unwrap().as_str());
        Box::pin(async move { Ok(sources) })
    }

    fn fingerprint(&self) -> Pin<Box<dyn Future<Output = Option<u64>> + Send + '_>> {
        Box::pin(async move { Some(self.changes.load(Ordering::Relaxed) as u64) })
    }
}

/// A program may set all of its tenants again and again. A configuration that does not fit them is not loaded each
/// time.
#[tokio::test(start_paused = true)]
async fn refused_file_is_not_loaded_because_tenants_are_set_again() {
    let other = "[vendors.w]\nbase_url = \"https://w.example\"\nauth = { scheme = \"none\" }\n";
    let source = CountedSource::default();
    *source.text.lock().unwrap() = vendor_with_limit(10) + other;
    let builder = IntegrationClient::builder().without_catalogue().config_source(source.clone());
    let builder = builder.watch_config(ms(1_000)).transport(transport_with_delay(Duration::ZERO));
    let client = builder.build().await.unwrap();
    let set_all = || {
        client.tenants().set(TenantEntry::new("a", "v")).unwrap();
        client.tenants().set(TenantEntry::new("x", "w")).unwrap();
    };
    set_all();
    *source.text.lock().unwrap() = vendor_with_limit(20);
    source.changes.store(1, Ordering::Relaxed);
    tokio::time::sleep(ms(3_500)).await;
    assert!(client.config().problem().unwrap().contains("does not fit the new configuration"));
    let loads = source.loads.load(Ordering::Relaxed);
    for _ in 0..10 {
        set_all();
        tokio::time::sleep(ms(1_000)).await;
    }
    assert_eq!((source.loads.load(Ordering::Relaxed), client.config().current().version()), (loads, 1));
    client.tenants().remove("x", "w", OnRemove::Drain).unwrap();
    assert!(next_version(&client).await <= ms(2_000));
}

/// The source states again what the watcher saw last, but the program has reloaded in between.
#[tokio::test(start_paused = true)]
async fn change_before_a_reload_comes_back() {
    let source = CountedSource::default();
    *source.text.lock().unwrap() = vendor_with_limit(10);
    let builder = builder("", &transport_with_delay(Duration::ZERO)).config_source(source.clone());
    let client = builder.watch_config(ms(1_000)).build().await.unwrap();
    let first = client.config().current().hash();
    tokio::time::sleep(ms(1_500)).await;
    let state = |limit, fingerprint| {
        *source.text.lock().unwrap() = vendor_with_limit(limit);
        source.changes.store(fingerprint, Ordering::Relaxed);
    };
    state(20, 1);
    client.config().reload().await.unwrap();
    assert_ne!(client.config().current().hash(), first);
    state(10, 0);
    assert!(next_version(&client).await <= ms(2_000));
    assert_eq!(client.config().current().hash(), first);
    // From then on the fingerprint saves the loads again.
    tokio::time::sleep(ms(1_500)).await;
    let loads = source.loads.load(Ordering::Relaxed);
    tokio::time::sleep(ms(5_000)).await;
    assert_eq!(source.loads.load(Ordering::Relaxed), loads);
}

/// A source whose text ends in another comment at each load.
#[derive(Clone, Debug, Default)]
struct RestlessSource {
    text: Arc<Mutex<String>>,
    loads: Arc<AtomicUsize>,
    is_still: Arc<AtomicBool>,
}

impl ConfigSource for RestlessSource {
    fn load(&self) -> Pin<Box<dyn Future<Output = Result<Sources, Error>> + Send + '_>> {
        let number = match self.is_still.load(Ordering::Relaxed) {
            true => 0,
            false => self.loads.fetch_add(1, Ordering::Relaxed),
        };
        let text = format!("{}\n# load {number}\n", self.text.lock().unwrap());
        Box::pin(async move { Ok(Sources::new().without_catalogue().file("restless.toml", text)) })
    }
}

#[tokio::test(start_paused = true)]
async fn source_that_always_differs_is_reported_once() {
    let log = ErrorCounter::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let source = RestlessSource::default();
    *source.text.lock().unwrap() = vendor_with_limit(10);
    let builder = builder("", &transport_with_delay(Duration::ZERO)).config_source(source.clone());
    let client = builder.watch_config(ms(1_000)).build().await.unwrap();
    *source.text.lock().unwrap() = vendor_with_limit(20);
    tokio::time::sleep(ms(12_000)).await;
    let problem = client.config().problem().unwrap();
    assert!(problem.contains("reads differently each time"), "{problem}");
    assert!(client.config().checked_ago() >= ms(8_000), "{:?}", client.config().checked_ago());
    assert_eq!((client.config().current().version(), log.0.load(Ordering::Relaxed)), (1, 1));
    source.is_still.store(true, Ordering::Relaxed);
    next_version(&client).await;
    assert_eq!((client.config().problem(), log.0.load(Ordering::Relaxed)), (None, 1));
}

/// Kubernetes mounts a ConfigMap like this: the path leads through a symbolic link that is replaced.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn swapped_symbolic_link_is_followed() {
    let folder = Folder::new("link");
    let link = folder.file("current");
    for (name, limit) in [("one", 10), ("two", 20)] {
        std::fs::create_dir(folder.file(name)).unwrap();
        std::fs::write(folder.file(name).join("vendors.toml"), vendor_with_limit(limit)).unwrap();
    }
    std::os::unix::fs::symlink(folder.file("one"), &link).unwrap();
    let client = client_of_file(&link.join("vendors.toml"), &transport_with_delay(Duration::ZERO)).await;
    for name in ["two", "one"] {
        std::os::unix::fs::symlink(folder.file(name), folder.file("next")).unwrap();
        std::fs::rename(folder.file("next"), &link).unwrap();
        assert!(next_version(&client).await <= ms(2_000));
    }
}

#[tokio::test(start_paused = true)]
async fn removed_vendor_releases_or_refuses_waiters() {
    for policy in [OnRemove::Drain, OnRemove::Refuse] {
        let folder = Folder::new(&format!("removed-{policy:?}"));
        let path = folder.file("vendors.toml");
        let tenant = "[[tenants]]\nid = \"a\"\nvendor = \"v\"\n";
        std::fs::write(&path, vendor_with_limit(10) + tenant).unwrap();
        let transport = transport_with_delay(Duration::ZERO);
        let builder = IntegrationClient::builder().without_catalogue().vendors_file(&path);
        let client = builder.transport(transport.clone()).on_remove(policy).build().await.unwrap();
        let sends: Vec<_> = (0..80).map(|n| spawn(&client, Priority::Normal, get(&format!("/{n}")))).collect();
        wait_for_waiters(&client, 79).await;
        let began = now();
        std::fs::write(&path, "# no vendor is left").unwrap();
        next_version(&client).await;
        let late = client.send("a", Priority::High, get("/")).await.unwrap_err();
        assert_eq!((late.kind(), late.delivery()), (ErrorKind::UnknownVendor, Delivery::NotSent));
        let (mut answered, mut retired) = (0, 0);
        for send in sends {
            match send.await.unwrap() {
                Ok(_) => answered += 1,
                Err(error) => {
                    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Retired, Delivery::NotSent));
                    retired += 1;
                }
            }
        }
        assert_eq!((answered + retired, transport.calls().len()), (80, answered), "{policy:?}: each ends once");
        match policy {
            OnRemove::Drain => assert!(began.elapsed() >= ms(9_500), "by the last limits: {:?}", began.elapsed()),
            OnRemove::Refuse => assert!((70..80).contains(&retired), "{retired}"),
        }
        assert_eq!((retired == 0, client.waiting()), (policy == OnRemove::Drain, 0));
    }
}

/// A source that does one scripted thing with each load: returns a text, hangs or panics.
#[derive(Clone, Debug)]
struct ScriptedSource {
    steps: Arc<Mutex<Vec<LoadStep>>>,
    last: Arc<Mutex<String>>,
}

#[derive(Clone, Debug)]
enum LoadStep {
    Say(String),
    Hang,
    Panic,
}

impl ConfigSource for ScriptedSource {
    fn load(&self) -> Pin<Box<dyn Future<Output = Result<Sources, Error>> + Send + '_>> {
        Box::pin(async {
            let mut steps = self.steps.lock().unwrap().clone();
            if !steps.is_empty() {
                let mood = steps.remove(0);
                *self.steps.lock().unwrap() = steps;
                match mood {
                    LoadStep::Say(text) => *self.last.lock().unwrap() = text,
                    LoadStep::Hang => tokio::time::sleep(ms(60_000)).await,
                    LoadStep::Panic => panic!("a mistake of the source"),
                }
            }
            Ok(Sources::new().without_catalogue().file("moody.toml", self.last.lock().unwrap().as_str()))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn broken_config_source_is_survived() {
    let source = ScriptedSource { steps: Arc::default(), last: Arc::new(Mutex::new(vendor_with_limit(10))) };
    let client =
        builder("", &transport_with_delay(Duration::ZERO)).config_source(source.clone()).watch_config(ms(1_000));
    let client = client.build().await.unwrap();
    // A configuration that was cut off: it is valid, but its limits are missing.
    let half = LoadStep::Say(vendor(&[]));
    let whole = LoadStep::Say(vendor_with_limit(20));
    let script = [
        half.clone(),
        whole.clone(),
        LoadStep::Panic,
        half,
        whole,
        LoadStep::Hang,
        LoadStep::Say(vendor_with_limit(30)),
    ];
    *source.steps.lock().unwrap() = script.to_vec();
    let mut seen = Vec::new();
    for _ in 0..12_000 {
        let limit = match &client.config().current().vendor("v", "live").unwrap().limits[..] {
            [limit] => format!("{:?}", limit.kind),
            _ => "no limit".to_owned(),
        };
        if seen.last() != Some(&limit) {
            seen.push(limit);
        }
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(seen.iter().filter(|limit| *limit == "no limit").count(), 0, "{seen:?}");
    assert_eq!(client.config().problem(), None);
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert!(seen[1].contains("limit: 20") && seen[2].contains("limit: 30"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn credential_changes_and_vanishes() {
    let folder = Folder::new("credential");
    let (path, old, new) = (folder.file("vendors.toml"), folder.file("old"), folder.file("new"));
    std::fs::write(&old, "old-secret").unwrap();
    std::fs::write(&new, "new-secret").unwrap();
    let config = |credential: &str| {
        vendor_with_limit(100).replace("scheme = \"none\"", "scheme = \"bearer\"")
            + &format!("[[tenants]]\nid = \"a\"\nvendor = \"v\"\n{credential}\n")
    };
    let by = |secret: &Path| config(&format!("credential = \"file:{}\"", secret.display()));
    std::fs::write(&path, by(&old)).unwrap();
    // The vendor takes 3 s to refuse the old credential.
    let transport = FakeTransport::new(|call| match call.header("authorization") {
        Some("Bearer old-secret") => FakeAnswer::status(401).delay(ms(3_000)),
        _ => FakeAnswer::status(200),
    });
    let client = IntegrationClient::builder().without_catalogue().vendors_file(&path).transport(transport.clone());
    let client = client.build().await.unwrap();
    let send = spawn(&client, Priority::Normal, get("/"));
    tokio::time::sleep(ms(100)).await;
    std::fs::write(&path, by(&new)).unwrap();
    next_version(&client).await;
    assert_eq!(send.await.unwrap().unwrap().status().as_u16(), 200, "refused with the old one, sent with the new one");
    assert_eq!(client.send("a", Priority::Normal, get("/")).await.unwrap().status().as_u16(), 200);

    std::fs::write(&path, config("")).unwrap();
    next_version(&client).await;
    let error = client.send("a", Priority::Normal, get("/")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Credential, Delivery::NotSent), "{error}");

    // The credential is a valid reference to a file that does not exist.
    std::fs::write(&path, by(&folder.file("gone"))).unwrap();
    next_version(&client).await;
    let error = client.send("a", Priority::Normal, get("/")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Credential, Delivery::NotSent), "{error}");
    assert_eq!(transport.calls().len(), 3, "nothing is sent without");
}
