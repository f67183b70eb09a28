//! Handles invalid rows of the configuration, so that one of them does not block all others.
//!
//! A row that was changed and is now invalid counts in its last valid version; an invalid new row is ignored. The error
//! may also stand at a row that did not change, such as at the second of two rows with the same tenant: then the rows
//! that did change are at fault, and a row that was deleted although others need it counts as before. If nothing in the
//! rows changed, something below them did, and the whole configuration is refused, as with files.
//!
//! At the start of a process no earlier versions are known. Then an invalid row is left out only if no limit can be
//! lifted by that ([`Start`]): a typing mistake must not lift limits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::config::{Config, ConfigProblem, Finding, Outline, Sources};

/// The texts of rows, by name.
pub(super) type Rows = BTreeMap<String, String>;

/// How often removing an invalid row may bring another error to light: parsing, merging and tenants are checked one
/// after the other.
const PASSES: usize = 16;
/// The most configurations that are checked to find out which of the changed rows are at fault. One such row of a
/// million is found with forty.
const TRIALS: usize = 64;
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

impl Read {
    fn of(under: &Sources, used: Rows, wrong: &BTreeMap<&String, String>) -> Read {
        let wrong = explain(wrong);
        let problem = wrong.clone().map(ConfigProblem::invalid);
        Read { sources: laid_over(under, &used).with_problem(problem), wrong, used: Some(used) }
    }
}

fn shown(name: &str) -> String {
    format!("row `{name}` of ic_config")
}

fn laid_over(under: &Sources, rows: &Rows) -> Sources {
    rows.iter().fold(under.clone(), |sources, (name, text)| sources.row(shown(name), text))
}

/// Combines `under` with those of `rows` that are valid; rows override `under`. `before` holds the rows that were used
/// last, if any were read.
pub(super) fn lay(under: &Sources, rows: &Rows, before: Option<&Rows>) -> Read {
    let (mut used, mut wrong, mut start) = (rows.clone(), BTreeMap::new(), None);
    for _ in 0..PASSES {
        let Err(findings) = Config::check(&laid_over(under, &used)) else {
            return Read::of(under, used, &wrong);
        };
        let before_this_pass = wrong.len();
        let first = first_of_each_file(&findings);
        for (name, text) in rows {
            let Some(finding) = first.get(&*shown(name)) else { continue };
            let may_be_left_out = match before {
                None => start.get_or_insert_with(|| Start::new(under, rows)).can_spare(text),
                Some(before) => before.get(name) != Some(text),
            };
            if may_be_left_out && wrong.insert(name, finding.to_string()).is_none() {
                put_back(name, before, &mut used);
            }
        }
        if wrong.len() == before_this_pass {
            break;
        }
    }
    match before.and_then(|before| without_culprits(under, rows, before, used, &mut wrong)) {
        Some(used) => Read::of(under, used, &wrong),
        None => Read { sources: laid_over(under, rows), wrong: None, used: None },
    }
}

/// The first finding of each file.
fn first_of_each_file(findings: &[Finding]) -> HashMap<&str, &Finding> {
    let mut first = HashMap::new();
    for finding in findings {
        if let Some(file) = &finding.file {
            first.entry(file.as_str()).or_insert(finding);
        }
    }
    first
}

/// Replaces a row by its earlier version, or removes it if there is none.
fn put_back(name: &str, before: Option<&Rows>, used: &mut Rows) {
    match before.and_then(|before| before.get(name)) {
        Some(earlier) => used.insert(name.to_owned(), earlier.clone()),
        None => used.remove(name),
    };
}

/// What is stated beside an invalid row at the start of a process.
struct Start {
    /// The ids of the tenants below the rows.
    below: BTreeSet<String>,
    /// How many tables of rows there are for each id and vendor.
    in_rows: BTreeMap<(String, String), usize>,
}

impl Start {
    fn new(under: &Sources, rows: &Rows) -> Start {
        let mut in_rows: BTreeMap<(String, String), usize> = BTreeMap::new();
        for tenant in rows.values().filter_map(|text| Outline::of(text)).flat_map(|outline| outline.tenants) {
            if let (Some(id), Some(vendor)) = (tenant.id, tenant.vendor) {
                *in_rows.entry((id, vendor)).or_default() += 1;
            }
        }
        Start { below: under.tenant_ids(), in_rows }
    }

    /// Whether the row can be left out without lifting a limit. A row that may state a vendor cannot, nor one that may
    /// state how limits are shared. Nor can one with a tenant that is stated elsewhere too, where its limits may be
    /// looser; below the rows the id alone decides, because the vendor's name may be what is misspelt.
    fn can_spare(&self, text: &str) -> bool {
        let Some(outline) = Outline::of(text) else {
            let ids = self.below.iter().map(String::as_str);
            return !["vendors", "sharing"].into_iter().chain(ids).any(|word| text.contains(word));
        };
        outline.keys.iter().all(|key| matches!(key.as_str(), "tenants" | "callers"))
            && outline.tenants.into_iter().all(|tenant| match (tenant.id, tenant.vendor) {
                (None, _) => self.below.is_empty(),
                (Some(id), None) => !self.below.contains(&id),
                (Some(id), Some(vendor)) => {
                    !self.below.contains(&id) && self.in_rows.get(&(id, vendor)).is_none_or(|tables| *tables < 2)
                }
            })
    }
}

/// Finds valid rows although the errors stand at rows that did not change: puts all changed and deleted rows back, and
/// makes as many of these changes again as stay valid. Returns `None` if the unchanged rows alone are invalid.
fn without_culprits<'r>(
    under: &Sources,
    rows: &'r Rows,
    before: &'r Rows,
    mut used: Rows,
    wrong: &mut BTreeMap<&'r String, String>,
) -> Option<Rows> {
    let changed = rows.iter().filter(|(name, text)| before.get(*name) != Some(*text) && used.get(*name) == Some(*text));
    let deleted = before.keys().filter(|name| !rows.contains_key(*name));
    let mut open: Vec<Change<'_>> = changed.map(|(name, text)| (name, Some(text))).collect();
    open.extend(deleted.map(|name| (name, None)));
    open.iter().for_each(|(name, _)| put_back(name, Some(before), &mut used));
    if open.is_empty() || Config::check(&laid_over(under, &used)).is_err() {
        return None;
    }
    let mut trials = TRIALS;
    loop {
        let left = take(under, &open, &mut used, &mut trials);
        let is_end = left.is_empty() || left.len() == open.len() || trials == 0;
        if is_end {
            wrong.extend(left.into_iter().map(|((name, _), why)| (name, why)));
            return Some(used);
        }
        // A row may need one that was taken after it, such as the row of its tenant's vendor.
        open = left.into_iter().map(|(change, _)| change).collect();
    }
}

/// A row's name and text; the text is `None` if the row was deleted.
type Change<'r> = (&'r String, Option<&'r String>);

/// Makes those of the changes `open` in `used` with which it stays valid. Returns the others, each with the reason.
fn take<'r>(under: &Sources, open: &[Change<'r>], used: &mut Rows, trials: &mut usize) -> Vec<(Change<'r>, String)> {
    let (mut groups, mut left) = (vec![open], Vec::new());
    while let Some(group) = groups.pop() {
        if *trials == 0 {
            let why = |name: &str| format!("{}: other rows that changed with it are invalid", shown(name));
            left.extend(group.iter().map(|change| (*change, why(change.0))));
            continue;
        }
        *trials -= 1;
        let mut trial = used.clone();
        for (name, text) in group {
            match text {
                Some(text) => trial.insert((*name).clone(), (*text).clone()),
                None => trial.remove(*name),
            };
        }
        match (Config::check(&laid_over(under, &trial)), group) {
            (Ok(_), _) => *used = trial,
            (Err(findings), [(name, text)]) => {
                let finding = findings.first().map(ToString::to_string).unwrap_or_default();
                let row = shown(name);
                let why = match text {
                    Some(_) => format!("{row}: with it the others are invalid: {finding}"),
                    None => format!("{row} was deleted, but others need it: {finding}"),
                };
                left.push(((*name, *text), why));
            }
            (Err(_), _) => {
                let (first, second) = group.split_at(group.len() / 2);
                groups.extend([second, first]);
            }
        }
    }
    left
}

fn explain(wrong: &BTreeMap<&String, String>) -> Option<String> {
    let mut said: Vec<String> = wrong.values().take(EXPLAINED).cloned().collect();
    if wrong.len() > EXPLAINED {
        said.push(format!("and {} more rows", wrong.len() - EXPLAINED));
    }
    (!said.is_empty()).then(|| format!("left out, or used as before it was changed: {}", said.join("; ")))
}

#[cfg(test)]
mod tests;
