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
            if let Some((shown, caret)) = line.and_then(|line| excerpt(line, finding)) {
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
///
/// None where the finding names no field: the parser refused the text, so what the line holds is unknown. It may be a
/// secret without its quotes, one line of a private key, or the value of a misspelt key.
fn excerpt(line: &str, finding: &Finding) -> Option<(String, usize)> {
    if finding.place.is_empty() {
        return None;
    }
    let column = finding.column.saturating_sub(1);
    let hidden = SECRETIVE.iter().any(|word| line.contains(word) || finding.place.contains(word));
    let text = match line.split_once('=') {
        Some((key, _)) if hidden => format!("{}= …", clean(key)),
        _ if hidden && !line.trim_start().starts_with('[') => "…".to_owned(),
        _ => clean(line),
    };
    let characters: Vec<char> = text.chars().collect();
    let column = column.min(characters.len());
    if characters.len() <= SHOWN {
        return Some((text, column));
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
    Some((shown, caret))
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
        excerpt(text.lines().nth(finding.line - 1).unwrap(), finding).unwrap()
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
            "[vendors.v]\nbase_url = \"https://v.example\"\nheaders = { authorization = \"hunter2\" }\n",
            "[vendors.v]\nbase_url = \"https://v.example\"\n[vendors.v.headers]\nauthorization = \"hunter2\"\n",
            "tenants = [{ id = \"a\", vendor = \"x\", credential = \"hunter2\" }]\n",
            "[vendors.v]\nbase_url = \"https://v.example\"\nconnection = { proxy = \"http://u:hunter2@p\" }\n",
        ] {
            let (shown, _) = first(text);
            assert!(shown.ends_with('…') && !shown.contains("hunter2") && !shown.contains("52"), "{shown}");
        }
    }

    #[test]
    fn refused_text_is_not_repeated() {
        let key = "-----BEGIN PRIVATE KEY-----\nMIIhunter2==\n-----END PRIVATE KEY-----";
        for text in [
            "[[tenants]]\ncredential = 52\n".to_owned(),
            "[[tenants]]\ncredential = hunter2\n".to_owned(),
            "[[tenants]]\nid = \"a\"\nvendor = \"v\"\ntoken = \"hunter2\"\n".to_owned(),
            "[[tenants]]\nid = \"hunter2\n".to_owned(),
            "[[tenants]]\nhunter2\n".to_owned(),
            "[[tenants]]\nid \"hunter2\"\n".to_owned(),
            "[[tenants]]\nid = \"a\" \"hunter2\"\n".to_owned(),
            "[[tenants]]\nvars = { key = hunter2 }\n".to_owned(),
            "[[tenants]]\nweight = \"hunter2\"\n".to_owned(),
            "[vendors.v]\nsafety = \"hunter2\"\n".to_owned(),
            "[vendors.v]\nsafety = [0.8, \"hunter2\"]\n".to_owned(),
            format!("[[tenants]]\ncredential = \"\"\"\n{key}\n\\q\"\"\"\n"),
            format!("[[tenants]]\n{key}\n"),
            "[vendors.v]\nbase_url = \"https://v.example\"\nthrottle = \"hunter2\"\n[[tenants]]\nid = \"\n".to_owned(),
        ] {
            let files = [Text { name: "f.toml".into(), text: text.clone() }];
            let findings = Config::check(&Sources::new().without_catalogue().file("f.toml", &*text)).unwrap_err();
            let mut said = Vec::new();
            show(&findings, &files, &mut said).unwrap();
            let said = String::from_utf8(said).unwrap();
            // A key without a value is named as a key that is not known.
            let named = text.contains("\nhunter2\n") && said.contains("unknown field");
            assert!(named || !said.contains("hunter2"), "{text}\n{said}");
            assert!(said.contains("f.toml:"), "{said}");
        }
    }
}
