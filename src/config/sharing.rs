//! Where processes that share limits keep who holds what.

use std::fmt;
use std::time::Duration;

use super::format::SharingEntry;
use super::report::{Report, at};
use super::validate::parse_duration;

/// The shortest lease, and the longest.
pub(crate) const LEASES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(600));

/// `[sharing]`: what [`share_through`](crate::IntegrationClientBuilder::share_through) says, for programs that are
/// configured by their files. Read when the client is built; a reload changes nothing of it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sharing {
    /// `store`, a URL, or `env:NAME` for a variable that holds one of them.
    pub through: String,
    /// The lease; 10 s unless stated.
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
    url::Url::parse(through).is_ok_and(|url| url.password().is_some())
}
