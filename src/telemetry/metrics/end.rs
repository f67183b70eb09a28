//! The ends of permits that the metrics count.

/// How a permit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Finished,
    NotSent,
    Abandoned,
}
