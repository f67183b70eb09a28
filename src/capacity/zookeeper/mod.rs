//! The pool in ZooKeeper: one node per limit, written if its version is still the one that was read.
//!
//! Each read is preceded by `sync`, because a server may lag behind others. ZooKeeper's answers have no date, but state
//! when a node was written. So the current date is that of this process's last write, plus the time that has passed
//! since by the process's clock.

mod session;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio::sync::{mpsc, oneshot};

use self::session::{Address, QUEUE, Question, Task};
use self::wire::{Access, Node, Request, Stat};
use super::clockless::{Answered, Clockless, Found, Swaps};
use crate::BoxFuture;
use crate::clock::{Clock, Time};
use crate::error::Error;

/// The parent of all nodes, unless the URL has a path.
const PREFIX: &str = "/integration-client";
/// The node that is written to learn the date.
const CLOCK: &str = "clock";
/// What is not escaped in the name of a node. A limit's name may contain a `/`.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');
/// A write that took longer is not used to tell the date, because the moment at which it was made is not known
/// precisely enough.
const EXACT: Duration = Duration::from_secs(1);
/// After this time the date is learnt again. Two computers' clocks may run apart by 200 millionths: less than a second
/// in this time.
const GOOD_FOR: Duration = Duration::from_secs(3_600);

/// The pool in ZooKeeper.
pub(crate) type Zookeeper = Clockless<Ensemble>;

pub(crate) struct Ensemble {
    questions: mpsc::Sender<Question>,
    prefix: String,
    access: Access,
    clock: Clock,
    dated: Mutex<Option<Dated>>,
    /// Whether a read of this process is asking ZooKeeper for the date.
    probing: AtomicBool,
}

/// A write of this process, from which the date follows.
#[derive(Clone, Copy, Debug)]
struct Dated {
    written_ms: u64,
    /// When the process sent the write.
    asked: Time,
    /// The wall clock's reading, at that moment, of the zero of the monotonic clock.
    epoch: SystemTime,
}

impl Dated {
    /// The date in seconds: the true one, or up to [`EXACT`] later. `None` if it has to be learnt again: after
    /// [`GOOD_FOR`], or if the wall clock and the monotonic clock have drifted apart, as when the machine was
    /// suspended.
    fn date(self, now: Time, epoch: SystemTime) -> Option<u64> {
        let since = now.since(self.asked);
        let since_ms = u64::try_from(since.as_millis()).ok()?;
        let apart = epoch.duration_since(self.epoch).unwrap_or_else(|earlier| earlier.duration());
        let is_good = since < GOOD_FOR && apart < EXACT && self.written_ms > 0;
        is_good.then(|| self.written_ms.saturating_add(since_ms) / 1_000)
    }
}

/// Opens the pool at `zk://[user:password@]host:port[,host:port]…[/path]`. Returns the pool and the task that must be
/// spawned.
pub(super) async fn open(url: &str) -> Result<(Zookeeper, BoxFuture<'static, ()>), Error> {
    let failed = |why: String| Error::config(format!("sharing through ZooKeeper: {why}"));
    let (address, prefix) = read(url).map_err(failed)?;
    let clock = Clock::system();
    let (questions, asked) = mpsc::channel(QUEUE);
    let access = if address.user.is_some() { Access::User } else { Access::Everybody };
    let mut task: BoxFuture<'static, ()> = Box::pin(Task::new(address, asked, clock).run());
    let (dated, probing) = (Mutex::default(), AtomicBool::new(false));
    let ensemble = Ensemble { questions, prefix, access, clock, dated, probing };
    // Fails now if the servers are unreachable or rights are missing.
    let probed = tokio::select! {
        probed = ensemble.probe() => probed,
        () = &mut task => Err("the connection ended".to_owned()),
    };
    probed.map_err(failed)?;
    Ok((Clockless::new(ensemble), task))
}

/// Parses a URL into its servers, its user and its path.
fn read(url: &str) -> Result<(Address, String), String> {
    let rest = url.strip_prefix("zk://").ok_or("the URL begins with zk://")?;
    if rest.contains(['?', '#']) {
        return Err("the URL has no query: zk://host:2181,host:2181/path".to_owned());
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, authority),
    };
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let user = match user.map(|user| user.split_once(':')) {
        None => None,
        Some(Some((name, password))) if !name.is_empty() => Some((decoded(name), decoded(password))),
        Some(_) => return Err("the URL names a user without a password: zk://user:password@host:2181".to_owned()),
    };
    let server = |host: &str| {
        // An IPv6 address has colons between brackets.
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse::<u16>().ok()),
            _ => (host, Some(2_181)),
        };
        let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
        port.filter(|_| is_name).map(|port| format!("{name}:{port}"))
    };
    let servers: Option<Vec<String>> = hosts.split(',').map(server).collect();
    let servers = servers.ok_or("the URL is zk://host:2181,host:2181/path")?;
    let path = path.trim_matches('/');
    let is_node =
        |part: &str| !part.is_empty() && !matches!(part, "." | "..") && part.chars().all(|c| c.is_ascii_graphic());
    if path.is_empty() {
        return Ok((Address { servers, user }, PREFIX.to_owned()));
    }
    if !path.split('/').all(is_node) || path == "zookeeper" || path.starts_with("zookeeper/") {
        return Err("the path of the URL can be no path of nodes: use letters, digits, `-` and `/`".to_owned());
    }
    Ok((Address { servers, user }, format!("/{path}")))
}

/// Clears [`Ensemble::probing`] when it is dropped.
struct Probing<'a>(&'a AtomicBool);

impl Drop for Probing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Ensemble {
    fn path(&self, limit: &str) -> String {
        format!("{}/limit-{}", self.prefix, utf8_percent_encode(limit, PLAIN))
    }

    async fn ask<const COUNT: usize>(&self, requests: [Request; COUNT]) -> Result<[Result<Bytes, i32>; COUNT], String> {
        let (reply, answer) = oneshot::channel();
        let closed = || "the connection ended".to_owned();
        let question = Question { requests: requests.into(), reply };
        self.questions.send(question).await.map_err(|_| closed())?;
        let answers = answer.await.map_err(|_| closed())??;
        answers.try_into().map_err(|_| closed())
    }

    /// Learns the date by writing a node.
    async fn probe(&self) -> Result<(), String> {
        let path = format!("{}/{CLOCK}", self.prefix);
        if self.set(&path, "", -1).await? != Ok(()) {
            self.create(&path, "").await?;
            self.set(&path, "", -1).await?.map_err(|error| self.in_words(error))?;
        }
        Ok(())
    }

    /// Writes an existing node. Returns the server's error if it was not written.
    async fn set(&self, path: &str, text: &str, version: i32) -> Result<Result<(), i32>, String> {
        let (asked, epoch) = (self.clock.now(), self.clock.epoch());
        let [answer] = self.ask([Request::set(path, text, version)]).await?;
        let body = match answer {
            Ok(body) => body,
            Err(error) => return Ok(Err(error)),
        };
        let stat = Stat::read(body).ok_or("the answer is none of ZooKeeper's")?;
        if self.clock.now().since(asked) < EXACT {
            *self.dated.lock() = Some(Dated { written_ms: stat.written_ms, asked, epoch });
        }
        Ok(Ok(()))
    }

    /// Creates a node and its parents. Returns `false` if the node exists already.
    async fn create(&self, path: &str, text: &str) -> Result<bool, String> {
        let is_new = |answer| match answer {
            Ok(_) => Ok(true),
            Err(wire::NODE_EXISTS) => Ok(false),
            Err(error) => Err(error),
        };
        let [answer] = self.ask([Request::create(path, text, self.access)]).await?;
        match is_new(answer) {
            Ok(is_new) => return Ok(is_new),
            Err(wire::NO_NODE) => {}
            Err(error) => return Err(self.in_words(error)),
        }
        let mut has_no_right = false;
        for (end, _) in self.prefix.match_indices('/').skip(1).chain([(self.prefix.len(), "")]) {
            let above = self.prefix.get(..end).unwrap_or_default();
            let [answer] = self.ask([Request::create(above, "", self.access)]).await?;
            match is_new(answer) {
                Ok(_) => {}
                // The parent may exist all the same: a server checks the rights above a node first.
                Err(wire::NO_RIGHT) => has_no_right = true,
                Err(error) => return Err(self.in_words(error)),
            }
        }
        let [answer] = self.ask([Request::create(path, text, self.access)]).await?;
        is_new(answer).map_err(|error| match error {
            wire::NO_NODE if has_no_right => self.in_words(wire::NO_RIGHT),
            error => self.in_words(error),
        })
    }

    /// The date, if it is known.
    fn date(&self) -> Option<u64> {
        let dated = *self.dated.lock();
        dated?.date(self.clock.now(), self.clock.epoch())
    }

    /// The date. One read at a time learns it; reads that come meanwhile go on without a date.
    async fn learnt_date(&self) -> Result<Option<u64>, String> {
        let known = self.date();
        if known.is_some() || self.probing.swap(true, Ordering::Relaxed) {
            return Ok(known);
        }
        // Clears the flag even if this future is dropped while it waits.
        let _probing = Probing(&self.probing);
        self.probe().await?;
        Ok(self.date())
    }

    fn in_words(&self, error: i32) -> String {
        let prefix = &self.prefix;
        match error {
            wire::NO_RIGHT => {
                format!(
                    "the user needs the rights to create, read and write nodes below {prefix}, or its password is wrong"
                )
            }
            wire::NO_NODE => format!("the node {prefix} was deleted meanwhile"),
            wire::QUOTA => format!("the quota of the node {prefix} is used up"),
            error => format!("the server answered with its error {error}"),
        }
    }
}

impl Swaps for Ensemble {
    async fn read(&self, limit: &str) -> Result<Answered, String> {
        let date = self.learnt_date().await?;
        let path = self.path(limit);
        let [synced, got] = self.ask([Request::sync(&path), Request::get(&path)]).await?;
        synced.map_err(|error| self.in_words(error))?;
        let body = match got {
            Ok(body) => body,
            Err(wire::NO_NODE) => return Ok(Answered { found: None, date }),
            Err(error) => return Err(self.in_words(error)),
        };
        let Node { data, stat } = Node::read(body).ok_or("the answer is none of ZooKeeper's")?;
        // A value that is not text is not a ledger: `?` makes the ledger count as lost.
        let text = String::from_utf8(data).unwrap_or_else(|_| "?".to_owned());
        Ok(Answered { found: Some(Found { text, version: stat.version.to_string() }), date })
    }

    async fn write(&self, limit: &str, text: String, version: Option<&str>) -> Result<bool, String> {
        let path = self.path(limit);
        let Some(version) = version else { return self.create(&path, &text).await };
        // A version of -1 would match any version, so an invalid one becomes a version that matches none.
        let version = version.parse().unwrap_or(i32::MIN);
        match self.set(&path, &text, version).await? {
            Ok(()) => Ok(true),
            Err(wire::BAD_VERSION | wire::NO_NODE) => Ok(false),
            Err(error) => Err(self.in_words(error)),
        }
    }
}

#[cfg(test)]
mod tests;
