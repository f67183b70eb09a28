//! What became of each job: a line of JSON as soon as it is known, and counts for the progress.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::future::ready;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use integration_client::Priority;
use integration_client::dead_letter::{BoxError, DeadLetter};
use integration_client::outbox::{Batch, BatchCounts, Delivered, Ended, Numbers, Queue, ResponseHandler, Status};
use integration_client::transport::BoxFuture;
use serde_json::{Value, json};

use crate::output::Failure;

/// Where result lines go.
enum Out {
    Nowhere,
    Stdout,
    File(File),
}

/// A bit for each line of the input.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, at: u64) -> bool {
        let word = usize::try_from(at / 64).unwrap_or(usize::MAX);
        self.0.get(word).is_some_and(|bits| bits >> (at % 64) & 1 == 1)
    }

    /// Whether it was not set before.
    fn set(&mut self, at: u64) -> bool {
        let Ok(word) = usize::try_from(at / 64) else { return false };
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let is_new = !self.has(at);
        self.0[word] |= 1 << (at % 64);
        is_new
    }
}

/// A tenant at a vendor, and a priority.
pub(super) type LaneTier = (String, String, Priority);

struct State {
    out: Out,
    /// Lines whose result says that their vendor took them, and lines whose result says something else.
    written: [Bits; 2],
    /// Jobs that are accepted and have not ended, by whose they are.
    left: HashMap<LaneTier, u64>,
    /// The same as one number; it may be a little off where another process had a hand in it.
    all_left: u64,
    done: u64,
    dead: u64,
    problem: Option<io::Error>,
}

/// Shared by whoever hears of ends and whoever shows them.
#[derive(Clone)]
pub(super) struct Results {
    numbers: Numbers,
    state: Arc<Mutex<State>>,
}

/// What is known of a run at one moment.
pub(super) struct Seen {
    pub(super) done: u64,
    pub(super) dead: u64,
    pub(super) all_left: u64,
    pub(super) left: Vec<(LaneTier, u64)>,
}

const DONE: usize = 0;
const OTHER: usize = 1;

impl Results {
    /// `out`: none, `-`, or a file that is made, or gone on with where it is of this run.
    pub(super) fn open(out: Option<&Path>, numbers: Numbers) -> Result<Results, Failure> {
        let mut written = [Bits::default(), Bits::default()];
        let out = match out {
            None => Out::Nowhere,
            Some(path) if path == Path::new("-") => Out::Stdout,
            Some(path) => {
                let failed = |error: io::Error| match error.kind() {
                    io::ErrorKind::NotFound => {
                        Failure::Input(format!("{}: its folder is not there; make it first", path.display()))
                    }
                    _ => Failure::reading(path, &error),
                };
                let mut options = OpenOptions::new();
                // Answers are the vendor's words about somebody's data: for the owner alone, as the store is.
                #[cfg(unix)]
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                let mut file =
                    options.read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
                if file.metadata().map_err(failed)?.is_file() {
                    let whole = known(&file, path, numbers, &mut written)?;
                    // A line that was cut off in the middle is written again.
                    file.set_len(whole).map_err(failed)?;
                    file.seek(SeekFrom::End(0)).map_err(failed)?;
                }
                Out::File(file)
            }
        };
        let state = State { out, written, left: HashMap::new(), all_left: 0, done: 0, dead: 0, problem: None };
        Ok(Results { numbers, state: Arc::new(Mutex::new(state)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was there before this process began.
    pub(super) fn begin(&self, counts: &BatchCounts, queues: &[Queue]) {
        let mut state = self.state();
        state.done += counts.delivered;
        state.dead += counts.dead;
        state.all_left += counts.waiting;
        for queue in queues {
            let lane = (queue.tenant.clone(), queue.vendor.clone(), queue.priority);
            *state.left.entry(lane).or_default() += queue.waiting + queue.under_way;
        }
    }

    /// Jobs were accepted.
    pub(super) fn accepted(&self, lanes: impl IntoIterator<Item = (LaneTier, u64)>) {
        let mut state = self.state();
        for (lane, jobs) in lanes {
            state.all_left += jobs;
            *state.left.entry(lane).or_default() += jobs;
        }
    }

    pub(super) fn left(&self) -> u64 {
        self.state().all_left
    }

    pub(super) fn seen(&self) -> Seen {
        let state = self.state();
        let left = state.left.iter().filter(|(_, left)| **left > 0).map(|(lane, left)| (lane.clone(), *left));
        Seen { done: state.done, dead: state.dead, all_left: state.all_left, left: left.collect() }
    }

    /// Why results cannot be written, once.
    pub(super) fn problem(&self) -> Option<io::Error> {
        self.state().problem.take()
    }

    /// A line that is no job.
    pub(super) fn invalid(&self, line: u64, why: &str) {
        let mut state = self.state();
        let _ = state.write(line, OTHER, || json!({ "line": line, "outcome": "invalid", "error": why }));
    }

    /// Writes what the store knows of and the results do not: what an earlier process did not get to write.
    pub(super) async fn complete(&self, batch: &Batch) -> Result<(), Failure> {
        if matches!(self.state().out, Out::Nowhere) {
            return Ok(());
        }
        let mut after = None;
        loop {
            let page = batch.ended(after).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.number);
            let mut state = self.state();
            for ended in &page {
                let kind = if matches!(ended.status, Status::Delivered { .. }) { DONE } else { OTHER };
                if state.write(ended.number, kind, || known_to_the_store(ended)).is_err() {
                    return Ok(());
                }
            }
        }
    }

    fn ended(&self, id: &str, lane: LaneTier, kind: usize, line: impl FnOnce(u64) -> Value) -> Result<(), BoxError> {
        let mut state = self.state();
        if let Some(left) = state.left.get_mut(&lane) {
            *left = left.saturating_sub(1);
        }
        let Some(number) = self.numbers.of(id) else { return Ok(()) };
        state.all_left = state.all_left.saturating_sub(1);
        match kind {
            DONE => state.done += 1,
            _ => state.dead += 1,
        }
        // An error here keeps the answer in the store, from where it is written when there is room again.
        Ok(state.write(number, kind, || line(number))?)
    }
}

impl State {
    fn write(&mut self, number: u64, kind: usize, line: impl FnOnce() -> Value) -> io::Result<()> {
        if matches!(self.out, Out::Nowhere) || self.written[kind].has(number) {
            return Ok(());
        }
        let mut text = line().to_string();
        text.push('\n');
        let wrote = match &mut self.out {
            Out::Nowhere => Ok(()),
            Out::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
            Out::File(file) => append(file, &text),
        };
        match wrote {
            Ok(()) => {
                self.written[kind].set(number);
                Ok(())
            }
            Err(error) => {
                let told = io::Error::from(error.kind());
                self.problem.get_or_insert(error);
                Err(told)
            }
        }
    }
}

/// A line whole, or nothing of it.
fn append(file: &mut File, text: &str) -> io::Result<()> {
    let before = file.stream_position();
    file.write_all(text.as_bytes()).inspect_err(|_| {
        if let Ok(before) = before {
            let _ = file.set_len(before).and_then(|()| file.seek(SeekFrom::Start(before)));
        }
    })
}

/// Reads the results of an earlier process: which lines they are about. Returns up to where they are whole.
fn known(file: &File, path: &Path, numbers: Numbers, written: &mut [Bits; 2]) -> Result<u64, Failure> {
    #[derive(serde::Deserialize)]
    struct Known {
        line: u64,
        id: Option<String>,
        outcome: String,
    }
    let of_this_run = |known: &Known| match &known.id {
        Some(id) => numbers.of(id) == Some(known.line),
        None => known.outcome == "invalid",
    };
    let (mut reader, mut text, mut whole) = (BufReader::new(file), Vec::new(), 0);
    loop {
        text.clear();
        let read = reader.read_until(b'\n', &mut text).map_err(|error| Failure::reading(path, &error))?;
        let known = serde_json::from_slice::<Known>(&text);
        match known {
            _ if read == 0 => return Ok(whole),
            Ok(known) if of_this_run(&known) && text.ends_with(b"\n") => {
                whole += read as u64;
                written[if known.outcome == "done" { DONE } else { OTHER }].set(known.line);
            }
            // Cut off in the middle, or just before its end.
            Ok(known) if of_this_run(&known) => return Ok(whole),
            Err(error) if error.is_eof() && !text.ends_with(b"\n") => return Ok(whole),
            _ => {
                let shown = path.display();
                return Err(Failure::Input(format!(
                    "{shown} holds something else than results of this run; name another file with --out, or move it away"
                )));
            }
        }
    }
}

/// JSON as it is, a text as a text; nothing where there is none, or it is neither.
fn shown(body: &[u8]) -> Value {
    match std::str::from_utf8(body) {
        Ok("") => Value::Null,
        Ok(text) => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
        Err(_) => json!({ "bytes": body.len() }),
    }
}

fn known_to_the_store(ended: &Ended) -> Value {
    let Ended { number, id, status, .. } = ended;
    match status {
        Status::Delivered { status, attempts, response, .. } => json!({
            "line": number, "id": id, "outcome": "done", "status": status, "attempts": attempts,
            "body": response.as_ref().map(|kept| shown(kept.body())),
        }),
        Status::Dead { reason, .. } => json!({
            "line": number, "id": id, "outcome": "dead", "reason": reason.map(|reason| reason.as_str()),
        }),
        _ => json!({ "line": number, "id": id, "outcome": "cancelled" }),
    }
}

impl ResponseHandler for Results {
    fn delivered<'a>(&'a self, answer: &'a Delivered) -> BoxFuture<'a, Result<(), BoxError>> {
        let lane = (answer.tenant.clone(), answer.vendor.clone(), answer.priority);
        let line = |number| {
            json!({
                "line": number, "id": answer.id, "tenant": answer.tenant, "vendor": answer.vendor, "outcome": "done",
                "status": answer.status.as_u16(), "attempts": answer.attempts, "body": shown(&answer.body),
            })
        };
        Box::pin(ready(self.ended(&answer.id, lane, DONE, line)))
    }

    fn given_up<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        let lane = (letter.tenant.clone(), letter.vendor.clone(), letter.priority);
        let line = |number| {
            let last = letter.attempts.last();
            json!({
                "line": number, "id": letter.id, "tenant": letter.tenant, "vendor": letter.vendor, "outcome": "dead",
                "reason": letter.reason.as_str(), "status": last.and_then(|last| last.status),
                "attempts": letter.attempts.len(), "error": last.and_then(|last| last.error.clone()),
            })
        };
        Box::pin(ready(self.ended(&letter.id, lane, OTHER, line)))
    }
}
