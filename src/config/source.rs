//! Where configuration comes from: texts and rows, gathered by a [`ConfigSource`].

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::copies::CopyPlace;
use super::{OAuthEntry, TenantEntry};
use crate::Error;

/// The shipped catalogue. Also the example of the format.
pub(super) const CATALOGUE: (&str, &str) = ("vendors.toml (shipped)", include_str!("../../vendors.toml"));

/// A file larger than this is refused before it is parsed: a million tenants take about 100 bytes each, and memory for
/// the parsed form is several times the text.
pub(super) const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Everything that one configuration is made of.
#[derive(Clone, Debug)]
pub struct Sources {
    pub(super) catalogue: bool,
    pub(super) files: Vec<Text>,
    /// Laid over the files.
    pub(super) over: Vec<Text>,
    pub(super) tenants: Vec<TenantEntry>,
    pub(super) resolvers: BTreeSet<String>,
    problem: Option<String>,
    age: Duration,
}

#[derive(Clone)]
pub(super) struct Text {
    pub(super) name: String,
    pub(super) text: String,
}

impl fmt::Debug for Text {
    /// The name alone: the text may hold what should not be there.
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
            tenants: Vec::new(),
            resolvers: BTreeSet::new(),
            problem: None,
            age: Duration::ZERO,
        }
    }

    /// Why this is not what the source holds now: rows of a store that were left out, a copy that stands for a server that
    /// is away. No part of the hash.
    pub(crate) fn with_problem(mut self, why: Option<String>) -> Self {
        self.problem = match (self.problem, why) {
            (Some(first), Some(second)) => Some(format!("{first}; {second}")),
            (first, second) => first.or(second),
        };
        self
    }

    /// It is a copy that is so old. No part of the hash.
    pub(super) fn aged(mut self, age: Duration) -> Self {
        self.age = self.age.max(age);
        self
    }

    /// How old it is: zero, unless a part of it is a copy.
    pub(crate) fn age(&self) -> Duration {
        self.age
    }

    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// These, and then `others`. The catalogue is part of it where both have it.
    pub(super) fn and(mut self, others: Sources) -> Sources {
        self.catalogue &= others.catalogue;
        self.files.extend(others.files);
        self.over.extend(others.over);
        self.tenants.extend(others.tenants);
        self.resolvers.extend(others.resolvers);
        self.aged(others.age).with_problem(others.problem)
    }

    /// Leaves the shipped catalogue out: only vendors that the files state exist.
    pub fn without_catalogue(mut self) -> Self {
        self.catalogue = false;
        self
    }

    /// Adds a file's text; errors name it `name`.
    pub fn file(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.files.push(Text { name: name.into(), text: text.into() });
        self
    }

    /// Lays a text over the files: what its vendors state replaces what the files say, field by field, and its tenants
    /// replace the files' as a whole. Rows of a database, for example; errors name it `name`.
    pub fn over(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.over.push(Text { name: name.into(), text: text.into() });
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

    /// Permits credentials `NAME:KEY`, for a resolver that the application registered.
    pub fn resolver(mut self, name: impl Into<String>) -> Self {
        self.resolvers.insert(name.into());
        self
    }

    /// A hash of everything in here: the same in every process and build, whatever the files are called. A comment
    /// changes it too.
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
        for over in &self.over {
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
        }
        for name in &self.resolvers {
            hash.text("resolver");
            hash.text(name);
        }
        hash.0
    }
}

/// FNV-1a: the same on every build, unlike the standard hasher.
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

    /// 0xff is in no UTF-8 text: it keeps "ab", "c" and "a", "bc" apart.
    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.bytes(&[0xff]);
    }
}

/// A boxed future, so that sources can be kept behind one type.
pub type LoadFuture<'a> = Pin<Box<dyn Future<Output = Result<Sources, Error>> + Send + 'a>>;

/// What [`ConfigSource::fingerprint`] returns.
pub type FingerprintFuture<'a> = Pin<Box<dyn Future<Output = Option<u64>> + Send + 'a>>;

/// What [`ConfigSource::taken`] returns.
pub type TakenFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Loads configuration, at the start and again at each reload: files, a database, a service.
pub trait ConfigSource: Send + Sync + fmt::Debug {
    /// Reads everything anew. An error keeps the configuration that is in use.
    fn load(&self) -> LoadFuture<'_>;

    /// Says cheaply whether a load could bring anything new: another number whenever it could, and `None` (the default)
    /// where that is not known. A client that [watches](crate::IntegrationClientBuilder::watch_config) its source asks every second or so,
    /// and loads only after another number or `None`. Good numbers are a row's version, or the hash of an entity tag.
    fn fingerprint(&self) -> FingerprintFuture<'_> {
        Box::pin(async { None })
    }

    /// Is told that what the latest load returned was valid and is in use. A source that lies on a server can keep a copy
    /// then. Does nothing by default.
    fn taken(&self) -> TakenFuture<'_> {
        Box::pin(async {})
    }

    /// Is given a place for copies, before the first load, where the client has a store. A source that lies on a server can keep
    /// a copy there of what is in use, and load that where the server is away when a process starts. Does nothing by default.
    fn keep_copies_in(&self, _place: Arc<dyn CopyPlace>) {}

    /// How often a client looks whether anything is new that is not told how often
    /// ([`watch_config`](crate::IntegrationClientBuilder::watch_config)). Never, by default.
    fn look_every(&self) -> Option<Duration> {
        None
    }
}

/// A configuration that the program holds.
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
        let sources = self.0.clone();
        Box::pin(async move { Ok(sources) })
    }

    fn fingerprint(&self) -> FingerprintFuture<'_> {
        Box::pin(async { Some(0) })
    }
}
