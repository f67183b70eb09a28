//! The counts of gateways for the metrics. They are kept in `core`, because they are exported with the client's
//! metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::telemetry::metrics::GatewayFigures;

/// How a request to a gateway ended.
#[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "the gateway counts"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The vendor answered, or the request was accepted to be sent later.
    Answered,
    /// The gateway refused the request, or could not send it.
    NotSent,
    /// It is unknown whether the vendor acted.
    Ambiguous,
    /// The request had no token, or a wrong one.
    Unauthorized,
}

/// The counts of all gateways of a client.
#[derive(Default)]
pub(crate) struct GatewayCounts {
    is_there: AtomicBool,
    connections: AtomicU64,
    turned_away: AtomicU64,
    ended: [AtomicU64; 4],
}

#[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "the gateway counts"))]
impl GatewayCounts {
    /// Marks that the client has a gateway: from now on its counts are exported.
    pub(crate) fn begin(&self) {
        self.is_there.store(true, Relaxed);
    }

    /// Counts an open connection until the returned guard is dropped.
    pub(crate) fn connection(&self) -> Connection<'_> {
        self.connections.fetch_add(1, Relaxed);
        Connection(self)
    }

    /// Counts a connection that was refused because there were too many.
    pub(crate) fn turned_away(&self) {
        self.turned_away.fetch_add(1, Relaxed);
    }

    pub(crate) fn ended(&self, outcome: Outcome) {
        self.ended[outcome as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn figures(&self) -> Option<GatewayFigures> {
        self.is_there.load(Relaxed).then(|| GatewayFigures {
            connections: self.connections.load(Relaxed),
            turned_away: self.turned_away.load(Relaxed),
            ended: [0, 1, 2, 3].map(|outcome: usize| self.ended[outcome].load(Relaxed)),
        })
    }
}

pub(crate) struct Connection<'c>(&'c GatewayCounts);

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}
