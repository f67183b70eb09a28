//! The two rights of a console, view and operate, and which of them a caller has. `call.rs` says which right a call
//! needs, and `answer.rs` compares the two.

use crate::config::{Caller, May};

/// What a user may do in a console.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Access {
    /// Look at everything.
    View,
    /// Look at everything, pause and resume lanes, and send dead letters again or delete them.
    Operate,
}

impl Access {
    /// The name in snake case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Access::View => "view",
            Access::Operate => "operate",
        }
    }

    /// The access of a caller of the configuration; `None` if the caller has no right to the console. The console shows
    /// all tenants, so rights to some of them give no access.
    pub(super) fn of_caller(caller: &Caller) -> Option<Access> {
        let has = |right: May| caller.is_for_all() && caller.may.contains(&right);
        match () {
            () if has(May::Operate) => Some(Access::Operate),
            () if has(May::View) => Some(Access::View),
            () => None,
        }
    }

    /// Reduces the access to [`Access::View`] if the console is read-only.
    pub(super) fn capped(self, read_only: bool) -> Access {
        if read_only { Access::View } else { self }
    }
}

#[cfg(test)]
mod tests;
