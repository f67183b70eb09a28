//! The HTTP clients that have the same settings, and how many exchanges are under way at each.
//!
//! hyper-util keeps one HTTP/2 connection to a host for each client. A vendor allows a number of streams on it
//! (`MAX_CONCURRENT_STREAMS`). Further requests wait within hyper: their permits are spent, hyper knows neither tiers nor
//! tenants, and it does not tell us that they have not left. So a client makes [`STREAMS`] exchanges at once, and then a
//! further client is used, which has a connection of its own. Where tenants' variables choose the host there is one client:
//! the exchanges that it counts go to many hosts, and each further client would have a connection to each of them.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::Version;

use super::client_settings::{ClientSettings, STREAMS};
use crate::clock::Time;

/// The most clients with the same settings.
const MOST: usize = 64;

/// How long after a failure no further client is built.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The clients with the same settings.
pub(super) struct Clients {
    pub(super) settings: ClientSettings,
    first: Arc<CountedClient>,
    /// Empty for most vendors.
    further: ArcSwap<Vec<Arc<CountedClient>>>,
    versions: Arc<SeenVersions>,
    /// Until when no further client is built, in nanoseconds of the clock.
    failed_until: AtomicU64,
}

struct CountedClient {
    client: reqwest::Client,
    under_way: AtomicUsize,
    versions: Arc<SeenVersions>,
}

impl CountedClient {
    fn new(client: reqwest::Client, versions: &Arc<SeenVersions>) -> Arc<CountedClient> {
        Arc::new(CountedClient { client, under_way: AtomicUsize::new(0), versions: versions.clone() })
    }

    fn count(&self) -> usize {
        self.under_way.load(Relaxed)
    }
}

impl Clients {
    pub(super) fn new(settings: ClientSettings, client: reqwest::Client) -> Clients {
        let versions = Arc::new(SeenVersions::default());
        Clients {
            settings,
            first: CountedClient::new(client, &versions),
            further: ArcSwap::default(),
            versions,
            failed_until: AtomicU64::new(0),
        }
    }

    /// Counts the next exchange at the first client that has room, so that the others become idle and their connections
    /// close. `None` if no client has room and a further one may be added.
    #[inline]
    pub(super) fn take(&self, is_https: bool) -> Option<UnderWay> {
        if self.settings.hosts_vary || !self.versions.may_be_http2(is_https) {
            // Each host, or each exchange, has a connection of its own anyway.
            return Some(UnderWay::at(&self.first).0);
        }
        UnderWay::if_room(&self.first).or_else(|| self.take_further())
    }

    fn take_further(&self) -> Option<UnderWay> {
        let further = self.further.load();
        let with_room = further.iter().find_map(UnderWay::if_room);
        with_room.or_else(|| (further.len() + 1 >= MOST).then(|| self.take_fewest()))
    }

    /// Counts the next exchange at the client that has the fewest under way.
    pub(super) fn take_fewest(&self) -> UnderWay {
        let further = self.further.load();
        let all = iter::once(&self.first).chain(further.iter());
        UnderWay::at(all.min_by_key(|client| client.count()).unwrap_or(&self.first)).0
    }

    /// Adds a client and counts the next exchange at it. The caller sees to it that no two are added at once.
    pub(super) fn add(&self, client: reqwest::Client) -> UnderWay {
        let added = CountedClient::new(client, &self.versions);
        let (under_way, _) = UnderWay::at(&added);
        let mut further = Vec::clone(&self.further.load());
        further.push(added);
        self.further.store(Arc::new(further));
        under_way
    }

    /// Notes that a further client could not be built.
    pub(super) fn failed(&self, now: Time) {
        self.failed_until.store((now + AFTER_FAILURE).as_nanos(), Relaxed);
    }

    /// Whether a further client may be built. After a failure it is not tried for every exchange, because it blocks its
    /// thread.
    pub(super) fn may_grow(&self, now: Time) -> bool {
        now.as_nanos() >= self.failed_until.load(Relaxed)
    }

    /// The number of clients.
    pub(super) fn len(&self) -> usize {
        1 + self.further.load().len()
    }
}

/// An exchange that counts at its client until this value is dropped, which its response's body does at its end.
pub(super) struct UnderWay(Arc<CountedClient>);

impl UnderWay {
    /// Also returns how many exchanges were under way before.
    fn at(client: &Arc<CountedClient>) -> (UnderWay, usize) {
        let before = client.under_way.fetch_add(1, Relaxed);
        (UnderWay(client.clone()), before)
    }

    fn if_room(client: &Arc<CountedClient>) -> Option<UnderWay> {
        // Looked at first, so that exchanges that go elsewhere do not write the count.
        if client.count() >= STREAMS {
            return None;
        }
        let (under_way, before) = UnderWay::at(client);
        // Another thread may have taken the last place.
        (before < STREAMS).then_some(under_way)
    }

    /// The client that makes the exchange.
    pub(super) fn client(&self) -> &reqwest::Client {
        &self.0.client
    }

    /// Records the version of HTTP of the response.
    pub(super) fn answered_by(&self, version: Version) {
        self.0.versions.saw(version);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}

/// The highest version of HTTP in which a response came: [`HTTP_1`], [`HTTP_2`], or 0 before the first one.
#[derive(Default)]
struct SeenVersions(AtomicU8);

const HTTP_1: u8 = 1;
const HTTP_2: u8 = 2;

impl SeenVersions {
    fn saw(&self, version: Version) {
        let seen = if version >= Version::HTTP_2 { HTTP_2 } else { HTTP_1 };
        // Written once or twice. The clients of a vendor may call several hosts, so HTTP/2 stays noted.
        if self.0.load(Relaxed) < seen {
            self.0.fetch_max(seen, Relaxed);
        }
    }

    /// Whether the next exchange may share its connection with others. Before the first response it may if TLS can
    /// negotiate HTTP/2.
    fn may_be_http2(&self, is_https: bool) -> bool {
        match self.0.load(Relaxed) {
            0 => is_https,
            seen => seen == HTTP_2,
        }
    }
}

#[cfg(test)]
mod tests;
