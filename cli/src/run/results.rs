//! The result of each job: writes a line of JSON as soon as a job ends, and counts ends for the progress.
//!
//! The counts are behind a lock that is never held during a write. Only [`Lines`] waits for the reader of the results.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use integration_client::BoxError;
use integration_client::BoxFuture;
use integration_client::dead_letter::DeadLetter;
use integration_client::outbox::{Batch, BatchCounts, Delivered, Ended, Numbers, ResponseHandler, Status};
use integration_client::{Priority, Request};
use serde_json::json;

use super::bodies::{bytes_of, headers, with_body};
use super::keys::PausedLanes;
use super::result_lines::{Lines, Out, Queued, broken, sync};
use crate::output::Failure;

/// Bytes of the longest result line that is read back: a line is held in memory as a whole.
const LONGEST: u64 = 1 << 28;
/// The approximate bytes of a result line besides the response's body.
const FRAME: usize = 512;

/// A set of line numbers. Its memory depends on how many numbers it holds and not on their size, because they may come
/// from a file that anybody can write.
#[derive(Default)]
struct LineSet(BTreeMap<u64, [u64; 16]>);

impl LineSet {
    /// The position of a line's bit: the block, the word of the block, and the bit in the word.
    fn place(line: u64) -> (u64, usize, u64) {
        (line / 1_024, (line / 64 % 16) as usize, 1 << (line % 64))
    }

    fn has(&self, line: u64) -> bool {
        let (block, word, bit) = LineSet::place(line);
        self.0.get(&block).is_some_and(|words| words[word] & bit != 0)
    }

    /// Adds a line. Returns whether it was not in the set before.
    fn add(&mut self, line: u64) -> bool {
        let (block, word, bit) = LineSet::place(line);
        let words = self.0.entry(block).or_default();
        let is_new = words[word] & bit == 0;
        words[word] |= bit;
        is_new
    }
}

/// Tenant, vendor and priority.
pub(super) type LaneTier = (String, String, Priority);

#[derive(Default)]
struct State {
    /// The lines whose results are written or queued: at [`DONE`] those that were delivered, at [`OTHER`] those with
    /// any other result.
    written: [LineSet; 2],
    /// The lines whose ends are counted, written or not, in the same two sets.
    counted: [LineSet; 2],
    /// Accepted jobs that have not ended, by lane and priority.
    left: HashMap<LaneTier, u64>,
    /// Accepted jobs that have not ended. Slightly wrong if another process ended some of them.
    all_left: u64,
    done: u64,
    dead: u64,
}

impl State {
    /// Whether the output has a result of this kind for a line, or the vendor's response. The store may know a job with
    /// a response as given up, because the process ended or the disk was full before the store had the response too. A
    /// line of that would replace the better result, because the last line of a job counts.
    fn has(&self, number: u64, kind: usize) -> bool {
        self.written[DONE].has(number) || self.written[kind].has(number)
    }
}

/// The results of a run. Clones share their state.
#[derive(Clone)]
pub(super) struct Results {
    /// The numbers of the run's jobs. Empty until a new run has begun in the store: no job is of it before that.
    numbers: Arc<OnceLock<Numbers>>,
    /// The output of result lines; `None` without `--out`.
    lines: Option<Lines>,
    state: Arc<Mutex<State>>,
}

/// The counts of a run at one moment.
pub(super) struct Seen {
    pub(super) done: u64,
    pub(super) dead: u64,
    pub(super) all_left: u64,
}

const DONE: usize = 0;
const OTHER: usize = 1;

impl Results {
    /// Begins the results, which are written to `out` if there is one. A file that is not empty must hold results of
    /// this run, and is continued.
    pub(super) fn open(mut out: Option<Out>, numbers: Numbers) -> Result<Results, Failure> {
        let mut state = State::default();
        if let Some(Out::File(file, path)) = &mut out {
            let path = path.as_path();
            let failed = |error: io::Error| Failure::reading(path, &error);
            if file.metadata().map_err(failed)?.is_file() {
                let whole = known(file, path, numbers, &mut state.written)?;
                // Removes a last line that was cut off, so that it is written again.
                file.set_len(whole).map_err(failed)?;
                file.seek(SeekFrom::End(0)).map_err(failed)?;
                // The lines count as written from now on, and an earlier process may have ended before it synced them.
                sync(file).map_err(failed)?;
            }
        }
        Results::start(out, OnceLock::from(numbers), state)
    }

    /// Begins the results of a new run, before the run has begun in the store. It has no results yet, so a file must be
    /// empty.
    pub(super) fn open_anew(out: Option<Out>) -> Result<Results, Failure> {
        if let Some(Out::File(file, path)) = &out {
            let about = file.metadata().map_err(|error| Failure::reading(path, &error))?;
            if about.is_file() && about.len() > 0 {
                return Err(Failure::Input(format!(
                    "{} is not empty, and a new run needs a file for its results alone; name another file with --out, or \
                     move this one away",
                    path.display()
                )));
            }
        }
        Results::start(out, OnceLock::new(), State::default())
    }

    fn start(out: Option<Out>, numbers: OnceLock<Numbers>, state: State) -> Result<Results, Failure> {
        let lines = out.map(Lines::start).transpose()?;
        Ok(Results { numbers: Arc::new(numbers), lines, state: Arc::new(Mutex::new(state)) })
    }

    /// States the numbers of a run that has just begun in the store.
    pub(super) fn run_has_begun(&self, numbers: Numbers) {
        // They are set once, because a process begins one run.
        let _ = self.numbers.set(numbers);
    }

    /// The request of a line. If results are written, the store keeps the response until it is in the results: another
    /// process may send the job, and that process has no results file to write the response to.
    pub(super) fn request(&self, request: Request) -> Request {
        if self.lines.is_some() { request.keep_response() } else { request }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the jobs that were accepted or had ended before this process began.
    pub(super) fn begin(&self, counts: &BatchCounts, lanes: Vec<(LaneTier, u64)>) {
        let mut state = self.state();
        state.done += counts.delivered;
        state.dead += counts.dead;
        state.all_left += counts.waiting;
        state.left.extend(lanes);
    }

    /// Adds jobs that were accepted.
    pub(super) fn accepted(&self, lanes: impl IntoIterator<Item = (LaneTier, u64)>) {
        let mut state = self.state();
        for (lane, jobs) in lanes {
            state.all_left += jobs;
            *state.left.entry(lane).or_default() += jobs;
        }
    }

    /// Corrects the number of accepted jobs that have not ended by the store's count of them. Never raises it, because
    /// the store learns of an end after this process has counted it.
    pub(super) fn left_at_most(&self, waiting: u64) {
        let mut state = self.state();
        state.all_left = state.all_left.min(waiting);
    }

    /// Corrects the numbers of the lanes by the store's. A job that ended before its lane was counted here stays in
    /// the number otherwise, and a run whose other lanes are paused would wait for it. Never raises a number, as above.
    pub(super) fn left_as_stored(&self, stored: &[(LaneTier, u64)]) {
        let stored: HashMap<&LaneTier, u64> = stored.iter().map(|(lane, waiting)| (lane, *waiting)).collect();
        for (lane, left) in &mut self.state().left {
            *left = (*left).min(stored.get(lane).copied().unwrap_or(0));
        }
    }

    pub(super) fn seen(&self) -> Seen {
        let state = self.state();
        Seen { done: state.done, dead: state.dead, all_left: state.all_left }
    }

    /// Accepted jobs that have not ended, by lane and priority. Takes time in proportion to the number of lanes.
    pub(super) fn left_by_lane(&self) -> Vec<(LaneTier, u64)> {
        let state = self.state();
        let left = state.left.iter().filter(|(_, left)| **left > 0).map(|(lane, left)| (lane.clone(), *left));
        left.collect()
    }

    /// Accepted jobs that have not ended, without those of paused lanes: those wait in the store until another run, and
    /// must not keep this run from reading the jobs behind them. Takes time in proportion to the number of lanes.
    pub(super) fn ahead(&self, keys: &PausedLanes) -> u64 {
        let all = self.seen().all_left;
        if keys.is_empty() {
            return all;
        }
        let left = self.left_by_lane().into_iter();
        let paused = left.filter(|((tenant, vendor, _), _)| keys.fault(&(tenant.clone(), vendor.clone())).is_some());
        all.saturating_sub(paused.map(|(_, jobs)| jobs).sum())
    }

    /// Why results cannot be written. Returns the error once.
    pub(super) fn problem(&self) -> Option<io::Error> {
        self.lines.as_ref().and_then(Lines::problem)
    }

    /// Waits until all queued lines are written and, in a file, synced.
    pub(super) async fn drain(&self) {
        if let Some(lines) = &self.lines {
            // `problem` returns the error if they cannot be written.
            let _ = lines.drain().await;
        }
    }

    /// Writes the results of lines that are not jobs, each with the reason.
    pub(super) async fn invalid(&self, left_out: &[(u64, String)]) {
        let Some(lines) = self.lines.as_ref().filter(|_| !left_out.is_empty()) else { return };
        for (line, why) in left_out {
            let shown = || json!({ "line": line, "outcome": "invalid", "error": why }).to_string();
            // `problem` returns the error if the result cannot be written.
            let _ = self.queue(lines, *line, OTHER, why.len(), shown).await;
        }
        self.drain().await;
    }

    /// Queues results that are in the store and not in the output: those that an earlier process could not write, and
    /// those that this process could not write while the reader of a pipe had stopped. The caller does not wait until they
    /// are written, because the store keeps them.
    pub(super) async fn complete(&self, batch: &Batch) -> Result<(), Failure> {
        let Some(lines) = &self.lines else { return Ok(()) };
        let mut after = None;
        loop {
            let page = batch.ended(after).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.number);
            for ended in &page {
                let (kind, bytes) = match &ended.status {
                    Status::Delivered { response, .. } => {
                        let bytes = response.as_ref().map(|kept| kept.body().len() + bytes_of(kept.headers()));
                        (DONE, bytes.unwrap_or(0))
                    }
                    _ => (OTHER, 0),
                };
                if self.state().has(ended.number, kind) {
                    continue;
                }
                if self.queue(lines, ended.number, kind, bytes, || known_to_the_store(ended)).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    /// Counts the end of a job once. Returns its line, or `None` if the job is not of this run.
    fn count(&self, id: &str, lane: LaneTier, kind: usize) -> Option<u64> {
        let number = self.numbers.get()?.of(id)?;
        let mut state = self.state();
        if !state.counted[kind].add(number) {
            return Some(number);
        }
        if let Some(left) = state.left.get_mut(&lane) {
            *left = left.saturating_sub(1);
        }
        state.all_left = state.all_left.saturating_sub(1);
        match kind {
            DONE => state.done += 1,
            _ => state.dead += 1,
        }
        Some(number)
    }

    /// Writes a line, with about `bytes` of content, unless the output has it or a better one, and waits until it is
    /// written and, in a file, synced.
    ///
    /// After an error the response stays in the store, and [`complete`](Self::complete) writes the line later. The same
    /// holds if this future is dropped while it waits; if the line was queued before that, it is written all the same,
    /// and only once.
    async fn write(&self, number: u64, kind: usize, bytes: usize, line: impl FnOnce() -> String) -> io::Result<()> {
        let Some(lines) = &self.lines else { return Ok(()) };
        self.queue(lines, number, kind, bytes, line).await?.written().await
    }

    /// Queues a line. If the output has it or a better one, that one may still wait to be synced: an empty text is queued
    /// behind it, whose end is the end of that wait.
    async fn queue(
        &self,
        lines: &Lines,
        number: u64,
        kind: usize,
        bytes: usize,
        line: impl FnOnce() -> String,
    ) -> io::Result<Queued> {
        if lines.is_broken() {
            return Err(broken());
        }
        let is_known = self.state().has(number, kind);
        // Room is reserved before the line is made, so that a waiting result holds no line in memory.
        let room = lines.room(if is_known { 0 } else { bytes + FRAME }).await?;
        let text = if is_known { String::new() } else { line() + "\n" };
        // Under one lock, so that a line that counts as queued is in the queue.
        let mut state = self.state();
        let text = if state.has(number, kind) { String::new() } else { text };
        state.written[kind].add(number);
        Ok(lines.put(text, room))
    }
}

/// Reads the output of an earlier process, and adds the lines with results to `written`. Returns the length of the part
/// that consists of whole lines.
fn known(file: &File, path: &Path, numbers: Numbers, written: &mut [LineSet; 2]) -> Result<u64, Failure> {
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
        let read = reader
            .by_ref()
            .take(LONGEST)
            .read_until(b'\n', &mut text)
            .map_err(|error| Failure::reading(path, &error))?;
        let known = serde_json::from_slice::<Known>(&text);
        match known {
            _ if read == 0 => return Ok(whole),
            Ok(known) if of_this_run(&known) && text.ends_with(b"\n") => {
                whole += read as u64;
                written[if known.outcome == "done" { DONE } else { OTHER }].add(known.line);
            }
            // The last line was cut off just before its line feed, or (next arm) in the middle.
            Ok(known) if of_this_run(&known) => return Ok(whole),
            Err(error) if error.is_eof() && !text.ends_with(b"\n") && (read as u64) < LONGEST => return Ok(whole),
            _ => {
                let shown = path.display();
                return Err(Failure::Input(format!(
                    "{shown} holds something else than results of this run; name another file with --out, or move it away"
                )));
            }
        }
    }
}

/// The line of a job that an earlier process has ended.
fn known_to_the_store(ended: &Ended) -> String {
    let Ended { number, id, status, .. } = ended;
    match status {
        Status::Delivered { status, attempts, response, .. } => {
            let mut about =
                json!({ "line": number, "id": id, "outcome": "done", "status": status, "attempts": attempts });
            if let Some(kept) = response {
                about["headers"] = headers(kept.headers());
            }
            with_body(about, response.as_ref().map(|kept| &kept.body()[..]))
        }
        Status::Dead { reason, .. } => {
            let reason = reason.map(|reason| reason.as_str());
            json!({ "line": number, "id": id, "outcome": "dead", "reason": reason }).to_string()
        }
        _ => json!({ "line": number, "id": id, "outcome": "cancelled" }).to_string(),
    }
}

impl ResponseHandler for Results {
    fn delivered<'a>(&'a self, answer: &'a Delivered) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let lane = (answer.tenant.clone(), answer.vendor.clone(), answer.priority);
            let Some(number) = self.count(&answer.id, lane, DONE) else { return Ok(()) };
            let line = || {
                let mut about = json!({
                    "line": number, "id": answer.id, "tenant": answer.tenant, "vendor": answer.vendor, "outcome": "done",
                    "status": answer.status.as_u16(), "attempts": answer.attempts,
                    "headers": headers(&answer.kept_headers),
                });
                if !answer.body_is_whole {
                    about["error"] = "the response's body broke off, or is too large (max_response_bytes)".into();
                }
                with_body(about, answer.body_is_whole.then_some(&answer.body[..]))
            };
            let bytes = answer.body.len() + bytes_of(&answer.kept_headers);
            Ok(self.write(number, DONE, bytes, line).await?)
        })
    }

    fn given_up<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let lane = (letter.tenant.clone(), letter.vendor.clone(), letter.priority);
            let Some(number) = self.count(&letter.id, lane, OTHER) else { return Ok(()) };
            let line = || {
                let last = letter.attempts.last();
                json!({
                    "line": number, "id": letter.id, "tenant": letter.tenant, "vendor": letter.vendor, "outcome": "dead",
                    "reason": letter.reason.as_str(), "status": last.and_then(|last| last.status),
                    "attempts": letter.attempts.len(), "error": last.and_then(|last| last.error.clone()),
                    "answer": last.and_then(|last| last.answer.clone()),
                    "headers": last.map(|last| headers(&last.headers)),
                })
                .to_string()
            };
            Ok(self.write(number, OTHER, 0, line).await?)
        })
    }

    /// The line in the output holds the response.
    fn keeps(&self, id: &str) -> bool {
        self.lines.is_some() && self.numbers.get().is_some_and(|numbers| numbers.of(id).is_some())
    }
}

#[cfg(test)]
mod tests;
