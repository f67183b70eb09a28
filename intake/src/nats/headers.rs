//! The headers of messages: the id that they give a message, and those of the copy of a refused message. Pure.

use async_nats::{HeaderMap, HeaderValue};

use crate::reason;

/// The header of a refused message that holds the reason.
const WHY: &str = "X-Refused-Because";
/// The header in which a publisher puts the id of a message.
const MESSAGE_ID: &str = "Nats-Msg-Id";
/// The header of a refused message that holds the id which its publisher gave it.
const REFUSED_ID: &str = "X-Refused-Id";
/// The header of a refused message that was not stored whole: the number of bytes of its content.
const WAS_CUT: &str = "X-Refused-Cut";
/// How the names of headers begin that tell the server what to do with a message.
const OF_SERVER: &str = "Nats-";
/// Bytes of the headers of a message, the most that a stream takes.
const LONGEST: usize = 65_535;

/// The id by which a redelivered message is recognised: its publisher's, or else its sequence number in the stream.
pub(super) fn id(headers: Option<&HeaderMap>, sequence: Option<u64>) -> Option<String> {
    match (given_id(headers), sequence) {
        (Some(id), _) => Some(format!("id:{id}")),
        (None, Some(sequence)) => Some(format!("seq:{sequence}")),
        (None, None) => None,
    }
}

/// The id that the publisher gave a message. An empty id is none: all messages with it would be the same.
fn given_id(headers: Option<&HeaderMap>) -> Option<&str> {
    headers?.get(MESSAGE_ID).map(HeaderValue::as_str).filter(|id| !id.is_empty())
}

/// The headers of the copy of a refused message, and the bytes of its content that the copy has. `id` is the id of the
/// copy, `length` is the length of the content, and `most` are the bytes of headers and content that can be stored.
pub(super) fn of_refused(
    own: Option<&HeaderMap>,
    why: &str,
    id: Option<&str>,
    length: usize,
    most: usize,
) -> (HeaderMap, usize) {
    let why = reason::line(why);
    let mark = |headers: &mut HeaderMap| {
        headers.insert(WHY, why.as_str());
        // Two refused messages may have the same id. The server would drop the second as a repetition of the first.
        id.into_iter().for_each(|id| headers.insert(MESSAGE_ID, id));
    };
    let mut headers = copied(own);
    given_id(own).into_iter().for_each(|id| headers.insert(REFUSED_ID, id));
    mark(&mut headers);
    if size(&headers) <= LONGEST && size(&headers).saturating_add(length) <= most {
        return (headers, length);
    }
    headers.insert(WAS_CUT, length.to_string());
    // The reason matters more than the message's own headers.
    if size(&headers) > LONGEST.min(most / 2) {
        headers = HeaderMap::new();
        mark(&mut headers);
        headers.insert(WAS_CUT, length.to_string());
    }
    let room = most.saturating_sub(size(&headers));
    (headers, room.min(length))
}

/// A message's own headers without those for the server: it would refuse the copy, which is in another stream than the
/// publisher expected, or delete it early.
fn copied(own: Option<&HeaderMap>) -> HeaderMap {
    let mut copy = HeaderMap::new();
    for (name, values) in own.into_iter().flat_map(HeaderMap::iter) {
        if !is_for_server(name.as_ref()) {
            values.iter().for_each(|value| copy.append(name.clone(), value.clone()));
        }
    }
    copy
}

/// Names that differ from the server's in case only are left out too: another version of it may know them.
fn is_for_server(name: &str) -> bool {
    name.get(..OF_SERVER.len()).is_some_and(|start| start.eq_ignore_ascii_case(OF_SERVER))
}

/// Bytes of the headers as they are sent.
fn size(headers: &HeaderMap) -> usize {
    let of_header = headers.iter().map(|(name, values)| {
        let name: &str = name.as_ref();
        values.iter().map(|value| name.len() + ": \r\n".len() + value.as_str().len()).sum::<usize>()
    });
    "NATS/1.0\r\n\r\n".len() + of_header.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(headers: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        headers.iter().for_each(|(name, value)| map.append(*name, *value));
        map
    }

    #[test]
    fn empty_id_is_no_id() {
        let id_of = |given: &str| id(Some(&with(&[(MESSAGE_ID, given)])), Some(3));
        assert_eq!((id_of("7").as_deref(), id_of("").as_deref()), (Some("id:7"), Some("seq:3")));
        assert_eq!((id(None, Some(3)).as_deref(), id(None, None)), (Some("seq:3"), None));
    }

    #[test]
    fn copy_has_no_headers_for_the_server() {
        let for_server = ["Nats-Expected-Stream", "Nats-Expected-Last-Sequence", "Nats-Rollup", "nats-ttl"];
        let mut own = with(&[("Own", "1"), ("Own", "2"), (MESSAGE_ID, "7")]);
        for_server.iter().for_each(|name| own.insert(*name, "1"));
        let (headers, length) = of_refused(Some(&own), "not\nJSON", Some("S:3"), 10, 1_000);
        let kept = [("Own", "1"), ("Own", "2"), (MESSAGE_ID, "S:3"), (REFUSED_ID, "7"), (WHY, "not JSON")];
        assert_eq!((headers, length), (with(&kept), 10));
        own.insert(MESSAGE_ID, "");
        assert!(of_refused(Some(&own), "", Some("S:3"), 10, 1_000).0.get(REFUSED_ID).is_none());
    }

    #[test]
    fn content_is_cut_to_what_can_be_stored() {
        const MOST: usize = 10_000;
        let own = with(&[("Own", "1")]);
        let refused = |length: usize| of_refused(Some(&own), "why", Some("S:3"), length, MOST);
        let whole = MOST - size(&refused(0).0);
        assert_eq!(refused(whole), (refused(0).0, whole));
        for length in [whole + 1, MOST, 9 * MOST] {
            let (headers, kept) = refused(length);
            assert_eq!(size(&headers) + kept, MOST, "{length}");
            let cut = headers.get(WAS_CUT).map(HeaderValue::as_str);
            assert_eq!((cut, headers.len()), (Some(length.to_string().as_str()), 4));
        }
    }

    #[test]
    fn headers_without_room_are_left_out() {
        let long = "x".repeat(LONGEST);
        let own = with(&[("Own", long.as_str()), (MESSAGE_ID, "7")]);
        let left = with(&[(WHY, "why"), (MESSAGE_ID, "S:3"), (WAS_CUT, "10")]);
        assert_eq!(of_refused(Some(&own), "why", Some("S:3"), 10, 1_000_000), (left, 10));
        assert_eq!(of_refused(Some(&own), "why", Some("S:3"), 10, 10).1, 0);
    }

    #[test]
    fn size_is_that_of_the_lines() {
        let lines = "NATS/1.0\r\nA: 1\r\nA: 22\r\nBc: 3\r\n\r\n";
        assert_eq!(size(&with(&[("A", "1"), ("A", "22"), ("Bc", "3")])), lines.len());
    }
}
