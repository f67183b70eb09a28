//! The tests of the public API, one module for each subject. All modules are in one binary, because a binary for each
//! would link the whole library forty times. Tests that set what a process can set only once (a log subscriber, an
//! allocator) are binaries of their own, beside this folder.

mod architecture;
mod bad_vendors;
mod browser;
mod cancel;
mod catalogue;
mod catalogue_walk;
mod changing_limits;
mod checker;
mod client;
mod config;
mod console;
mod dead_letters_load;
mod dialects;
mod end_to_end;
mod events;
mod exchanges;
mod fairness;
mod fake_vendor;
mod fake_vendor_outage;
mod fake_vendor_troubles;
mod gateway;
mod hostile;
mod idempotency;
mod imports;
mod intake_python;
mod isolation;
mod json_api;
mod leases;
mod log_events;
mod metrics;
mod middleware;
mod oauth;
mod outbox;
mod outbox_handlers;
mod outbox_intake;
mod outbox_isolation;
mod properties;
mod public_types;
mod pushback;
mod pushback_vendor;
mod rate_limits;
mod reloads;
mod remote_config;
mod reply_delivery;
mod shared_limits;
mod sharing;
mod simulate;
mod soak;
mod spans;
mod store_lost_replies;
#[cfg(feature = "postgres")]
mod store_shared;
mod store_shutdown;
mod store_statements;
mod store_troubles;
#[allow(clippy::unwrap_used, reason = "a vendor of the tests that cannot start stops the test")]
mod support;
mod tidy;
mod tls;
mod tower;
mod usage;
mod waits;
