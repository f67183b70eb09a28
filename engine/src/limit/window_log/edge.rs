//! The end of a fixed window, if it is known.

/// The vendor's window ends between these moments, in nanoseconds: requests that ended before `from` count nowhere
/// after `to`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: u64,
    pub(super) to: u64,
    /// Whether a response has stated the end, and not only the calendar.
    pub(super) stated: bool,
}

/// When a request that ended at `at` stops counting, in a window of `window` nanoseconds.
pub(super) fn gone_at(edge: Option<Edge>, window: u64, at: u64) -> u64 {
    let gone = at.saturating_add(window);
    match edge {
        Some(edge) if at <= edge.from => gone.min(edge.to),
        _ => gone,
    }
}
