//! Writes result lines. A reader that stops reading, or a disk that hangs, blocks at most one thread of those that end jobs and the thread of
//! the results; all other results wait in a queue that is bounded in bytes.
//!
//! The thread that ends a job writes its line into a file itself, where no other line is waiting or being written: to hand the line
//! to another thread and to wait for it takes longer than to write it. All other lines go through a queue to a thread of
//! their own, which writes what has gathered there together.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::output::Failure;

/// Bytes of lines that wait to be written.
const ROOM: usize = 16 << 20;
/// The most bytes that one write to the file takes from the queue.
const AT_ONCE: usize = 1 << 16;

/// Where lines go.
pub(super) enum Out {
    /// A pipe, a terminal, or whatever else standard output is.
    Stdout(File),
    File(File),
}

impl Out {
    /// Standard output, without the lock that the rest of the program takes to write to it.
    pub(super) fn stdout() -> Result<Out, Failure> {
        #[cfg(unix)]
        let owned = std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned();
        #[cfg(windows)]
        let owned = std::os::windows::io::AsHandle::as_handle(&io::stdout()).try_clone_to_owned();
        owned
            .map(|owned| Out::Stdout(File::from(owned)))
            .map_err(|error| Failure::Input(format!("standard output cannot be written: {error}")))
    }

    /// A file, which is made where there is none. What is in it stays.
    pub(super) fn file(path: &Path) -> Result<File, Failure> {
        let mut options = OpenOptions::new();
        // Answers hold customers' data: the file is readable by its owner alone, as the store's file is.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.read(true).write(true).create(true).truncate(false).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Failure::Input(format!("{}: its folder is not there; make it first", path.display()))
            }
            _ => Failure::reading(path, &error),
        })
    }

    /// Writes lines whole, or, into a file, nothing of them.
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Out::Stdout(out) => out.write_all(text),
            Out::File(file) => {
                let before = file.stream_position();
                file.write_all(text).inspect_err(|_| {
                    if let Ok(before) = before {
                        let _ = file.set_len(before).and_then(|()| file.seek(SeekFrom::Start(before)));
                    }
                })
            }
        }
    }
}

/// A line that waits to be written.
struct Line {
    text: String,
    /// Told when it is written; dropped where it cannot be.
    written: oneshot::Sender<()>,
    _room: OwnedSemaphorePermit,
}

/// Leave to hand in a line.
pub(super) struct Room(OwnedSemaphorePermit);

/// The queue in front of the thread.
#[derive(Clone)]
pub(super) struct Lines {
    queue: mpsc::Sender<Line>,
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
}

/// What the thread and those who write at once share.
struct Shared {
    out: Mutex<Out>,
    is_file: bool,
    is_broken: AtomicBool,
    problem: Mutex<Option<io::Error>>,
}

impl Shared {
    /// A write has failed: no further one is tried.
    fn broke(&self, error: io::Error) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.is_broken.store(true, Relaxed);
    }
}

/// The right to write a line at once.
pub(super) struct AtOnce<'a> {
    out: MutexGuard<'a, Out>,
    shared: &'a Shared,
}

impl AtOnce<'_> {
    pub(super) fn write(mut self, text: &str) -> io::Result<()> {
        if self.shared.is_broken.load(Relaxed) {
            return Err(broken());
        }
        self.out.write(text.as_bytes()).map_err(|error| {
            self.shared.broke(error);
            broken()
        })
    }
}

impl Lines {
    /// Starts the thread. It ends with the last of the queue's handles.
    pub(super) fn start(out: Out) -> Result<Lines, Failure> {
        let (queue, waiting) = mpsc::channel();
        // Not a pipe or a device with a name: these may block for long.
        let is_file = matches!(&out, Out::File(file) if file.metadata().is_ok_and(|about| about.is_file()));
        let shared = Arc::new(Shared {
            out: Mutex::new(out),
            is_file,
            is_broken: AtomicBool::new(false),
            problem: Mutex::default(),
        });
        let writes = shared.clone();
        std::thread::Builder::new()
            .name("results".to_owned())
            .spawn(move || write_all(&waiting, &writes))
            .map_err(|error| Failure::Input(format!("no thread can be started for the results: {error}")))?;
        Ok(Lines { queue, room: Arc::new(Semaphore::new(ROOM)), shared })
    }

    /// The right to write a line without handing it in: into a file, where no other line waits or is being written.
    pub(super) fn at_once(&self) -> Option<AtOnce<'_>> {
        if !self.shared.is_file || self.room.available_permits() < ROOM {
            return None;
        }
        let out = self.shared.out.try_lock().ok()?;
        Some(AtOnce { out, shared: &self.shared })
    }

    /// Waits until the queue has room for about that many more bytes.
    pub(super) async fn room(&self, bytes: usize) -> io::Result<Room> {
        // ROOM fits into 32 bits. A longer line is written when it is alone.
        let bytes = bytes.min(ROOM) as u32;
        self.room.clone().acquire_many_owned(bytes).await.map(Room).map_err(|_| broken())
    }

    /// Hands in a line. What is returned waits until it is written.
    pub(super) fn put(&self, text: String, Room(room): Room) -> impl Future<Output = io::Result<()>> + use<> {
        let (told, written) = oneshot::channel();
        let is_taken = self.queue.send(Line { text, written: told, _room: room }).is_ok();
        async move {
            if !is_taken {
                return Err(broken());
            }
            written.await.map_err(|_| broken())
        }
    }

    /// Waits until all is written that was handed in.
    pub(super) async fn drain(&self) -> io::Result<()> {
        let room = self.room(0).await?;
        self.put(String::new(), room).await
    }

    /// A write has failed, and no further one is tried.
    pub(super) fn is_broken(&self) -> bool {
        self.shared.is_broken.load(Relaxed)
    }

    /// Why, once.
    pub(super) fn problem(&self) -> Option<io::Error> {
        self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What a line is told that is not written. The reason is told once, by [`Lines::problem`].
pub(super) fn broken() -> io::Error {
    io::Error::other("the results cannot be written")
}

/// Writes lines as they arrive, until the last sender is dropped.
fn write_all(queue: &mpsc::Receiver<Line>, shared: &Shared) {
    while let Ok(first) = queue.recv() {
        let mut text = first.text;
        let mut rooms = vec![(first.written, first._room)];
        while text.len() < AT_ONCE
            && let Ok(next) = queue.try_recv()
        {
            text += &next.text;
            rooms.push((next.written, next._room));
        }
        if shared.is_broken.load(Relaxed) {
            continue;
        }
        let written = shared.out.lock().unwrap_or_else(PoisonError::into_inner).write(text.as_bytes());
        match written {
            Ok(()) => rooms.into_iter().for_each(|(written, _)| {
                // The receiver may have been dropped.
                let _ = written.send(());
            }),
            Err(error) => shared.broke(error),
        }
    }
}
