//! `[sharing]`: the store through which processes share limits, and how a process goes on without it.

use std::env::VarError;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use super::format::SharingEntry;
use super::limit::LimitKind;
use super::report::{Report, at};
use super::validate::parse_duration;
use super::vendor::Vendor;

/// The limits that a store can hold for processes that share them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holds {
    /// The shortest window whose limits the store can hold.
    pub(crate) windows_from: Duration,
    /// The kind of store, for messages.
    pub(crate) name: &'static str,
}

impl Holds {
    /// Checks that the store can hold the vendor's shared limits.
    ///
    /// # Errors
    /// A shared limit of the vendor has a window that is too short for the store.
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

    /// The lease to use: `stated`, or `usual` if none is stated. `least` is the shortest that the store can support.
    ///
    /// # Errors
    /// The stated lease is shorter than `least`.
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

/// The shortest and the longest lease.
pub(crate) const LEASES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(600));

/// `[sharing]`: the setting of [`share_through`](crate::IntegrationClientBuilder::share_through), for programs that are
/// configured by files. It is read when the client is built; a reload does not change it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Sharing {
    /// The store: `store` for the client's own, a URL, or `env:NAME` for a variable that holds one of the two.
    pub through: String,
    /// How long a process may use its units if the store does not answer; by default 10 s, with an object store 30 s.
    pub lease: Option<Duration>,
    /// The part of each limit that a process may use after its lease has ended and the store does not answer. Without
    /// it nothing is sent then (`when_away = "stop"`).
    pub floor: Option<SharingFloor>,
}

/// A part of each limit that processes may use for ten minutes after their lease has ended, if the store does not
/// answer (`when_away = "floor"`).
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct SharingFloor {
    /// The part of a limit for all processes together; 0.1 unless stated, at most 0.5.
    pub part: f64,
    /// The number of processes among which the part is divided. If more processes run, some get nothing.
    pub max_processes: NonZeroU32,
}

impl SharingFloor {
    /// The part unless stated.
    const USUAL: f64 = 0.1;
    /// The largest part.
    const MOST: f64 = 0.5;

    /// A floor with `part` clamped to 0 to 0.5.
    pub(crate) fn new(part: f64, max_processes: u32) -> SharingFloor {
        let part = if part.is_nan() { 0.0 } else { part.clamp(0.0, Self::MOST) };
        SharingFloor { part, max_processes: NonZeroU32::new(max_processes).unwrap_or(NonZeroU32::MIN) }
    }

    /// Reads `when_away`, `floor` and `max_processes` of `[sharing]`; `None` for `when_away = "stop"`, the default.
    fn stated(entry: &SharingEntry, report: &mut Report) -> Option<SharingFloor> {
        let is_floor = match entry.when_away.as_deref() {
            None | Some("stop") => false,
            Some("floor") => true,
            Some(_) => {
                report.problem(at(&[], "when_away"), "say \"stop\", or \"floor\" to go on with a part of each limit");
                return None;
            }
        };
        let beside = [("floor", entry.floor.is_some()), ("max_processes", entry.max_processes.is_some())];
        if !is_floor {
            for (key, _) in beside.iter().filter(|(_, is_stated)| *is_stated) {
                report.problem(
                    at(&[], *key),
                    "this belongs to `when_away = \"floor\"`; write that too, or take this away",
                );
            }
            return None;
        }
        let part = entry.floor.unwrap_or(Self::USUAL);
        if !(part > 0.0 && part <= Self::MOST) {
            report.problem(
                at(&[], "floor"),
                "the part of a limit that all processes together keep is above 0 and at most 0.5",
            );
        }
        match entry.max_processes {
            None => report.problem(
                at(&[], "max_processes"),
                "say among how many processes the floor is divided: as many as ever run at once",
            ),
            Some(0) => report.problem(at(&[], "max_processes"), "at least one process runs"),
            Some(_) => {}
        }
        Some(SharingFloor::new(part, entry.max_processes.unwrap_or(1)))
    }
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
        let floor = SharingFloor::stated(entry, report);
        (report.problems.len() == before).then(|| Sharing { through: through.to_owned(), lease, floor })
    }

    /// The store or its URL. For `env:NAME`, reads the environment variable.
    ///
    /// # Errors
    /// The variable is not set, empty or not UTF-8.
    pub(crate) fn resolved(&self) -> Result<String, String> {
        match self.through.strip_prefix("env:") {
            Some(name) => of_variable(name, std::env::var(name)),
            None => Ok(self.through.clone()),
        }
    }
}

fn of_variable(name: &str, value: Result<String, VarError>) -> Result<String, String> {
    let what = match value {
        Ok(text) if !text.is_empty() => return Ok(text),
        Ok(_) => "is empty",
        Err(VarError::NotPresent) => "is not set",
        Err(VarError::NotUnicode(_)) => "is not UTF-8",
    };
    Err(format!("sharing.through: the variable {name} {what}; set it to a URL or to \"store\""))
}

impl fmt::Debug for Sharing {
    /// Omits the URL, whose query may hold a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing").field("lease", &self.lease).field("floor", &self.floor).finish_non_exhaustive()
    }
}

fn has_password(through: &str) -> bool {
    // Splits the text by hand, because `Url` cannot parse a URL that names several servers.
    let (scheme, rest) = through.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    let query = rest.split_once('?').map_or("", |(_, query)| query.split('#').next().unwrap_or(""));
    // A URL of PostgreSQL may name a file with a key, which is no secret; one of an object store the key itself.
    let is_of_objects = ["s3", "az"].iter().any(|objects| scheme.eq_ignore_ascii_case(objects));
    let secrets: &[&str] = if is_of_objects { &["pass", "secret", "key", "token", "sas"] } else { &["pass"] };
    let is_secret = |name: &str| secrets.iter().any(|part| name.to_ascii_lowercase().contains(part));
    let is_named = authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    is_named || url::form_urlencoded::parse(query.as_bytes()).any(|(name, _)| is_secret(&name))
}

#[cfg(test)]
mod tests;
