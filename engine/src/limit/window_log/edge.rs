//! The end of a fixed window, where it is known.

/// The vendor's window ends between these moments, in nanoseconds: what ended before the first counts nowhere after the second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: u64,
    pub(super) to: u64,
    /// An answer of the vendor's says so, and not the calendar alone.
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
