//! Why the configuration in use differs from what its sources hold.

/// Tells a source that cannot be read from a source whose content is invalid: an operator does something else about
/// each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProblemKind {
    /// A source gives nothing that could be checked: a server is away, a file is missing or empty.
    Unreadable,
    /// What a source holds is not valid, or does not fit the rest. What was valid last stays in use, or a row is left
    /// out.
    Invalid,
    /// A source cannot be read, and what another one holds is not valid.
    Both,
}

impl ProblemKind {
    pub(crate) fn is_unreadable(self) -> bool {
        self != ProblemKind::Invalid
    }

    pub(crate) fn is_invalid(self) -> bool {
        self != ProblemKind::Unreadable
    }
}

/// What is wrong with the configuration, or with a part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConfigProblem {
    pub(crate) kind: ProblemKind,
    pub(crate) why: String,
}

impl ConfigProblem {
    pub(crate) fn unreadable(why: impl Into<String>) -> ConfigProblem {
        ConfigProblem { kind: ProblemKind::Unreadable, why: why.into() }
    }

    pub(crate) fn invalid(why: impl Into<String>) -> ConfigProblem {
        ConfigProblem { kind: ProblemKind::Invalid, why: why.into() }
    }

    /// Both problems as one.
    pub(super) fn and(self, other: ConfigProblem) -> ConfigProblem {
        let kind = if self.kind == other.kind { self.kind } else { ProblemKind::Both };
        ConfigProblem { kind, why: format!("{}; {}", self.why, other.why) }
    }
}

#[cfg(test)]
mod tests;
