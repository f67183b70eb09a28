//! Looks whether the keys of tenants are there. A look at a file on a mount that does not answer may take for ever, so
//! each look has a thread of its own, and nothing waits for it for long.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use integration_client::IntegrationClient;
use integration_client::config::{AuthScheme, CredentialRef, Tenant};
use tokio::sync::watch;

/// The most looks at once. Looks that do not end keep their threads, and the run needs threads for other things.
const MOST: usize = 64;
/// The longest wait for a look. It becomes shorter with each look that did not end in its time, so that many files on
/// such a mount do not add up.
const PATIENCE: Duration = Duration::from_secs(1);

/// A look's result: whether the file is there, also if it cannot be told. `None` until the look has ended.
pub(crate) type IsThere = watch::Receiver<Option<bool>>;

struct Look {
    is_there: IsThere,
    /// The look takes longer than a run waits for one, so nothing waits for its result any more.
    is_slow: bool,
}

/// The looks that are under way, by path. Clones share their content.
#[derive(Clone)]
pub(crate) struct KeyFiles {
    looks: Rc<RefCell<HashMap<String, Look>>>,
    exists: fn(&Path) -> io::Result<bool>,
}

impl Default for KeyFiles {
    fn default() -> KeyFiles {
        KeyFiles { looks: Rc::default(), exists: |path| path.try_exists() }
    }
}

impl KeyFiles {
    /// Whether no further look can begin now.
    pub(crate) fn is_full(&self) -> bool {
        let mut looks = self.looks.borrow_mut();
        looks.retain(|_, look| look.is_there.borrow().is_none());
        looks.len() >= MOST
    }

    /// Begins a look, or joins the one at this path that is under way. `None` if that one is slow, or if there are too
    /// many.
    pub(crate) fn look(&self, path: &str) -> Option<IsThere> {
        let is_full = self.is_full();
        let mut looks = self.looks.borrow_mut();
        if let Some(look) = looks.get(path) {
            return (!look.is_slow).then(|| look.is_there.clone());
        }
        if is_full {
            return None;
        }
        let (told, is_there) = watch::channel(None);
        let (file, exists) = (PathBuf::from(path), self.exists);
        tokio::task::spawn_blocking(move || {
            told.send_replace(Some(exists(&file).unwrap_or(true)));
        });
        looks.insert(path.to_owned(), Look { is_there: is_there.clone(), is_slow: false });
        Some(is_there)
    }

    /// Whether a file is missing; `false` if that is not known within [`PATIENCE`].
    pub(crate) async fn is_missing(&self, path: &str) -> bool {
        let Some(mut is_there) = self.look(path) else { return false };
        let slow = self.looks.borrow().values().filter(|look| look.is_slow).count();
        let patience = PATIENCE / u32::try_from(slow).unwrap_or(u32::MAX).saturating_add(1);
        let Ok(told) = tokio::time::timeout(patience, is_there.wait_for(Option::is_some)).await else {
            if let Some(look) = self.looks.borrow_mut().get_mut(path) {
                look.is_slow = true;
            }
            return false;
        };
        told.is_ok_and(|is_there| *is_there == Some(false))
    }
}

/// What a lane lacks to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    /// The configuration states no credential for the tenant, and the vendor's `auth` needs one.
    Unstated,
    /// The environment variable of this key is not set, or its file does not exist.
    Key(CredentialRef),
}

impl Missing {
    /// What is missing, for a message that names the lane before it.
    pub(crate) fn said(&self) -> String {
        match self {
            Missing::Unstated => "no credential is configured".to_owned(),
            Missing::Key(key @ CredentialRef::Env(_)) => format!("{key} is not set in this process"),
            Missing::Key(key) => format!("{key} does not exist"),
        }
    }
}

/// The first thing that a lane lacks: a credential in the configuration, or a key that is not there. `None` also if that
/// is not known soon.
pub(crate) async fn missing(
    files: &KeyFiles,
    client: &IntegrationClient,
    tenant: &str,
    vendor: &str,
) -> Option<Missing> {
    if is_unstated(client, tenant, vendor) {
        return Some(Missing::Unstated);
    }
    for key in keys(client, tenant, vendor) {
        let is_missing = match &key {
            CredentialRef::File(path) => files.is_missing(path).await,
            _ => is_unset(&key),
        };
        if is_missing {
            return Some(Missing::Key(key));
        }
    }
    None
}

/// Whether this program has no credential for a tenant whose vendor needs one. A program of the user's may have a source
/// of tokens for the vendor, so that the configuration as such is not wrong.
pub(crate) fn lacks_credential(tenant: &Tenant) -> bool {
    tenant.credential.is_none() && tenant.oauth.is_none() && tenant.vendor.auth != AuthScheme::None
}

/// Whether a configured lane [lacks a credential](lacks_credential).
pub(crate) fn is_unstated(client: &IntegrationClient, tenant: &str, vendor: &str) -> bool {
    client.config().current().tenant(tenant, vendor).is_ok_and(|tenant| lacks_credential(&tenant))
}

/// Whether the key is an environment variable that is not set.
pub(crate) fn is_unset(key: &CredentialRef) -> bool {
    matches!(key, CredentialRef::Env(name) if std::env::var_os(name).is_none())
}

/// Where the keys of a lane are: its credential, unless it takes its access tokens from an OAuth server, and the secrets
/// of its `secret_headers`.
pub(crate) fn keys(client: &IntegrationClient, tenant: &str, vendor: &str) -> Vec<CredentialRef> {
    let Ok(tenant) = client.config().current().tenant(tenant, vendor) else { return Vec::new() };
    let credential = tenant.credential.iter().filter(|_| tenant.oauth.is_none());
    credential.chain(tenant.all_secret_headers().map(|header| &header.secret)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths below `/hangs` are on a mount that does not answer.
    fn exists(path: &Path) -> io::Result<bool> {
        while path.starts_with("/hangs") {
            std::thread::park();
        }
        Ok(path.starts_with("/there"))
    }

    #[test]
    fn mount_that_hangs_delays_no_other_file() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let files = KeyFiles { exists, ..KeyFiles::default() };
            assert!(files.is_missing("/gone").await && !files.is_missing("/there/key").await);
            let all = async {
                for _ in 0..100 {
                    assert!(!files.is_missing("/hangs/key").await, "nobody knows");
                }
                assert!(!files.is_missing("/hangs/other").await);
                assert!(files.is_missing("/gone").await, "the others are looked for as before");
            };
            tokio::time::timeout(Duration::from_secs(20), all).await.expect("one look at a path is waited for");
            assert_eq!(files.looks.borrow().values().filter(|look| look.is_slow).count(), 2, "one look at a path");
        });
        runtime.shutdown_background();
    }
}
