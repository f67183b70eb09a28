//! The lanes that a run pauses because of their keys: the vendor refuses the key, or the key is not there.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;
use std::time::Duration;

use integration_client::IntegrationClient;
use integration_client::clock::Time;
use integration_client::config::CredentialRef;

use super::feed::SAID;
use crate::key_files::{IsThere, KeyFiles, Missing, is_unset, is_unstated, keys, missing};
use crate::notes;
use crate::text::quoted;

/// The interval at which missing keys are looked for again: a file may be absent for a moment while it is replaced.
const AGAIN: Duration = Duration::from_secs(3);

/// What stands in messages in place of the reference to a key, if the configuration states none.
const UNSTATED: &str = "none is configured";

/// A tenant at a vendor.
pub(super) type Lane = (String, String);

/// Why a lane is paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyFault {
    /// The vendor answers 401.
    Refused,
    /// The variable is not set, there is no such file, or no credential is configured.
    Missing,
}

/// A lane that is paused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PausedLane {
    pub(super) lane: Lane,
    pub(super) fault: KeyFault,
    /// The reference to the key, or to each that may be meant, for messages; [`UNSTATED`] if there is none.
    pub(super) key: String,
}

#[derive(Default)]
struct State {
    is_quiet: bool,
    paused: BTreeMap<Lane, (KeyFault, String)>,
    /// The lanes whose keys were looked for.
    checked: HashSet<Lane>,
    /// The lanes that have jobs of this run. The store may hold jobs of other runs, which do not decide how this one
    /// ends.
    own: HashSet<Lane>,
    files: KeyFiles,
    /// The lanes whose key files are to be looked for next.
    due: BTreeSet<Lane>,
    /// The lanes whose key files are being looked for.
    looking: BTreeMap<Lane, Vec<(CredentialRef, IsThere)>>,
    /// When missing keys were last looked for again.
    looked: Option<Time>,
    /// A key file was found to be missing since the last call of [`PausedLanes::look_again`].
    is_new: bool,
    /// The run must not end before missing files are looked for at this time or later: one of them may be there again.
    looks_at: Option<Time>,
}

/// The lanes that are paused, until the run ends or a missing key is there. Clones share their content.
#[derive(Clone, Default)]
pub(super) struct PausedLanes(Rc<RefCell<State>>);

impl PausedLanes {
    pub(super) fn new(is_quiet: bool) -> PausedLanes {
        PausedLanes(Rc::new(RefCell::new(State { is_quiet, ..State::default() })))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().paused.is_empty()
    }

    pub(super) fn fault(&self, lane: &Lane) -> Option<KeyFault> {
        self.0.borrow().paused.get(lane).map(|(fault, _)| *fault)
    }

    /// Whether a lane is paused that has jobs of this run.
    pub(super) fn has_own(&self) -> bool {
        let state = self.0.borrow();
        state.paused.keys().any(|lane| state.own.contains(lane))
    }

    /// Whether a missing file is still to be looked for again, so that the run must not end because of it.
    pub(super) fn may_be_replaced(&self) -> bool {
        let state = self.0.borrow();
        state.is_new || state.looks_at.is_some()
    }

    /// The paused lanes that have jobs of this run.
    pub(super) fn own(&self) -> Vec<PausedLane> {
        let state = self.0.borrow();
        let of = |(lane, (fault, key)): (&Lane, &(KeyFault, String))| PausedLane {
            lane: lane.clone(),
            fault: *fault,
            key: key.clone(),
        };
        state.paused.iter().filter(|(lane, _)| state.own.contains(*lane)).map(of).collect()
    }

    /// Pauses a lane with jobs of this run if its key is not there. Called before its first job is accepted.
    pub(super) async fn check(&self, tenant: &str, vendor: &str, client: &IntegrationClient) {
        let is_new = self.0.borrow_mut().own.insert((tenant.to_owned(), vendor.to_owned()));
        if is_new {
            self.check_of_others(tenant, vendor, client).await;
        }
    }

    /// Pauses a lane if its key is not there; the store may hold only jobs of other runs for it. Each lane is checked
    /// once: a key that vanishes later makes a job fail, and [`pause_if_missing`](Self::pause_if_missing) is called.
    pub(super) async fn check_of_others(&self, tenant: &str, vendor: &str, client: &IntegrationClient) {
        let is_new = self.0.borrow_mut().checked.insert((tenant.to_owned(), vendor.to_owned()));
        let files = self.0.borrow().files.clone();
        if is_new && let Some(missing) = missing(&files, client, tenant, vendor).await {
            self.pause_missing(tenant, vendor, &missing, client);
        }
    }

    /// Pauses the lane if a key of it, which could not be read, is not there or not configured. Returns whether that is
    /// said, or will be: a file is looked for by the next calls of [`look_again`](Self::look_again).
    pub(super) fn pause_if_missing(&self, tenant: &str, vendor: &str, client: &IntegrationClient) -> bool {
        let lane = (tenant.to_owned(), vendor.to_owned());
        if self.fault(&lane).is_some() {
            return true;
        }
        if is_unstated(client, tenant, vendor) {
            return self.pause_missing(tenant, vendor, &Missing::Unstated, client);
        }
        let keys = keys(client, tenant, vendor);
        if let Some(key) = keys.iter().find(|key| is_unset(key)) {
            return self.pause_missing(tenant, vendor, &Missing::Key(key.clone()), client);
        }
        let has_files = keys.iter().any(|key| matches!(key, CredentialRef::File(_)));
        if has_files {
            self.0.borrow_mut().due.insert(lane);
        }
        has_files
    }

    /// Pauses a lane whose key is not there, and says so. Returns whether it was not paused before and is now.
    fn pause_missing(&self, tenant: &str, vendor: &str, missing: &Missing, client: &IntegrationClient) -> bool {
        let lane = (tenant.to_owned(), vendor.to_owned());
        let key = match missing {
            Missing::Unstated => UNSTATED.to_owned(),
            Missing::Key(key) => key.to_string(),
        };
        if !self.pause_because_of(lane, KeyFault::Missing, key, client) {
            return false;
        }
        let what = missing.said();
        let is_own = self.0.borrow().own.contains(&(tenant.to_owned(), vendor.to_owned()));
        let (is_quiet, lanes) = (self.0.borrow().is_quiet, self.0.borrow().paused.len() as u64);
        match lanes {
            _ if is_quiet => {}
            ..=SAID if !is_own => notes::say(&format!(
                "run: {tenant} at {vendor}: {what}. Its jobs of other runs in this store are not sent"
            )),
            ..=SAID => notes::say(&format!(
                "run: {tenant} at {vendor}: {what}. None of its jobs is sent; those with a deadline expire, the others wait: \
                 correct it and run the same command again"
            )),
            _ if lanes == SAID + 1 => notes::say("run: the keys of more tenants are not there"),
            _ => {}
        }
        true
    }

    /// Pauses the lane. Returns whether it was not paused before and is now.
    pub(super) fn pause(&self, lane: Lane, fault: KeyFault, client: &IntegrationClient) -> bool {
        let key = credential(client, &lane.0, &lane.1);
        self.pause_because_of(lane, fault, key, client)
    }

    fn pause_because_of(&self, lane: Lane, fault: KeyFault, key: String, client: &IntegrationClient) -> bool {
        if self.fault(&lane).is_some() || client.tenants().pause(&lane.0, &lane.1).is_err() {
            return false;
        }
        let mut state = self.0.borrow_mut();
        if fault == KeyFault::Missing && key.starts_with("file:") {
            state.is_new = true;
        }
        state.paused.insert(lane, (fault, key));
        true
    }

    /// Lets the lanes go on whose keys were missing and are there now, and pauses those whose key could not be read and
    /// is missing. Called often: it begins looks at intervals, waits for none, and handles those that have ended.
    pub(super) fn look_again(&self, now: Time, client: &IntegrationClient) {
        self.begin_looks(now, client);
        let ended: Vec<(Lane, Option<CredentialRef>)> = {
            let mut state = self.0.borrow_mut();
            let look = |(lane, looks): (&Lane, &Vec<(CredentialRef, IsThere)>)| Some((lane.clone(), gone(looks)?));
            let ended: Vec<_> = state.looking.iter().filter_map(look).collect();
            ended.iter().for_each(|(lane, _)| drop(state.looking.remove(lane)));
            ended
        };
        for (lane, gone) in ended {
            match (self.fault(&lane), gone) {
                (Some(KeyFault::Missing), None) => self.go_on(&lane, client),
                (None, None) => self.say_unread(&lane, client),
                (None, Some(key)) => {
                    self.pause_missing(&lane.0, &lane.1, &Missing::Key(key), client);
                }
                _ => {}
            }
        }
        let mut state = self.0.borrow_mut();
        let is_done = state.due.is_empty() && state.looking.is_empty();
        // A look that does not end must not keep the run from its end.
        let is_over = |at: Time| (is_done && state.looked.is_some_and(|looked| looked >= at)) || now >= at + AGAIN;
        if state.looks_at.is_some_and(is_over) {
            state.looks_at = None;
        }
    }

    /// Begins the looks that are due. The interval begins when the first key was found to be missing; keys that are
    /// found to be missing later do not move it.
    fn begin_looks(&self, now: Time, client: &IntegrationClient) {
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        if std::mem::take(&mut state.is_new) {
            state.looks_at = Some(now + AGAIN);
        }
        if state.paused.is_empty() {
            state.looked = None;
        } else if now.since(*state.looked.get_or_insert(now)) >= AGAIN && state.due.is_empty() {
            state.looked = Some(now);
            let missing = state.paused.iter().filter(|(_, (fault, _))| *fault == KeyFault::Missing);
            state.due.extend(missing.map(|(lane, _)| lane.clone()));
        }
        while !state.due.is_empty() && !state.files.is_full() {
            let Some(lane) = state.due.pop_first() else { return };
            if state.looking.contains_key(&lane) {
                continue;
            }
            let keys = keys(client, &lane.0, &lane.1);
            if is_unstated(client, &lane.0, &lane.1) || keys.iter().any(is_unset) {
                continue;
            }
            // The configuration may name other keys now, and no file.
            let files = &state.files;
            let looks = keys.into_iter().filter_map(|key| match &key {
                CredentialRef::File(path) => Some(files.look(path).map(|is_there| (key.clone(), is_there))),
                _ => None,
            });
            let looks: Option<Vec<(CredentialRef, IsThere)>> = looks.collect();
            if let Some(looks) = looks {
                state.looking.insert(lane, looks);
            }
        }
    }

    /// Lets a lane go on whose key is there. Pauses that its vendor asked for stay.
    fn go_on(&self, lane: &Lane, client: &IntegrationClient) {
        let (tenant, vendor) = lane;
        if client.tenants().unpause(tenant, vendor).is_err() {
            return;
        }
        let (is_quiet, paused) = {
            let mut state = self.0.borrow_mut();
            (state.is_quiet, state.paused.remove(lane))
        };
        if let Some((_, key)) = paused.filter(|_| !is_quiet) {
            let key = if key == UNSTATED { "its credential" } else { key.as_str() };
            notes::say(&format!("run: {tenant} at {vendor}: {key} is there now. Its jobs are sent"));
        }
    }

    fn say_unread(&self, (tenant, vendor): &Lane, client: &IntegrationClient) {
        if !self.0.borrow().is_quiet {
            let key = credential(client, tenant, vendor);
            notes::now_and_then(&format!(
                "run: {tenant} at {vendor}: {key} cannot be read. Its jobs wait, and are tried again"
            ));
        }
    }
}

/// The first file of these that was found not to exist, if any; `None` until all looks have ended.
fn gone(looks: &[(CredentialRef, IsThere)]) -> Option<Option<CredentialRef>> {
    let mut gone = None;
    for (key, is_there) in looks {
        let is_there = (*is_there.borrow())?;
        if !is_there && gone.is_none() {
            gone = Some(key.clone());
        }
    }
    Some(gone)
}

/// The reference to the secret in the configuration, for messages; with `secret_headers` all that may be meant.
pub(super) fn credential(client: &IntegrationClient, tenant: &str, vendor: &str) -> String {
    let Ok(tenant) = client.config().current().tenant(tenant, vendor) else { return "the credential".to_owned() };
    let mut stated: Vec<String> = tenant.credential.iter().map(ToString::to_string).collect();
    if tenant.oauth.is_some() || (stated.is_empty() && tenant.all_secret_headers().next().is_none()) {
        stated.push("the credential".to_owned());
    }
    stated.extend(tenant.all_secret_headers().map(|header| header.secret.to_string()));
    stated.join(" or ")
}

/// The shell command that makes jobs again of the dead letters with a reason: all, or those of a lane with the status
/// that the vendor answered last. `options` select the run's letters.
pub(super) fn redrive(reason: &str, of: Option<(u16, &Lane)>, options: &str) -> String {
    let of = of.map_or_else(String::new, |(status, (tenant, vendor))| {
        format!(" --status {status} --tenant {} --vendor {}", quoted(tenant), quoted(vendor))
    });
    format!("integration-client dead-letters redrive --all --reason {reason}{of}{options}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redrive_names_only_the_letters_of_its_lane() {
        let lane = ("acme".to_owned(), "parcels".to_owned());
        assert_eq!(
            redrive("rejected", Some((401, &lane)), " --run 0198 --store 'my jobs.sqlite'"),
            "integration-client dead-letters redrive --all --reason rejected --status 401 --tenant acme --vendor parcels \
             --run 0198 --store 'my jobs.sqlite'"
        );
        assert_eq!(
            redrive("exhausted", None, " --store s.sqlite"),
            "integration-client dead-letters redrive --all --reason exhausted --store s.sqlite"
        );
    }
}
