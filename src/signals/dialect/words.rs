//! Explains rules of a dialect in words.

use super::{AnswerRule, Dialect, Source};
use crate::signals::{Rule, json};

impl Dialect {
    /// The rule that decided whether a response is a refusal, in words: a rule of this dialect by its conditions, as in
    /// "body `errors[].type` is RATE_LIMITED".
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
    /// Describes the place in words: "header `x-code`", "body `errors[].code`".
    fn in_words(&self) -> String {
        match self {
            Source::Header(name) => format!("header `{name}`"),
            Source::Headers(start) => format!("header `{start}*`"),
            Source::InHeader(name, pointer) => format!("`{}` in header `{name}`", json::path(pointer)),
            Source::Text => "the body".to_owned(),
            Source::Body(pointer) => format!("body `{}`", json::path(pointer)),
            Source::Member(pointer) => format!("`{}`", json::path(pointer)),
        }
    }
}
