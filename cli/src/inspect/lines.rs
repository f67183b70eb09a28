//! `inspect --json`: each line of the input is a response, and each line of the output says what a client reads in it.

use std::io::{BufRead, Read, Write};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::context::{Context, moment};
use super::reading::{self, Reading};
use crate::output::{Failure, Outcome};
use crate::text;

/// Bytes of the longest accepted line. The rest of a longer line is skipped without keeping it in memory.
const LONGEST_LINE: u64 = 16 * 1024 * 1024;

/// A line of the input: one response.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    id: Value,
    vendor: Option<String>,
    status: Option<u16>,
    now: Option<Value>,
    #[serde(default)]
    headers: Headers,
    body: Option<Value>,
}

/// Headers as pairs in the order in which they were sent, or as a map if no name is repeated.
#[derive(Deserialize)]
#[serde(untagged)]
enum Headers {
    Pairs(Vec<(String, String)>),
    Map(std::collections::BTreeMap<String, String>),
}

impl Default for Headers {
    fn default() -> Self {
        Headers::Pairs(Vec::new())
    }
}

pub(super) fn run(input: &mut dyn BufRead, context: &Context, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::Fine;
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let failed = |error| Failure::Input(format!("reading line {number}: {error}"));
        if input.take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        let whole = line.last() == Some(&b'\n') || (line.len() as u64) < LONGEST_LINE;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let written = if whole {
            one(&line, context)
        } else {
            skip_line(input).map_err(failed)?;
            Err((Value::Null, format!("the line is longer than {} MiB", LONGEST_LINE / 1024 / 1024)))
        };
        let written = written.or_else(|(id, why)| {
            outcome = Outcome::Found;
            serde_json::to_string(&Refused { id, error: format!("line {number}: {why}") })
        });
        writeln!(out, "{}", written.map_err(std::io::Error::from)?)?;
    }
    Ok(outcome)
}

fn skip_line(input: &mut dyn BufRead) -> std::io::Result<()> {
    loop {
        let chunk = input.fill_buf()?;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let (taken, done) = (end.map_or(chunk.len(), |end| end + 1), end.is_some() || chunk.is_empty());
        input.consume(taken);
        if done {
            return Ok(());
        }
    }
}

/// The line of output for a line of input. An error is the line's id, or null if it is unknown, and what is wrong.
fn one(line: &[u8], context: &Context) -> Result<String, (Value, String)> {
    let value: Value =
        serde_json::from_slice(line).map_err(|error| (Value::Null, format!("not JSON: {}", place(&error))))?;
    if !value.is_object() {
        return Err((
            Value::Null,
            "not an object; write {\"status\": 429, \"headers\": [[\"name\", \"value\"]]}".into(),
        ));
    }
    let id = value.get("id").cloned().unwrap_or(Value::Null);
    let said = Line::deserialize(value).map_err(|error| error.to_string()).and_then(|line| respond(line, context));
    said.map_err(|why| (id, why))
}

/// serde_json's message with its column only: its line number counts from the beginning of this line.
fn place(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let (what, _) = message.rsplit_once(" at line ").unwrap_or((&message, ""));
    format!("{what} at column {}", error.column())
}

fn respond(line: Line, context: &Context) -> Result<String, String> {
    let status = line.status.or(context.status).ok_or("`status` is missing; state it there, or with --status")?;
    let status = StatusCode::from_u16(status).map_err(|_| format!("`status` is 100 to 999, not {status}"))?;
    let now = match &line.now {
        None | Some(Value::Null) => context.now(),
        Some(Value::String(text)) => time(text)?,
        Some(number) => time(&number.to_string())?,
    };
    let headers = match line.headers {
        Headers::Pairs(pairs) => headers(pairs),
        Headers::Map(map) => headers(map),
    };
    let body = match line.body {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
    };
    let prefix = body.as_bytes().get(..reading::BODY_PREFIX).unwrap_or(body.as_bytes());
    let vendor = context.vendor(line.vendor.as_deref())?;
    let reading = reading::read(vendor.as_deref(), status, &headers, prefix, now);
    serde_json::to_string(&said(&line.id, &reading)).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<SystemTime, String> {
    moment(text).map_err(|how| format!("`now` is not a moment: {how}"))
}

/// Builds the header map. Headers that an HTTP message cannot hold are left out, because no client would ever see them.
fn headers(pairs: impl IntoIterator<Item = (String, String)>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        let mut bytes = Vec::with_capacity(value.len());
        for c in value.chars() {
            match u8::try_from(c) {
                Ok(byte) => bytes.push(byte),
                Err(_) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(bytes.trim_ascii()))
        {
            let _ = map.try_append(name, value);
        }
    }
    map
}

/// The output for a line. The fields are written in this order.
#[derive(Serialize)]
struct Said<'a> {
    id: &'a Value,
    throttled: bool,
    retry_after_s: Option<Number>,
    windows: Vec<SaidWindow<'a>>,
    cost: Option<Number>,
}

#[derive(Serialize)]
struct SaidWindow<'a> {
    name: Option<&'a str>,
    limit: Option<u64>,
    remaining: Option<u64>,
    used: Option<u64>,
    reset_in_s: Option<Number>,
    window_s: Option<Number>,
}

/// The output for a line that cannot be read.
#[derive(Serialize)]
struct Refused {
    id: Value,
    error: String,
}

fn said<'a>(id: &'a Value, reading: &'a Reading) -> Said<'a> {
    let window = |window: &'a reading::Window| SaidWindow {
        name: window.name.as_deref(),
        limit: window.limit,
        remaining: window.remaining,
        used: window.used,
        reset_in_s: window.reset_in.map(seconds),
        window_s: window.window.map(seconds),
    };
    Said {
        id,
        throttled: reading.throttled,
        retry_after_s: reading.retry_after.map(seconds),
        windows: reading.windows.iter().map(window).collect(),
        cost: reading.cost.and_then(number),
    }
}

/// The seconds of a duration: an integer if they are whole.
fn seconds(duration: Duration) -> Number {
    // Parsing the decimal text gives the nearest floating-point number; a division could be off by a rounding error.
    let fraction = || Number::from_f64(text::decimal(duration).parse().ok()?);
    (duration.subsec_nanos() != 0).then(fraction).flatten().unwrap_or(duration.as_secs().into())
}

/// A JSON number: an integer if the value is whole, and `None` if it is infinite or not a number.
fn number(value: f64) -> Option<Number> {
    // Whole numbers below 2^53 are exact.
    if value.fract() == 0.0 && value.abs() < 9e15 { Some((value as i64).into()) } else { Number::from_f64(value) }
}
