//! The words of a header name, and what they say together: role, unit and window.

use std::time::Duration;

use smallvec::SmallVec;

use crate::signals::windows::Name;
use crate::signals::word::{SECOND, Word};

/// More words than any vendor's header has.
const MAX_WORDS: usize = 12;

/// What a header's value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Role {
    Limit,
    Remaining,
    Used,
    Reset,
    Length,
    /// The name of the window that the other headers of the family describe.
    Label(u8),
    /// How long to wait.
    Wait,
    /// What this one request cost.
    Cost,
    /// `RateLimit` itself: a structured field, or a bare limit.
    Field,
    Policy,
    /// Only the value can tell.
    Unknown,
}

/// A window's name: usually part of the header's name, which is then borrowed.
#[derive(Clone, Debug)]
pub(super) enum Title<'a> {
    Part(&'a str),
    Made(Name),
}

impl<'a> Title<'a> {
    pub(super) fn of(part: &'a str) -> Option<Title<'a>> {
        (!part.is_empty()).then_some(Title::Part(part))
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            Title::Part(part) => part,
            Title::Made(name) => name.as_str(),
        }
    }

    pub(super) fn to_name(&self) -> Option<Name> {
        match self {
            Title::Part(part) => Name::of_header(part),
            Title::Made(name) => Some(name.clone()),
        }
    }
}

impl PartialEq for Title<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

/// The words of a name, at most [`MAX_WORDS`].
#[derive(Default)]
pub(super) struct Words<'a> {
    pub(super) words: SmallVec<[(&'a str, Word); MAX_WORDS]>,
    /// The last word is `retry`.
    retry: bool,
}

impl<'a> Words<'a> {
    pub(super) fn add(&mut self, text: &'a str) -> Option<()> {
        self.add_as(text, Word::of(text))
    }

    pub(super) fn add_as(&mut self, text: &'a str, word: Word) -> Option<()> {
        if self.retry
            && matches!(text, "after" | "in" | "pushback")
            && let Some((_, before)) = self.words.last_mut()
        {
            *before = Word::Wait;
        }
        self.retry = word == Word::Retry;
        if self.words.len() == MAX_WORDS {
            return None;
        }
        self.words.push((text, if self.retry { Word::Other } else { word }));
        Some(())
    }

    pub(super) fn all(&self) -> &[(&'a str, Word)] {
        &self.words
    }

    pub(super) fn before(&self, at: usize) -> &[(&'a str, Word)] {
        self.words.get(..at).unwrap_or_default()
    }

    pub(super) fn has_unit(&self) -> bool {
        self.all().iter().any(|(_, word)| matches!(word, Word::Unit(_)))
    }

    pub(super) fn has(&self, word: Word) -> bool {
        self.all().iter().any(|(_, own)| *own == word)
    }

    /// The role and the unit of the value. In a limit's name, `period` is the window's name.
    pub(super) fn role(&self) -> Option<(Role, u64)> {
        let mut unit = None;
        let mut found: Option<(u8, Role)> = None;
        for (_, word) in self.all() {
            let (rank, role) = match word {
                Word::Wait => (0, Role::Wait),
                Word::Reset => (1, Role::Reset),
                Word::Remaining => (2, Role::Remaining),
                Word::Used => (3, Role::Used),
                Word::Limit => (4, Role::Limit),
                Word::Length => (5, Role::Length),
                Word::Unit(nanos) => {
                    unit = unit.or(Some(*nanos));
                    continue;
                }
                _ => continue,
            };
            if found.is_none_or(|(known, _)| rank < known) {
                found = Some((rank, role));
            }
        }
        let unit = unit.unwrap_or(SECOND);
        match (found, self.all()) {
            (Some((_, role)), _) => Some((role, unit)),
            (None, [(_, Word::Label(rank))]) => Some((Role::Label(*rank), unit)),
            _ => None,
        }
    }

    /// `daily`, or `requests-per-minute`: such a header holds the limit.
    pub(super) fn are_periods(&self) -> bool {
        let has_period = || self.all().iter().any(|(_, word)| matches!(word, Word::Period(_)));
        self.all().iter().all(|(_, word)| matches!(word, Word::Period(_) | Word::Per))
            || (self.has(Word::Per) && has_period())
    }

    pub(super) fn last_role(&self) -> Option<usize> {
        self.all().iter().rposition(|(_, word)| word.is_role())
    }

    /// Whether only units and fillers follow the word at `at`.
    pub(super) fn is_last(&self, at: usize) -> bool {
        self.all().iter().skip(at + 1).all(|(_, word)| matches!(word, Word::Unit(_) | Word::Filler))
    }

    /// The window's name, made of all words that have no other meaning, and its length.
    pub(super) fn window(&self, role: Role) -> (Option<Title<'a>>, Option<Duration>) {
        let is_time = matches!(role, Role::Reset | Role::Length | Role::Wait);
        let mut name: Option<Title<'a>> = None;
        let mut length = None;
        for (text, word) in self.all() {
            let keep = match *word {
                Word::Other | Word::Label(_) => true,
                Word::Length => role != Role::Length,
                Word::Unit(unit) if !is_time => {
                    // `limit-sec` is a limit per second.
                    if unit == SECOND {
                        length = Some(Duration::from_secs(1));
                    }
                    true
                }
                Word::Period(period) => {
                    if role == Role::Length {
                        false
                    } else {
                        length = length.or(period);
                        true
                    }
                }
                _ => false,
            };
            if keep {
                name = match name {
                    None => Title::of(text),
                    Some(before) => before.to_name().map(|mut name| {
                        name.add(text);
                        Title::Made(name)
                    }),
                };
            }
        }
        match role {
            Role::Label(_) | Role::Policy | Role::Field => (None, None),
            _ => (name, length),
        }
    }
}
