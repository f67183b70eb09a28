//! Loads configuration from a server: a file behind a URL, Azure App Configuration, Consul, etcd.
//!
//! Each check for changes asks the server; a file's entity tag avoids the transfer of an unchanged file. While the
//! server cannot be reached, the configuration in use stays, and a process that starts uses the copy of the
//! configuration that was last in use ([`RemoteSource::keep_copy_in`]).

mod azure;
mod by_url;
mod consul;
mod copy;
mod etcd;
mod file;
mod found;
mod http;
mod latest;
mod secret;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use self::copy::{Copy, Writing};
use self::found::{Found, Text};
use self::http::{Failed, Http};
use self::latest::{Latest, Texts};
use self::secret::Secret;
use super::config_problem::ConfigProblem;
use super::copies::CopyPlace;
use super::file::run_blocking;
use super::source::{
    ConfigSource, FingerprintFuture, Fnv, LastUsedFuture, LoadFuture, SourceKind, Sources, TakenFuture,
};
use crate::Error;
use crate::clock::{Clock, Time};

/// The interval at which a client checks for changes, unless the program states another.
const EVERY: Duration = Duration::from_secs(5);
/// The first and the longest wait after failures.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The longest wait that a server can request by `Retry-After`.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// Configuration on a server: vendors and tenants in the format of `vendors.toml`. A text under a URL counts as a file.
/// Texts under keys are laid over the files, as by [`Sources::over`].
///
/// ```no_run
/// # async fn run() -> Result<(), integration_client::Error> {
/// use integration_client::IntegrationClient;
/// use integration_client::config::RemoteSource;
///
/// let source = RemoteSource::http("https://config.example.com/vendors.toml")
///     .bearer("env:CONFIG_TOKEN")
///     .keep_copy_in("/var/lib/service/vendors.copy.json");
/// let client = IntegrationClient::builder().config_source(source).build().await?;
/// # Ok(())
/// # }
/// ```
///
/// A client checks for changes every 5 s ([`watch_config`](crate::IntegrationClientBuilder::watch_config) changes the
/// interval), and puts a new configuration into use as a whole. An invalid or empty configuration is refused as a
/// whole: the configuration in use stays. After a failure the server is asked again after 1 s, then less and less
/// often, at least every 30 s, but not before the time that its `Retry-After` states, up to 5 minutes.
/// [`LiveConfig::problem`](crate::LiveConfig::problem) says what is wrong, and
/// [`LiveConfig::checked_ago`](crate::LiveConfig::checked_ago) when the source last answered. With several sources,
/// [`config_sources`](crate::status::ClientStatus::config_sources) in the overview says so of each.
///
/// Addresses must be `https`, or `http` to this machine, because anyone who can change the configuration can have
/// credentials sent to another host. Servers are asked directly, without the proxies that the environment names.
/// Redirects are not followed. A response may take 10 s between two pieces and have at most 64 MiB.
pub struct RemoteSource {
    kind: Kind,
    secrets: Vec<Secret>,
    allows_http: bool,
    copy: Option<PathBuf>,
    /// Locked while copies are kept. Holds the write into the file that has not ended.
    writing: tokio::sync::Mutex<Option<Writing>>,
    /// The client's store, if it has one.
    place: OnceLock<Arc<dyn CopyPlace>>,
    base: Sources,
    clock: Clock,
    state: tokio::sync::Mutex<State>,
}

enum Kind {
    File(String),
    Azure(azure::Store),
    Consul(consul::Prefix),
    Etcd(etcd::Prefix),
}

#[derive(Default)]
struct State {
    http: Option<Http>,
    latest: Latest,
    /// The token of a login at etcd.
    session: Option<String>,
    /// The texts that the latest load returned.
    loaded: Option<Texts>,
    /// The texts that were in use when [`ConfigSource::taken`] was last called.
    in_use: Option<Texts>,
    /// The texts that the copies hold.
    kept: Option<Texts>,
    /// The time at which the copy in use was made; `None` once the server has answered.
    copy_of: Option<String>,
    failure: Option<Failure>,
}

/// The reason of the last failure, the number of failures in a row, and the time from which the server is asked again.
struct Failure {
    why: String,
    times: u32,
    until: Time,
}

impl RemoteSource {
    /// A text behind a URL: on a configuration service, in an object store, in a repository. Once a text is in use, and
    /// another response has held it with the same `ETag` 4 s or more after the first one, the client sends the `ETag`
    /// as `If-None-Match`, so that a check for changes costs an empty response.
    pub fn http(url: impl Into<String>) -> RemoteSource {
        RemoteSource::new(Kind::File(url.into()))
    }

    /// Texts in Azure App Configuration: each key that begins with `prefix` holds one. They are applied over the
    /// catalogue in the order of the keys. `connection` refers to a connection string (`Endpoint=…;Id=…;Secret=…`):
    /// `env:NAME` or `file:PATH`. Requests are signed with its key (HMAC-SHA256).
    pub fn azure_app_configuration(connection: &str, prefix: &str) -> RemoteSource {
        RemoteSource::new(Kind::Azure(azure::Store::new(connection, prefix)))
    }

    /// Texts in Consul's key-value store: each key that begins with `prefix` holds one. They are applied over the
    /// catalogue in the order of the keys. [`header`](Self::header) `("x-consul-token", "env:NAME")` states a token,
    /// which needs `key_prefix "PREFIX" { policy = "read" }`: a load fails if Consul says that it left out keys. Consul
    /// says so since version 1.11, and only to requests with a token.
    pub fn consul(url: &str, prefix: &str) -> RemoteSource {
        RemoteSource::new(Kind::Consul(consul::Prefix::new(url, prefix)))
    }

    /// Texts in etcd 3.4 or later, by its JSON gateway: each key that begins with `prefix` holds one. They are applied
    /// over the catalogue in the order of the keys.
    pub fn etcd(url: &str, prefix: &str) -> RemoteSource {
        RemoteSource::new(Kind::Etcd(etcd::Prefix::new(url, prefix)))
    }

    fn new(kind: Kind) -> RemoteSource {
        RemoteSource {
            kind,
            secrets: Vec::new(),
            allows_http: false,
            copy: None,
            writing: tokio::sync::Mutex::default(),
            place: OnceLock::new(),
            base: Sources::new(),
            clock: Clock::system(),
            state: tokio::sync::Mutex::default(),
        }
    }

    /// Sends `Authorization: Bearer …`; `reference` says where the token is: `env:NAME` or `file:PATH`. The token is
    /// read again for each request.
    pub fn bearer(mut self, reference: &str) -> Self {
        self.secrets.push(Secret::bearer(reference));
        self
    }

    /// Sends a header whose value is a secret; `reference` says where the secret is: `env:NAME` or `file:PATH`.
    pub fn header(mut self, name: &str, reference: &str) -> Self {
        self.secrets.push(Secret::header(name, reference));
        self
    }

    /// Logs in to etcd as a user; `password` says where the password is: `env:NAME` or `file:PATH`.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.secrets.push(Secret::user(name, password));
        self
    }

    /// For Azure App Configuration: reads the keys with this label instead of those without a label.
    pub fn label(mut self, label: &str) -> Self {
        if let Kind::Azure(store) = &mut self.kind {
            store.label = label.to_owned();
        }
        self
    }

    /// Permits `http` to other machines too, for private networks in which nobody can tamper with the traffic.
    pub fn allow_http(mut self) -> Self {
        self.allows_http = true;
        self
    }

    /// Keeps a copy of the configuration in use in this file, and loads it if the server cannot be reached at the
    /// start. A copy from another address is not used. A client with a [store](crate::IntegrationClientBuilder::store)
    /// always keeps a copy in the store; the file is for clients without a store.
    pub fn keep_copy_in(mut self, path: impl Into<PathBuf>) -> Self {
        self.copy = Some(path.into());
        self
    }

    /// Replaces the sources to which the texts are added, by default the catalogue: for tenants that the program
    /// states, registered resolvers, or no catalogue.
    pub fn onto(mut self, base: Sources) -> Self {
        self.base = base;
        self
    }

    /// The source's address for messages, without parts that may be secret.
    fn name(&self) -> String {
        match &self.kind {
            Kind::File(url) => http::shown(url),
            Kind::Azure(store) => store.name(),
            Kind::Consul(prefix) => prefix.name(),
            Kind::Etcd(prefix) => prefix.name(),
        }
    }

    /// Identifies copies of this source. The name alone does not, because it omits parts that may be secret.
    fn address(&self) -> String {
        let mut hash = Fnv::default();
        let texts: [&str; 3] = match &self.kind {
            Kind::File(url) => [url, "", ""],
            Kind::Azure(store) => store.address(),
            Kind::Consul(prefix) => prefix.address(),
            Kind::Etcd(prefix) => prefix.address(),
        };
        texts.iter().for_each(|text| hash.text(text));
        format!("{} {:016x}", self.name(), hash.0)
    }

    /// Asks the server, unless it is too early after a failure, and returns the latest texts.
    async fn ask(&self, state: &mut State) -> Result<Texts, Error> {
        let now = self.clock.now();
        if let Some(failure) = &state.failure
            && now < failure.until
        {
            return Err(self.failed(&failure.why));
        }
        let copy_of = state.copy_of.clone();
        let http = match &state.http {
            Some(http) => http.clone(),
            None => state.http.insert(Http::new(self.allows_http).map_err(|error| self.failed(&error.why))?).clone(),
        };
        let answered = match &self.kind {
            Kind::File(url) => file::ask(&http, url, &self.secrets, state.latest.tag(state.in_use.as_ref())).await,
            Kind::Azure(store) => store.ask(&http, self.clock.wall()).await.map(Some),
            Kind::Consul(prefix) => prefix.ask(&http, &self.secrets).await.map(Some),
            Kind::Etcd(prefix) => prefix.ask(&http, &self.secrets, &mut state.session).await.map(Some),
        };
        match answered.and_then(|found| found.map(check).transpose()) {
            Ok(found) => {
                (state.failure, state.copy_of) = (None, None);
                if let Some(found) = found {
                    state.latest.receive(found, self.clock.now());
                }
                let nothing = "the server says that nothing is new, and was never asked before";
                state.latest.texts().cloned().ok_or_else(|| self.failed(nothing))
            }
            Err(Failed { why, wait }) => {
                let times = state.failure.as_ref().map_or(0, |failure| failure.times).saturating_add(1);
                let until = self.clock.now() + wait_after(times, wait, fastrand::f64());
                let why = copy_of.iter().fold(why, |why, kept_at| on_copy(&why, kept_at));
                let failure = state.failure.insert(Failure { why, times, until });
                Err(self.failed(&failure.why))
            }
        }
    }

    fn failed(&self, why: &str) -> Error {
        Error::config(format!("{}: {why}", self.name()))
    }

    /// Loads the copy, if neither the server nor a copy has been read yet. `why` says why the server gave nothing.
    async fn copied(&self, state: &mut State, why: &Error) -> Option<Sources> {
        if state.latest.texts().is_some() {
            return None;
        }
        let copy = self.newest_copy().await?;
        let kept_at = copy.kept_at.clone();
        let problem = on_copy(&why.to_string(), &kept_at);
        tracing::warn!(problem, "the configuration's server cannot be asked");
        let sources = self.of_copy(state, copy, ConfigProblem::unreadable(problem));
        state.latest = Latest::of_copy(state.loaded.clone());
        if let Some(failure) = &mut state.failure {
            failure.why = on_copy(&failure.why, &kept_at);
        }
        state.copy_of = Some(kept_at);
        Some(sources)
    }

    /// The newer of the two copies: the file may come from another machine, and the store may have been unreachable.
    async fn newest_copy(&self) -> Option<Copy> {
        let wall = self.clock.wall();
        let copies = self.copy_in_file().await.into_iter().chain(self.copy_in_store().await);
        copies.min_by_key(|copy| copy.age(wall))
    }

    /// Loads a copy, which needs not be kept again.
    fn of_copy(&self, state: &mut State, copy: Copy, problem: ConfigProblem) -> Sources {
        let age = copy.age(self.clock.wall());
        let texts = Arc::new(copy.texts);
        (state.loaded, state.kept) = (Some(texts.clone()), Some(texts.clone()));
        self.sources(&texts).aged(Some(age)).with_problem(Some(problem))
    }

    async fn copy_in_file(&self) -> Option<Copy> {
        let (path, name) = (self.copy.clone()?, self.address());
        let read = run_blocking(move || copy::read(&path, &name)).await.and_then(|read| read);
        read.unwrap_or_else(unreadable)
    }

    async fn copy_in_store(&self) -> Option<Copy> {
        let place = self.place.get()?;
        copy::kept(&**place, &self.address()).await.unwrap_or_else(unreadable)
    }

    fn sources(&self, texts: &[Text]) -> Sources {
        let base = self.base.clone();
        let sources = texts.iter().fold(base, |sources, (name, text)| match self.kind {
            Kind::File(_) => sources.file(name, text),
            _ => sources.over(name, text),
        });
        // The server that responds next may hold other texts, so the fingerprint is that of these texts.
        sources.with_fingerprint(Some(found::fingerprint(texts)))
    }
}

impl ConfigSource for RemoteSource {
    fn load(&self) -> LoadFuture<'_> {
        Box::pin(async move {
            let state = &mut *self.state.lock().await;
            match self.ask(state).await {
                Ok(texts) => {
                    let sources = self.sources(&texts);
                    state.loaded = Some(texts);
                    Ok(sources)
                }
                Err(error) => self.copied(state, &error).await.ok_or(error),
            }
        })
    }

    fn fingerprint(&self) -> FingerprintFuture<'_> {
        Box::pin(async move {
            let texts = self.ask(&mut *self.state.lock().await).await.ok()?;
            Some(found::fingerprint(&texts))
        })
    }

    fn taken(&self) -> TakenFuture<'_> {
        Box::pin(async move {
            let writing = &mut *self.writing.lock().await;
            // Not locked while the copies are written, so that a check of the server does not wait for a disk.
            let texts = {
                let state = &mut *self.state.lock().await;
                let Some(texts) = state.loaded.clone() else { return };
                state.in_use = Some(texts.clone());
                if state.kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, &texts)) {
                    return;
                }
                texts
            };
            let copy = Arc::new(Copy::new(&self.address(), self.clock.wall(), &texts));
            let mut told = Ok(());
            if let Some(path) = &self.copy {
                told = copy::write_in_time(writing, path, &copy).await;
            }
            if let Some(place) = self.place.get() {
                told = copy::keep(&**place, &copy).await.and(told);
            }
            match told {
                Ok(()) => self.state.lock().await.kept = Some(texts),
                Err(error) => tracing::warn!(%error, "no copy of the configuration could be kept"),
            }
        })
    }

    fn load_last_used(&self) -> LastUsedFuture<'_> {
        Box::pin(async move {
            let state = &mut *self.state.lock().await;
            let copy = self.newest_copy().await?;
            let problem = on_copy(&format!("{}: the configuration is not valid", self.name()), &copy.kept_at);
            Some(self.of_copy(state, copy, ConfigProblem::invalid(problem)))
        })
    }

    fn keep_copies_in(&self, place: Arc<dyn CopyPlace>) {
        // A source that two clients use keeps its copies in the first client's store.
        let _ = self.place.set(place);
    }

    fn look_every(&self) -> Option<Duration> {
        Some(EVERY)
    }

    fn display_name(&self) -> Option<String> {
        Some(self.name())
    }

    fn kind(&self) -> SourceKind {
        SourceKind::Server
    }
}

impl fmt::Debug for RemoteSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSource").field("name", &self.name()).field("copy", &self.copy).finish_non_exhaustive()
    }
}

/// The problem to report while a copy is in use.
fn on_copy(why: &str, kept_at: &str) -> String {
    format!("{why}; the copy of {kept_at} is in use")
}

fn unreadable(error: Error) -> Option<Copy> {
    tracing::warn!(%error, "the copy of the configuration cannot be read");
    None
}

/// Refuses a response without content: the server has lost its data, or its keys are about to be written.
fn check(found: Found) -> Result<Found, Failed> {
    let empty = |text: &str| text.bytes().all(|byte| byte.is_ascii_whitespace());
    if found.texts.is_empty() {
        return Err(Failed::new("no key begins with this prefix; write one, or a comment if nothing is what it means"));
    }
    match found.texts.iter().find(|(_, text)| empty(text)) {
        Some((name, _)) => {
            Err(Failed::new(format!("{name} is empty; put a comment into it if nothing is what it means")))
        }
        None => Ok(found),
    }
}

/// The wait before a server that failed `times` in a row is asked again. It doubles with each failure up to 30 s, and
/// is shortened by up to a random quarter, so that processes that failed together do not retry together. It is at least
/// the wait that the server asked for, up to 5 minutes.
fn wait_after(times: u32, asked: Option<Duration>, random: f64) -> Duration {
    let doubled = WAITS.0.saturating_mul(1 << (times.clamp(1, 8) - 1)).min(WAITS.1);
    let spread = doubled.mul_f64(1.0 - 0.25 * random.clamp(0.0, 1.0));
    spread.max(asked.unwrap_or_default().min(LONGEST_ASKED))
}

#[cfg(test)]
mod tests;
