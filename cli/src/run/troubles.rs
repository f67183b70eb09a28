//! Reports problems with vendors and tenants while jobs are sent, and pauses lanes whose credentials are refused.

use std::collections::{HashMap, HashSet};

use integration_client::events::{Event, EventKind};
use integration_client::{ErrorKind, IntegrationClient};

use super::results::Results;

/// After this many 401 responses in a row, each after the credential was read again, the lane is paused: the vendor
/// does not accept the key. More requests could look like an attack to the vendor, and would make dead letters of valid
/// jobs.
const REFUSED_KEYS: u32 = 10;

/// A tenant at a vendor.
type Lane = (String, String);

/// The credentials that vendors refuse.
#[derive(Default)]
pub(super) struct Troubles {
    /// The number of 401 responses in a row.
    in_a_row: HashMap<Lane, u32>,
    /// The lanes that are paused because their key is refused.
    refused: HashSet<Lane>,
}

impl Troubles {
    /// Handles an event. Returns a message if the event is a problem that the user should know of.
    pub(super) fn hear(&mut self, event: &Event, client: &IntegrationClient) -> Option<String> {
        if let EventKind::Breaker { host, open: true, .. } = &event.kind {
            return Some(format!(
                "run: {host}: no connection can be made; is the base URL right? Its jobs wait, and are tried again"
            ));
        }
        let (tenant, vendor) = (event.tenant.as_deref()?, event.vendor.as_deref()?);
        let what = match &event.kind {
            EventKind::Completed { status, .. } if status.as_u16() == 401 => return self.key(tenant, vendor, client),
            // The fast path: of a million jobs, most end here.
            EventKind::Completed { .. } if self.in_a_row.is_empty() => return None,
            EventKind::Completed { .. } => {
                self.in_a_row.remove(&(tenant.to_owned(), vendor.to_owned()));
                return None;
            }
            EventKind::Failed { kind, .. } => match kind {
                ErrorKind::Connect => "no connection can be made; is its base URL right?".to_owned(),
                ErrorKind::Tls => "its certificate is not good.".to_owned(),
                ErrorKind::Credential => format!("{} cannot be read; is it there?", credential(client, tenant, vendor)),
                ErrorKind::Timeout => "it does not answer in time.".to_owned(),
                ErrorKind::Protocol => "it breaks connections, or speaks no HTTP.".to_owned(),
                _ => return None,
            },
            _ => return None,
        };
        Some(format!("run: {tenant} at {vendor}: {what} Its jobs wait, and are tried again"))
    }

    /// Counts a 401 response. Pauses the lane after [`REFUSED_KEYS`] of them in a row, and returns the message for the
    /// user.
    fn key(&mut self, tenant: &str, vendor: &str, client: &IntegrationClient) -> Option<String> {
        let lane = (tenant.to_owned(), vendor.to_owned());
        let times = self.in_a_row.entry(lane.clone()).or_default();
        *times += 1;
        if *times < REFUSED_KEYS || self.refused.contains(&lane) {
            return None;
        }
        client.tenants().pause(tenant, vendor).ok()?;
        self.refused.insert(lane);
        let credential = credential(client, tenant, vendor);
        Some(format!(
            "run: {tenant} at {vendor}: the key is refused with 401, {REFUSED_KEYS} times in a row; is {credential} right? \
             The rest of its jobs waits"
        ))
    }

    /// Why the run cannot go on, if only jobs are left whose keys are refused.
    pub(super) fn in_the_way(&self, results: &Results, client: &IntegrationClient, store: &str) -> Option<String> {
        if self.refused.is_empty() {
            return None;
        }
        let left = results.left_by_lane();
        let is_refused = |tenant: &String, vendor: &String| self.refused.contains(&(tenant.clone(), vendor.clone()));
        if left.is_empty() || !left.iter().all(|((tenant, vendor, _), _)| is_refused(tenant, vendor)) {
            return None;
        }
        let mut lanes: Vec<String> =
            self.refused.iter().map(|(tenant, vendor)| format!("{tenant} at {vendor}")).collect();
        lanes.sort();
        (client.in_flight() == 0).then(|| {
            format!(
                "the key is refused of {}. Mend it and run the same command again: it sends what waits, and, after \
                 `integration-client dead-letters redrive --all --store {store}`, what was refused",
                lanes.join(" and ")
            )
        })
    }
}

/// The reference to the secret in the configuration, for messages.
fn credential(client: &IntegrationClient, tenant: &str, vendor: &str) -> String {
    let tenant = client.config().current().tenant(tenant, vendor).ok();
    let stated = tenant.and_then(|tenant| tenant.credential.as_ref().map(|credential| format!("{credential}")));
    stated.map_or_else(|| "the credential".to_owned(), |stated| format!("the credential {stated}"))
}
