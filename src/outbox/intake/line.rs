//! Parses a request from a JSON object: a line of a file of jobs, the content of a message, or a row of a table.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::room::LaneName;
use crate::Priority;
use crate::error::{Error, ErrorKind};
use crate::request::{Method, Request};

/// A request on behalf of a tenant, as other programs write it: one JSON object.
///
/// ```
/// use std::time::SystemTime;
///
/// use integration_client::outbox::Line;
///
/// let now = SystemTime::now();
/// let text = br#"{"tenant":"acme","vendor":"shopify","method":"POST","path":"/orders.json","body":{"order":{}}}"#;
/// let line = Line::parse(text, now)?;
/// assert_eq!(line.tenant, "acme");
///
/// let error = Line::parse(br#"{"tenant":"acme"}"#, now).unwrap_err();
/// assert!(error.to_string().starts_with("not a job: missing field `vendor`"));
/// # Ok::<(), integration_client::Error>(())
/// ```
///
/// | field | what it is |
/// |---|---|
/// | `tenant`, `vendor`, `method`, `path` | who sends what to whom; the path is sent unchanged, with its query |
/// | `priority` | `high`, `normal` (the default) or `low` |
/// | `headers` | an object of strings |
/// | `body` | a string is sent as its text, any other value as its JSON |
/// | `cost` | points, or an object with a number for each kind of points |
/// | `idempotency_key` | the key that the vendor gets. Of messages with one key one request is accepted in 24 hours, and while its job is in the outbox; the command `run` sends each line of its file |
/// | `metadata` | an object of strings, which come back with the reply, the dead letter and the handler's call |
/// | `reply` | `true`: what became of the request is written into the table `ic_reply` ([`Outbox::replies`](crate::outbox::Outbox::replies)); or a text, the place where the reply goes ([`Request::reply_to`]) |
/// | `deadline` | seconds, a time from now (`"2h"`) or a moment (`"2026-01-15T10:00:00Z"`); later the request is a dead letter |
///
/// Any other field is an error.
#[derive(Debug)]
#[non_exhaustive]
pub struct Line {
    /// The tenant on whose behalf the request is sent.
    pub tenant: String,
    /// The priority of the job.
    pub priority: Priority,
    /// The request.
    pub request: Request,
}

/// The JSON form of a [`Line`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    tenant: String,
    vendor: String,
    #[serde(default)]
    priority: Priority,
    method: String,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Box<RawValue>>,
    cost: Option<Cost>,
    idempotency_key: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    reply: Option<Reply>,
    deadline: Option<Deadline>,
}

/// The names in a line: the rest is passed over.
#[derive(Deserialize)]
struct Names {
    tenant: String,
    vendor: String,
}

/// The `cost` of a line: a number of points, or an object with a number for each kind of points.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a cost is a number of points, or an object such as {\"input_tokens\":1800}")]
enum Cost {
    Points(u32),
    Kinds(BTreeMap<String, u32>),
}

/// The `reply` of a line: whether there is one, or where it goes.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a reply is true, false, or the name of a queue, subject or topic")]
enum Reply {
    Wanted(bool),
    To(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Deadline {
    Seconds(u32),
    Text(String),
}

impl Line {
    /// Parses an object. Relative deadlines count from `now`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`]: the text is no such object. The message names the column, and no value. Whether
    /// the configuration knows the tenant, the vendor and so on is not checked.
    pub fn parse(text: &[u8], now: SystemTime) -> Result<Line, Error> {
        Line::read(text, now).map_err(|why| Error::not_sent(ErrorKind::InvalidRequest, why))
    }

    /// The tenant and the vendor that an object names, which is much less work than to parse it. `None` if it names none;
    /// the rest of it is not checked.
    pub(super) fn lane(text: &[u8]) -> Option<LaneName> {
        let Names { tenant, vendor } = serde_json::from_slice(text).ok().filter(|_| is_object(text))?;
        Some((tenant, vendor))
    }

    fn read(text: &[u8], now: SystemTime) -> Result<Line, String> {
        if !is_object(text) {
            return Err(no_object(text));
        }
        let line: Written = serde_json::from_slice(text).map_err(|error| problem(&error))?;
        let upper = line.method.to_ascii_uppercase();
        let method = Method::from_bytes(upper.as_bytes())
            .map_err(|_| format!("{:?} is no method; write \"POST\"", line.method))?;
        let mut request = Request::new(method, &line.vendor, line.path);
        for (name, value) in &line.headers {
            request = request.header(name.as_str(), value.as_str());
        }
        request = match &line.body {
            None => request,
            // A string is sent as its text; every other value as its JSON.
            Some(body) => match serde_json::from_str::<String>(body.get()) {
                Ok(text) => request.body(text),
                Err(_) => request.json(body),
            },
        };
        match line.cost {
            None => {}
            Some(Cost::Points(points)) => request = request.cost("points", points),
            Some(Cost::Kinds(kinds)) => {
                request = kinds.into_iter().fold(request, |request, (kind, units)| request.cost(kind, units));
            }
        }
        if let Some(key) = &line.idempotency_key {
            request = request.idempotency_key(key);
        }
        for (name, value) in line.metadata {
            request = request.metadata(name, value);
        }
        request = match line.reply {
            None | Some(Reply::Wanted(false)) => request,
            Some(Reply::Wanted(true)) => request.reply(),
            Some(Reply::To(name)) => request.reply_to(name),
        };
        if let Some(deadline) = &line.deadline {
            request = request.deadline(until(deadline, now)?);
        }
        Ok(Line { tenant: line.tenant, priority: line.priority, request })
    }
}

/// Whether a JSON text is an object: serde would take an array for an object without names.
fn is_object(text: &[u8]) -> bool {
    text.trim_ascii_start().first() == Some(&b'{')
}

/// Returns the time left until a deadline; zero if it has passed, so that the job becomes a dead letter with that
/// reason.
fn until(deadline: &Deadline, now: SystemTime) -> Result<Duration, String> {
    let text = match deadline {
        Deadline::Seconds(seconds) => return Ok(Duration::from_secs((*seconds).into())),
        Deadline::Text(text) => text,
    };
    if let Ok(span) = text.parse::<jiff::SignedDuration>() {
        return Ok(Duration::try_from(span).unwrap_or_default());
    }
    let wrong = |_| {
        format!("the deadline {text:?} is neither a time from now (\"2h\") nor a moment (\"2026-01-15T10:00:00Z\")")
    };
    let at: jiff::Timestamp = text.parse().map_err(wrong)?;
    Ok(SystemTime::from(at).duration_since(now).unwrap_or_default())
}

/// The error for a text that is not an object. It names the kind of its value, and not the value, which may be a secret.
fn no_object(text: &[u8]) -> String {
    if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(text) {
        return problem(&error);
    }
    let is = match text.trim_ascii_start().first() {
        Some(b'[') => "an array",
        Some(b'"') => "a text",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        _ => "a number",
    };
    format!("not a job: {is}; write an object, {{\"tenant\":…}}")
}

/// Formats a parser's error with its column only: the text is one line, and the caller names the line's number in its
/// file.
fn problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    // For a value of a wrong type, name only its type: the value may be a secret.
    let without_value =
        what.rsplit_once(", expected ").filter(|_| what.starts_with("invalid ")).map(|(found, expected)| {
            format!("{}, expected {expected}", found.split(['"', '`']).next().unwrap_or_default().trim_end())
        });
    let what = without_value.as_deref().unwrap_or(what);
    let is = if error.is_data() { "not a job" } else { "not JSON" };
    match error.column() {
        0 => format!("{is}: {what}"),
        column => format!("{is}: {what} (column {column})"),
    }
}

#[cfg(test)]
mod tests;
