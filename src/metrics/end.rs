//! How a permit ends, as the counts tell it.

/// How a permit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Finished,
    NotSent,
    Abandoned,
}
