//! How one request is to be sent: [`SendOptions`], by code or by headers.

use std::time::Duration;

use compact_str::CompactString;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::Priority;
use crate::config::{OnAmbiguous, parse_duration};
use crate::request::Request;
use crate::signals::POINTS;

/// The headers of options begin with this.
const PREFIX: &str = "integration-";

/// The headers that are options.
const KNOWN: [&str; 7] = [
    "integration-priority",
    "integration-deadline",
    "integration-max-wait",
    "integration-cost",
    "integration-endpoint",
    "integration-idempotency-key",
    "integration-on-ambiguous",
];

/// So much before an SDK gives up, it hears of it: time for our answer to reach it.
const BEFORE_THE_SDK: Duration = Duration::from_millis(250);

/// How one request is to be sent, where the request is an `http::Request`: put it into the request's extensions.
///
/// An SDK that lets its user set headers but no extensions may say the same by headers: `Integration-Priority` (`high`,
/// `normal`, `low`), `Integration-Deadline` and `Integration-Max-Wait` (`30s`, `500ms`), `Integration-Cost` (`5`, or
/// `input_tokens=1800, output_tokens=1024`), `Integration-Endpoint`, `Integration-Idempotency-Key` and
/// `Integration-On-Ambiguous` (`fail`, `park`, `resend`). What the extensions say counts before the headers, and these before
/// what the service was made with. None of these headers reaches the vendor. A value that cannot be read is an error, and so is
/// another header that begins with `Integration-`.
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
    /// Nothing is stated: the defaults of the service count, and then those of the client.
    pub fn new() -> SendOptions {
        SendOptions::default()
    }

    /// The tier that the request waits in. [`Priority::Normal`] unless stated.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> SendOptions {
        self.priority = Some(priority);
        self
    }

    /// As [`Request::deadline`].
    #[must_use]
    pub fn deadline(mut self, total: Duration) -> SendOptions {
        self.deadline = Some(total);
        self
    }

    /// As [`Request::max_wait`]. Zero: now or not at all, as [`try_send`](crate::IntegrationClient::try_send).
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> SendOptions {
        self.max_wait = Some(wait);
        self
    }

    /// As [`Request::cost`]; one of each kind.
    #[must_use]
    pub fn cost(mut self, kind: impl AsRef<str>, units: u32) -> SendOptions {
        let kind = CompactString::from(kind.as_ref());
        self.costs.retain(|(own, _)| *own != kind);
        self.costs.push((kind, units));
        self
    }

    /// As [`Request::endpoint`].
    #[must_use]
    pub fn endpoint(mut self, name: impl AsRef<str>) -> SendOptions {
        self.endpoint = Some(name.as_ref().into());
        self
    }

    /// As [`Request::idempotency_key`].
    #[must_use]
    pub fn idempotency_key(mut self, key: impl AsRef<str>) -> SendOptions {
        self.idempotency_key = Some(key.as_ref().into());
        self
    }

    /// As [`Request::on_ambiguous`].
    #[must_use]
    pub fn on_ambiguous(mut self, what: OnAmbiguous) -> SendOptions {
        self.on_ambiguous = Some(what);
        self
    }

    /// These, and of `other` what these do not state.
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

    /// The priority that the request is sent with.
    pub fn stated_priority(&self) -> Priority {
        self.priority.unwrap_or_default()
    }

    /// The deadline, where one is stated.
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

    /// Ends no later than the caller stops to wait for it.
    pub(crate) fn before(mut self, limit: Option<Duration>) -> SendOptions {
        self.deadline = self.deadline.into_iter().chain(limit).min();
        self
    }

    /// Sent now or not at all.
    pub(crate) fn is_immediate(&self) -> bool {
        self.max_wait == Some(Duration::ZERO)
    }

    /// The request as it is to be sent, but for its priority.
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

    /// Takes the options out of `headers`: none that begins with `Integration-` is left.
    ///
    /// # Errors
    /// What is wrong with one of them, and what to write instead.
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

/// The value of a header that is stated once.
fn single<'h>(name: &str, headers: &'h HeaderMap) -> Result<&'h str, String> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (Some(Ok(text)), None) if (1..=1024).contains(&text.len()) => Ok(text.trim()),
        (_, Some(_)) => Err(format!("the header {name} is stated twice: state it once")),
        _ => Err(format!("the header {name} cannot be read: write 1 to 1024 visible ASCII characters")),
    }
}

/// `5`, or `input_tokens=1800, output_tokens=1024`.
fn costs(text: &str) -> Option<Vec<(CompactString, u32)>> {
    let mut costs: Vec<(CompactString, u32)> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (kind, units) = part.split_once('=').unwrap_or((POINTS, part));
        let (kind, units) = (CompactString::from(kind.trim()), units.trim());
        // `parse` would take a sign.
        let is_number = !units.is_empty() && units.bytes().all(|byte| byte.is_ascii_digit());
        if kind.is_empty() || !is_number || costs.iter().any(|(own, _)| *own == kind) {
            return None;
        }
        costs.push((kind, units.parse().ok()?));
    }
    Some(costs)
}

/// How long the SDK that made a request waits for the answer, where its headers say so, less a little. They are the vendor's
/// or a proxy's, and stay in the request; one that cannot be read says nothing.
pub(crate) fn callers_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    // Those of OpenAI and Anthropic, in seconds.
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

/// At most eight digits and a unit.
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
