//! Handles invalid rows of the configuration, so that one of them does not block all others.
//!
//! A row that was changed and is now invalid counts in its last valid version; an invalid new row is ignored. A row
//! that did not change, and is invalid because something else changed, is not at fault: then the whole configuration is
//! refused, as with files. At the start of a process no earlier versions are known. Then an invalid row is left out
//! unless it may define a vendor: a typing mistake must not lift limits.

use std::collections::BTreeMap;

use crate::config::{Config, Sources};

/// The texts of rows, by name.
pub(super) type Rows = BTreeMap<String, String>;

/// How often removing an invalid row may bring another error to light: parsing, merging and tenants are checked one
/// after the other.
const PASSES: usize = 16;
/// The most rows that are explained one by one.
const EXPLAINED: usize = 10;

/// The result of reading some rows.
#[derive(Clone)]
pub(super) struct Read {
    pub(super) sources: Sources,
    /// What is wrong with rows that are not used as they are.
    pub(super) wrong: Option<String>,
    /// The rows that are used, in the versions that are used. `None` if the whole configuration is refused.
    pub(super) used: Option<Rows>,
}

fn shown(name: &str) -> String {
    format!("row `{name}` of ic_config")
}

fn laid_over(under: &Sources, rows: &Rows) -> Sources {
    rows.iter().fold(under.clone(), |sources, (name, text)| sources.over(shown(name), text))
}

/// Combines `under` with those of `rows` that are valid; rows override `under`. `before` holds the rows that were used
/// last, if any were read.
pub(super) fn lay(under: &Sources, rows: &Rows, before: Option<&Rows>) -> Read {
    let (mut used, mut wrong) = (rows.clone(), BTreeMap::new());
    for _ in 0..PASSES {
        let sources = laid_over(under, &used);
        let Err(findings) = Config::check(&sources) else {
            let wrong = explain(&wrong);
            return Read { sources: sources.with_problem(wrong.clone()), wrong, used: Some(used) };
        };
        let before_this_pass = wrong.len();
        for (name, text) in rows {
            let Some(finding) = findings.iter().find(|finding| finding.file.as_deref() == Some(&shown(name))) else {
                continue;
            };
            let earlier = before.map(|before| before.get(name));
            let may_be_left_out = match earlier {
                None => !text.contains("vendors"),
                Some(earlier) => earlier != Some(text),
            };
            if may_be_left_out && wrong.insert(name, finding.to_string()).is_none() {
                match earlier.flatten() {
                    Some(earlier) => used.insert(name.clone(), earlier.clone()),
                    None => used.remove(name),
                };
            }
        }
        if wrong.len() == before_this_pass {
            break;
        }
    }
    Read { sources: laid_over(under, rows), wrong: None, used: None }
}

fn explain(wrong: &BTreeMap<&String, String>) -> Option<String> {
    let mut said: Vec<String> = wrong.values().take(EXPLAINED).cloned().collect();
    if wrong.len() > EXPLAINED {
        said.push(format!("and {} more rows", wrong.len() - EXPLAINED));
    }
    (!said.is_empty()).then(|| format!("left out, or used as before it was changed: {}", said.join("; ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    const VENDOR: &str =
        "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";

    fn sources_without_rows() -> Sources {
        Sources::new().without_catalogue().file("vendors.toml", VENDOR)
    }

    fn tenant(id: &str) -> String {
        format!("[[tenants]]\nid = \"{id}\"\nvendor = \"v\"\n")
    }

    fn rows(rows: &[(&str, &str)]) -> Rows {
        rows.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[track_caller]
    fn tenants(read: &Read) -> Vec<String> {
        let config = Config::load(&read.sources, 1).unwrap();
        ["a", "b", "c"].iter().filter(|id| config.tenant(id, "v").is_ok()).map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn invalid_row_does_not_block_the_others() {
        let before = rows(&[("a", &tenant("a"))]);
        let now =
            rows(&[("a", "[[tenants]\n"), ("b", &tenant("b")), ("c", "[[tenants]]\nid = \"c\"\nvendor = \"w\"\n")]);
        let read = lay(&sources_without_rows(), &now, Some(&before));
        assert_eq!(tenants(&read), ["a", "b"]);
        let why = read.sources.problem().unwrap();
        assert!(why.contains("row `a`") && why.contains("row `c`") && !why.contains("row `b`"), "{why}");
        assert_eq!(read.used.unwrap(), rows(&[("a", &tenant("a")), ("b", &tenant("b"))]));
    }

    #[test]
    fn row_invalidated_by_others_refuses_all() {
        let before = rows(&[("a", &tenant("a"))]);
        let empty = Sources::new().without_catalogue().file("vendors.toml", "# the vendor is gone");
        let read = lay(&empty, &before, Some(&before));
        assert!(read.used.is_none() && Config::load(&read.sources, 1).is_err());
    }

    #[test]
    fn invalid_row_at_start_is_left_out() {
        let read = lay(&sources_without_rows(), &rows(&[("a", "[[tenants]\n"), ("b", &tenant("b"))]), None);
        assert_eq!(tenants(&read), ["b"]);
        let read = lay(&sources_without_rows(), &rows(&[("a", "[vendors.v\n"), ("b", &tenant("b"))]), None);
        assert!(read.used.is_none());
        let error = Config::load(&read.sources, 1).unwrap_err();
        assert!(error.to_string().contains("row `a` of ic_config"), "{error}");
    }
}
