//! The sources of configuration: texts and rows, which a [`ConfigSource`] loads.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::config_problem::ConfigProblem;
use super::copies::CopyPlace;
use super::{OAuthEntry, TenantEntry};
use crate::Error;

/// The name and text of the shipped catalogue, which is also the example of the format.
pub(super) const CATALOGUE: (&str, &str) = ("vendors.toml (shipped)", include_str!("../../vendors.toml"));

/// The largest file that is parsed, in bytes. A tenant takes about 100 bytes, so a million tenants exceed it; the
/// parsed form takes several times the memory of the text.
pub(super) const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Everything that one configuration is made of.
#[derive(Clone, Debug)]
#[must_use]
pub struct Sources {
    pub(super) catalogue: bool,
    pub(super) files: Vec<Text>,
    /// Texts that are applied over the files.
    pub(super) over: Vec<Text>,
    /// Texts that are applied over those: the rows of a store.
    pub(super) rows: Vec<Text>,
    pub(super) tenants: Vec<TenantEntry>,
    pub(super) resolvers: BTreeSet<String>,
    problem: Option<ConfigProblem>,
    copy_age: Option<Duration>,
    fingerprint: Option<u64>,
}

#[derive(Clone)]
pub(super) struct Text {
    pub(super) name: String,
    pub(super) text: String,
}

impl fmt::Debug for Text {
    /// Shows the name and the length: the text may hold a secret that should not be in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Text").field("name", &self.name).field("bytes", &self.text.len()).finish()
    }
}

impl Default for Sources {
    fn default() -> Self {
        Sources::new()
    }
}

impl Sources {
    /// The shipped catalogue alone.
    pub fn new() -> Sources {
        Sources {
            catalogue: true,
            files: Vec::new(),
            over: Vec::new(),
            rows: Vec::new(),
            tenants: Vec::new(),
            resolvers: BTreeSet::new(),
            problem: None,
            copy_age: None,
            fingerprint: None,
        }
    }

    /// Adds a problem, if this differs from what the source holds now: rows of a store were left out, or a copy stands
    /// in for a server that cannot be reached. Not part of the hash.
    pub(crate) fn with_problem(mut self, problem: Option<ConfigProblem>) -> Self {
        self.problem = match (self.problem, problem) {
            (Some(first), Some(second)) => Some(first.and(second)),
            (first, second) => first.or(second),
        };
        self
    }

    /// Marks this as a copy of age `age`, if there is one; an older age stays. Not part of the hash.
    pub(super) fn aged(mut self, age: Option<Duration>) -> Self {
        self.copy_age = self.copy_age.max(age);
        self
    }

    /// States the [fingerprint](ConfigSource::fingerprint) of this content, which a source has loaded; `None`, as
    /// without this call, if the source cannot tell. A source for which several servers respond must state it, because
    /// a load may return older content than that of the fingerprint before it. A source that wraps another one, with a
    /// fingerprint of its own, replaces the number that the inner one stated. Not part of the hash.
    pub fn with_fingerprint(mut self, fingerprint: Option<u64>) -> Self {
        self.fingerprint = fingerprint;
        self
    }

    pub(crate) fn fingerprint(&self) -> Option<u64> {
        self.fingerprint
    }

    /// The age of the oldest part that is a copy; `None` if none is.
    pub(crate) fn copy_age(&self) -> Option<Duration> {
        self.copy_age
    }

    pub(crate) fn problem(&self) -> Option<&ConfigProblem> {
        self.problem.as_ref()
    }

    /// Appends `others`. The result includes the catalogue only if both do, and has a fingerprint only if both have.
    pub(super) fn and(mut self, others: Sources) -> Sources {
        let fingerprints = self.fingerprint.zip(others.fingerprint);
        self.catalogue &= others.catalogue;
        self.files.extend(others.files);
        self.over.extend(others.over);
        self.rows.extend(others.rows);
        self.tenants.extend(others.tenants);
        self.resolvers.extend(others.resolvers);
        self.aged(others.copy_age)
            .with_problem(others.problem)
            .with_fingerprint(fingerprints.map(|(first, second)| join_fingerprints(first, second)))
    }

    /// Leaves the shipped catalogue out, so that only vendors from the files exist.
    pub fn without_catalogue(mut self) -> Self {
        self.catalogue = false;
        self
    }

    /// Adds the text of a file, which errors call `name`.
    pub fn file(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.files.push(Text { name: name.into(), text: text.into() });
        self
    }

    /// Applies a text over the files, such as the rows of a database: its vendors replace the files' vendors field by
    /// field, and its tenants replace the files' tenants as a whole. Errors call the text `name`.
    ///
    /// A later text changes the vendors of earlier ones in the same way. A tenant that two such texts state is an error,
    /// and so is `extends`: the text always builds on what is there.
    pub fn over(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.over.push(Text { name: name.into(), text: text.into() });
        self
    }

    /// As [`over`](Self::over), but over the texts of `over` too.
    pub(crate) fn row(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.rows.push(Text { name: name.into(), text: text.into() });
        self
    }

    /// Adds a tenant that a program or a database row states.
    pub fn tenant(mut self, entry: TenantEntry) -> Self {
        self.tenants.push(entry);
        self
    }

    /// Adds tenants.
    pub fn tenants(mut self, entries: impl IntoIterator<Item = TenantEntry>) -> Self {
        self.tenants.extend(entries);
        self
    }

    /// Permits credential references `NAME:KEY`, for a resolver `name` that the application registered.
    pub fn resolver(mut self, name: impl Into<String>) -> Self {
        self.resolvers.insert(name.into());
        self
    }

    /// A hash of all texts and entries: the same in every process and build, and independent of the files' names. A
    /// change of a comment changes the hash.
    ///
    /// ```
    /// use integration_client::config::{Config, Sources};
    ///
    /// let here = Sources::new().file("vendors.toml", "# nothing yet");
    /// let there = Sources::new().file("/etc/vendors.toml", "# nothing yet");
    /// assert_eq!(here.hash(), there.hash());
    /// assert_eq!(here.hash(), Config::load(&there, 1)?.hash());
    /// # Ok::<(), integration_client::Error>(())
    /// ```
    pub fn hash(&self) -> u64 {
        let mut hash = Fnv::default();
        hash.text(if self.catalogue { CATALOGUE.1 } else { "" });
        for file in &self.files {
            hash.text("file");
            hash.text(&file.text);
        }
        for over in self.over.iter().chain(&self.rows) {
            hash.text("over");
            hash.text(&over.text);
        }
        for tenant in &self.tenants {
            hash.text("tenant");
            hash.text(&format!("{tenant:?}"));
            hash.text(tenant.credential.as_deref().unwrap_or_default());
            for reference in tenant.oauth.iter().flat_map(OAuthEntry::references) {
                hash.text(reference.as_deref().unwrap_or_default());
            }
            tenant.secret_headers.iter().for_each(|(_, reference)| hash.text(reference));
        }
        for name in &self.resolvers {
            hash.text("resolver");
            hash.text(name);
        }
        hash.0
    }
}

/// The fingerprint of two sources of which the second is read after the first.
pub(crate) fn join_fingerprints(first: u64, second: u64) -> u64 {
    let mut hash = Fnv::default();
    hash.bytes(&first.to_le_bytes());
    hash.bytes(&second.to_le_bytes());
    hash.0
}

/// FNV-1a, which gives the same hash in every build, unlike the standard hasher.
pub(super) struct Fnv(pub(super) u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Ends the text with 0xff, which no UTF-8 text contains, so that "ab", "c" and "a", "bc" differ.
    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.bytes(&[0xff]);
    }
}

/// What [`ConfigSource::load`] returns; boxed, so that sources can be trait objects.
pub type LoadFuture<'a> = Pin<Box<dyn Future<Output = Result<Sources, Error>> + Send + 'a>>;

/// What [`ConfigSource::fingerprint`] returns.
pub type FingerprintFuture<'a> = Pin<Box<dyn Future<Output = Option<u64>> + Send + 'a>>;

/// What [`ConfigSource::taken`] returns.
pub type TakenFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What [`ConfigSource::load_last_used`] returns.
pub type LastUsedFuture<'a> = Pin<Box<dyn Future<Output = Option<Sources>> + Send + 'a>>;

/// What a source of configuration reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// A file.
    File,
    /// A server: a [`RemoteSource`](super::RemoteSource).
    Server,
    /// The rows of the client's store ([`config_in_store`](crate::IntegrationClientBuilder::config_in_store)).
    Store,
    /// Something else: a source of the program's own.
    Program,
}

/// Loads configuration from files, a database or a service, at the start and at each reload.
pub trait ConfigSource: Send + Sync + fmt::Debug {
    /// Reads the whole configuration. If it fails, the configuration in use stays.
    fn load(&self) -> LoadFuture<'_>;

    /// Tells cheaply whether a load could return anything new: a different number if it could, and `None` (the default)
    /// if the source cannot tell. A client that [watches](crate::IntegrationClientBuilder::watch_config) its source
    /// asks about every second, and loads unless the number is that of the content that was loaded last. A row's
    /// version or the hash of an entity tag serves well.
    ///
    /// The number of the content that was loaded is the one that [`load`](Self::load) states with it
    /// ([`Sources::with_fingerprint`]), or else the one that this function returned before. State it if several servers
    /// respond, such as replicas behind a load balancer: content from a server that is behind would otherwise count as
    /// the newer content, and stay in use. State it also if [`display_name`](Self::display_name) is `None`, or the
    /// client loads the source at each check.
    fn fingerprint(&self) -> FingerprintFuture<'_> {
        Box::pin(async { None })
    }

    /// Called after the result of the latest load was found valid and put into use. A source that reads from a server
    /// can then keep a copy. A running client loads nothing until this has ended, so this must not wait for a
    /// [reload](crate::LiveConfig::reload). After 20 s a client logs an error, drops the future and goes on. It logs a
    /// panic too: the configuration stays in use. Does nothing by default.
    fn taken(&self) -> TakenFuture<'_> {
        Box::pin(async {})
    }

    /// Called before the first load, if the client has a store, with a place for copies. A source that reads from a
    /// server can keep a copy of the configuration in use there, and load the copy if a process starts while the server
    /// cannot be reached. Does nothing by default.
    fn keep_copies_in(&self, _place: Arc<dyn CopyPlace>) {}

    /// Reads the configuration that was in use last, if the source keeps copies. A client asks for it at its start if the
    /// result of [`load`](Self::load) is not valid: a mistake on a server must not keep processes from starting. `None`
    /// by default.
    fn load_last_used(&self) -> LastUsedFuture<'_> {
        Box::pin(async { None })
    }

    /// How often a client checks the source for changes, unless
    /// [`watch_config`](crate::IntegrationClientBuilder::watch_config) states an interval. `None`, the default, means
    /// never.
    fn look_every(&self) -> Option<Duration> {
        None
    }

    /// What the [status](crate::status::SourceStatus) calls the source: a path, or an address without user, password
    /// and query. The name of the type by default. `None` if the status should not list the source, because it can
    /// neither fail nor change.
    fn display_name(&self) -> Option<String> {
        Some(std::any::type_name::<Self>().to_owned())
    }

    /// What the source reads, for the status. [`SourceKind::Program`] by default.
    fn kind(&self) -> SourceKind {
        SourceKind::Program
    }
}

/// A source that always returns the same configuration, which the program supplies.
#[derive(Clone, Debug)]
pub struct StaticSource(Sources);

impl StaticSource {
    /// Always loads `sources`.
    pub fn new(sources: Sources) -> StaticSource {
        StaticSource(sources)
    }

    /// The catalogue and one text.
    pub fn toml(text: impl Into<String>) -> StaticSource {
        StaticSource(Sources::new().file("<text>", text))
    }
}

impl ConfigSource for StaticSource {
    fn load(&self) -> LoadFuture<'_> {
        let sources = self.0.clone().with_fingerprint(Some(0));
        Box::pin(async move { Ok(sources) })
    }

    fn fingerprint(&self) -> FingerprintFuture<'_> {
        Box::pin(async { Some(0) })
    }

    fn display_name(&self) -> Option<String> {
        None
    }
}
