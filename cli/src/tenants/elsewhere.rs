//! What files and servers state of tenants whose rows in the store are removed: with that they are served afterwards.

use std::collections::{BTreeMap, BTreeSet};

use integration_client::IntegrationClient;
use integration_client::config::{Config, Sources, TenantEntry};

use super::Row;
use crate::connect::Configuration;
use crate::output::Failure;
use crate::sources::NamedSources;

/// A tenant as the configuration has it without its row.
pub(super) struct Elsewhere {
    /// The file or the server that states it.
    pub(super) place: String,
    /// The reference to the credential with which it is served; `None` if it has none, as with OAuth.
    pub(super) credential: Option<String>,
}

/// The tenants, by id and vendor, that the configuration still has without the rows `gone`.
///
/// # Errors
/// A file or a server cannot be read, or the rest of the configuration is not valid.
pub(super) async fn find(
    configuration: &Configuration,
    client: &IntegrationClient,
    gone: &[(String, TenantEntry)],
) -> Result<BTreeMap<(String, String), Elsewhere>, Failure> {
    let mut read = NamedSources::read(configuration)?;
    if gone.is_empty() || read.names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut sources = read.onto(Sources::new()).await?;
    let rows: BTreeSet<&str> = gone.iter().map(|(row, _)| row.as_str()).collect();
    for (name, text) in client.config().stored().await? {
        if !rows.contains(name.as_str()) {
            sources = sources.over(name, text);
        }
    }
    let config = Config::load(&sources, 1)?;
    let wanted: BTreeSet<(&str, &str)> = gone.iter().map(|(_, entry)| (entry.id(), entry.vendor())).collect();
    let places = Places::of(&read);
    let still = config.tenants().filter(|tenant| wanted.contains(&(&*tenant.id, &*tenant.vendor.name)));
    let still = still.map(|tenant| {
        let key = (tenant.id.to_string(), tenant.vendor.name.to_string());
        let credential = tenant.credential.as_ref().map(ToString::to_string);
        let place = places.of_tenant(&key).to_owned();
        (key, Elsewhere { place, credential })
    });
    Ok(still.collect())
}

/// Which file states a tenant.
struct Places {
    files: BTreeMap<(String, String), String>,
    servers: String,
}

impl Places {
    fn of(read: &NamedSources) -> Places {
        let mut files = BTreeMap::new();
        for file in &read.files {
            // A file without tenants is no `Row`.
            let tenants = toml::from_str::<Row>(&file.text).map(|row| row.tenants).unwrap_or_default();
            for entry in tenants {
                files.insert((entry.id().to_owned(), entry.vendor().to_owned()), file.name.clone());
            }
        }
        let is_file = |name: &&String| read.files.iter().any(|file| file.name == **name);
        let servers: Vec<&str> = read.names.iter().filter(|name| !is_file(name)).map(String::as_str).collect();
        let servers = if servers.is_empty() { "the configuration".to_owned() } else { servers.join(" or ") };
        Places { files, servers }
    }

    fn of_tenant(&self, key: &(String, String)) -> &str {
        self.files.get(key).unwrap_or(&self.servers)
    }
}
