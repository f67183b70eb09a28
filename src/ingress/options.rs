//! [`SendOptions`]: how one request is sent, stated in code or in headers.

use std::time::Duration;

use compact_str::CompactString;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::Priority;
use crate::config::{OnAmbiguous, parse_duration};
use crate::request::Request;
use crate::signals::POINTS;

/// The prefix of all option headers.
const PREFIX: &str = "integration-";

/// The names of the option headers.
const KNOWN: [&str; 7] = [
    "integration-priority",
    "integration-deadline",
    "integration-max-wait",
    "integration-cost",
    "integration-endpoint",
    "integration-idempotency-key",
    "integration-on-ambiguous",
];

/// The deadline of a request is this much shorter than the SDK's timeout, so that an error of ours reaches the SDK
/// before it gives up.
const BEFORE_THE_SDK: Duration = Duration::from_millis(250);

/// How one `http::Request` is sent. Put the options into the request's extensions.
///
/// An SDK that lets its user set headers but no extensions can state the same in headers: `Integration-Priority`
/// (`high`, `normal`, `low`), `Integration-Deadline` and `Integration-Max-Wait` (`30s`, `500ms`), `Integration-Cost`
/// (`5`, or `input_tokens=1800, output_tokens=1024`), `Integration-Endpoint`, `Integration-Idempotency-Key` and
/// `Integration-On-Ambiguous` (`fail`, `park`, `resend`). Options in the extensions override those in the headers, and
/// both override the defaults of the service. None of these headers reaches the vendor. A value that cannot be read is
/// an error, and so is any other header that begins with `Integration-`.
///
/// ```
/// use integration_client::{Priority, SendOptions};
/// use std::time::Duration;
///
/// let mut request = http::Request::get("/user").body(()).unwrap();
/// let options = SendOptions::new().priority(Priority::High).deadline(Duration::from_secs(5));
/// request.extensions_mut().insert(options);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    priority: Option<Priority>,
    deadline: Option<Duration>,
    max_wait: Option<Duration>,
    costs: Vec<(CompactString, u32)>,
    endpoint: Option<Box<str>>,
    idempotency_key: Option<Box<str>>,
    on_ambiguous: Option<OnAmbiguous>,
}

impl SendOptions {
    /// Options that state nothing: the defaults of the service apply, and then those of the client.
    pub fn new() -> SendOptions {
        SendOptions::default()
    }

    /// Sets the tier that the request waits in. The default is [`Priority::Normal`].
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> SendOptions {
        self.priority = Some(priority);
        self
    }

    /// Sets the same as [`Request::deadline`].
    #[must_use]
    pub fn deadline(mut self, total: Duration) -> SendOptions {
        self.deadline = Some(total);
        self
    }

    /// Sets the same as [`Request::max_wait`]. With zero the request is sent at once or not at all, and once, as with
    /// [`try_send`](crate::IntegrationClient::try_send).
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> SendOptions {
        self.max_wait = Some(wait);
        self
    }

    /// Sets the same as [`Request::cost`]. A second call with the same kind replaces the first.
    #[must_use]
    pub fn cost(mut self, kind: impl AsRef<str>, units: u32) -> SendOptions {
        let kind = CompactString::from(kind.as_ref());
        self.costs.retain(|(own, _)| *own != kind);
        self.costs.push((kind, units));
        self
    }

    /// Sets the same as [`Request::endpoint`].
    #[must_use]
    pub fn endpoint(mut self, name: impl AsRef<str>) -> SendOptions {
        self.endpoint = Some(name.as_ref().into());
        self
    }

    /// Sets the same as [`Request::idempotency_key`].
    #[must_use]
    pub fn idempotency_key(mut self, key: impl AsRef<str>) -> SendOptions {
        self.idempotency_key = Some(key.as_ref().into());
        self
    }

    /// Sets the same as [`Request::on_ambiguous`].
    #[must_use]
    pub fn on_ambiguous(mut self, what: OnAmbiguous) -> SendOptions {
        self.on_ambiguous = Some(what);
        self
    }

    /// Returns these options, completed with those of `other` that these do not state.
    #[must_use]
    pub fn or(mut self, other: &SendOptions) -> SendOptions {
        for (kind, units) in &other.costs {
            if self.costs.iter().all(|(own, _)| own != kind) {
                self.costs.push((kind.clone(), *units));
            }
        }
        SendOptions {
            priority: self.priority.or(other.priority),
            deadline: self.deadline.or(other.deadline),
            max_wait: self.max_wait.or(other.max_wait),
            costs: self.costs,
            endpoint: self.endpoint.or_else(|| other.endpoint.clone()),
            idempotency_key: self.idempotency_key.or_else(|| other.idempotency_key.clone()),
            on_ambiguous: self.on_ambiguous.or(other.on_ambiguous),
        }
    }

    /// The priority that the request is sent with: the stated one, or [`Priority::Normal`].
    pub fn stated_priority(&self) -> Priority {
        self.priority.unwrap_or_default()
    }

    /// The deadline, if one is stated.
    pub fn stated_deadline(&self) -> Option<Duration> {
        self.deadline
    }

    pub(crate) fn stated_max_wait(&self) -> Option<Duration> {
        self.max_wait
    }

    pub(crate) fn stated_costs(&self) -> &[(CompactString, u32)] {
        &self.costs
    }

    pub(crate) fn stated_endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    /// Shortens the deadline to `limit`, after which the caller no longer waits.
    pub(crate) fn before(mut self, limit: Option<Duration>) -> SendOptions {
        self.deadline = self.deadline.into_iter().chain(limit).min();
        self
    }

    /// Whether the request is sent at once or fails, without a wait for a permit.
    pub(crate) fn is_immediate(&self) -> bool {
        self.max_wait == Some(Duration::ZERO)
    }

    /// Sets these options on `request`, except for the priority, which is no property of a [`Request`], and a longest
    /// wait of zero: the caller passes both on itself.
    pub(crate) fn apply(self, mut request: Request) -> Request {
        let is_immediate = self.is_immediate();
        if let Some(total) = self.deadline {
            request = request.deadline(total);
        }
        if let Some(wait) = self.max_wait.filter(|_| !is_immediate) {
            request = request.max_wait(wait);
        }
        for (kind, units) in self.costs {
            request = request.cost(kind, units);
        }
        if let Some(name) = self.endpoint {
            request = request.endpoint(name);
        }
        if let Some(key) = self.idempotency_key {
            request = request.idempotency_key(key);
        }
        if let Some(what) = self.on_ambiguous {
            request = request.on_ambiguous(what);
        }
        request
    }

    /// Takes the options out of `headers`. Without an error no header is left that begins with `Integration-`.
    ///
    /// # Errors
    /// A sentence that says what is wrong with one of the headers, and what to write instead.
    pub(crate) fn take(headers: &mut HeaderMap) -> Result<SendOptions, String> {
        let mut options = SendOptions::new();
        let stated: Vec<HeaderName> =
            headers.keys().filter(|name| name.as_str().starts_with(PREFIX)).cloned().collect();
        for name in stated {
            let read = options.read(name.as_str(), headers);
            headers.remove(&name);
            read?;
        }
        Ok(options)
    }

    fn read(&mut self, name: &str, headers: &HeaderMap) -> Result<(), String> {
        let text = single(name, headers)?;
        let unread = |help: &str| format!("the header {name} cannot be read: {help}");
        match name {
            "integration-priority" => {
                self.priority = Some(match text {
                    "high" => Priority::High,
                    "normal" => Priority::Normal,
                    "low" => Priority::Low,
                    _ => return Err(unread("write high, normal or low")),
                });
            }
            "integration-deadline" => self.deadline = Some(parse_duration(text).map_err(|why| unread(&why))?),
            "integration-max-wait" if matches!(text, "0" | "0s" | "0ms") => self.max_wait = Some(Duration::ZERO),
            "integration-max-wait" => self.max_wait = Some(parse_duration(text).map_err(|why| unread(&why))?),
            "integration-cost" => {
                let help = "write a number, or KIND=NUMBER, several of them with commas between";
                self.costs = costs(text).ok_or_else(|| unread(help))?;
            }
            "integration-endpoint" => self.endpoint = Some(text.into()),
            "integration-idempotency-key" => self.idempotency_key = Some(text.into()),
            "integration-on-ambiguous" => {
                self.on_ambiguous = Some(match text {
                    "fail" => OnAmbiguous::Fail,
                    "park" => OnAmbiguous::Park,
                    "resend" => OnAmbiguous::Resend,
                    _ => return Err(unread("write fail, park or resend")),
                });
            }
            _ => return Err(format!("there is no header {name}; there are {}", KNOWN.join(", "))),
        }
        Ok(())
    }
}

/// Returns the value of a header, which must be stated exactly once.
fn single<'h>(name: &str, headers: &'h HeaderMap) -> Result<&'h str, String> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (Some(Ok(text)), None) if (1..=1024).contains(&text.len()) => Ok(text.trim()),
        (_, Some(_)) => Err(format!("the header {name} is stated twice: state it once")),
        _ => Err(format!("the header {name} cannot be read: write 1 to 1024 visible ASCII characters")),
    }
}

/// Reads `5`, which is of the kind `points`, or `input_tokens=1800, output_tokens=1024`.
fn costs(text: &str) -> Option<Vec<(CompactString, u32)>> {
    let mut costs: Vec<(CompactString, u32)> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (kind, units) = part.split_once('=').unwrap_or((POINTS, part));
        let (kind, units) = (CompactString::from(kind.trim()), units.trim());
        // `parse` would accept a sign.
        let is_number = !units.is_empty() && units.bytes().all(|byte| byte.is_ascii_digit());
        if kind.is_empty() || !is_number || costs.iter().any(|(own, _)| *own == kind) {
            return None;
        }
        costs.push((kind, units.parse().ok()?));
    }
    Some(costs)
}

/// Returns how long the SDK that made a request waits for the response, if headers state it, less [`BEFORE_THE_SDK`]
/// but at least half. These headers are meant for the vendor or for a proxy, so they stay in the request, and a value
/// that cannot be read is ignored.
pub(crate) fn callers_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    // The SDKs of OpenAI and Anthropic state seconds.
    let seconds = ["x-stainless-read-timeout", "x-stainless-timeout"].into_iter().filter_map(text);
    let seconds = seconds.filter_map(|text| {
        let seconds: f64 = text.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    });
    let millis = text("x-envoy-expected-rq-timeout-ms").and_then(|text| text.parse().ok()).map(Duration::from_millis);
    let stated = seconds.chain(millis).chain(text("grpc-timeout").and_then(grpc_timeout));
    let shortest = stated.filter(|timeout| !timeout.is_zero()).min()?;
    Some(shortest.saturating_sub(BEFORE_THE_SDK).max(shortest / 2))
}

/// Reads the value of `grpc-timeout`: one to eight digits and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let is_number = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| is_number)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
#[path = "tests/options.rs"]
mod tests;
