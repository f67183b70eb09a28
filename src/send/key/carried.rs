//! Finds the idempotency key in a request, and adds one: in a header, in the query or in the body.

use std::borrow::Cow;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::config::KeyCarrier;
use crate::request::{Request, Target};

/// The value that a request has at the place of the idempotency key.
#[derive(Debug, PartialEq)]
pub(super) enum Carried {
    Nothing,
    Key(Box<str>),
    /// A value that cannot be a key.
    Other,
}

/// The place of the key in words, for errors.
pub(super) fn place(carrier: &KeyCarrier) -> impl fmt::Display + '_ {
    let (what, name) = match carrier {
        KeyCarrier::Header(name) => ("the header", name),
        KeyCarrier::Query(name) => ("the query parameter", name),
        KeyCarrier::Body(name) => ("the member of its body", name),
    };
    fmt::from_fn(move |f| write!(f, "{what} `{name}`"))
}

/// Reads the value that the caller put at the place of the key.
pub(super) fn find(request: &Request, carrier: &KeyCarrier) -> Carried {
    match carrier {
        KeyCarrier::Header(name) => match request.parts.headers.get(name) {
            None => Carried::Nothing,
            Some(value) => value.to_str().map_or(Carried::Other, as_key),
        },
        KeyCarrier::Query(name) => {
            let own = match &request.parts.target {
                Target::Path { path, .. } => path.split_once('?').map_or("", |(_, query)| query),
                Target::Url(url) => url.query().unwrap_or_default(),
            };
            let mut pairs = own.split('&').chain(request.parts.query.split('&'));
            let value = pairs.find_map(|pair| {
                let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
                (percent_decode_str(found).eq(name.bytes())).then_some(value)
            });
            let text = value.map(|value| percent_decode_str(value).decode_utf8());
            text.map_or(Carried::Nothing, |text| text.map_or(Carried::Other, |text| as_key(&text)))
        }
        KeyCarrier::Body(name) => match request.parts.body.bytes().and_then(|body| members(body, name)) {
            None | Some(Members { value: None, .. }) => Carried::Nothing,
            Some(Members { value: Some(Value::String(text)), .. }) => as_key(&text),
            Some(_) => Carried::Other,
        },
    }
}

fn as_key(text: &str) -> Carried {
    let is_key = (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if is_key { Carried::Key(text.into()) } else { Carried::Other }
}

/// A key that fits into a request with no value at its place.
pub(super) enum Fit<'c> {
    Header(HeaderName, HeaderValue),
    /// The name of the query parameter.
    Query(&'c str),
    /// The name of the member, the body, and whether the body has no member yet.
    Body(&'c str, Bytes, bool),
}

/// Checks whether `key` can be put into a request that has no value at its place.
///
/// # Errors
/// The reason why it cannot.
pub(super) fn fit<'c>(request: &Request, carrier: &'c KeyCarrier, key: &str) -> Result<Fit<'c>, &'static str> {
    const UNFIT: &str = "it cannot stand in the header that the vendor's entry names";
    Ok(match carrier {
        KeyCarrier::Header(name) => {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| UNFIT)?;
            Fit::Header(name, HeaderValue::from_str(key).map_err(|_| UNFIT)?)
        }
        KeyCarrier::Query(name) => Fit::Query(name),
        KeyCarrier::Body(name) => {
            let Some(body) = request.parts.body.bytes() else {
                return Err("it goes into the body, which is a stream here; give the body as JSON in memory");
            };
            let Some(found) = members(body, name) else {
                return Err("it goes into the body as a member of a JSON object, and this body is none");
            };
            Fit::Body(name, body.clone(), found.is_empty)
        }
    })
}

impl Fit<'_> {
    /// Puts `key` into the request. Both are those for which [`fit`] was called.
    pub(super) fn put(self, request: &mut Request, key: &str) {
        match self {
            Fit::Header(name, value) => {
                request.parts.headers.insert(name, value);
            }
            Fit::Query(name) => request.push_query(name, key),
            Fit::Body(name, body, is_empty) => request.parts.body = with_member(&body, name, key, is_empty).into(),
        }
    }
}

/// Inserts a member at the beginning of a JSON object. All other bytes stay as they are: serializing the object again
/// would change the form of numbers and the order of members.
fn with_member(body: &Bytes, name: &str, key: &str, is_empty: bool) -> Bytes {
    let open = body.iter().position(|&b| b == b'{').map_or(0, |at| at + 1);
    // Serialized as JSON strings, because a key may contain quotes and backslashes.
    let member = format!("{}:{}", Value::from(name), Value::from(key));
    let mut out = BytesMut::with_capacity(body.len() + member.len() + 1);
    out.put_slice(&body[..open]);
    out.put_slice(member.as_bytes());
    if !is_empty {
        out.put_u8(b',');
    }
    out.put_slice(&body[open..]);
    out.freeze()
}

/// The relevant facts about a JSON object.
struct Members {
    is_empty: bool,
    /// The value of the member with the requested name.
    value: Option<Value>,
}

/// Searches a body for the member `name`. `None` if the body is no JSON object.
fn members(body: &[u8], name: &str) -> Option<Members> {
    struct Reader<'n>(&'n str);
    impl<'de> Visitor<'de> for Reader<'_> {
        type Value = Members;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members, M::Error> {
            let mut members = Members { is_empty: true, value: None };
            while let Some(found) = map.next_key::<Cow<'_, str>>()? {
                members.is_empty = false;
                if found == self.0 {
                    members.value = Some(map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(members)
        }
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let members = reader.deserialize_map(Reader(name)).ok()?;
    reader.end().ok().map(|()| members)
}

#[cfg(test)]
mod tests;
