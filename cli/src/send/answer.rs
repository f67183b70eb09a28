//! The response to a request, or the reason why there is none, as `send` prints it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use http::StatusCode;
use integration_client::{Delivery, Error};
use serde_json::{Value, json};

use crate::connect;
use crate::notes;
use crate::output::{Failure, Outcome};
use crate::text::span;

/// How the request of one command ended.
pub(super) enum End {
    Answered(Answer),
    /// The job became a dead letter or was cancelled, which was reported.
    GivenUp(Outcome),
    Unanswered(Unanswered),
}

/// A response. That of a job has only the headers that the store keeps.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) attempts: u32,
    pub(super) waited: Option<Duration>,
    /// Why the request was given up after this response.
    pub(super) given_up: Option<String>,
    /// The reference to the tenant's credential, which a status 401 puts in doubt.
    pub(super) credential: Option<String>,
}

/// A request without a response, or with one whose body could not be read.
pub(super) struct Unanswered {
    why: String,
    delivery: Delivery,
}

pub(super) const MAY_HAVE_ACTED: &str = "; the request was sent: the vendor may have acted. Ask it before you send again, unless \
                              sending it twice does no harm";

impl End {
    /// The end of a request that failed: with the last response, if there was one. `is_safe` says that the request's
    /// method changes nothing at the vendor, so that sending it again does no harm.
    pub(super) fn of_failed(error: &Error, is_safe: bool) -> End {
        let mut why = connect::in_words(error);
        if let Some(id) = error.letter_id() {
            // Without a store the dead letter is only in the log, and no command can show it.
            why = why.replace(&format!("; see dead letter {id}"), "");
        }
        let Some(last) = error.response() else { return End::Unanswered(Unanswered::new(why, error, None, is_safe)) };
        // The text of some errors says this already.
        if error.delivery() == Delivery::Ambiguous && !is_safe && !why.contains("may have acted") {
            why += MAY_HAVE_ACTED;
        }
        End::Answered(Answer {
            status: last.status().as_u16(),
            headers: texts(last.headers()),
            body: last.body().to_vec(),
            attempts: error.attempts(),
            waited: None,
            given_up: Some(why),
            credential: None,
        })
    }

    /// The end of a request with this response, whose body could not be read. For `is_safe` see
    /// [`of_failed`](End::of_failed).
    pub(super) fn of_torn(mut answer: Answer, error: &Error, is_safe: bool) -> End {
        let why = connect::in_words(error);
        if is_done(answer.status) {
            return End::Unanswered(Unanswered::new(why, error, Some(answer.status), is_safe));
        }
        answer.given_up = Some(format!("the vendor answered {}; {why}", named(answer.status)));
        End::Answered(answer)
    }
}

impl Unanswered {
    fn new(mut why: String, error: &Error, status: Option<u16>, is_safe: bool) -> Unanswered {
        let delivery = error.delivery();
        match delivery {
            Delivery::Ambiguous if is_safe || why.contains("may have acted") => {}
            Delivery::Ambiguous => why += MAY_HAVE_ACTED,
            Delivery::Delivered => {
                let status = status.map(|status| format!(" {status}")).unwrap_or_default();
                why += &format!("; the vendor answered{status}");
                if !is_safe {
                    why += " and has acted: do not send it again";
                }
            }
            Delivery::NotSent | Delivery::Rejected => {}
        }
        Unanswered { why, delivery }
    }

    /// Says why there is no response, and whether the vendor may have acted. An error of `out` is said, and leaves the
    /// outcome as it is.
    ///
    /// # Errors
    /// The vendor did not act: the reason, which the program prints.
    pub(super) fn report(self, json: bool, out: &mut dyn Write) -> Result<Outcome, Failure> {
        let Unanswered { why, delivery } = self;
        let is_sent = matches!(delivery, Delivery::Ambiguous | Delivery::Delivered);
        if is_sent {
            notes::say(&format!("error: {why}"));
        }
        if json {
            let object = json!({ "error": why, "delivery": delivery.as_str() });
            if let Some(error) = unprinted(writeln!(out, "{object}").and_then(|()| out.flush())) {
                notes::say(&format!("error: the JSON object could not be printed: {error}"));
            }
        }
        if is_sent { Ok(Outcome::Interrupted) } else { Err(Failure::Input(why)) }
    }
}

impl Answer {
    /// Prints the response, and says what is wrong with it. A response that could not be printed is no failure of the
    /// command, because the exit code of a failure says that the vendor did not act.
    pub(super) fn show(&self, json: bool, include: bool, out: &mut dyn Write) -> Outcome {
        let Answer { status, given_up, credential, .. } = self;
        if let Some(why) = given_up {
            notes::say(&format!("error: {why}"));
        }
        let printed = if json { self.print_json(out) } else { self.print(include, out) };
        let failed = unprinted(printed.and_then(|()| out.flush()));
        if failed.is_some() || (!is_done(*status) && given_up.is_none() && !json) {
            let failed = failed.as_ref().map(|error| format!("; the response could not be printed: {error}"));
            let (failed, doubt) = (failed.unwrap_or_default(), doubt(*status, credential.as_deref()));
            notes::say(&format!("error: the vendor answered {}{failed}{doubt}", named(*status)));
        }
        match is_done(*status) && given_up.is_none() {
            _ if failed.is_some() => Outcome::Interrupted,
            true => Outcome::Fine,
            false => Outcome::Found,
        }
    }

    fn print_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let Answer { status, headers, body, attempts, waited, .. } = self;
        let text = || Value::String(String::from_utf8_lossy(body).into_owned());
        let body = serde_json::from_slice(body).unwrap_or_else(|_| text());
        let headers: serde_json::Map<String, Value> =
            headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let waited = waited.map(|waited| waited.as_secs_f64());
        let shown =
            json!({ "status": status, "headers": headers, "body": body, "attempts": attempts, "waited_s": waited });
        writeln!(out, "{shown}")
    }

    fn print(&self, include: bool, out: &mut dyn Write) -> io::Result<()> {
        let Answer { status, headers, body, attempts, waited, .. } = self;
        if include {
            let waited =
                waited.map(|waited| format!(", waited {}", span(Duration::from_millis(waited.as_millis() as u64))));
            notes::say(&format!("attempt {attempts}{}", waited.unwrap_or_default()));
            // A status line as `inspect` and other programs read it, whatever the version of the exchange was.
            writeln!(out, "HTTP/1.1 {}", named(*status))?;
            for (name, value) in headers {
                writeln!(out, "{name}: {value}")?;
            }
            writeln!(out)?;
        }
        let is_terminal = io::stdout().is_terminal();
        let json = serde_json::from_slice::<&serde_json::value::RawValue>(body).is_ok();
        match serde_json::from_slice::<Value>(body) {
            Ok(value) if is_terminal => writeln!(out, "{value:#}")?,
            _ => {
                out.write_all(body)?;
                // A line feed is added only to JSON and on a terminal, so that other bodies can be saved byte for byte.
                if (json || is_terminal) && !body.is_empty() && body.last() != Some(&b'\n') {
                    writeln!(out)?;
                }
            }
        }
        Ok(())
    }
}

/// The error because of which an output was not printed. A closed pipe is none: its reader has read enough, as `head`
/// does.
fn unprinted(printed: io::Result<()>) -> Option<io::Error> {
    printed.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
}

/// Whether the vendor did what the request asks for. Of the redirects, which are not followed, only a 303 and a 304 say so.
fn is_done(status: u16) -> bool {
    matches!(status, 200..=299 | 303 | 304)
}

/// What to look at after this status, if it says more than that the vendor refused: the credential, or the redirect.
pub(super) fn doubt(status: u16, credential: Option<&str>) -> String {
    if (300..400).contains(&status) && !is_done(status) {
        return "; redirects are not followed: look whether the vendor acted, and correct `base_url` or the path"
            .to_owned();
    }
    let refused = credential.filter(|_| status == 401);
    refused.map(|reference| format!("; is {reference} right?")).unwrap_or_default()
}

/// A status with its standard text, if it has one.
fn named(status: u16) -> String {
    match StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()) {
        Some(reason) => format!("{status} {reason}"),
        None => status.to_string(),
    }
}

pub(super) fn texts(headers: &http::HeaderMap) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect()
}
