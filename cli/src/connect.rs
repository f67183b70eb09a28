//! The options by which commands find vendors, tenants and a store, and the client that is built from them.

use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;
use integration_client::config::RemoteSource;
use integration_client::store::Store;
use integration_client::{Error, ErrorKind, IntegrationClient, IntegrationClientBuilder};

use crate::output::Failure;
use crate::text::quoted;

/// The environment variables that replace options, the same in every command. `--help` does not show their values,
/// because the URL of a store may hold a password.
pub(crate) const VENDORS: &str = "INTEGRATION_CLIENT_VENDORS";
pub(crate) const TENANTS: &str = "INTEGRATION_CLIENT_TENANTS";
pub(crate) const STORE: &str = "INTEGRATION_CLIENT_STORE";
/// The key that encrypts what the store must not show. There is no option for it, because every user of a machine can
/// read the options of a process.
pub(crate) const SEAL_KEY: &str = "INTEGRATION_CLIENT_SEAL_KEY";

/// The file that keeps a copy of a configuration that was read from a server.
const CONFIG_COPY: &str = "INTEGRATION_CLIENT_CONFIG_COPY";
/// The token, password or connection string for the server of the configuration.
const CONFIG_SECRET: &str = "INTEGRATION_CLIENT_CONFIG_SECRET";

/// The options that name the configuration.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Configuration {
    /// A file with vendors, tenants or both, or its URL (https://…, consul+https://…, etcd+https://…,
    /// azure-app-configuration:PREFIX) [default: the shipped catalogue, and what the store holds].
    #[arg(long, value_name = "FILE", alias = "vendors-file", env = VENDORS, hide_env_values = true)]
    pub(crate) vendors: Option<PathBuf>,

    /// A file with tenants, if the tenants are in a file of their own, or its URL.
    #[arg(long, value_name = "FILE", env = TENANTS, hide_env_values = true)]
    pub(crate) tenants: Option<PathBuf>,

    /// A file for a copy of the configuration that was last read from a URL. The command starts with the copy if the server is
    /// unavailable. With two URLs, the file holds the copy of --vendors.
    #[arg(long, value_name = "FILE", env = CONFIG_COPY, hide_env_values = true)]
    pub(crate) config_copy: Option<PathBuf>,
}

/// The option that names the store of accepted requests and dead letters.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct StoreOption {
    /// The store: a SQLite file (`jobs.jsonl.sqlite`, or `sqlite:PATH`), or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    #[arg(long, value_name = "URL", env = STORE, hide_env_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) store: String,
}

/// The bounds of what the store of a long-running process holds.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct StoreBounds {
    /// The most requests in the store; beyond it none is accepted [default: 1000000].
    #[arg(long, value_name = "REQUESTS", env = "INTEGRATION_CLIENT_MAX_BACKLOG")]
    max_backlog: Option<u64>,

    /// The most requests of one tenant at one vendor in the store; beyond it none of theirs is accepted [default: no bound].
    #[arg(long, value_name = "REQUESTS", env = "INTEGRATION_CLIENT_MAX_LANE_BACKLOG")]
    max_lane_backlog: Option<u64>,

    /// The most dead letters in the store; beyond it the oldest are deleted with their requests [default: 100000].
    #[arg(long, value_name = "LETTERS", env = "INTEGRATION_CLIENT_MAX_DEAD")]
    max_dead: Option<u64>,
}

impl StoreBounds {
    /// Sets the bounds that are stated.
    pub(crate) fn apply(&self, mut store: Store) -> Store {
        if let Some(requests) = self.max_backlog {
            store = store.max_backlog(requests);
        }
        if let Some(requests) = self.max_lane_backlog {
            store = store.max_lane_backlog(requests);
        }
        if let Some(letters) = self.max_dead {
            store = store.max_dead(letters);
        }
        store
    }
}

/// A store as the user named it: a URL, or the path of a SQLite file.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    text: String,
}

impl Named {
    pub(crate) fn new(text: &str) -> Named {
        Named { text: text.to_owned() }
    }

    /// The path of the store's file; `None` if the store is not a file.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self.text.split_once(':') {
            Some(("sqlite", path)) => Some(Path::new(path.strip_prefix("//").unwrap_or(path))),
            Some(_) if self.text.contains("://") => None,
            _ => Some(Path::new(&self.text)),
        }
    }

    pub(crate) fn store(&self) -> Store {
        let store = match self.path() {
            Some(path) => Store::sqlite(path),
            None => Store::url(&self.text),
        };
        match std::env::var(SEAL_KEY) {
            Ok(key) if !key.is_empty() => store.seal_key(key),
            _ => store,
        }
    }

    /// The store's name for messages, without secrets: `***` replaces a password, and the parameters after the database
    /// are left out.
    pub(crate) fn shown(&self) -> String {
        if let Some(path) = self.path() {
            return path.display().to_string();
        }
        let (scheme, rest) = self.text.split_once("://").unwrap_or(("postgres", ""));
        // Splits at the last `@`, because the password may hold an `@` too.
        let (who, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let place = place.split(['?', '#', '&']).next().unwrap_or_default();
        match who.split_once(':') {
            Some((user, _)) => format!("{scheme}://{user}:***@{place}"),
            None if who.is_empty() => format!("{scheme}://{place}"),
            None => format!("{scheme}://{who}@{place}"),
        }
    }

    /// The option that names the store in the commands that a message shows. Empty if the environment names the store,
    /// which names it for these commands too. A URL whose secrets are hidden is left to the user.
    pub(crate) fn option(&self) -> String {
        self.option_beside(std::env::var(STORE).ok().as_deref())
    }

    fn option_beside(&self, of_environment: Option<&str>) -> String {
        let shown = self.shown();
        if of_environment == Some(&*self.text) {
            String::new()
        } else if self.path().is_none() && self.text != shown {
            " --store URL".to_owned()
        } else {
            format!(" --store {}", quoted(&shown))
        }
    }

    /// Fails if the store's file does not exist, because opening it would create it.
    pub(crate) fn must_be_there(&self) -> Result<(), Failure> {
        match self.path() {
            Some(path) if !path.exists() => {
                let shown = path.display();
                let hint = match path.extension() {
                    Some(end) if end == "jsonl" => format!("; the store of `run {shown}` is {shown}.sqlite"),
                    _ => "; `run JOBS.jsonl` makes JOBS.jsonl.sqlite".to_owned(),
                };
                Err(Failure::Input(format!("{shown}: there is no such store{hint}")))
            }
            Some(path) if path.extension().is_some_and(|end| end == "jsonl") => {
                let shown = path.display();
                Err(Failure::Input(format!("{shown} holds jobs; its store is {shown}.sqlite")))
            }
            _ => Ok(()),
        }
    }
}

impl Configuration {
    /// The files and URLs that the options name.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.vendors.iter().chain(&self.tenants)
    }

    /// The server that holds a part of the configuration; `None` if `path` names a file.
    pub(crate) fn server(&self, path: &Path) -> Result<Option<RemoteSource>, Failure> {
        let Some(url) = url_of(path) else { return Ok(None) };
        let secret = std::env::var_os(CONFIG_SECRET).map(|_| format!("env:{CONFIG_SECRET}"));
        let source = RemoteSource::by_url(url, secret.as_deref())?;
        Ok(Some(match &self.config_copy {
            Some(copy) if self.paths().find_map(|path| url_of(path)) == Some(url) => source.keep_copy_in(copy),
            _ => source,
        }))
    }

    /// A client builder that reads the files or the servers of the configuration.
    pub(crate) fn builder(&self) -> Result<IntegrationClientBuilder, Failure> {
        let mut builder = IntegrationClient::builder();
        for path in self.paths() {
            if let Some(server) = self.server(path)? {
                builder = builder.config_source(server);
                continue;
            }
            if let Err(error) = std::fs::metadata(path) {
                return Err(Failure::reading(path, &error));
            }
            builder = builder.vendors_file(path);
        }
        Ok(builder)
    }
}

/// `path` if it is a URL, and no file.
fn url_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.contains("://") || text.starts_with("azure-app-configuration:"))
}

impl StoreOption {
    /// A client that reads and changes the store, and sends nothing.
    pub(crate) async fn open(&self) -> Result<IntegrationClient, Failure> {
        let named = Named::new(&self.store);
        named.must_be_there()?;
        Ok(IntegrationClient::builder().without_catalogue().store(named.store()).build().await?)
    }
}

/// Advice about an error, if an option or a command helps with errors of its kind.
pub(crate) fn hint(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::UnknownTenant => " (--tenants names a file of tenants, `tenants set` adds one to a store)",
        ErrorKind::UnknownVendor => " (`integration-client vendors` lists those that are known, --vendors adds a file)",
        ErrorKind::Credential => " (`tenants list` shows where each credential should be)",
        ErrorKind::Connect => " (is the vendor up, and its base URL right?)",
        _ => "",
    }
}

/// An error with its causes and advice.
pub(crate) fn in_words(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(behind) = cause {
        let said = behind.to_string();
        // The text of some errors includes their cause already.
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = behind.source();
    }
    text + hint(error)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Input(in_words(&error))
    }
}

/// The tokio runtime of a command.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Input(format!("no runtime can be started: {error}; are there threads left?")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_option_holds_no_masked_password() {
        let secret = "postgres://ic:hunter2@db/jobs";
        for (of_environment, name, expected) in [
            (None, "sqlite:my jobs.jsonl.sqlite", " --store 'my jobs.jsonl.sqlite'"),
            (Some("other.sqlite"), "s.sqlite", " --store s.sqlite"),
            (None, "postgres://ic@db/jobs", " --store postgres://ic@db/jobs"),
            (None, secret, " --store URL"),
            (Some(secret), secret, ""),
        ] {
            assert_eq!(Named::new(name).option_beside(of_environment), expected, "{name}");
        }
    }

    #[test]
    fn store_is_shown_without_its_password() {
        for (stated, shown) in [
            ("jobs.sqlite", "jobs.sqlite"),
            ("sqlite:/var/jobs.sqlite", "/var/jobs.sqlite"),
            ("postgres://ic@db:5432/jobs", "postgres://ic@db:5432/jobs"),
            ("postgres://ic:hunter2@db:5432/jobs?sslmode=require&password=x", "postgres://ic:***@db:5432/jobs"),
            ("postgresql://ic:a:b@c@db/jobs", "postgresql://ic:***@db/jobs"),
            ("postgres://ic:a?b#c@db/jobs", "postgres://ic:***@db/jobs"),
            ("postgres://db/jobs?password=x", "postgres://db/jobs"),
        ] {
            assert_eq!(Named::new(stated).shown(), shown, "{stated}");
        }
    }
}
