//! Reads letters from a file, and reports its lines that are not letters.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::DeadLetter;
use super::lines_file::MAX_LINE_BYTES;

/// The most bad lines that are listed. A file of another kind may have millions.
const MAX_BAD: usize = 1000;

/// A file of letters could not be read completely.
pub struct ReadError {
    path: PathBuf,
    letters: Vec<DeadLetter>,
    bad: Vec<BadLine>,
    bad_count: u64,
    failure: Option<io::Error>,
}

/// A line that is not a letter.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BadLine {
    /// The number of the line; the first is 1.
    pub line: u64,
    /// What is wrong with the line. The text repeats nothing of its content.
    pub problem: String,
}

impl ReadError {
    /// The letters of the good lines.
    pub fn letters(&self) -> &[DeadLetter] {
        &self.letters
    }

    /// The letters of the good lines.
    pub fn into_letters(self) -> Vec<DeadLetter> {
        self.letters
    }

    /// The bad lines, at most the first thousand.
    pub fn bad_lines(&self) -> &[BadLine] {
        &self.bad
    }

    /// The number of bad lines.
    pub fn bad_count(&self) -> u64 {
        self.bad_count
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dead letters in {}: {} read", self.path.display(), self.letters.len())?;
        if let Some(first) = self.bad.first() {
            write!(f, "; {} bad lines, the first in line {}: {}", self.bad_count, first.line, first.problem)?;
        }
        match &self.failure {
            Some(failure) => write!(f, "; then: {failure}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadError")
            .field("path", &self.path)
            .field("letters", &self.letters.len())
            .field("bad_lines", &self.bad)
            .field("bad_count", &self.bad_count)
            .field("failure", &self.failure)
            .finish()
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.failure.as_ref().map(|failure| failure as &(dyn std::error::Error + 'static))
    }
}

pub(super) fn file(path: &Path) -> Result<Vec<DeadLetter>, ReadError> {
    let mut read =
        ReadError { path: path.to_owned(), letters: Vec::new(), bad: Vec::new(), bad_count: 0, failure: None };
    read.failure = File::open(path).and_then(|file| lines(BufReader::new(file), &mut read)).err();
    if read.bad_count == 0 && read.failure.is_none() { Ok(read.letters) } else { Err(read) }
}

fn lines(mut input: impl BufRead, read: &mut ReadError) -> io::Result<()> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let letter = if line.len() as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") {
            input.skip_until(b'\n')?;
            Err(format!("longer than {MAX_LINE_BYTES} bytes"))
        } else {
            // Serde's own message may quote the line.
            serde_json::from_slice(&line).map_err(|error| match error.classify() {
                serde_json::error::Category::Data => {
                    format!("valid JSON but not a letter, at column {}", error.column())
                }
                _ => format!("not valid JSON, at column {}", error.column()),
            })
        };
        match letter {
            Ok(letter) => read.letters.push(letter),
            Err(problem) => {
                read.bad_count += 1;
                if read.bad.len() < MAX_BAD {
                    read.bad.push(BadLine { line: number, problem });
                }
            }
        }
    }
    Ok(())
}
