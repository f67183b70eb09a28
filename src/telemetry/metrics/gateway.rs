//! The metrics of gateways.

use super::handle::{Count, Depth};
use super::table::{GATEWAY, GATEWAY_CONNECTIONS, GATEWAY_FULL};

/// The figures of gateways that the metrics report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GatewayFigures {
    pub(crate) connections: u64,
    pub(crate) turned_away: u64,
    /// The numbers of requests that were answered, not sent, ambiguous, and without a valid token.
    pub(crate) ended: [u64; 4],
}

#[derive(Default)]
pub(super) struct GatewaySeries {
    connections: Depth,
    turned_away: Count,
    ended: [Count; 4],
}

impl GatewaySeries {
    pub(super) fn tell(&self, figures: &GatewayFigures, last: bool) {
        self.connections.tell(if last { 0 } else { figures.connections as i64 }, &GATEWAY_CONNECTIONS, &[], &[]);
        self.turned_away.set(figures.turned_away);
        self.turned_away.tell(&GATEWAY_FULL, &[], &[]);
        let outcomes = ["answered", "not_sent", "ambiguous", "unauthorized"];
        for ((series, total), outcome) in self.ended.iter().zip(figures.ended).zip(outcomes) {
            series.set(total);
            series.tell(&GATEWAY, &[], &[("outcome", outcome)]);
        }
    }
}
