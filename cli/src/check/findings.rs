//! Shows what is wrong in a configuration: each problem with the key that it is about and a caret below the place.
//!
//! No value of a file is shown, because any value may be a secret, or a secret may stand in its place by mistake.

use std::io::{self, Write};

use integration_client::config::Finding;

use crate::output::{ERROR, FAINT, Screen, headed};
use crate::sources::Text;
use crate::text::count;

/// Characters of a source line that are shown around the caret.
const SHOWN: usize = 68;

pub(super) fn show(findings: &[Finding], files: &[Text], screen: Screen, out: &mut dyn Write) -> io::Result<()> {
    for finding in findings {
        let place = if finding.place.is_empty() { String::new() } else { format!("{}: ", finding.place) };
        let message = format!("{place}{}", finding.message);
        writeln!(out, "{}", headed(screen, ERROR, "error:", &message))?;
        if let Some(name) = &finding.file {
            writeln!(out, "  {FAINT}-->{FAINT:#} {name}:{}:{}", finding.line, finding.column)?;
            let file = files.iter().find(|file| file.name == *name);
            if let Some((shown, caret)) = file.and_then(|file| excerpt(&file.text, finding)) {
                let number = finding.line.to_string();
                let gutter = " ".repeat(number.len());
                writeln!(out, "{FAINT}{gutter} |{FAINT:#}")?;
                writeln!(out, "{FAINT}{number} |{FAINT:#} {shown}")?;
                writeln!(out, "{FAINT}{gutter} |{FAINT:#} {}{ERROR}^{ERROR:#}", " ".repeat(caret))?;
            }
        }
        writeln!(out)?;
    }
    // The parser reports only the first error of a text that is not valid TOML.
    let is_unread = files.iter().any(|file| file.text.parse::<toml::Table>().is_err());
    let more = if is_unread { " (there may be more, which shows once the file can be read)" } else { "" };
    writeln!(out, "{ERROR}{}{ERROR:#}{more}", count(findings.len(), "problem"))
}

/// The key or the table that the finding's line states, and the caret's column in that text, counted in characters.
///
/// `None` if the finding names no field: the parser refused the text, so what the line holds is unknown. It may be a
/// secret without its quotes, one line of a private key, or the value of a misspelt key.
fn excerpt(text: &str, finding: &Finding) -> Option<(String, usize)> {
    if finding.place.is_empty() {
        return None;
    }
    let line = text.lines().nth(finding.line.checked_sub(1)?)?;
    Some(cut(&stated(line), finding.column.saturating_sub(1)))
}

/// The key or table header of a line, without values and comments.
fn stated(line: &str) -> String {
    let is_bare =
        |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | '\t'));
    let header = line.rfind(']').map(|end| &line[..=end]).filter(|header| {
        let inner = header.trim().trim_start_matches('[').trim_end_matches(']');
        header.trim_start().starts_with('[') && !inner.is_empty() && is_bare(inner)
    });
    match (header, line.split_once('=')) {
        (Some(header), _) => clean(header),
        (None, Some((key, _))) if is_bare(key) => format!("{}= …", clean(key)),
        _ => "…".to_owned(),
    }
}

/// Cuts a text to `SHOWN` characters around a column. Returns the part and the column in it.
fn cut(text: &str, column: usize) -> (String, usize) {
    let characters: Vec<char> = text.chars().collect();
    let column = column.min(characters.len());
    if characters.len() <= SHOWN {
        return (text.to_owned(), column);
    }
    // Puts the caret at a third of the shown part.
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

/// Replaces characters that would misplace the caret: tabs by blanks, and other control characters by U+FFFD.
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
    fn first(text: &str) -> Option<(String, usize)> {
        let sources = Sources::new().without_catalogue().file("f.toml", text);
        excerpt(text, &Config::check(&sources).unwrap_err()[0])
    }

    #[test]
    fn caret_stands_below_the_value() {
        let text = "[vendors.v]\nbase_url = \"https://v.example\"\nsafety = 7.0\n";
        assert_eq!(first(text), Some(("safety = …".into(), 9)));
        let name = "n".repeat(200);
        let (shown, caret) = first(&format!("[vendors.{name}]\nsafety = 0.5\n")).unwrap();
        assert_eq!((shown.chars().nth(caret), shown.chars().count()), (Some('n'), SHOWN + 1), "{shown}");
    }

    #[test]
    fn excerpt_holds_no_value_and_no_comment() {
        for text in [
            "[vendors.v]\nbase_url = \"https://u:hunter2@v.example\"\n",
            "[[tenants]] # hunter2\nid = \"a\"\nvendor = \"v\"\n",
            "[[tenants]]\nid = \"a\"\nvendor = \"hunter2\"\n",
            "[vendors.v]\nbase_url = \"https://v.example\"\nquirks = [\n  \"hunter2=\",\n]\nsafety = 7.0 # hunter2\n",
            "[vendors.v]\nbase_url = \"https://v.example\"\nattempt_timeout = \"hunter2\"\n",
            "[vendors.v]\nbase_url = \"https://v.example\"\nheaders = { authorization = \"hunter2\" }\n",
            "[vendors.v]\nbase_url = \"https://v.example\"\n[vendors.v.headers]\nauthorization = \"hunter2\"\n",
            "tenants = [{ id = \"a\", vendor = \"x\", credential = \"hunter2\" }]\n",
            "[vendors.v]\nbase_url = \"https://v.example\"\nconnection = { proxy = \"http://u:hunter2@p\" }\n",
        ] {
            let (shown, _) = first(text).unwrap();
            assert!(!shown.contains("hunter2"), "{shown}");
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
            show(&findings, &files, Screen { width: 80 }, &mut said).unwrap();
            let said = String::from_utf8(said).unwrap();
            // A key without a value is reported by its name, as an unknown field.
            let named = text.contains("\nhunter2\n") && said.contains("unknown field");
            assert!(named || !said.contains("hunter2"), "{text}\n{said}");
            assert!(said.contains("f.toml:"), "{said}");
        }
    }
}
