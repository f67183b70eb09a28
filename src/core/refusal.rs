//! Makes errors of refusals: what happened, with names and numbers, and what to do next.

use std::time::Duration;

use crate::Priority;
use crate::clock::Time;
use crate::config::{Tenant, Vendor};
use crate::engine::{Refusal, Until};
use crate::error::{Error, ErrorKind};
use crate::request::WaitReason;

pub(crate) fn error(tenant: &Tenant, priority: Priority, now: Time, refusal: Refusal) -> Error {
    let mut retry_after = None;
    let (kind, why) = match refusal {
        Refusal::LaneFull { waiting } => (
            ErrorKind::QueueFull,
            format!(
                "{waiting} requests of priority {priority} wait already; send less, or raise max_waiting_per_tier"
            ),
        ),
        Refusal::AllFull { waiting } => (
            ErrorKind::QueueFull,
            format!("{waiting} requests of all tenants wait already; send less, or raise max_waiting"),
        ),
        Refusal::Deadline => (
            ErrorKind::Deadline,
            "the deadline or the longest wait has passed before the limits allowed the request; allow more time, or send less"
                .to_owned(),
        ),
        Refusal::TooLate { earliest } => {
            let wait = earliest.since(now);
            retry_after = Some(wait);
            let why = format!(
                "the limits allow the request in {} ms at the earliest, after its deadline or longest wait",
                wait.as_millis()
            );
            (ErrorKind::Deadline, why)
        }
        Refusal::Held => (
            ErrorKind::Deadline,
            "an operator has paused requests, and the deadline or the longest wait has passed; `resume` ends the pause"
                .to_owned(),
        ),
        Refusal::RetryLater { at } => {
            let wait = at.since(now);
            retry_after = Some(wait);
            let why = format!(
                "the vendor asked for a pause that ends in {} ms, after the request's time or too far off to wait for; \
                 send it again then",
                wait.as_millis()
            );
            (ErrorKind::RetryLater, why)
        }
        Refusal::TooExpensive { limit, cost, largest } => (
            ErrorKind::CostAboveCapacity,
            format!("a cost of {cost} never fits limit `{limit}`, which holds {largest} at most; split the request"),
        ),
        Refusal::NotNow { until, reason } => {
            let at = match until {
                Until::At(at) | Until::Turn(at) => Some(at),
                Until::OnSettle(_) => None,
            };
            retry_after = at.map(|at| at.since(now)).filter(|wait| *wait > Duration::ZERO);
            let when = match retry_after {
                Some(wait) => format!("; not before {} ms from now", wait.as_millis()),
                None => String::new(),
            };
            (ErrorKind::NotNow, format!("not now: {}{when}", WaitReason::new(reason)))
        }
        Refusal::UnknownEndpoint => {
            (ErrorKind::UnknownEndpoint, "the request's endpoint was removed from the configuration".to_owned())
        }
        Refusal::Retired => (ErrorKind::Retired, "the tenant was removed".to_owned()),
        Refusal::NoLane => (ErrorKind::Retired, "the lane is gone; send again".to_owned()),
        Refusal::Shutdown => (ErrorKind::Shutdown, "the client is shutting down".to_owned()),
    };
    let error = tenant.not_sent(kind, why);
    match retry_after {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

pub(crate) fn credential_timeout(tenant: &Tenant) -> Error {
    tenant.not_sent(ErrorKind::Credential, "the credential could not be read before the deadline")
}

#[cold]
#[inline(never)]
pub(crate) fn unknown_size(vendor: &Vendor) -> Error {
    let message = format!(
        "vendor {} counts bytes, and how many a streamed body has is not known: say so by `Request::expect_bytes`",
        vendor.name
    );
    Error::not_sent(ErrorKind::InvalidRequest, message)
}

pub(crate) fn unknown_kind(vendor: &Vendor, kind: &str) -> Error {
    let kind: String = kind.chars().take(64).collect();
    let known: Vec<&str> = vendor.costs.iter().map(|(name, _)| name).collect();
    let message = format!("the entry of vendor `{}` declares no {kind:?}; it counts {}", vendor.name, known.join(", "));
    Error::not_sent(ErrorKind::InvalidRequest, message)
}
