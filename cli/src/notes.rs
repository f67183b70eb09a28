//! Writes messages and the library's warnings to standard error, without breaking the progress bar, and limits how
//! often the same warning is repeated.
//!
//! A thread of its own writes, so that nothing else waits for standard error.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use indicatif::ProgressBar;
use integration_client::clock::{Clock, Time};
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

/// In this time, log events of one place in the code are shown at most [`OFTEN`] times.
const AGAIN: Duration = Duration::from_secs(10);
/// See [`AGAIN`].
const OFTEN: u32 = 5;

/// Messages that wait for standard error. Further ones are dropped, and their number is reported with the next message.
const WAITING: usize = 1_024;

static CLOCK: OnceLock<Clock> = OnceLock::new();
/// The progress bar on the screen. Only the thread of [`screen`] takes this lock.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
/// Whether the last message was written: later ones are dropped.
static IS_OVER: AtomicBool = AtomicBool::new(false);

type Draw = Box<dyn FnOnce() + Send>;

/// The queue of the thread that writes to standard error. A stopped terminal or a pipe without a reader blocks this
/// thread alone. `None` if no thread can be started.
fn screen() -> Option<&'static SyncSender<Draw>> {
    static SCREEN: OnceLock<Option<SyncSender<Draw>>> = OnceLock::new();
    let start = || {
        let (sender, draws) = mpsc::sync_channel::<Draw>(WAITING);
        let draw_all = move || draws.into_iter().for_each(|draw| draw());
        std::thread::Builder::new().name("notes".to_owned()).spawn(draw_all).ok()?;
        Some(sender)
    };
    SCREEN.get_or_init(start).as_ref()
}

/// Queues a function for the writing thread, or calls it if there is no such thread. Returns `false` if the queue is
/// full.
pub(crate) fn draw(draw: impl FnOnce() + Send + 'static) -> bool {
    match screen() {
        Some(screen) => screen.try_send(Box::new(draw)).is_ok(),
        None => {
            draw();
            true
        }
    }
}

/// Waits until all queued messages are written. If standard error blocks for long, a second signal still ends the
/// process.
pub(crate) fn finish() {
    let (shown, is_shown) = mpsc::channel();
    let told = move || {
        let _ = shown.send(());
    };
    if let Some(screen) = screen()
        && screen.send(Box::new(told)).is_ok()
    {
        let _ = is_shown.recv();
    }
}

/// Sets the progress bar beside which messages are written, or none.
pub(crate) fn beside(bar: Option<ProgressBar>) {
    draw(move || *BAR.lock().unwrap_or_else(PoisonError::into_inner) = bar);
}

/// Writes the last message: later ones are dropped.
pub(crate) fn say_last(text: &str) {
    say(text);
    IS_OVER.store(true, Relaxed);
}

/// Writes a message without breaking the progress bar.
pub(crate) fn say(text: &str) {
    if IS_OVER.load(Relaxed) {
        return;
    }
    let text = text.to_owned();
    let write = move || {
        let mut err = anstream::stderr();
        match LEFT_OUT.swap(0, Relaxed) {
            0 => {}
            count => drop(writeln!(err, "({count} messages were left out: standard error was not read)")),
        }
        let _ = writeln!(err, "{text}");
    };
    let is_taken = draw(move || match &*BAR.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(bar) => bar.suspend(write),
        None => write(),
    });
    if !is_taken {
        LEFT_OUT.fetch_add(1, Relaxed);
    }
}

/// Writes a message, unless the same message was written within the last ten seconds.
pub(crate) fn now_and_then(text: &str) {
    static SAID: Mutex<BTreeMap<String, Time>> = Mutex::new(BTreeMap::new());
    let now = CLOCK.get_or_init(Clock::system).now();
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    said.retain(|_, at| now.since(*at) < AGAIN);
    if !said.contains_key(text) {
        said.insert(text.to_owned(), now);
        say(text);
    }
}

/// The target of the lines about what operators do in the console. They are shown although they are no warnings.
const OPERATORS: &str = "integration_client::console";

/// How often the log events of one place in the code are shown.
#[derive(PartialEq, Eq, Debug)]
enum Shown {
    Never,
    /// At most [`OFTEN`] times within [`AGAIN`].
    Seldom,
    Always,
}

impl Shown {
    fn of(target: &str, level: Level, shows_letters: bool) -> Shown {
        match target {
            // The end of a request is reported by each command itself.
            _ if target.ends_with("::ends") => Shown::Never,
            // Without a store each line is the only record of a letter. `dead-letters` lists the letters in a store; a line
            // for each would hide all other messages.
            "integration_client::dead_letter::log" if shows_letters => Shown::Always,
            "integration_client::dead_letter::log" => Shown::Never,
            // The only record of a letter that could not be kept.
            "integration_client::dead_letter::writer" if level == Level::ERROR => Shown::Always,
            OPERATORS => Shown::Always,
            _ => Shown::Seldom,
        }
    }
}

struct Notes {
    clock: Clock,
    /// Whether the log is the only place where dead letters are.
    shows_letters: bool,
    /// For each place in the code, when the current period of [`AGAIN`] began and how many events it has had.
    said: Mutex<HashMap<String, (Time, u32)>>,
}

struct Note {
    is_wanted: bool,
    text: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Notes {
    type Writer = Note;

    fn make_writer(&'a self) -> Note {
        Note { is_wanted: true, text: Vec::new() }
    }

    fn make_writer_for(&'a self, about: &tracing::Metadata<'_>) -> Note {
        let shown = Shown::of(about.target(), *about.level(), self.shows_letters);
        if shown != Shown::Seldom {
            return Note { is_wanted: shown == Shown::Always, text: Vec::new() };
        }
        // tracing names an event after its place in the code.
        let (now, place) = (self.clock.now(), about.name());
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, times) = said.entry(place.to_owned()).or_insert((now, 0));
        if now.since(*since) >= AGAIN {
            (*since, *times) = (now, 0);
        }
        *times += 1;
        Note { is_wanted: *times <= OFTEN, text: Vec::new() }
    }
}

impl Write for Note {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if self.is_wanted && !self.text.is_empty() {
            say(String::from_utf8_lossy(&self.text).trim_end());
        }
    }
}

/// Shows the library's errors from now on and, unless `quiet` is set, its warnings and what operators do. With
/// `shows_letters` dead letters are shown too, because no store keeps them.
pub(crate) fn listen(quiet: bool, shows_letters: bool) {
    let notes = Notes { clock: Clock::system(), shows_letters, said: Mutex::default() };
    let targets = match quiet {
        true => Targets::new().with_default(LevelFilter::ERROR),
        false => Targets::new().with_default(LevelFilter::WARN).with_target(OPERATORS, LevelFilter::INFO),
    };
    let shown = tracing_subscriber::fmt()
        .with_writer(notes)
        .with_max_level(Level::INFO)
        .with_target(false)
        .with_ansi(false)
        .without_time();
    // Fails if a subscriber is set already, which then stays.
    let _ = tracing::subscriber::set_global_default(shown.finish().with(targets));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_record_of_a_letter_is_shown() {
        let (log, writer) = ("integration_client::dead_letter::log", "integration_client::dead_letter::writer");
        for (target, level, shows_letters, shown) in [
            (log, Level::ERROR, false, Shown::Never),
            (log, Level::ERROR, true, Shown::Always),
            (writer, Level::ERROR, false, Shown::Always),
            (writer, Level::WARN, false, Shown::Seldom),
            (OPERATORS, Level::INFO, false, Shown::Always),
            ("integration_client::ends", Level::WARN, true, Shown::Never),
            ("integration_client::client::watch", Level::ERROR, false, Shown::Seldom),
        ] {
            assert_eq!(Shown::of(target, level, shows_letters), shown, "{target} {level}");
        }
    }
}
