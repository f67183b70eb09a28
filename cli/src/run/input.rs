//! The file of jobs: read line by line, never held, and known again after an interruption by its hash.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::job::{self, Job};
use crate::output::Failure;

/// Lines that are accepted together.
const PAGE: usize = 256;
/// Bytes of lines that are accepted together, about.
const PAGE_BYTES: usize = 1 << 20;
/// A longer line is no job: it would be held in memory as a whole.
pub(super) const LONGEST: u64 = 16 << 20;

/// Up to where the input is in the store: what the batch's mark says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Bytes.
    pub(super) offset: u64,
    /// Lines, empty ones too.
    pub(super) lines: u64,
    /// Of those, jobs that were accepted.
    pub(super) jobs: u64,
    /// Of those, lines that are no jobs, and were left out.
    pub(super) invalid: u64,
    /// Of the bytes.
    pub(super) sha256: String,
    /// The input ended there.
    pub(super) complete: bool,
    /// The run whose lines are not sent again by this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<u64>,
}

/// A place in the input: how much is before it, and the hash of that.
#[derive(Clone, Default)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) lines: u64,
    hash: Sha256,
}

impl Place {
    pub(super) fn mark(&self, jobs: u64, invalid: u64, complete: bool) -> Mark {
        Mark { offset: self.offset, lines: self.lines, jobs, invalid, sha256: hex(&self.hash), complete, since: None }
    }
}

/// Where lines come from.
pub(super) struct Input {
    reader: BufReader<Box<dyn Read + Send>>,
    /// Of a file, not of a pipe.
    pub(super) size: Option<u64>,
    /// As messages call it.
    pub(super) shown: String,
    at: Place,
    /// The last line had no end: one that comes now is that line's.
    open_line: bool,
}

/// A line that is not empty.
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) job: Result<Job, String>,
    /// Where it begins.
    pub(super) begin: Place,
    /// Identifies what stands in it.
    pub(super) text: LineHash,
}

/// Some lines, and where the input is behind them.
pub(super) struct Page {
    pub(super) lines: Vec<Line>,
    pub(super) end: Place,
    pub(super) complete: bool,
}

/// `-` is standard input.
pub(super) fn path(input: &str) -> Option<PathBuf> {
    (input != "-").then(|| PathBuf::from(input))
}

impl Input {
    pub(super) fn open(input: &str) -> Result<Input, Failure> {
        let (reader, size, shown): (Box<dyn Read + Send>, _, _) = match path(input) {
            None => (Box::new(io::stdin()), None, "standard input".to_owned()),
            Some(path) => {
                let (file, size) = open(&path)?;
                (Box::new(file), size, path.display().to_string())
            }
        };
        let reader = BufReader::with_capacity(1 << 18, reader);
        Ok(Input { reader, size, shown, at: Place::default(), open_line: false })
    }

    /// Goes to where an earlier run came to. False where what is before that is not what it was.
    pub(super) fn go_on_at(&mut self, mark: &Mark) -> io::Result<bool> {
        let mut left = mark.offset;
        let mut last = b'\n';
        while left > 0 {
            let some = self.reader.fill_buf()?;
            let take = some.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let Some(end) = some[..take].last() else { return Ok(false) };
            last = *end;
            self.at.hash.update(&some[..take]);
            self.reader.consume(take);
            left -= take as u64;
        }
        self.open_line = last != b'\n';
        (self.at.offset, self.at.lines) = (mark.offset, mark.lines);
        Ok(hex(&self.at.hash) == mark.sha256)
    }

    /// The next lines. The last page says that it is.
    pub(super) fn page(&mut self, now: SystemTime) -> io::Result<Page> {
        let (mut lines, mut bytes, mut complete) = (Vec::new(), 0, false);
        let mut text = Vec::new();
        while lines.len() < PAGE && bytes < PAGE_BYTES {
            // What comes slowly is not waited for while something is in hand.
            if !lines.is_empty() && self.size.is_none() && !self.reader.buffer().contains(&b'\n') {
                break;
            }
            let begin = self.at.clone();
            text.clear();
            let read = self.reader.by_ref().take(LONGEST + 1).read_until(b'\n', &mut text)?;
            self.at.hash.update(&text);
            self.at.offset += read as u64;
            bytes += read;
            if read == 0 {
                complete = true;
                break;
            }
            let is_empty = text.trim_ascii().is_empty();
            if std::mem::take(&mut self.open_line) && is_empty {
                continue;
            }
            self.at.lines += 1;
            let number = self.at.lines;
            if read as u64 > LONGEST {
                self.skip_line()?;
                let most = LONGEST >> 20;
                let why = format!("the line is longer than {most} MiB; send what is that large by other means");
                lines.push(Line { number, job: Err(why), begin, text: hash_of(&text) });
                continue;
            }
            self.open_line = text.last() != Some(&b'\n');
            if !is_empty {
                lines.push(Line { number, job: job::parse(number, &text, now), begin, text: hash_of(&text) });
            }
        }
        Ok(Page { lines, end: self.at.clone(), complete })
    }

    /// Reads on to the end of a line that is too long, without keeping it.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let some = self.reader.fill_buf()?;
            let end = some.iter().position(|byte| *byte == b'\n');
            let take = end.map_or(some.len(), |end| end + 1);
            self.at.hash.update(&some[..take]);
            self.reader.consume(take);
            self.at.offset += take as u64;
            if end.is_some() || take == 0 {
                return Ok(());
            }
        }
    }
}

fn open(path: &Path) -> Result<(File, Option<u64>), Failure> {
    let file = File::open(path).map_err(|error| Failure::reading(path, &error))?;
    let about = file.metadata().map_err(|error| Failure::reading(path, &error))?;
    if about.is_dir() {
        return Err(Failure::Input(format!("{}: it is a folder; name a file with a job in each line", path.display())));
    }
    Ok((file, about.is_file().then_some(about.len())))
}

/// Half of a line's SHA-256, without white space at its ends.
pub(super) type LineHash = [u8; 16];

fn hash_of(line: &[u8]) -> LineHash {
    let mut half = [0; 16];
    half.copy_from_slice(&Sha256::digest(line.trim_ascii())[..16]);
    half
}

fn hex(hash: &Sha256) -> String {
    use std::fmt::Write;
    hash.clone().finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(text: &'static [u8]) -> Input {
        let reader: Box<dyn Read + Send> = Box::new(text);
        let reader = BufReader::new(reader);
        Input { reader, size: Some(1), shown: String::new(), at: Place::default(), open_line: false }
    }

    fn numbers(page: &Page) -> Vec<u64> {
        page.lines.iter().map(|line| line.number).collect()
    }

    #[test]
    fn input_resumes_only_behind_an_unchanged_prefix() {
        let page = input(b"{}\n\n{}").page(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!((numbers(&page), page.end.offset, page.end.lines), (vec![1, 3], 6, 3));
        let first = page.end.mark(2, 0, true);
        let mut longer = input(b"{}\n\n{}\n{}\n");
        assert!(longer.go_on_at(&first).unwrap());
        let second = longer.page(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(numbers(&second), [4], "the end of the third line is no line of its own");
        assert!(second.complete && second.end.lines == 4);
        assert!(!input(b"{}\n\n[]\n").go_on_at(&first).unwrap(), "it was changed");
        assert!(!input(b"{}\n").go_on_at(&first).unwrap(), "it was cut off");
        // In whatever pieces it is read, the hash is that of its bytes.
        let whole = input(b"{}\n\n{}\n{}\n").page(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(second.end.mark(0, 0, true), whole.end.mark(0, 0, true));
        // Where a line begins is a place as well: that of a line that is mended later.
        assert_eq!(whole.lines[2].begin.mark(2, 0, false).offset, 7);
    }
}
