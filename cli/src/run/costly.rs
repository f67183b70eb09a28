//! The lines of a dry run that cost more than a limit holds: they are not accepted. Other invalid lines may hide them.

use crate::text::thousands64;

/// Line numbers that are shown.
const NAMED: usize = 5;

#[derive(Default)]
pub(super) struct Costly {
    number: u64,
    lines: Vec<String>,
    /// What is wrong with the first of them; it names the limit.
    why: String,
}

impl Costly {
    pub(super) fn add(&mut self, line: u64, why: &str) {
        self.number += 1;
        match self.lines.len() {
            0 => why.clone_into(&mut self.why),
            NAMED => self.lines.push("…".to_owned()),
            _ => {}
        }
        if self.lines.len() < NAMED {
            self.lines.push(line.to_string());
        }
    }

    /// What the user should know; `None` if there is no such line.
    pub(super) fn shown(&self) -> Option<String> {
        let (lines, why) = (self.lines.join(", "), &self.why);
        match self.number {
            0 => None,
            1 => {
                Some(format!("1 line costs more than a limit holds (line {lines}): {why}, or raise the limit's figure"))
            }
            number => Some(format!(
                "{} lines cost more than a limit holds (lines {lines}). The first: {why}, or raise the limit's figure",
                thousands64(number)
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_costly_lines_are_named() {
        let mut costly = Costly::default();
        assert_eq!(costly.shown(), None);
        costly.add(7, "split it");
        let one = "1 line costs more than a limit holds (line 7): split it, or raise the limit's figure";
        assert_eq!(costly.shown().as_deref(), Some(one));
        (10..1_300).for_each(|line| costly.add(line, "-"));
        let all = "1,291 lines cost more than a limit holds (lines 7, 10, 11, 12, 13, …). The first: split it, or raise the \
                   limit's figure";
        assert_eq!(costly.shown().as_deref(), Some(all));
    }
}
