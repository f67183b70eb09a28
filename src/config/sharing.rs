//! Where processes that share limits keep who holds what.

use std::fmt;
use std::time::Duration;

use super::format::SharingEntry;
use super::limit::LimitKind;
use super::report::{Report, at};
use super::validate::parse_duration;
use super::vendor::Vendor;

/// What a store of shared limits can hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holds {
    /// Limits of windows that are not shorter.
    pub(crate) windows_from: Duration,
    /// The store, in words.
    pub(crate) name: &'static str,
}

impl Holds {
    /// # Errors
    /// A limit of the vendor's has a window that is too short for the store.
    pub(crate) fn check(&self, vendor: &Vendor) -> Result<(), String> {
        let limits = vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits).chain(&vendor.limits);
        for limit in limits.filter(|limit| limit.shared) {
            if let LimitKind::Rate(rate) = &limit.kind
                && rate.window < self.windows_from
            {
                return Err(format!(
                    "`share_through` {} holds limits of {:?} and longer, and the limit `{}` of vendor `{}` is of {:?}: share through \
                     Redis or PostgreSQL, or set `shared = false` on the limit and give each process a `share`",
                    self.name, self.windows_from, limit.name, vendor.name, rate.window
                ));
            }
        }
        Ok(())
    }

    /// The lease that is in force where `stated` is stated. `least` is the shortest that the store can keep up, and `usual` the one
    /// that holds if none is stated.
    ///
    /// # Errors
    /// The lease is too short.
    pub(crate) fn lease(
        &self,
        stated: Option<Duration>,
        (least, usual): (Duration, Duration),
    ) -> Result<Duration, String> {
        match stated {
            Some(lease) if lease < least => Err(format!(
                "`sharing_lease` is {lease:?}, and {} cannot be asked often enough for that; use {least:?} or longer",
                self.name
            )),
            stated => Ok(stated.unwrap_or(usual)),
        }
    }
}

/// The shortest lease, and the longest.
pub(crate) const LEASES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(600));

/// `[sharing]`: what [`share_through`](crate::IntegrationClientBuilder::share_through) says, for programs that are
/// configured by their files. Read when the client is built; a reload changes nothing of it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sharing {
    /// `store`, a URL, or `env:NAME` for a variable that holds one of them.
    pub through: String,
    /// The lease; 10 s unless stated, and 30 s in an object store.
    pub lease: Option<Duration>,
}

impl Sharing {
    pub(super) fn new(entry: &SharingEntry, report: &mut Report) -> Option<Sharing> {
        let before = report.problems.len();
        let through = entry.through.trim();
        if through.is_empty() {
            report.problem(
                at(&[], "through"),
                "name what keeps the units: \"store\" for the store in use, a URL, or \"env:NAME\" for a variable that holds one",
            );
        } else if has_password(through) {
            report.problem(
                at(&[], "through"),
                "the URL has a password, which a file must not hold; put the URL into a variable, and write \"env:NAME\"",
            );
        }
        let lease = entry.lease.as_deref().and_then(|text| match parse_duration(text) {
            Ok(lease) if (LEASES.0..=LEASES.1).contains(&lease) => Some(lease),
            Ok(_) => {
                report.problem(at(&[], "lease"), "a lease lasts from 2 seconds to 10 minutes");
                None
            }
            Err(message) => {
                report.problem(at(&[], "lease"), message);
                None
            }
        });
        (report.problems.len() == before).then(|| Sharing { through: through.to_owned(), lease })
    }

    /// What keeps the units, with the variable read that `env:NAME` names.
    ///
    /// # Errors
    /// There is no such variable.
    pub(crate) fn resolved(&self) -> Result<String, String> {
        let Some(name) = self.through.strip_prefix("env:") else { return Ok(self.through.clone()) };
        let missing = || format!("sharing.through: the variable {name} is not set; set it to a URL or to \"store\"");
        std::env::var(name).ok().filter(|text| !text.is_empty()).ok_or_else(missing)
    }
}

impl fmt::Debug for Sharing {
    /// Without the URL, which may hold a token in its query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing").field("lease", &self.lease).finish_non_exhaustive()
    }
}

fn has_password(through: &str) -> bool {
    let is_secret = |name: &str| ["secret", "key", "token", "sas"].iter().any(|part| name.contains(part));
    // A URL of several servers is none that can be parsed.
    let authority = through.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(""));
    let is_named = authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    let in_query = || {
        let parsed = url::Url::parse(through).ok().filter(|url| matches!(url.scheme(), "s3" | "az"));
        parsed.is_some_and(|url| url.query_pairs().any(|(name, _)| is_secret(&name)))
    };
    is_named || in_query()
}
