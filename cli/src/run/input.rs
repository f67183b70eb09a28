//! The file of jobs. It is read line by line and never held in memory as a whole. After an interruption a hash of the
//! part that was read tells whether the file is the same.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::job::{self, Job};
use crate::output::Failure;

/// Lines of one page.
const PAGE: usize = 256;
/// Bytes of one page: a page ends with the line that reaches this size.
const PAGE_BYTES: usize = 1 << 20;
/// Bytes of the longest line, without its line feed. A longer line is refused, because a line is held in memory as a
/// whole.
pub(super) const LONGEST: u64 = 16 << 20;
/// The byte order mark with which some programs begin a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The part of the input that is in the store. The batch keeps it as its mark.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Mark {
    /// The length of the part in bytes.
    pub(super) offset: u64,
    /// The number of lines in the part, including empty ones.
    pub(super) lines: u64,
    /// The number of those lines that were accepted as jobs.
    pub(super) jobs: u64,
    /// The number of those lines that are not jobs and were left out.
    pub(super) invalid: u64,
    /// The SHA-256 of the part's bytes, in hexadecimal.
    pub(super) sha256: String,
    /// Whether the input ended there.
    pub(super) complete: bool,
    /// With `--changed`, the number of the earlier run whose lines this run does not send again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<u64>,
}

/// A position in the input: the bytes and lines before it, and their hash.
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

/// The file or pipe from which jobs are read.
pub(super) struct Input {
    reader: BufReader<Box<dyn Read + Send>>,
    /// The size in bytes; `None` if the input is not a regular file.
    pub(super) size: Option<u64>,
    /// The name of the input in messages.
    pub(super) shown: String,
    at: Place,
    /// Whether the last line had no line feed: a line feed that comes next ends that line, and is not an empty line.
    open_line: bool,
}

/// A line that is not empty.
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) job: Result<Job, String>,
    /// The position at which the line begins.
    pub(super) begin: Place,
    /// Identifies the content of the line.
    pub(super) text: LineHash,
}

/// Some lines of the input, and the position after them.
pub(super) struct Page {
    pub(super) lines: Vec<Line>,
    pub(super) end: Place,
    pub(super) complete: bool,
    /// When the lines were read. Their relative deadlines count from then.
    pub(super) read_at: SystemTime,
}

/// The path of an input; `None` for `-`, which is standard input.
pub(super) fn path(input: &str) -> Option<PathBuf> {
    (input != "-").then(|| PathBuf::from(input))
}

impl Input {
    /// As [`open`](Self::open), on a blocking thread: to open a named pipe waits for its writer, and signals are heard
    /// meanwhile.
    pub(super) async fn wait_for(input: &str) -> Result<Input, Failure> {
        let name = input.to_owned();
        let open = tokio::task::spawn_blocking(move || Input::open(&name));
        open.await.unwrap_or_else(|error| Err(Failure::Input(format!("{input}: {error}"))))
    }

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

    /// Skips the part of the input that an earlier run has read. Returns `false` if that part has changed since. It is
    /// read on a blocking thread, because reading from a pipe waits for its writer, and signals are heard meanwhile. If
    /// the future is dropped before its end, the input is empty.
    pub(super) async fn go_on_at(&mut self, mark: &Mark) -> io::Result<bool> {
        let nothing: Box<dyn Read + Send> = Box::new(io::empty());
        let shown = self.shown.clone();
        let reader = BufReader::with_capacity(0, nothing);
        let nothing = Input { reader, size: self.size, shown, at: Place::default(), open_line: false };
        let (mut input, mark) = (std::mem::replace(self, nothing), mark.clone());
        let skip = move || input.skip(&mark).map(|is_same| (input, is_same));
        let (input, is_same) = tokio::task::spawn_blocking(skip).await.map_err(io::Error::other)??;
        *self = input;
        Ok(is_same)
    }

    /// Skips the part of the input up to `mark`. Returns `false` if that part is another.
    fn skip(&mut self, mark: &Mark) -> io::Result<bool> {
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

    /// Reads the next page. The last page is `complete`. The time is read when the first line is there, because the
    /// writer of a pipe may take long; the other lines do not wait for a writer.
    pub(super) fn page(&mut self, now: impl Fn() -> SystemTime) -> io::Result<Page> {
        let (mut lines, mut bytes, mut complete, mut read_at) = (Vec::new(), 0, false, None);
        let mut text = Vec::new();
        while lines.len() < PAGE && bytes < PAGE_BYTES {
            // A page of a pipe ends with the lines that have arrived: jobs do not wait for a slow writer.
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
            // The positions and the hash of the input count the mark; the lines do not have it.
            let line = match begin.offset {
                0 => {
                    if let Some(other) = other_encoding(&text) {
                        let why =
                            format!("it is {other}, and jobs are UTF-8: save it as UTF-8 (iconv -f {other} -t UTF-8)");
                        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                    }
                    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text)
                }
                _ => &text[..],
            };
            let is_empty = line.trim_ascii().is_empty();
            if std::mem::take(&mut self.open_line) && is_empty {
                continue;
            }
            self.at.lines += 1;
            let number = self.at.lines;
            let has_end = text.last() == Some(&b'\n');
            if read as u64 > LONGEST && !has_end {
                self.skip_line()?;
                let most = LONGEST >> 20;
                let why = format!("the line is longer than {most} MiB; send what is that large by other means");
                lines.push(Line { number, job: Err(why), begin, text: hash_of(line) });
                continue;
            }
            self.open_line = !has_end;
            if !is_empty {
                let job = job::parse(number, line, *read_at.get_or_insert_with(&now));
                lines.push(Line { number, job, begin, text: hash_of(line) });
            }
        }
        Ok(Page { lines, end: self.at.clone(), complete, read_at: read_at.unwrap_or_else(now) })
    }

    /// Skips the rest of a line that is too long, without keeping it in memory.
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

/// The encoding of an input that begins as a text in UTF-16 or UTF-32 does: with its byte order mark, or with the first
/// character of a job.
fn other_encoding(begin: &[u8]) -> Option<&'static str> {
    let begins = |marks: [&[u8]; 4]| marks.into_iter().any(|mark| begin.starts_with(mark));
    // UTF-32 first: it begins like UTF-16.
    if begins([b"\xFF\xFE\0\0", b"\0\0\xFE\xFF", b"{\0\0\0", b"\0\0\0{"]) {
        Some("UTF-32")
    } else if begins([b"\xFF\xFE", b"\xFE\xFF", b"{\0", b"\0{"]) {
        Some("UTF-16")
    } else {
        None
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

/// The first half of the SHA-256 of a line, which ignores white space at both ends of the line.
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

    fn input(text: impl Into<Vec<u8>>) -> Input {
        let text: Vec<u8> = text.into();
        let reader: Box<dyn Read + Send> = Box::new(io::Cursor::new(text));
        let reader = BufReader::new(reader);
        Input { reader, size: Some(1), shown: String::new(), at: Place::default(), open_line: false }
    }

    fn numbers(page: &Page) -> Vec<u64> {
        page.lines.iter().map(|line| line.number).collect()
    }

    #[test]
    fn input_resumes_only_behind_an_unchanged_prefix() {
        let page = input(b"{}\n\n{}").page(|| SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!((numbers(&page), page.end.offset, page.end.lines), (vec![1, 3], 6, 3));
        let first = page.end.mark(2, 0, true);
        let mut longer = input(b"{}\n\n{}\n{}\n");
        assert!(longer.skip(&first).unwrap());
        let second = longer.page(|| SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(numbers(&second), [4], "the end of the third line is no line of its own");
        assert!(second.complete && second.end.lines == 4);
        assert!(!input(b"{}\n\n[]\n").skip(&first).unwrap(), "it was changed");
        assert!(!input(b"{}\n").skip(&first).unwrap(), "it was cut off");
        // The hash depends on the bytes alone, not on the pieces in which they are read.
        let whole = input(b"{}\n\n{}\n{}\n").page(|| SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(second.end.mark(0, 0, true), whole.end.mark(0, 0, true));
        // The beginning of a line is a position too: a run that stops at a bad line continues there.
        assert_eq!(whole.lines[2].begin.mark(2, 0, false).offset, 7);
    }

    #[test]
    fn byte_order_mark_belongs_to_no_line() {
        let page = |text: &str| input(text).page(|| SystemTime::UNIX_EPOCH).unwrap();
        let job = "{\"tenant\":\"a\",\"vendor\":\"v\",\"method\":\"GET\",\"path\":\"/\"}\n";
        let (plain, marked) = (format!("{job}{job}"), format!("\u{feff}{job}{job}"));
        let (without, with) = (page(&plain), page(&marked));
        assert!(with.lines.iter().all(|line| line.job.is_ok()));
        assert_eq!((with.lines[0].text, numbers(&with)), (without.lines[0].text, vec![1, 2]), "the lines are the same");
        // The positions are those of the file, so that a run goes on where it stopped.
        assert_eq!((with.end.offset, with.end.lines), (marked.len() as u64, 2));
        let first = with.lines[1].begin.mark(1, 0, false);
        let mut again = input(&*marked);
        assert!(again.skip(&first).unwrap());
        let rest = again.page(|| SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!((numbers(&rest), rest.lines[0].text), (vec![2], with.lines[1].text));
        assert!(!input(&*plain).skip(&first).unwrap(), "without the mark it is another file");
        let inside = page(&format!("{job}\u{feff}{job}"));
        assert!(inside.lines[1].job.is_err(), "it is skipped at the beginning alone");
        assert!(page("\u{feff}").lines.is_empty());
    }

    #[test]
    fn input_in_utf_16_is_refused_in_words() {
        for text in ["\u{feff}{}\n", "{}\n"] {
            let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
            let wide_little: Vec<u8> = text.chars().flat_map(|letter| u32::from(letter).to_le_bytes()).collect();
            let wide_big: Vec<u8> = text.chars().flat_map(|letter| u32::from(letter).to_be_bytes()).collect();
            for (bytes, name) in [(little, "16"), (big, "16"), (wide_little, "32"), (wide_big, "32")] {
                let error = input(bytes).page(|| SystemTime::UNIX_EPOCH).err().unwrap();
                let said = format!("it is UTF-{name}, and jobs are UTF-8: save it as UTF-8 (iconv -f UTF-{name} ");
                assert!(error.to_string().contains(&said), "{error}");
            }
        }
    }

    #[test]
    fn longest_line_ends_at_its_line_feed() {
        let longest = usize::try_from(LONGEST).unwrap();
        for (length, is_too_long) in [(longest - 1, false), (longest, false), (longest + 1, true)] {
            let mut text = vec![b'x'; length];
            text.extend(b"\n{}\n{}\n");
            let size = text.len() as u64;
            let (mut file, mut lines) = (input(text), Vec::new());
            let end = loop {
                let page = file.page(|| SystemTime::UNIX_EPOCH).unwrap();
                lines.extend(page.lines);
                if page.complete {
                    break page.end;
                }
            };
            assert_eq!(lines.iter().map(|line| line.number).collect::<Vec<_>>(), [1, 2, 3], "{length}");
            assert_eq!((end.offset, end.lines), (size, 3), "{length}");
            let why = lines[0].job.as_ref().err().unwrap();
            assert_eq!(why.contains("longer than 16 MiB"), is_too_long, "{length}: {why}");
        }
    }
}
