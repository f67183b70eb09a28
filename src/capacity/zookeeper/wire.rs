//! The messages between ZooKeeper's clients and servers: frames of a length and that many bytes; numbers with the
//! highest byte first; texts and data preceded by their length. Pure.
//!
//! <https://github.com/apache/zookeeper/blob/branch-3.8/zookeeper-jute/src/main/resources/zookeeper.jute> lists the
//! fields. This file has only what the pool needs: a session, and five requests.

use bytes::{Buf, Bytes, BytesMut};

/// The largest frame that is read; no answer to the pool is larger. Servers accept 1 MiB unless configured otherwise.
const MAX_FRAME: usize = 16 << 20;
/// All rights on a node.
const ALL: i32 = 31;
/// The numbers of messages that answer no request: a change of a node, and an answer to a ping.
const NO_REQUEST: [i32; 2] = [-1, -2];
/// The number of the request that logs a user in.
const AUTH: i32 = -4;

/// Errors in an answer.
pub(super) const NO_NODE: i32 = -101;
pub(super) const NO_RIGHT: i32 = -102;
pub(super) const BAD_VERSION: i32 = -103;
pub(super) const NODE_EXISTS: i32 = -110;
pub(super) const QUOTA: i32 = -125;

/// A request without its number (xid).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    kind: i32,
    body: Vec<u8>,
}

/// The owner of the nodes that a client creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Everybody,
    /// The user that the client has logged in as.
    User,
}

impl Request {
    /// Makes the server catch up with writes on other servers before it answers the next request.
    pub(super) fn sync(path: &str) -> Request {
        Request { kind: 9, body: texts(&[path]) }
    }

    pub(super) fn get(path: &str) -> Request {
        // The 0 asks for no notice of changes to the node.
        Request { kind: 4, body: [texts(&[path]), vec![0]].concat() }
    }

    /// Writes a node if it has this version; -1 matches any.
    pub(super) fn set(path: &str, data: &str, version: i32) -> Request {
        Request { kind: 5, body: [texts(&[path, data]), number(version)].concat() }
    }

    /// Creates a persistent node.
    pub(super) fn create(path: &str, data: &str, access: Access) -> Request {
        let (scheme, id) = match access {
            Access::Everybody => ("world", "anyone"),
            Access::User => ("auth", ""),
        };
        let acl = [number(1), number(ALL), texts(&[scheme, id])].concat();
        Request { kind: 1, body: [texts(&[path, data]), acl, number(0)].concat() }
    }

    /// The frame that sends this request.
    pub(super) fn frame(&self, xid: i32) -> Vec<u8> {
        frame(&[number(xid), number(self.kind), self.body.clone()].concat())
    }
}

/// The first frame of a connection, which asks for a new session.
pub(super) fn hello(timeout_ms: i32) -> Vec<u8> {
    let (version, last_seen, no_session) = (number(0), [0; 8], [0; 8]);
    let password = texts(&["\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"]);
    frame(&[version, last_seen.to_vec(), number(timeout_ms), no_session.to_vec(), password].concat())
}

/// Logs a user in.
pub(super) fn login(user: &str, password: &str) -> Vec<u8> {
    let body = [number(0), texts(&["digest", &format!("{user}:{password}")])].concat();
    frame(&[number(AUTH), number(100), body].concat())
}

/// Ends the session.
pub(super) fn goodbye() -> Vec<u8> {
    frame(&[number(0), number(-11)].concat())
}

/// Whether the server has opened a session.
pub(super) fn is_welcome(mut frame: Bytes) -> bool {
    frame.try_get_i32().is_ok() && frame.try_get_i32().is_ok_and(|timeout_ms| timeout_ms > 0)
}

/// An answer of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) xid: i32,
    pub(super) result: Result<Bytes, i32>,
}

impl Reply {
    /// Parses an answer. `None` if the frame is not one.
    pub(super) fn read(mut frame: Bytes) -> Option<Reply> {
        let (xid, _) = (frame.try_get_i32().ok()?, frame.try_get_i64().ok()?);
        let error = frame.try_get_i32().ok()?;
        Some(Reply { xid, result: if error == 0 { Ok(frame) } else { Err(error) } })
    }

    /// Whether no request waits for this answer.
    pub(super) fn is_unasked(&self) -> bool {
        NO_REQUEST.contains(&self.xid)
    }
}

/// A node's content and state.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) data: Vec<u8>,
    pub(super) stat: Stat,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// When the node was written, in milliseconds since 1970, by the clock of the server that was the leader then.
    pub(super) written_ms: u64,
    pub(super) version: i32,
}

impl Node {
    /// Parses the answer to [`Request::get`]. `None` if the body is not one.
    pub(super) fn read(mut body: Bytes) -> Option<Node> {
        let length = usize::try_from(body.try_get_i32().ok()?.max(0)).ok()?;
        let data = (length <= body.len()).then(|| body.split_to(length).to_vec())?;
        Some(Node { data, stat: Stat::read(body)? })
    }
}

impl Stat {
    /// Parses the answer to [`Request::set`]. `None` if the body is not one.
    pub(super) fn read(mut body: Bytes) -> Option<Stat> {
        // Skips the ids of the transactions that created and last wrote the node, and the time of its creation.
        let _before = (body.try_get_i64().ok()?, body.try_get_i64().ok()?, body.try_get_i64().ok()?);
        let written_ms = u64::try_from(body.try_get_i64().ok()?).unwrap_or_default();
        Some(Stat { written_ms, version: body.try_get_i32().ok()? })
    }
}

/// Removes the first complete frame from the received bytes. `None` if it is not complete yet.
///
/// # Errors
/// The bytes do not begin with a valid length.
pub(super) fn take_frame(received: &mut BytesMut) -> Result<Option<Bytes>, &'static str> {
    let Some(length) = received.first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(i32::from_be_bytes(*length)).ok().filter(|length| *length <= MAX_FRAME);
    let length = length.ok_or("the answer is none of ZooKeeper's")?;
    if received.len().saturating_sub(4) < length {
        return Ok(None);
    }
    received.advance(4);
    Ok(Some(received.split_to(length).freeze()))
}

fn number(number: i32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn texts(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| [&length(text.len())[..], text.as_bytes()].concat()).collect()
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&length(body.len())[..], body].concat()
}

/// Saturates: the server refuses a text of such a length, since it accepts far less.
fn length(length: usize) -> [u8; 4] {
    i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests;
