//! The outcomes and exit codes of commands, and the styles and tables of their output.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Exit code: the command ran and found something wrong.
pub(crate) const FOUND: u8 = 1;
/// Exit code: the command could not be carried out.
pub(crate) const CANNOT: u8 = 2;
/// Exit code: the command was interrupted and goes on when it is run again, or (`send`) the end of a request is not
/// known.
pub(crate) const INTERRUPTED: u8 = 3;

pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const TITLE: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Fine,
    /// The command ran and found something wrong.
    Found,
    /// The command was interrupted before its end, and goes on when it is run again. Of `send`: it may have sent the
    /// request, or another process may send it.
    Interrupted,
}

/// Why a command could not be carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    Output(io::Error),
    Input(String),
    /// The reason was printed already.
    Said,
}

impl Failure {
    /// The failure to read or write a file, with advice.
    pub(crate) fn reading(path: &Path, error: &io::Error) -> Failure {
        let shown = path.display();
        Failure::Input(match error.kind() {
            io::ErrorKind::NotFound => format!("{shown}: there is no such file; is the path right?"),
            io::ErrorKind::PermissionDenied => {
                format!("{shown}: you may not read or write it; look at its permissions")
            }
            io::ErrorKind::InvalidData => format!("{shown}: it is not UTF-8 (perhaps UTF-16); save it as UTF-8"),
            _ => format!("{shown}: {error}"),
        })
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Output(error) => write!(f, "writing: {error}"),
            Failure::Input(message) => f.write_str(message),
            Failure::Said => Ok(()),
        }
    }
}

/// The output of a service. What cannot be written is dropped: the service goes on without a reader, and its exit code
/// says what became of the requests.
pub(crate) struct ServiceOutput<'a>(pub(crate) &'a mut dyn Write);

impl Write for ServiceOutput<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// The outcome `Found`, after it was printed. A reader that goes away, as `head` does, does not change it.
pub(crate) fn found(printed: io::Result<()>) -> Result<Outcome, Failure> {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(Outcome::Found),
    }
}

/// The width of the output in columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    pub(crate) width: u16,
}

impl Screen {
    /// The terminal's width, limited to 60 to 120 columns for legibility; 80 if there is no terminal.
    pub(crate) fn of_terminal() -> Screen {
        let width = terminal_size::terminal_size().map_or(80, |(width, _)| width.0);
        Screen { width: width.clamp(60, 120) }
    }
}

/// A table without lines, at most as wide as `screen`. Columns whose number is in `right` are aligned to the right.
pub(crate) fn table(screen: Screen, header: &[&str], rows: Vec<Vec<String>>, right: &[usize]) -> String {
    let mut table = plain(screen);
    if !header.is_empty() {
        table.set_header(header);
    }
    table.add_rows(rows);
    pad(&mut table);
    for number in right {
        if let Some(column) = table.column_mut(*number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.trim_fmt();
    match text.split_once('\n') {
        Some((first, rest)) if !header.is_empty() => format!("{TITLE}{first}{TITLE:#}\n{rest}\n"),
        _ => text + "\n",
    }
}

/// A text wrapped to the width of the screen.
pub(crate) fn wrapped(screen: Screen, text: &str) -> String {
    let (mut out, mut room) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        let separator = match () {
            () if out.is_empty() => "",
            () if length < room => " ",
            () => "\n",
        };
        room = if separator == " " { room } else { usize::from(screen.width) + 1 };
        room = room.saturating_sub(length + 1);
        out = out + separator + word;
    }
    out
}

/// A message after a styled word, such as `error:`, wrapped to the width of the screen.
pub(crate) fn headed(screen: Screen, style: Style, word: &str, message: &str) -> String {
    let text = wrapped(screen, &format!("{word} {message}"));
    let rest = text.strip_prefix(word).unwrap_or(&text);
    format!("{style}{word}{style:#}{rest}")
}

/// A text after a mark, such as `[1]`, wrapped to the width of the screen. Further lines are indented. Words are never
/// broken, so that an address stays whole.
pub(crate) fn marked(screen: Screen, mark: &str, text: &str) -> String {
    let indent = mark.chars().count() + 1;
    let narrower = Screen { width: screen.width.saturating_sub(u16::try_from(indent).unwrap_or(u16::MAX)) };
    format!("{mark} {}", wrapped(narrower, text).replace('\n', &format!("\n{:indent$}", "")))
}

/// A list of texts, each after a hyphen and wrapped to the width of the screen.
pub(crate) fn list(screen: Screen, texts: impl IntoIterator<Item = String>) -> String {
    let mut table = plain(screen);
    table.add_rows(texts.into_iter().map(|text| vec!["-".to_owned(), text]));
    pad(&mut table);
    if let Some(column) = table.column_mut(0) {
        column.set_padding((0, 1));
    }
    table.trim_fmt() + "\n"
}

fn plain(screen: Screen) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(screen.width);
    table
}

fn pad(table: &mut Table) {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_wraps_between_words() {
        let text = "one two three four five six seven eight nine ten eleven";
        assert_eq!(wrapped(Screen { width: 13 }, text), "one two three\nfour five six\nseven eight\nnine ten\neleven");
        assert_eq!(wrapped(Screen { width: 60 }, text), text);
        assert_eq!(wrapped(Screen { width: 3 }, "a longer word"), "a\nlonger\nword");
        assert_eq!(wrapped(Screen { width: 60 }, ""), "");
    }

    #[test]
    fn messages_and_sources_wrap() {
        let screen = Screen { width: 20 };
        let plain = headed(screen, Style::new(), "warning:", "one two three four five");
        assert_eq!(plain, "warning: one two\nthree four five");
        let red = headed(screen, ERROR, "error:", "one");
        assert_eq!(red, format!("{ERROR}error:{ERROR:#} one"));
        let source = marked(screen, "[10]", "https://docs.example.com/limits (2 pages), 2026");
        assert_eq!(source, "[10] https://docs.example.com/limits\n     (2 pages), 2026");
    }
}
