//! Configuration on a server: a file behind a URL, Azure App Configuration, Consul, etcd.
//!
//! The server is asked at each look; a file's entity tag spares its transfer. While the server cannot be asked, the
//! configuration in use stays, and a process that starts takes the copy that was kept of the last one that was in use
//! ([`RemoteSource::keep_copy_in`]).

mod azure;
mod by_url;
mod consul;
mod copy;
mod etcd;
mod file;
mod found;
mod http;
mod secret;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use self::copy::Copy;
use self::found::{Found, Text};
use self::http::{Failed, Http};
use self::secret::Secret;
use super::copies::CopyPlace;
use super::file::run_blocking;
use super::source::{ConfigSource, FingerprintFuture, Fnv, LoadFuture, Sources, TakenFuture};
use crate::Error;
use crate::clock::{Clock, Time};

/// How often a client looks, unless it is told otherwise.
const EVERY: Duration = Duration::from_secs(5);
/// The waits after failures: the first, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The longest wait that a server can ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// Configuration on a server: vendors and tenants in the format of `vendors.toml`.
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
/// A client looks every 5 s ([`watch_config`](crate::IntegrationClientBuilder::watch_config) changes that), and goes over
/// to what is new as a whole. What does not validate is refused as a whole, and so is what is empty: the configuration in use
/// stays. A server that fails is asked again after 1 s, then less and less often, at least every 30 s; and not before the time
/// that its `Retry-After` states, up to 5 minutes.
/// [`LiveConfig::problem`](crate::LiveConfig::problem) says what is wrong, and
/// [`LiveConfig::checked_ago`](crate::LiveConfig::checked_ago) when the source last answered.
///
/// Addresses are `https`, or `http` to this machine: whoever can change the configuration can have credentials sent
/// elsewhere. Redirects are not followed. An answer has 10 s for each piece, and 64 MiB at most.
pub struct RemoteSource {
    kind: Kind,
    secrets: Vec<Secret>,
    allows_http: bool,
    copy: Option<PathBuf>,
    /// The client's store, where it has one.
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

/// Replaced by another only when the texts differ, so that equal pointers mean equal texts.
type Texts = Arc<Vec<Text>>;

#[derive(Default)]
struct State {
    http: Option<Http>,
    /// What the server last said; at first what the copy says.
    texts: Option<Texts>,
    /// The entity tag of that.
    tag: Option<String>,
    /// A token by which etcd knows its user.
    session: Option<String>,
    /// What the latest load returned.
    loaded: Option<Texts>,
    /// What the copies hold.
    kept: Option<Texts>,
    /// When the copy was kept that is in use, since the server has not answered yet.
    copy_of: Option<String>,
    failure: Option<Failure>,
}

/// Why the server was not understood last, and when it is asked again.
struct Failure {
    why: String,
    times: u32,
    until: Time,
}

impl RemoteSource {
    /// A text behind a URL: on a configuration service, in an object store, in a repository. The answer's `ETag` is sent
    /// back as `If-None-Match`, so that a look costs an empty answer.
    pub fn http(url: impl Into<String>) -> RemoteSource {
        RemoteSource::new(Kind::File(url.into()))
    }

    /// Texts in Azure App Configuration: each key that begins with `prefix` holds one, which is laid over the catalogue
    /// in the order of the keys. `connection` refers to a connection string (`Endpoint=…;Id=…;Secret=…`): `env:NAME` or
    /// `file:PATH`. Requests are signed with its key (HMAC-SHA256).
    pub fn azure_app_configuration(connection: &str, prefix: &str) -> RemoteSource {
        RemoteSource::new(Kind::Azure(azure::Store::new(connection, prefix)))
    }

    /// Texts in Consul's key-value store: each key that begins with `prefix` holds one, which is laid over the catalogue
    /// in the order of the keys. [`header`](Self::header) `("x-consul-token", "env:NAME")` states a token.
    pub fn consul(url: &str, prefix: &str) -> RemoteSource {
        RemoteSource::new(Kind::Consul(consul::Prefix::new(url, prefix)))
    }

    /// Texts in etcd 3.4 or later, by its JSON gateway: each key that begins with `prefix` holds one, which is laid over
    /// the catalogue in the order of the keys.
    pub fn etcd(url: &str, prefix: &str) -> RemoteSource {
        RemoteSource::new(Kind::Etcd(etcd::Prefix::new(url, prefix)))
    }

    fn new(kind: Kind) -> RemoteSource {
        RemoteSource {
            kind,
            secrets: Vec::new(),
            allows_http: false,
            copy: None,
            place: OnceLock::new(),
            base: Sources::new(),
            clock: Clock::system(),
            state: tokio::sync::Mutex::default(),
        }
    }

    /// Sends `Authorization: Bearer …`; `reference` says where the token is: `env:NAME` or `file:PATH`. It is read again for
    /// each request.
    pub fn bearer(mut self, reference: &str) -> Self {
        self.secrets.push(Secret::bearer(reference));
        self
    }

    /// Sends a header whose value is a secret; `reference` says where it is: `env:NAME` or `file:PATH`.
    pub fn header(mut self, name: &str, reference: &str) -> Self {
        self.secrets.push(Secret::header(name, reference));
        self
    }

    /// Logs in to etcd as a user; `password` says where the password is: `env:NAME` or `file:PATH`.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.secrets.push(Secret::user(name, password));
        self
    }

    /// Of Azure App Configuration: the keys with this label instead of those without one.
    pub fn label(mut self, label: &str) -> Self {
        if let Kind::Azure(store) = &mut self.kind {
            store.label = label.to_owned();
        }
        self
    }

    /// Permits `http` to other machines too, for private networks in which nobody can change what is transmitted.
    pub fn allow_http(mut self) -> Self {
        self.allows_http = true;
        self
    }

    /// Keeps a copy of what was last in use in this file, and starts with it where the server cannot be asked. A copy of another
    /// address is not used. A client with a [store](crate::IntegrationClientBuilder::store) keeps one there too, without being
    /// told: the file is for clients without one.
    pub fn keep_copy_in(mut self, path: impl Into<PathBuf>) -> Self {
        self.copy = Some(path.into());
        self
    }

    /// What the texts are added to: tenants of the program, registered resolvers, no catalogue.
    pub fn onto(mut self, base: Sources) -> Self {
        self.base = base;
        self
    }

    /// Its address, without what may be secret.
    fn name(&self) -> String {
        match &self.kind {
            Kind::File(url) => http::shown(url),
            Kind::Azure(store) => store.name(),
            Kind::Consul(prefix) => prefix.name(),
            Kind::Etcd(prefix) => prefix.name(),
        }
    }

    /// Tells copies of this source from those of others. The name alone does not: it leaves out what may be secret.
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

    /// Asks the server, unless it failed a moment ago; the latest answer.
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
            Kind::File(url) => file::ask(&http, url, &self.secrets, state.tag.as_deref()).await,
            Kind::Azure(store) => store.ask(&http, self.clock.wall()).await.map(Some),
            Kind::Consul(prefix) => prefix.ask(&http, &self.secrets).await.map(Some),
            Kind::Etcd(prefix) => prefix.ask(&http, &self.secrets, &mut state.session).await.map(Some),
        };
        match answered.and_then(|found| found.map(check).transpose()) {
            Ok(found) => {
                (state.failure, state.copy_of) = (None, None);
                if let Some(Found { tag, texts }) = found {
                    state.tag = tag;
                    if state.texts.as_ref().is_none_or(|known| **known != texts) {
                        state.texts = Some(Arc::new(texts));
                    }
                }
                let nothing = "the server says that nothing is new, and was never asked before";
                state.texts.clone().ok_or_else(|| self.failed(nothing))
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

    /// What the copy says, where there is nothing else yet.
    async fn copied(&self, state: &mut State, why: &Error) -> Option<Sources> {
        if state.texts.is_some() {
            return None;
        }
        let wall = self.clock.wall();
        // The newer one: the file may be another machine's, and the store may have been away.
        let copies = self.copy_in_file().await.into_iter().chain(self.copy_in_store().await);
        let copy = copies.min_by_key(|copy| copy.age(wall))?;
        let (problem, age) = (on_copy(&why.to_string(), &copy.kept_at), copy.age(wall));
        let texts = Arc::new(copy.texts);
        (state.texts, state.loaded) = (Some(texts.clone()), Some(texts.clone()));
        state.kept = Some(texts.clone());
        if let Some(failure) = &mut state.failure {
            failure.why = on_copy(&failure.why, &copy.kept_at);
        }
        state.copy_of = Some(copy.kept_at);
        tracing::warn!(problem, age_s = age.as_secs(), "the configuration's server cannot be asked");
        Some(self.sources(&texts).aged(age).with_problem(Some(problem)))
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
        texts.iter().fold(base, |sources, (name, text)| match self.kind {
            Kind::File(_) => sources.file(name, text),
            _ => sources.over(name, text),
        })
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
            let mut hash = Fnv::default();
            for (name, text) in &*texts {
                hash.text(name);
                hash.text(text);
            }
            Some(hash.0)
        })
    }

    fn taken(&self) -> TakenFuture<'_> {
        Box::pin(async move {
            let state = &mut *self.state.lock().await;
            let Some(texts) = state.loaded.clone() else { return };
            if state.kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, &texts)) {
                return;
            }
            let copy = Arc::new(Copy::new(&self.address(), self.clock.wall(), &texts));
            let mut told = Ok(());
            if let Some(path) = self.copy.clone() {
                let copy = copy.clone();
                told = run_blocking(move || copy::write(&path, &copy)).await.and_then(|done| done);
            }
            if let Some(place) = self.place.get() {
                told = copy::keep(&**place, &copy).await.and(told);
            }
            match told {
                Ok(()) => state.kept = Some(texts),
                Err(error) => tracing::warn!(%error, "no copy of the configuration could be kept"),
            }
        })
    }

    fn keep_copies_in(&self, place: Arc<dyn CopyPlace>) {
        // A source that is in two clients keeps its copies in the store of the first.
        let _ = self.place.set(place);
    }

    fn look_every(&self) -> Option<Duration> {
        Some(EVERY)
    }
}

impl fmt::Debug for RemoteSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSource").field("name", &self.name()).field("copy", &self.copy).finish_non_exhaustive()
    }
}

/// What is wrong while a copy is in use.
fn on_copy(why: &str, kept_at: &str) -> String {
    format!("{why}; the copy of {kept_at} is in use")
}

fn unreadable(error: Error) -> Option<Copy> {
    tracing::warn!(%error, "the copy of the configuration cannot be read");
    None
}

/// Refuses an answer without content: a server that has lost its data gives one, and so does one whose keys are about to be
/// written.
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

/// How long a server is left alone that failed `times` in a row: twice as long each time, up to 30 s, and a random quarter
/// less, so that processes which failed together do not come back together; at least as long as it asks for, up to 5 minutes.
fn wait_after(times: u32, asked: Option<Duration>, random: f64) -> Duration {
    let doubled = WAITS.0.saturating_mul(1 << (times.clamp(1, 8) - 1)).min(WAITS.1);
    let spread = doubled.mul_f64(1.0 - 0.25 * random.clamp(0.0, 1.0));
    spread.max(asked.unwrap_or_default().min(LONGEST_ASKED))
}

#[cfg(test)]
mod tests;
