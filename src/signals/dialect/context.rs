//! A response, as input to the rules of a dialect.

use std::cell::OnceCell;

use http::{HeaderMap, StatusCode};

use super::{Dialect, Pointers};
use crate::signals::json::{self, Found, Pointer};
use crate::signals::moment::Now;

/// A response, its time of arrival and its vendor's dialect.
pub(in crate::signals) struct Context<'r> {
    pub(in crate::signals) dialect: &'r Dialect,
    pub(in crate::signals) status: StatusCode,
    pub(in crate::signals) headers: &'r HeaderMap,
    pub(in crate::signals) body: &'r [u8],
    pub(in crate::signals) now: &'r Now<'r>,
    /// The values at the dialect's pointers, looked up together on first use.
    in_body: OnceCell<InBody<'r>>,
}

struct InBody<'r> {
    pointers: Pointers<'r>,
    found: Vec<(usize, Found)>,
}

impl<'r> Context<'r> {
    pub(in crate::signals) fn new(
        dialect: &'r Dialect,
        status: StatusCode,
        headers: &'r HeaderMap,
        body: &'r [u8],
        now: &'r Now<'r>,
    ) -> Context<'r> {
        Context { dialect, status, headers, body, now, in_body: OnceCell::new() }
    }

    /// The values in the body at one of the dialect's pointers.
    pub(super) fn in_body(&self, pointer: &Pointer) -> impl Iterator<Item = &Found> {
        let InBody { pointers, found } = self.in_body.get_or_init(|| {
            let pointers = self.dialect.pointers(self.status);
            let found = json::find(&pointers, self.body);
            InBody { pointers, found }
        });
        let own = pointers.iter().position(|known| *known == pointer);
        found.iter().filter(move |(of, _)| Some(*of) == own).map(|(_, found)| found)
    }
}
