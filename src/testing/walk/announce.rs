//! What a vendor of the catalogue announces about its limits: headers and bodies in that vendor's own format, from
//! `announcements.toml`.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use http::header::{CONTENT_TYPE, DATE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::moment;

const TABLE: &str = include_str!("announcements.toml");
const SECOND: u64 = 1_000_000_000;

/// The announcements of a vendor, or of one of its endpoints.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Announced {
    headers: Option<BTreeMap<String, String>>,
    passed: BTreeMap<String, String>,
    body: Option<String>,
    above: u64,
    refused: Option<Refused>,
    refused_by: BTreeMap<String, Refused>,
    endpoints: BTreeMap<String, Announced>,
}

/// The form of a refusal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    #[serde(default = "too_many")]
    status: u16,
    #[serde(default = "retry_after")]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    /// How long the vendor's documentation asks clients to stop after a refusal that states no wait.
    silence: Option<String>,
    until_next: Option<String>,
    #[serde(default)]
    bare: bool,
}

fn too_many() -> u16 {
    429
}

fn retry_after() -> BTreeMap<String, String> {
    BTreeMap::from([("retry-after".into(), "<wait>".into())])
}

impl Default for Refused {
    fn default() -> Refused {
        let (status, headers) = (too_many(), retry_after());
        Refused { status, headers, body: None, silence: None, until_next: None, bare: false }
    }
}

/// A limit at the time of an answer.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// The name in the entry; that of an endpoint's limit begins with the endpoint's name and a `/`.
    pub(super) name: std::sync::Arc<str>,
    pub(super) window_ns: u64,
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) reset_at: u64,
    /// When the oldest unit that counts expires.
    pub(super) oldest_at: u64,
}

impl From<crate::testing::Stated> for Shown {
    fn from(stated: crate::testing::Stated) -> Shown {
        let crate::testing::Stated { name, window_ns, reading, regains_at_ns } = stated;
        let (limit, remaining) = (u64::from(reading.limit), u64::from(reading.remaining));
        Shown { name, window_ns, limit, remaining, reset_at: reading.reset_at_ns, oldest_at: regains_at_ns }
    }
}

/// The true state when an answer is written.
pub(super) struct Truth<'t> {
    pub(super) at: u64,
    pub(super) cost: u32,
    pub(super) endpoint: Option<&'t str>,
    /// The rate limits that apply to the request.
    pub(super) limits: &'t [Shown],
    pub(super) refusal: Option<Refusal<'t>>,
}

/// A refusal to be written.
#[derive(Clone, Copy)]
pub(super) struct Refusal<'t> {
    /// The limit that refused, named as in [`Shown`].
    pub(super) limit: &'t str,
    /// When the request would be admitted.
    pub(super) until: u64,
    /// Whether this is the accident, which the client's own count does not explain.
    pub(super) accident: bool,
}

/// An answer.
pub(super) struct AnswerParts {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    /// The limits whose remaining quota the answer announces, by their index in [`Truth::limits`].
    pub(super) reported: Vec<usize>,
    /// How long a refusal asks to wait, in nanoseconds; `None` if neither the answer nor the documentation says it.
    pub(super) asks: Option<u64>,
}

/// The announcements of `vendor`.
pub(super) fn of(vendor: &str) -> &'static Announced {
    static KNOWN: OnceLock<BTreeMap<String, Announced>> = OnceLock::new();
    static NOTHING: OnceLock<Announced> = OnceLock::new();
    // A table that cannot be parsed counts as empty; the test of this module reports that.
    let known = KNOWN.get_or_init(|| toml::from_str(TABLE).unwrap_or_default());
    known.get(vendor).or_else(|| known.get("default")).unwrap_or_else(|| NOTHING.get_or_init(Announced::default))
}

impl Announced {
    /// The answer in this state.
    pub(super) fn compose(&self, truth: &Truth<'_>) -> AnswerParts {
        let own = truth.endpoint.and_then(|name| self.endpoints.get(name));
        let here = own.unwrap_or(self);
        let usual = here.headers.as_ref().or(self.headers.as_ref()).or(of("default").headers.as_ref());
        let mut page = Page::new(truth);
        let refused = truth.refusal.map(|refusal| self.refused(here, refusal));
        if let Some(usual) = usual.filter(|_| refused.as_ref().is_none_or(|refused| !refused.bare)) {
            page.write(usual, self.above);
        }
        let Some(refused) = refused else {
            page.write(&here.passed, 0);
            let body = here.body.as_deref().and_then(|body| page.fill(body)).unwrap_or_default();
            return page.done(200, body, None);
        };
        page.write(&refused.headers, 0);
        let body = refused.body.as_deref().and_then(|body| page.fill(body)).unwrap_or_default();
        let mut asks = page.waits;
        if asks.is_none() {
            asks = refused.silence.as_deref().and_then(duration);
            let next = refused.until_next.as_deref().and_then(duration);
            asks = asks.or(next.map(|period| moment::until_next(truth.at, period)));
        }
        if asks.is_none() && truth.refusal.is_some_and(|refusal| refusal.accident) {
            page.write(&retry_after(), 0);
            asks = page.waits;
        }
        page.done(refused.status, body, asks)
    }

    fn refused(&self, here: &Announced, refusal: Refusal<'_>) -> Refused {
        let name = refusal.limit.rsplit('/').next().unwrap_or_default();
        let by = || here.refused_by.get(name).or_else(|| self.refused_by.get(name));
        let found = by().or(here.refused.as_ref()).or(self.refused.as_ref());
        found.cloned().unwrap_or_default()
    }

    /// The longest wait that the documentation asks for after refusals that state none, in nanoseconds.
    pub(super) fn longest_silence(&self) -> u64 {
        let own = self.endpoints.values().map(Announced::longest_silence);
        let refused = self.refused.iter().chain(self.refused_by.values());
        let texts = refused.flat_map(|refused| [refused.silence.as_deref(), refused.until_next.as_deref()]);
        texts.flatten().filter_map(duration).chain(own).max().unwrap_or(0)
    }
}

fn duration(text: &str) -> Option<u64> {
    let text: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(text).ok().map(crate::clock::nanos)
}

/// An answer that is being written.
struct Page<'t> {
    truth: &'t Truth<'t>,
    foremost: Option<usize>,
    headers: HeaderMap,
    reported: Vec<usize>,
    waits: Option<u64>,
}

impl<'t> Page<'t> {
    fn new(truth: &'t Truth<'t>) -> Page<'t> {
        let by = truth.refusal.and_then(|refusal| truth.limits.iter().position(|shown| *shown.name == *refusal.limit));
        let left = |shown: &Shown| shown.remaining.saturating_mul(1_000_000) / shown.limit.max(1);
        let tightest = (0..truth.limits.len()).min_by_key(|&at| left(&truth.limits[at]));
        Page { truth, foremost: by.or(tightest), headers: HeaderMap::new(), reported: Vec::new(), waits: None }
    }

    fn write(&mut self, headers: &BTreeMap<String, String>, above: u64) {
        let used = |shown: &Shown| shown.limit.saturating_sub(shown.remaining).saturating_mul(100);
        if above > 0 && !self.truth.limits.iter().any(|shown| used(shown) >= above.saturating_mul(shown.limit)) {
            return;
        }
        for (name, template) in headers {
            if let Some(text) = self.fill(template)
                && let (Ok(name), Ok(value)) = (HeaderName::try_from(name.as_str()), HeaderValue::try_from(text))
            {
                self.headers.insert(name, value);
            }
        }
    }

    /// The template with its placeholders filled; `None` if one of them names a limit that does not apply.
    fn fill(&mut self, template: &str) -> Option<String> {
        let mut out = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('<') {
            out.push_str(before);
            let (place, after) = after.split_once('>')?;
            out.push_str(&self.place(place)?);
            rest = after;
        }
        out.push_str(rest);
        Some(out)
    }

    fn place(&mut self, place: &str) -> Option<String> {
        let (limit, field) = place.rsplit_once('.').map_or((None, place), |(limit, field)| (Some(limit), field));
        if limit.is_none()
            && let Some(text) = self.of_the_answer(field)
        {
            return Some(text);
        }
        let at = match limit {
            None => self.foremost?,
            Some(name) => {
                let exact = self.truth.limits.iter().position(|shown| *shown.name == *name);
                let own = || self.truth.limits.iter().position(|shown| shown.name.ends_with(&format!("/{name}")));
                exact.or_else(own)?
            }
        };
        let shown = self.truth.limits.get(at)?;
        let now = self.truth.at;
        let used = shown.limit.saturating_sub(shown.remaining);
        let reset = shown.reset_at.saturating_sub(now);
        if matches!(field, "remaining" | "used" | "percent") && !self.reported.contains(&at) {
            self.reported.push(at);
        }
        Some(match field {
            "limit" => shown.limit.to_string(),
            "remaining" => shown.remaining.to_string(),
            "used" => used.to_string(),
            "percent" => (used * 100 / shown.limit.max(1)).to_string(),
            "window" => shown.window_ns.div_ceil(SECOND).to_string(),
            "window_ms" => (shown.window_ns / 1_000_000).to_string(),
            "rate" => format!("{:.4}", shown.limit as f64 * SECOND as f64 / shown.window_ns.max(1) as f64),
            "reset" => reset.div_ceil(SECOND).to_string(),
            "reset_ms" => reset.div_ceil(1_000_000).to_string(),
            "reset_go" => moment::go(reset),
            "at" => moment::epoch(shown.reset_at).to_string(),
            "at_ms" => moment::epoch_ms(shown.reset_at).to_string(),
            "at_iso" => moment::iso(shown.reset_at),
            "at_http" => moment::http(shown.reset_at),
            "at_js" => moment::js(shown.reset_at),
            "oldest_at" => moment::epoch(shown.oldest_at).to_string(),
            _ => return None,
        })
    }

    /// A placeholder that does not concern a limit.
    fn of_the_answer(&mut self, field: &str) -> Option<String> {
        if field == "cost" {
            return Some(self.truth.cost.to_string());
        }
        let refusal = self.truth.refusal?;
        // All forms except milliseconds are rounded up to the second, so that a client that waits as announced does not
        // come too early.
        let wait = refusal.until.saturating_sub(self.truth.at).max(1_000_000);
        let (text, whole) = match field {
            "wait" => (wait.div_ceil(SECOND).to_string(), true),
            "wait_ms" => (wait.div_ceil(1_000_000).to_string(), false),
            "until" => (moment::epoch(refusal.until).to_string(), true),
            "until_iso" => (moment::iso(refusal.until), true),
            "until_http" => (moment::http(refusal.until), true),
            _ => return None,
        };
        // A time is exact only to the second, as `Date` is.
        let least = if whole && field != "wait" { wait.saturating_sub(SECOND) } else { wait };
        self.waits = self.waits.max(Some(least));
        Some(text)
    }

    fn done(mut self, status: u16, body: String, asks: Option<u64>) -> AnswerParts {
        if let Ok(date) = HeaderValue::try_from(moment::http_floor(self.truth.at)) {
            self.headers.insert(DATE, date);
        }
        if !body.is_empty() {
            self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
        AnswerParts { status, headers: self.headers, body, reported: self.reported, asks }
    }
}

#[cfg(test)]
mod tests;
