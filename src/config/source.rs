//! Where configuration comes from: texts and rows, gathered by a [`ConfigSource`].

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use super::TenantEntry;
use crate::Error;

/// A file larger than this is refused before it is parsed: a million tenants take about 100 bytes each, and memory for
/// the parsed form is several times the text.
pub(super) const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Everything that one configuration is made of.
#[derive(Clone, Debug)]
pub struct Sources {
    pub(super) catalogue: bool,
    pub(super) files: Vec<Text>,
    pub(super) tenants: Vec<TenantEntry>,
    pub(super) resolvers: BTreeSet<String>,
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
        Sources { catalogue: true, files: Vec::new(), tenants: Vec::new(), resolvers: BTreeSet::new() }
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
}

/// A boxed future, so that sources can be kept behind one type.
pub type LoadFuture<'a> = Pin<Box<dyn Future<Output = Result<Sources, Error>> + Send + 'a>>;

/// Loads configuration, at the start and again at each reload: files, a database, a service.
pub trait ConfigSource: Send + Sync + fmt::Debug {
    /// Reads everything anew. An error keeps the configuration that is in use.
    fn load(&self) -> LoadFuture<'_>;
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
}

/// Files, read again at each load, on top of the catalogue.
#[derive(Clone, Debug)]
pub struct FileSource {
    base: Sources,
    paths: Vec<PathBuf>,
}

impl FileSource {
    /// Reads one file.
    pub fn new(path: impl Into<PathBuf>) -> FileSource {
        FileSource { base: Sources::new(), paths: vec![path.into()] }
    }

    /// Reads one more file.
    pub fn and(mut self, path: impl Into<PathBuf>) -> Self {
        self.paths.push(path.into());
        self
    }

    /// What the files are added to: tenants of the program, registered resolvers, no catalogue.
    pub fn onto(mut self, base: Sources) -> Self {
        self.base = base;
        self
    }
}

impl ConfigSource for FileSource {
    fn load(&self) -> LoadFuture<'_> {
        let (mut sources, paths) = (self.base.clone(), self.paths.clone());
        let read = move || {
            for path in &paths {
                sources = sources.file(path.display().to_string(), read(path)?);
            }
            Ok(sources)
        };
        Box::pin(async move {
            // A slow disk must not hold up a worker thread; without a runtime there is none to hold up.
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => runtime.spawn_blocking(read).await.map_err(|_| {
                    Error::config("reading the configuration was cut short: the runtime is shutting down")
                })?,
                Err(_) => read(),
            }
        })
    }
}

fn read(path: &Path) -> Result<String, Error> {
    let failed = |error: std::io::Error| {
        Error::config(format!("{}: cannot be read: {error}", path.display())).with_source(error)
    };
    let mut bytes = Vec::new();
    // The size that the file system states may change: what counts is what was read.
    std::fs::File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Error::config(super::load::too_large(&path.display().to_string())));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::config(format!("{}: byte {at} is not UTF-8; save the file as UTF-8", path.display()))
    })
}
