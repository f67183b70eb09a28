//! Explains rules of a dialect in words.

use super::super::json::Pointer;
use super::super::{Rule, json};
use super::{AnswerRule, Dialect, Source};

impl Dialect {
    /// What decided whether an answer is a refusal, in words: a rule of this dialect by what it looks for, as in
    /// `body#/errors/*/type is RATE_LIMITED`.
    pub fn explain(&self, rule: Rule) -> String {
        let stated = match rule {
            Rule::Dialect(number) => self.answers.get(number),
            _ => None,
        };
        stated.map_or_else(|| rule.to_string(), AnswerRule::in_words)
    }
}

impl AnswerRule {
    fn in_words(&self) -> String {
        let mut parts = Vec::new();
        if !self.status.is_empty() {
            let status: Vec<String> = self.status.iter().map(u16::to_string).collect();
            parts.push(format!("the status is {}", status.join(" or ")));
        }
        let place = self.from.as_ref().map_or_else(|| "the body".to_owned(), Source::in_words);
        if !self.is.is_empty() {
            parts.push(format!("{place} is {}", self.is.join(" or ")));
        }
        if !self.contains.is_empty() {
            let texts: Vec<String> = self.contains.iter().map(|text| format!("{text:?}")).collect();
            parts.push(format!("{place} contains {}", texts.join(" or ")));
        }
        if self.from.is_some() && self.is.is_empty() && self.contains.is_empty() {
            parts.push(format!("{place} is present"));
        }
        if self.exhausted {
            parts.push("a window is exhausted".to_owned());
        }
        parts.join(", and ")
    }
}

impl Source {
    /// Its notation in the configuration.
    fn in_words(&self) -> String {
        let below = |place: &str, pointer: &Pointer| format!("{place}#{}", json::written(pointer));
        match self {
            Source::Header(name) => name.to_string(),
            Source::Headers(start) => format!("{start}*"),
            Source::InHeader(name, pointer) => below(name.as_str(), pointer),
            Source::Text => "the body".to_owned(),
            Source::Body(pointer) => below("body", pointer),
            Source::Member(pointer) => json::written(pointer),
        }
    }
}
