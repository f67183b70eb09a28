//! The lines that an earlier run of a file has sent, as hashes that the store keeps with the run. They decide which
//! lines `--changed` sends.
//!
//! Lines are compared by their content and not by their number, so that a line that is inserted does not make those
//! after it new.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use integration_client::outbox::Batch;

use super::input::{Input, LineHash};
use crate::output::Failure;
use crate::text::{count, thousands64};

/// New or changed lines whose numbers are shown.
const NAMED: usize = 10;

/// The lines that were sent and have not been found in the new input yet, each with how often it was sent. Takes about
/// 40 bytes per line.
#[derive(Default)]
pub(super) struct Sent(HashMap<LineHash, u32>);

impl Sent {
    /// The lines of `run`; `None` if the store holds no hashes of them, because an older version of the program made
    /// the run, or because they were deleted.
    pub(super) async fn by(batch: &Batch, run: u64) -> Result<Option<Sent>, Failure> {
        let mut sent = Sent::default();
        each(batch, run, |line| *sent.0.entry(line).or_default() += 1).await?;
        Ok((!sent.0.is_empty()).then_some(sent))
    }

    /// Removes the lines that the present run of `batch` has read already.
    pub(super) async fn without_those_of(mut self, batch: &Batch) -> Result<Sent, Failure> {
        each(batch, batch.run(), |line| {
            self.take(&line);
        })
        .await?;
        Ok(self)
    }

    /// Whether the line was sent. Removes one occurrence of it.
    pub(super) fn take(&mut self, line: &LineHash) -> bool {
        let Entry::Occupied(mut left) = self.0.entry(*line) else { return false };
        match left.get_mut() {
            1 => {
                left.remove();
            }
            more => *more -= 1,
        }
        true
    }

    fn left(&self) -> u64 {
        self.0.values().map(|times| u64::from(*times)).sum()
    }
}

/// Calls `take` with the hash of each line of a run.
async fn each(batch: &Batch, run: u64, mut take: impl FnMut(LineHash)) -> Result<(), Failure> {
    let mut after = None;
    loop {
        let notes = batch.notes(run, after).await?;
        let Some((last, _)) = notes.last() else { return Ok(()) };
        after = Some(*last);
        for (_, note) in &notes {
            note.as_chunks::<16>().0.iter().for_each(|line| take(*line));
        }
    }
}

/// Describes in which lines an input differs from the lines that were sent. Reads the whole input.
pub(super) fn differences(mut input: Input, mut sent: Sent) -> std::io::Result<String> {
    let (mut new, mut named, mut same) = (0_u64, Vec::new(), 0_u64);
    loop {
        let page = input.page(|| std::time::SystemTime::UNIX_EPOCH)?;
        for line in &page.lines {
            if sent.take(&line.text) {
                same += 1;
                continue;
            }
            new += 1;
            if named.len() < NAMED {
                named.push(line.number.to_string());
            }
        }
        if page.complete {
            break;
        }
    }
    let more = if new > NAMED as u64 { " and more" } else { "" };
    let lines = |lines: u64| count(usize::try_from(lines).unwrap_or(usize::MAX), "line");
    let new = match new {
        0 => "no line is new".to_owned(),
        1 => format!("line {} is new or was changed", named.join(", ")),
        _ => format!("{} lines are new or were changed ({}{more})", thousands64(new), named.join(", ")),
    };
    let gone = match sent.left() {
        0 => String::new(),
        gone => format!(", {} of before not there any more", lines(gone)),
    };
    Ok(format!("{new}, {} sent already{gone}", lines(same)))
}
