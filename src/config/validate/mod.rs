//! Validates entries as written: returns the vendor or setting that an entry describes, and reports every problem.

mod callers;
mod costs;
mod dialect;
mod fields;
mod idempotency;
mod limit;
mod oauth;
mod retry;
mod secret_headers;
mod vendor;

pub(super) use callers::caller;
pub(super) use costs::check_shared;
#[cfg(any(test, feature = "testing"))]
pub(super) use costs::of_vendor as costs;
#[cfg(any(test, feature = "testing"))]
pub(super) use dialect::dialect;
pub(crate) use fields::CONNECTION_HEADERS;
pub(super) use fields::fraction;
pub(crate) use fields::parse_duration;
pub(super) use fields::{check_id, duplicates};
pub(super) use limit::share;
pub(super) use oauth::tenant_oauth;
pub(super) use secret_headers::{secret_headers, taken_headers, too_many_in_all, too_many_secret_headers};
pub(super) use vendor::{check_file, vendor};
