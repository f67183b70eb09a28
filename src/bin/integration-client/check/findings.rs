//! What is wrong, with the line that it is in and a caret below.

use std::io::{self, Write};

use integration_client::config::Finding;

use super::Text;
use crate::output::{ERROR, FAINT};
use crate::text::count;

/// Characters of a source line that are shown around the place.
const SHOWN: usize = 68;

/// What may hold a secret, or be one that stands in the wrong place: its value is not repeated.
const SECRETIVE: [&str; 8] =
    ["credential", "headers", "proxy", "base_url", "client_certificate", "extra_ca", "vars", "prefix"];

pub(super) fn show(findings: &[Finding], files: &[Text], out: &mut dyn Write) -> io::Result<()> {
    for finding in findings {
        let place = if finding.place.is_empty() { String::new() } else { format!("{}: ", finding.place) };
        writeln!(out, "{ERROR}error:{ERROR:#} {place}{}", finding.message)?;
        if let Some(name) = &finding.file {
            writeln!(out, "  {FAINT}-->{FAINT:#} {name}:{}:{}", finding.line, finding.column)?;
            let file = files.iter().find(|file| file.name == *name);
            let line = file.and_then(|file| file.text.lines().nth(finding.line.checked_sub(1)?));
            if let Some(line) = line {
                let (shown, caret) = excerpt(line, finding);
                let number = finding.line.to_string();
                let gutter = " ".repeat(number.len());
                writeln!(out, "{FAINT}{gutter} |{FAINT:#}")?;
                writeln!(out, "{FAINT}{number} |{FAINT:#} {shown}")?;
                writeln!(out, "{FAINT}{gutter} |{FAINT:#} {}{ERROR}^{ERROR:#}", " ".repeat(caret))?;
            }
        }
        writeln!(out)?;
    }
    writeln!(out, "{ERROR}{}{ERROR:#}", count(findings.len(), "problem"))
}

/// The part of a line around the finding, and how far into it the caret stands. Both in characters.
fn excerpt(line: &str, finding: &Finding) -> (String, usize) {
    let column = finding.column.saturating_sub(1);
    // The value of a key that is not known may be anything, and so may what stands beside a secret.
    let hidden = SECRETIVE.iter().any(|word| line.contains(word) || finding.place.contains(word))
        || finding.message.starts_with("unknown field");
    let text = match line.split_once('=') {
        Some((key, _)) if hidden => format!("{}= …", clean(key)),
        _ if hidden && !line.trim_start().starts_with('[') => "…".to_owned(),
        _ => clean(line),
    };
    let characters: Vec<char> = text.chars().collect();
    let column = column.min(characters.len());
    if characters.len() <= SHOWN {
        return (text, column);
    }
    // The place at a third of what is shown.
    let from = column.saturating_sub(SHOWN / 3).min(characters.len().saturating_sub(SHOWN));
    let to = (from + SHOWN).min(characters.len());
    let mut shown: String = characters.get(from..to).unwrap_or_default().iter().collect();
    let mut caret = column - from;
    if to < characters.len() {
        shown.push('…');
    }
    if from > 0 {
        shown.insert(0, '…');
        caret += 1;
    }
    (shown, caret)
}

/// One column for each character: a tab as a blank, what would move the cursor as a mark.
fn clean(text: &str) -> String {
    let plain = |c: char| {
        if c == '\t' {
            ' '
        } else if c.is_control() {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use integration_client::config::{Config, Sources};

    use super::*;

    /// The first finding's excerpt and caret.
    fn first(text: &str) -> (String, usize) {
        let sources = Sources::new().without_catalogue().file("f.toml", text);
        let found = Config::check(&sources).unwrap_err();
        let finding = &found[0];
        excerpt(text.lines().nth(finding.line - 1).unwrap(), finding)
    }

    #[test]
    fn the_caret_stands_below_the_value() {
        assert_eq!(first("[vendors.v]\nbase_url = \"https://v.example\"\nsafety = 7.0\n"), ("safety = 7.0".into(), 9));
        let wide = format!(
            "[vendors.v]\nbase_url = \"https://v.example\"\nquirks = [\"{}\"]\n\tsafety = 7.0 # é {}\n",
            "é".repeat(99),
            "x".repeat(99)
        );
        let (shown, caret) = first(&wide);
        assert_eq!((shown.chars().nth(caret), shown.chars().count()), (Some('7'), SHOWN + 1), "{shown}");
    }

    #[test]
    fn what_may_be_a_secret_is_not_repeated() {
        for text in [
            "[vendors.v]\nbase_url = \"https://u:hunter2@v.example\"\n",
            "[[tenants]]\ncredential = 52\n",
            "[[tenants]]\nid = \"a\"\nvendor = \"v\"\ntoken = \"hunter2\"\n",
            "[vendors.v]\nbase_url = \"https://v.example\"\nheaders = { authorization = \"hunter2\" }\n",
            "[vendors.v]\nbase_url = \"https://v.example\"\n[vendors.v.headers]\nauthorization = \"hunter2\"\n",
            "tenants = [{ id = \"a\", vendor = \"v\", credential = \"hunter2\" }]\n",
            "[vendors.v]\nbase_url = \"https://v.example\"\nconnection = { proxy = \"http://u:hunter2@p\" }\n",
        ] {
            let (shown, _) = first(text);
            assert!(shown.ends_with('…') && !shown.contains("hunter2") && !shown.contains("52"), "{shown}");
        }
    }
}
