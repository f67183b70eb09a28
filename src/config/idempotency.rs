//! How a vendor takes idempotency keys: `[vendors.NAME.idempotency]`.

use std::time::Duration;

use http::Method;

use super::names::names;
use super::pattern;

/// How a vendor takes idempotency keys, by which it recognizes a request that it has already seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Idempotency {
    /// Where in a request the key goes; `None` for a vendor that takes no keys.
    pub carrier: Option<KeyCarrier>,
    /// The methods of the requests that may carry a key, upper case; POST and PATCH by default. With PUT among them, a
    /// PUT to one of the `paths` is repeated only while the vendor knows its key: such a vendor may act on each.
    pub methods: Vec<String>,
    /// Patterns of the paths of the requests that may carry a key, as in [`Endpoint::paths`](super::Endpoint::paths); empty
    /// means all paths.
    pub paths: Vec<String>,
    /// The longest key that the vendor takes, in bytes: 32 to 255; 255 by default.
    pub max_length: usize,
    /// How long the vendor recognises a key after it has first read it; 24 hours by default. After an exchange with an
    /// unknown outcome the key allows another one only if that one ends, by `attempt_timeout`, within this time.
    pub keeps: Duration,
    /// What becomes of a request with a stated key that cannot be sent.
    pub on_unsendable: OnUnsendable,
}

/// Where in a request an idempotency key goes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyCarrier {
    /// The header of this name, in lower case.
    Header(String),
    /// The query parameter of this name.
    Query(String),
    /// The member of this name in the body, which must be a JSON object.
    Body(String),
}

/// What becomes of a request whose caller states an idempotency key that cannot be sent to this vendor, or not with this
/// kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnUnsendable {
    /// The request fails before it is sent, with an error that says why.
    #[default]
    Fail,
    /// The request is sent without the key. A warning is logged once per vendor.
    Warn,
}

names!(OnUnsendable { Fail = "fail", Warn = "warn" });

/// How long a vendor recognises a key if its entry does not say so: the time that vendors document most often.
const KEEPS: Duration = Duration::from_secs(24 * 3600);

impl Default for Idempotency {
    fn default() -> Idempotency {
        Idempotency {
            carrier: None,
            methods: vec!["POST".to_owned(), "PATCH".to_owned()],
            paths: Vec::new(),
            max_length: 255,
            keeps: KEEPS,
            on_unsendable: OnUnsendable::default(),
        }
    }
}

impl Idempotency {
    /// Whether a request with `method` to `path` (below the base URL, without the query) may carry a key.
    pub fn covers(&self, method: &Method, path: &str) -> bool {
        self.carrier.is_some() && self.takes_method(method) && self.takes_path(path)
    }

    /// Whether requests with `method` may carry a key, to some paths at least.
    pub(crate) fn takes_method(&self, method: &Method) -> bool {
        self.methods.iter().any(|covered| covered == method.as_str())
    }

    fn takes_path(&self, path: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|covered| pattern::matches(covered, path))
    }
}
