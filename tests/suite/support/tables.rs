//! Reads tables of Markdown pages.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test crate uses a part of it")]

/// The rows of the table whose heading begins with `head`, cell by cell, without the backticks of a cell that is one
/// word.
#[track_caller]
pub fn rows(page: &str, head: &str) -> Vec<Vec<String>> {
    let is_row = |line: &&str| line.starts_with('|');
    let mut lines = page.lines().skip_while(|line| !line.starts_with(&format!("| {head} |")));
    assert!(lines.next().is_some(), "no table {head:?}");
    let cell = |cell: &str| {
        let cell = cell.trim();
        let inner = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
        inner.filter(|inner| !inner.contains('`')).unwrap_or(cell).to_owned()
    };
    let cells = |row: &str| row.trim_matches('|').split('|').map(cell).collect::<Vec<_>>();
    let rows: Vec<_> = lines.skip(1).take_while(is_row).map(cells).collect();
    assert!(!rows.is_empty(), "nothing in the table {head:?}");
    rows
}

/// The texts between backticks.
pub fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}
