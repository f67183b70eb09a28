//! What a gateway counts, for the metrics. Stands here because the metrics are told with those of the client.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::metrics::GatewayFigures;

/// How a request to a gateway ended.
#[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "the gateway counts"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Answered by the vendor, or accepted for later.
    Answered,
    /// The gateway refused it, or could not send it.
    NotSent,
    /// Nobody knows whether the vendor acted.
    Ambiguous,
    /// It had no token, or a wrong one.
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
    /// A gateway begins: from now on there is something to tell.
    pub(crate) fn begin(&self) {
        self.is_there.store(true, Relaxed);
    }

    /// A connection, until what is returned is dropped.
    pub(crate) fn connection(&self) -> Connection<'_> {
        self.connections.fetch_add(1, Relaxed);
        Connection(self)
    }

    /// A connection for which there was no place.
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
