//! What the library warns of while a command runs, on standard error: beside a progress bar, and each thing now and then alone.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use indicatif::ProgressBar;
use integration_client::clock::{Clock, Time};
use tracing_subscriber::fmt::MakeWriter;

/// The same thing is not said more than a few times in so long.
const AGAIN: Duration = Duration::from_secs(10);
const OFTEN: u32 = 5;

static CLOCK: OnceLock<Clock> = OnceLock::new();
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A bar is on the screen from now on, or none.
pub(crate) fn beside(bar: Option<ProgressBar>) {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = bar;
}

/// Says something without breaking the bar.
pub(crate) fn say(text: &str) {
    let write = || {
        let _ = writeln!(anstream::stderr(), "{text}");
    };
    match &*BAR.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// The same, but not again within ten seconds.
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

struct Notes {
    clock: Clock,
    /// Since when the same place in the code was heard, and how often.
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
        // Dead letters are counted, and listed by `dead-letters`; a line for each would hide everything else.
        let mut is_wanted = !about.target().contains("dead_letter");
        // The name is the place in the code.
        let (now, place) = (self.clock.now(), about.name());
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, times) = said.entry(place.to_owned()).or_insert((now, 0));
        if now.since(*since) >= AGAIN {
            (*since, *times) = (now, 0);
        }
        *times += 1;
        is_wanted &= *times <= OFTEN;
        Note { is_wanted, text: Vec::new() }
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

/// From now on errors are shown, and unless it is to be quiet, warnings.
pub(crate) fn listen(quiet: bool) {
    let notes = Notes { clock: Clock::system(), said: Mutex::default() };
    let shown = tracing_subscriber::fmt()
        .with_writer(notes)
        .with_max_level(if quiet { tracing::Level::ERROR } else { tracing::Level::WARN })
        .with_target(false)
        .with_ansi(false)
        .without_time();
    // Somebody listens already: so be it.
    let _ = tracing::subscriber::set_global_default(shown.finish());
}
