//! The vendors that tests compare the engine with: the sources of `src/testing` of the library, compiled into these tests.
//!
//! A dev-dependency on the library would do too, and would compile all of it anew, with its runtime and TLS, whenever a test of
//! the engine is to see a change of the engine.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::wrong_self_convention,
    reason = "these sources are for others too"
)]

#[path = "../../src/testing/limit/mod.rs"]
pub(crate) mod limit;
#[path = "../../src/testing/scripted/mod.rs"]
mod scripted;

pub(crate) use scripted::{Call, ScriptedVendor, VendorLimit};

/// What these sources take from the library's `src/clock.rs`.
pub(crate) mod clock {
    pub(crate) use crate::time::nanos;
}

/// What they take from its `src/config`.
pub(crate) mod config {
    /// Who shares a limit.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Scope {
        Endpoint,
        Tenant,
        Account,
        Vendor,
    }
}
