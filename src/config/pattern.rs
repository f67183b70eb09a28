//! Path patterns of endpoints.
//!
//! A pattern consists of literal segments, `*` for one segment, and a final `**` for any remaining segments. Matching
//! never backtracks, so it reads each byte of the path once per pattern and allocates nothing. Empty segments of a path
//! are skipped: a doubled or trailing slash must not let a request bypass its endpoint's limit.

use std::cmp::Ordering;

/// The most patterns of one endpoint. The time to match a path is linear in their number and their length.
pub(super) const MAX_PATTERNS: usize = 256;
/// The longest pattern, in bytes.
const LONGEST: usize = 1024;

/// Whether `pattern` matches `path`, which is given without the query.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let mut path = segments(path);
    for expected in segments(pattern) {
        if expected == "**" {
            return true;
        }
        match path.next() {
            Some(actual) if expected == "*" || expected == actual => {}
            _ => return false,
        }
    }
    path.next().is_none()
}

/// `Greater` if `a` is more literal than `b`: at the first segment whose kinds differ, a literal beats `*`, `*` beats
/// `**`, and any segment beats the end of the pattern.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let rank = |segment: Option<&str>| match segment {
        None => 0,
        Some("**") => 1,
        Some("*") => 2,
        Some(_) => 3,
    };
    let (mut a, mut b) = (segments(a), segments(b));
    loop {
        let (left, right) = (a.next(), b.next());
        if left.is_none() && right.is_none() {
            return Ordering::Equal;
        }
        let order = rank(left).cmp(&rank(right));
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// The pattern without redundant slashes: equal for patterns that match the same paths.
pub(super) fn normal(pattern: &str) -> String {
    segments(pattern).fold(String::with_capacity(pattern.len()), |all, segment| all + "/" + segment)
}

/// Checks the syntax of a pattern; the error says what is wrong and what to write.
pub(super) fn check(pattern: &str) -> Result<(), String> {
    if pattern.len() > LONGEST {
        return Err(format!("the pattern is longer than {LONGEST} bytes; shorten it with `*` or `**`"));
    }
    if !pattern.starts_with('/') {
        return Err("a path pattern starts with `/`, the path below the base URL; for example \"/search/*\"".into());
    }
    if let Some(bad) = pattern.chars().find(|c| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '\\')) {
        return Err(format!("a path pattern cannot hold {bad:?}: it matches the path alone, without the query"));
    }
    let mut rest = pattern.strip_prefix('/').unwrap_or(pattern).split('/').peekable();
    while let Some(segment) = rest.next() {
        let last = rest.peek().is_none();
        match segment {
            "" if last => {}
            "" => return Err("the pattern has an empty segment (`//`); remove one slash".into()),
            "." | ".." => return Err("`.` and `..` never reach the vendor; write the path that they lead to".into()),
            "**" if !last => return Err("`**` can only be the last segment; use `*` for one segment".into()),
            "*" | "**" => {}
            _ if segment.contains('*') => {
                return Err("`*` stands for one whole segment; it cannot be part of one".into());
            }
            _ => {}
        }
    }
    Ok(())
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

#[cfg(test)]
mod tests;
