//! Files of lines: bounds, failures, and reading back.

use std::fs;
use std::io::{self, Seek, SeekFrom, Write};

use super::super::lines_file::{MAX_LINE_BYTES, Output, append};
use super::*;

const MIB: u64 = 1024 * 1024;

async fn write(sink: &JsonLinesSink, notes: impl IntoIterator<Item = usize>) -> Vec<DeadLetter> {
    let letters: Vec<DeadLetter> =
        notes.into_iter().map(|number| letter(TIERS[number % 3], &number.to_string())).collect();
    for letter in &letters {
        sink.write(letter).await.unwrap();
    }
    sink.flush().await.unwrap();
    letters
}

#[tokio::test]
async fn written_letters_read_back() {
    let folder = Folder::new("reads-back");
    let sink = JsonLinesSink::open(folder.file(), MIB, 2).unwrap();
    assert_eq!(JsonLinesSink::read(folder.file()).unwrap(), []);
    let mut written = write(&sink, 0..20).await;
    assert_eq!(JsonLinesSink::read(folder.file()).unwrap(), written);
    // The file admits one writer at a time.
    let error = JsonLinesSink::open(folder.file(), MIB, 2).unwrap_err();
    assert!(error.to_string().ends_with("another writer has it open"), "{error}");
    drop(sink);
    let sink = JsonLinesSink::open(folder.file(), MIB, 2).unwrap();
    written.extend(write(&sink, 20..30).await);
    assert_eq!(JsonLinesSink::read(folder.file()).unwrap(), written);
    assert_eq!(folder.names(), ["letters.jsonl"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(folder.file().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn letter_files_stay_within_bounds() {
    let folder = Folder::new("bounds");
    let line = serde_json::to_vec(&letter(Priority::Normal, "0")).unwrap().len() as u64;
    let bound = 5 * line;
    for old_files in [0, 1, 3] {
        let sink = JsonLinesSink::open(folder.file(), bound, old_files).unwrap();
        let written = write(&sink, 0..100).await;
        let mut names = vec!["letters.jsonl".to_owned()];
        names.extend((1..=old_files).map(|number| format!("letters.jsonl.{number}")));
        assert_eq!(folder.names(), names);
        let mut kept = Vec::new();
        for name in names.iter().rev() {
            let path = folder.0.join(name);
            assert!(size(&path) <= bound);
            kept.extend(JsonLinesSink::read(&path).unwrap());
        }
        assert!(kept.len() > 4 * old_files as usize);
        // The newest letters, without a gap.
        assert_eq!(kept, written[100 - kept.len()..]);

        // A letter that does not fit within the bound is refused, and the file is unchanged.
        let large = letter(Priority::High, &"x".repeat(bound as usize));
        let error = sink.write(&large).await.unwrap_err();
        assert!(error.to_string().contains("at most"), "{error}");
        write(&sink, 0..1).await;
    }
}

#[tokio::test]
async fn rotation_fills_a_gap_before_deleting() {
    let folder = Folder::new("gap");
    let old = |number: u32| folder.0.join(format!("letters.jsonl.{number}"));
    for number in [1, 3] {
        fs::write(old(number), format!("old {number}")).unwrap();
    }
    let sink = JsonLinesSink::open(folder.file(), 1000, 3).unwrap();
    write(&sink, 0..2).await;
    assert_eq!(fs::read_to_string(old(2)).unwrap(), "old 1");
    assert_eq!(fs::read_to_string(old(3)).unwrap(), "old 3");
    assert_eq!(JsonLinesSink::read(old(1)).unwrap().len(), 1);
}

/// The process died after each possible number of bytes of the last line.
#[tokio::test]
async fn partial_line_is_moved_aside() {
    let folder = Folder::new("torn");
    let sink = JsonLinesSink::open(folder.file(), MIB, 2).unwrap();
    let written = write(&sink, 0..3).await;
    drop(sink);
    let text = fs::read(folder.file()).unwrap();
    let begin = text[..text.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
    let torn = folder.0.join("letters.jsonl.torn");
    for end in begin..=text.len() {
        let _ = fs::remove_file(&torn);
        fs::write(folder.file(), &text[..end]).unwrap();
        let sink = JsonLinesSink::open(folder.file(), MIB, 2).unwrap();
        let mut expected = written[..2].to_vec();
        if end >= text.len() - 1 {
            // Only the line end is missing, or nothing.
            expected.push(written[2].clone());
            assert!(!torn.exists(), "{end}");
        } else if end > begin {
            assert_eq!(fs::read(&torn).unwrap(), [&text[begin..end], b"\n"].concat(), "{end}");
        }
        assert_eq!(JsonLinesSink::read(folder.file()).unwrap(), expected, "{end}");
        if end % 16 == 0 || end + 4 > text.len() {
            expected.extend(write(&sink, 7..8).await);
            assert_eq!(JsonLinesSink::read(folder.file()).unwrap(), expected, "{end}");
        }
    }
}

#[test]
fn invalid_last_line_is_moved_aside() {
    let folder = Folder::new("no-record");
    let torn = folder.0.join("letters.jsonl.torn");
    let tails: [&[u8]; 8] = [b"\n", b"{\n", b"12", b"12\n", b"\0\0\0\0", b"\0\n", b"{\"a\":1} x\n", &[b'x'; 300_000]];
    for tail in tails {
        let _ = fs::remove_file(&torn);
        fs::write(folder.file(), [b"{\"a\":1}\n", tail].concat()).unwrap();
        JsonLinesSink::open(folder.file(), MIB, 2).unwrap();
        assert_eq!(fs::read(folder.file()).unwrap(), b"{\"a\":1}\n");
        assert_eq!(fs::read(&torn).unwrap(), [tail, b"\n"].concat());
        // A second opening finds nothing to do.
        JsonLinesSink::open(folder.file(), MIB, 2).unwrap();
        assert_eq!(size(&torn), tail.len() as u64 + 1);
    }
    // After many crashes the file of partial lines stays within its bound.
    for _ in 0..20 {
        fs::write(folder.file(), [b'x'; 300]).unwrap();
        JsonLinesSink::open(folder.file(), 1000, 2).unwrap();
        assert_eq!(size(&folder.file()), 0);
        assert!(size(&torn) <= 1000);
    }
}

#[tokio::test]
async fn moved_file_is_created_again() {
    let folder = Folder::new("moved");
    let sink = JsonLinesSink::open(folder.file(), MIB, 2).unwrap();
    write(&sink, 0..2).await;
    fs::rename(folder.file(), folder.0.join("away")).unwrap();
    write(&sink, 2..3).await;
    assert_eq!(JsonLinesSink::read(folder.0.join("away")).unwrap().len(), 2);
    assert_eq!(JsonLinesSink::read(folder.file()).unwrap().len(), 1);
    // Another program truncates the file.
    fs::write(folder.file(), "").unwrap();
    write(&sink, 3..4).await;
    assert_eq!(JsonLinesSink::read(folder.file()).unwrap().len(), 1);
}

/// A file on a disk with room for a given number of bytes.
struct NearlyFullDisk {
    file: fs::File,
    room: usize,
    cuts: bool,
}

impl Write for NearlyFullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(self.room);
        if fits == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room -= fits;
        self.file.write(&bytes[..fits])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for NearlyFullDisk {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Output for NearlyFullDisk {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        if self.cuts { self.file.set_len(length) } else { Err(io::ErrorKind::Other.into()) }
    }
}

#[tokio::test]
async fn full_disk_leaves_no_partial_line() {
    let folder = Folder::new("full");
    let line = [&serde_json::to_vec(&letter(Priority::High, "2")).unwrap()[..], b"\n"].concat();
    let sink = JsonLinesSink::open(folder.file(), MIB, 2).unwrap();
    let first = write(&sink, 0..1).await;
    drop(sink);
    let before = fs::read(folder.file()).unwrap();
    for room in 0..line.len() {
        // Where the partial line cannot be cut off either, the next opening does it.
        for cuts in [true, false] {
            fs::write(folder.file(), &before).unwrap();
            let file = fs::OpenOptions::new().write(true).open(folder.file()).unwrap();
            let error = append(&mut NearlyFullDisk { file, room, cuts }, &line).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            if cuts {
                assert_eq!(fs::read(folder.file()).unwrap(), before);
            }
            if room % 64 == 0 {
                let sink = JsonLinesSink::open(folder.file(), MIB, 2).unwrap();
                let expected = [&first[..], &write(&sink, 1..2).await].concat();
                assert_eq!(JsonLinesSink::read(folder.file()).unwrap(), expected);
            }
        }
    }
}

#[test]
fn unusable_file_path_is_refused() {
    let folder = Folder::new("places");
    for path in [folder.0.clone(), folder.0.join("missing/letters"), "/dev/null".into()] {
        let error = JsonLinesSink::open(&path, MIB, 1).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Config);
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    let error = JsonLinesSink::read(folder.file()).unwrap_err();
    assert!(std::error::Error::source(&error).is_some(), "{error}");
}

#[test]
fn read_survives_any_file() {
    let folder = Folder::new("garbage");
    let good = serde_json::to_string(&letter(Priority::High, "1")).unwrap();
    let text = format!("{good}\nhidden\n\n{{\"id\":\"hidden\",\"at\":\"hidden\"}}\n{good}\n{}", &good[..40]);
    fs::write(folder.file(), text).unwrap();
    let error = JsonLinesSink::read(folder.file()).unwrap_err();
    let lines: Vec<u64> = error.bad_lines().iter().map(|bad| bad.line).collect();
    assert_eq!((lines, error.bad_count(), error.letters().len()), (vec![2, 3, 4, 6], 4, 2));
    assert!(!format!("{error} {error:?}").contains("hidden"));
    assert_eq!(error.into_letters().len(), 2);

    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let mut bytes: Vec<u8> = good.bytes().cycle().take(2000).collect();
        for _ in 0..random.usize(0..200) {
            let at = random.usize(0..bytes.len());
            bytes[at] = if random.bool() { b'\n' } else { random.u8(..) };
        }
        fs::write(folder.file(), &bytes).unwrap();
        let _ = JsonLinesSink::read(folder.file());
        let sink = JsonLinesSink::open(folder.file(), MIB, 1);
        assert!(sink.is_ok());
    }

    // One byte more than a line may have, and a good line after it.
    let mut long = vec![b'x'; MAX_LINE_BYTES as usize];
    long.extend(format!("\n{good}\n").bytes());
    fs::write(folder.file(), &long).unwrap();
    let error = JsonLinesSink::read(folder.file()).unwrap_err();
    assert_eq!((error.bad_count(), error.letters().len()), (1, 1));
    assert_eq!(error.bad_lines()[0].line, 1);

    fs::write(folder.file(), "\n".repeat(5000)).unwrap();
    let error = JsonLinesSink::read(folder.file()).unwrap_err();
    assert_eq!((error.bad_count(), error.bad_lines().len()), (5000, 1000));
}
