//! Reads a configuration without a client, for commands that send nothing: its files, and what its servers hold.

use integration_client::config::{Config, ConfigSource, RemoteSource, Sources};

use crate::connect::{self, Configuration};
use crate::notes;
use crate::output::Failure;

/// The name and the content of a file.
pub(crate) struct Text {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// What the options of a configuration name.
pub(crate) struct NamedSources {
    /// The names of all files and servers, for messages.
    pub(crate) names: Vec<String>,
    pub(crate) files: Vec<Text>,
    servers: Vec<RemoteSource>,
}

impl NamedSources {
    /// Reads the files. The servers are asked later.
    pub(crate) fn read(configuration: &Configuration) -> Result<NamedSources, Failure> {
        let mut read = NamedSources { names: Vec::new(), files: Vec::new(), servers: Vec::new() };
        for path in configuration.paths() {
            let name = path.display().to_string();
            match configuration.server(path)? {
                Some(server) => {
                    // The query of a URL may hold a secret.
                    read.names.push(name.split(['?', '#']).next().unwrap_or_default().to_owned());
                    read.servers.push(server);
                }
                None => {
                    let text = std::fs::read_to_string(path).map_err(|error| Failure::reading(path, &error))?;
                    read.names.push(name.clone());
                    read.files.push(Text { name, text });
                }
            }
        }
        Ok(read)
    }

    pub(crate) fn has_servers(&self) -> bool {
        !self.servers.is_empty()
    }

    /// Adds all of it to `base` in the order of a client: the files, then what the servers hold.
    pub(crate) async fn onto(&mut self, base: Sources) -> Result<Sources, Failure> {
        let mut sources = self.files.iter().fold(base, |sources, file| sources.file(&file.name, &file.text));
        if self.has_servers() {
            // The library logs a warning if a copy stands in for a server.
            notes::listen(false, false);
        }
        for server in std::mem::take(&mut self.servers) {
            let server = server.onto(sources);
            sources = server.load().await?;
            self.servers.push(server);
        }
        Ok(sources)
    }
}

/// Loads the configuration, and keeps copies of what its servers hold.
pub(crate) fn load(configuration: &Configuration) -> Result<Config, Failure> {
    let mut read = NamedSources::read(configuration)?;
    connect::runtime()?.block_on(async {
        let config = Config::load(&read.onto(Sources::new()).await?, 1)?;
        for server in &read.servers {
            server.taken().await;
        }
        Ok(config)
    })
}
