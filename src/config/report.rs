//! The problems of a configuration, their positions in the files, and the texts of "did you mean".
//!
//! Checks run on plain values and name a value by its path (`vendors.github.limits.rest.window`). Only if something is
//! wrong is the file parsed again, with spans, to turn that path into a line and a column. So a file of a million valid
//! tenants pays nothing for positions, and the same code checks rows of a database.
//!
//! For a key that does not exist, `suggest.rs` finds a similar one among those that serde's error lists: there is no list of
//! keys here.

use std::collections::{HashMap, HashSet};
use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{suggest, validate};
use crate::Error;

/// The most problems that an error lists; further ones are only counted, because each costs a walk through the file.
const LISTED: usize = 20;

/// The most problems that `check` lists, apart from the first of each further file.
const LISTED_BY_CHECK: usize = 1000;

/// One problem of a configuration, and its position.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The file's name; `None` for an entry that the program or a database stated.
    pub file: Option<String>,
    /// The line, from 1; 0 without a file.
    pub line: usize,
    /// The column in characters, from 1; 0 without a file.
    pub column: usize,
    /// The path of the value, such as `vendors.github.limits.rest.window`; may be empty.
    pub place: String,
    /// What is wrong, and what to do. The message repeats no secrets and no contents of files.
    pub message: String,
}

impl Finding {
    /// A finding without a position, whose message itself says what it is about.
    pub(super) fn plain(message: String) -> Finding {
        Finding { file: None, line: 0, column: 0, place: String::new(), message }
    }
}

impl fmt::Display for Finding {
    /// `file:line:column: place: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:{}:{}: ", self.line, self.column)?;
        }
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.message)
    }
}

/// One step of the path to a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A table's key.
    Key(String),
    /// The table with this `name`, in an array of tables.
    Named(String),
    /// An index in an array.
    Index(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Step {
        Step::Key(key.to_owned())
    }
}

/// The path to a value, from its vendor, its tenant or the root of its file.
pub(super) type Path = Vec<Step>;

/// `path` with one more step.
pub(super) fn at(path: &[Step], step: impl Into<Step>) -> Path {
    let mut longer = path.to_vec();
    longer.push(step.into());
    longer
}

/// A problem with the value at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Problem {
    pub(super) path: Path,
    pub(super) message: String,
}

/// The result of a check. Problems cause the configuration to be refused; warnings do not.
#[derive(Default, Debug)]
pub(super) struct Report {
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

impl Report {
    pub(super) fn problem(&mut self, path: Path, message: impl Into<String>) {
        self.problems.push(Problem { path, message: message.into() });
    }

    pub(super) fn warn(&mut self, path: Path, message: impl Into<String>) {
        self.warnings.push(Problem { path, message: message.into() });
    }
}

/// A file's name and text.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

/// The position of an entry for a vendor or a tenant. Several layers may state parts of one vendor; the later one wins.
#[derive(Clone)]
pub(super) struct Layer<'a> {
    /// The file; `None` for an entry that the program made.
    pub(super) file: Option<Text<'a>>,
    /// The entry's path in the file.
    pub(super) base: Path,
}

/// The problems of a refused configuration, each with its position, without repetition.
pub(super) struct Messages<'a> {
    room: usize,
    /// Whether each file that cannot be parsed is listed once, also beyond the room: of a store's rows, those that are
    /// listed can be left out.
    names_each_file: bool,
    listed: Vec<Finding>,
    /// The findings in `listed`.
    known: HashSet<Finding>,
    /// The files of `listed`, numbered in the order of their first findings.
    files: HashMap<Option<String>, usize>,
    unlisted: usize,
    /// The number of problems that were added, listed or not.
    added: usize,
    /// The paths of values that could not be parsed, each of which has been reported, by file.
    unread: HashMap<Place, Vec<Path>>,
    documents: Documents<'a>,
}

/// The place of a file's text in memory, which identifies the file: several may have one name or the same content.
type Place = *const str;

/// The files that were parsed again, with spans, kept so that a large file is parsed once and not for each problem.
#[derive(Default)]
pub(super) struct Documents<'a>(HashMap<Place, Option<Spanned<DeTable<'a>>>>);

impl<'a> Documents<'a> {
    fn get(&mut self, text: &'a str) -> Option<&DeTable<'a>> {
        let document = self.0.entry(std::ptr::from_ref(text)).or_insert_with(|| DeTable::parse(text).ok());
        document.as_ref().map(Spanned::get_ref)
    }
}

impl Default for Messages<'_> {
    fn default() -> Self {
        Messages {
            room: LISTED,
            names_each_file: false,
            listed: Vec::new(),
            known: HashSet::new(),
            files: HashMap::new(),
            unlisted: 0,
            added: 0,
            unread: HashMap::new(),
            documents: Documents::default(),
        }
    }
}

impl<'a> Messages<'a> {
    /// Messages for `check`, which lists more problems.
    pub(super) fn of_check() -> Self {
        Messages { room: LISTED_BY_CHECK, names_each_file: true, ..Messages::default() }
    }

    pub(super) fn add(&mut self, layers: &[Layer<'a>], problem: &Problem) {
        self.added += 1;
        if layers.iter().any(|layer| self.is_unread(layer, problem)) {
            return;
        }
        if self.listed.len() >= self.room {
            self.unlisted += 1;
            return;
        }
        let message = place(layers, problem, &mut self.documents);
        self.push(message);
    }

    /// Marks a value that could not be parsed, so that problems which only follow from its absence are not reported.
    pub(super) fn leave_out(&mut self, file: Text<'a>, path: Path) {
        self.unread.entry(std::ptr::from_ref(file.text)).or_default().push(path);
    }

    /// Sets the document to search for positions in `file`: the parsed file without its mistakes.
    pub(super) fn read_as(&mut self, file: Text<'a>, document: Spanned<DeTable<'a>>) {
        self.documents.0.insert(std::ptr::from_ref(file.text), Some(document));
    }

    fn is_unread(&self, layer: &Layer<'a>, problem: &Problem) -> bool {
        let unread = layer.file.and_then(|file| self.unread.get(&std::ptr::from_ref(file.text)));
        unread.into_iter().flatten().any(|unread| {
            let mut path = layer.base.iter().chain(&problem.path);
            unread.iter().all(|step| path.next() == Some(step))
        })
    }

    /// The number of problems that were added so far, listed or not.
    pub(super) fn count(&self) -> usize {
        self.added
    }

    /// Finds the position of a problem, without adding the problem.
    pub(super) fn place(&mut self, layers: &[Layer<'a>], problem: &Problem) -> Finding {
        place(layers, problem, &mut self.documents)
    }

    /// Adds a finding whose position is known. Without room it is only counted.
    pub(super) fn push(&mut self, message: Finding) {
        if self.known.contains(&message) {
            return;
        }
        let is_to_name = self.names_each_file && !self.files.contains_key(&message.file);
        if self.listed.len() >= self.room && !is_to_name {
            self.unlisted += 1;
            return;
        }
        let next = self.files.len();
        self.files.entry(message.file.clone()).or_insert(next);
        self.known.insert(message.clone());
        self.listed.push(message);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Sorts the findings by file, line and column.
    fn sort(&mut self) {
        let file = |finding: &Finding| self.files.get(&finding.file).copied();
        self.listed.sort_by_cached_key(|finding| (file(finding), finding.line, finding.column));
    }

    /// The error that lists every finding on a line of its own.
    pub(super) fn into_error(mut self) -> Error {
        self.sort();
        let lines: Vec<String> = self.listed.iter().map(Finding::to_string).collect();
        let mut text = lines.join("\n");
        if self.unlisted > 0 {
            text.push_str(&format!("\nand {} more", self.unlisted));
        }
        Error::config(text)
    }

    pub(super) fn into_findings(mut self) -> Vec<Finding> {
        self.sort();
        if self.unlisted > 0 {
            self.listed.push(Finding::plain(format!("and {} more", self.unlisted)));
        }
        self.listed
    }
}

/// Finds the position of a problem: in the layer that states the most steps of its path, at the last step stated there.
fn place<'a>(layers: &[Layer<'a>], problem: &Problem, documents: &mut Documents<'a>) -> Finding {
    let mut best: Option<(usize, &Layer<'a>, Option<std::ops::Range<usize>>)> = None;
    for layer in layers.iter().rev() {
        let path: Path = layer.base.iter().chain(&problem.path).cloned().collect();
        // Depth is counted from the entry, because the entry's own path differs between layers.
        let (depth, span) = match layer.file {
            Some(file) => documents.get(file.text).map_or((0, None), |document| find(document, &path)),
            None => (layer.base.len(), None),
        };
        let depth = depth.saturating_sub(layer.base.len());
        if best.as_ref().is_none_or(|(deepest, ..)| depth > *deepest) {
            best = Some((depth, layer, span));
        }
    }
    let message = problem.message.clone();
    let Some((_, layer, span)) = best else {
        return Finding { place: show(&problem.path), ..Finding::plain(message) };
    };
    let path: Path = layer.base.iter().chain(&problem.path).cloned().collect();
    let place = show(&path);
    match layer.file {
        Some(file) => {
            let (line, column) = line_column(file.text, span.map_or(0, |span| span.start));
            Finding { file: Some(file.name.to_owned()), line, column, place, message }
        }
        None => Finding { place, ..Finding::plain(message) },
    }
}

/// A finding for an error of the TOML parser. It does not quote the file's text, which may hold a secret.
pub(super) fn syntax(file: Text<'_>, error: &toml::de::Error) -> Finding {
    let (line, column) = line_column(file.text, error.span().map_or(0, |span| span.start));
    let message = explain(error.message().trim());
    Finding { file: Some(file.name.to_owned()), line, column, place: String::new(), message }
}

/// The parser's message with a suggestion for a misspelt key, and without the value, which may be a secret.
fn explain(message: &str) -> String {
    let message = message.replace('\n', "; ");
    if let Some((unknown, meant)) = misspelt(&message) {
        let meant = match meant {
            Meant::One(name) => vec![name],
            Meant::Perhaps(names) => names,
        };
        if !meant.is_empty() {
            return format!("unknown field `{unknown}`; did you mean `{}`?", meant.join("` or `"));
        }
    }
    if let Some((found, expected)) = message.rsplit_once(", expected ")
        && found.starts_with("invalid ")
    {
        let kind = found.split(['"', '`']).next().unwrap_or_default().trim_end();
        // The author of a file may not know the names of Rust's types.
        let expected = match expected {
            "i64" | "u32" => "a whole number",
            "f64" => "a number",
            "a map" => "a table",
            _ if expected.starts_with("struct ") => "a table",
            _ => expected,
        };
        return format!("{kind}, expected {expected}");
    }
    if let Some((_, expected)) = message.rsplit_once(", expected ")
        && message.starts_with("unknown variant ")
    {
        return format!("unknown value, expected {expected}");
    }
    message
}

/// The keys that a misspelt key may stand for.
pub(super) enum Meant<'m> {
    /// This key, which differs only by a typing error.
    One(&'m str),
    /// Related keys, possibly none.
    Perhaps(Vec<&'m str>),
}

/// The unknown key that the parser's message is about, and the keys that it may stand for.
pub(super) fn misspelt(message: &str) -> Option<(&str, Meant<'_>)> {
    let (unknown, known) = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'))?;
    // serde puts each known name between backticks, so every second piece is a name.
    let known = known.split('`').skip(1).step_by(2);
    let related = || Meant::Perhaps(suggest::related(unknown, known.clone()));
    Some((unknown, suggest::nearest(unknown, known.clone()).map_or_else(related, Meant::One)))
}

fn show(path: &[Step]) -> String {
    let mut out = String::new();
    for step in path {
        if !out.is_empty() && !matches!(step, Step::Index(_)) {
            out.push('.');
        }
        match step {
            Step::Key(name) => out.extend(name.chars().take(128).flat_map(char::escape_debug)),
            // The step is the value of a field `name`, so it is shown only if it is a valid name.
            Step::Named(name) if validate::check_id("a limit's name", name).is_ok() => out.push_str(name),
            Step::Named(_) => out.push('…'),
            Step::Index(index) => out.push_str(&format!("[{index}]")),
        }
    }
    out
}

/// The number of steps of `path` that exist in `document`, and the span of the last of them.
fn find(document: &DeTable<'_>, path: &[Step]) -> (usize, Option<std::ops::Range<usize>>) {
    let mut span = None;
    let mut value: Option<&Spanned<DeValue<'_>>> = None;
    for (depth, step) in path.iter().enumerate() {
        let table = match value {
            None => Some(document),
            Some(value) => value.get_ref().as_table(),
        };
        let array = value.and_then(|value| value.get_ref().as_array());
        let next = match (step, table, array) {
            (Step::Key(key), Some(table), _) => {
                table.iter().find(|(name, _)| name.get_ref() == key).map(|(name, value)| {
                    // For a table or an array the key is the useful position; for a plain value, the value.
                    let span = if value.get_ref().is_table() || value.get_ref().is_array() {
                        name.span()
                    } else {
                        value.span()
                    };
                    (span, value)
                })
            }
            (Step::Index(index), _, Some(array)) => array.get(*index).map(|value| (value.span(), value)),
            (Step::Named(name), _, Some(array)) => array
                .iter()
                .find(|value| {
                    let named = value
                        .get_ref()
                        .as_table()
                        .and_then(|table| table.iter().find(|(key, _)| key.get_ref() == "name"));
                    named.and_then(|(_, value)| value.get_ref().as_str()) == Some(name)
                })
                .map(|value| (value.span(), value)),
            _ => None,
        };
        let Some((found, next)) = next else { return (depth, span) };
        (span, value) = (Some(found), Some(next));
    }
    (path.len(), span)
}

/// The line and column of a byte offset, both from 1; the column counts characters.
fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let offset = (0..=offset.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let before = &text[..offset];
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    (line, before[start..].chars().count() + 1)
}

#[cfg(test)]
mod tests;
