//! Finds the jobs of a dry run that cannot be sent before their deadline. An estimate may take some milliseconds, so only
//! few are made for each lane: the time grows with the number of jobs, and one estimate decides for many of them.

use std::collections::BTreeMap;
use std::time::Duration;

use integration_client::Error;

use crate::text::thousands64;

/// Jobs whose deadlines are kept, at 24 bytes each; those of further jobs are left out.
const KEPT: u64 = 1_000_000;
/// The most estimates for the deadlines of a lane. One deadline in a lane of a million jobs takes 22.
const ESTIMATES: usize = 64;
/// Line numbers of late jobs that are shown.
const NAMED: usize = 5;

/// A job with a deadline.
struct Due {
    /// The number of the job in its lane; the first is 1.
    number: u64,
    deadline: Duration,
    line: u64,
}

/// The jobs with deadlines of a lane.
#[derive(Default)]
pub(super) struct Deadlines(Vec<Due>);

/// The jobs that cannot be sent before their deadline.
#[derive(Default)]
pub(super) struct Late {
    /// The number of jobs whose deadlines are kept.
    kept: u64,
    /// Whether some of the late jobs may be missing.
    is_part: bool,
    lines: Vec<u64>,
}

impl Late {
    /// Keeps the deadline of a job, for [`look`](Self::look).
    pub(super) fn keep(&mut self, of_lane: &mut Deadlines, number: u64, deadline: Duration, line: u64) {
        if self.kept == KEPT {
            self.is_part = true;
            return;
        }
        self.kept += 1;
        of_lane.0.push(Due { number, deadline, line });
    }

    /// Adds the late jobs of a lane of `jobs` jobs. `takes` estimates how long its first jobs take, given their number;
    /// `None` if that is not known. Jobs for which the estimates do not suffice are not called late.
    ///
    /// # Errors
    /// Those of `takes`.
    pub(super) async fn look(
        &mut self,
        deadlines: &Deadlines,
        jobs: u64,
        takes: impl Fn(u64) -> Result<Option<Duration>, Error>,
    ) -> Result<(), Error> {
        let mut known: BTreeMap<u64, Option<Duration>> = BTreeMap::new();
        for due in &deadlines.0 {
            let is_late = loop {
                if due.deadline.is_zero() {
                    break true;
                }
                let before = known.range(..=due.number).next_back();
                match before {
                    Some((_, Some(takes))) if *takes > due.deadline => break true,
                    // Nor is the time of more jobs known.
                    Some((_, None)) => break false,
                    _ => {}
                }
                let after = known.range(due.number..).next();
                if after.is_some_and(|(_, takes)| takes.is_some_and(|takes| takes <= due.deadline)) {
                    break false;
                }
                if known.len() == ESTIMATES {
                    self.is_part = true;
                    break false;
                }
                // The next number is in the middle of those that are not decided, which halves their count.
                let first = before.map_or(1, |(number, _)| number + 1);
                let last = after.map_or(jobs, |(number, _)| number - 1);
                let middle = first + last.saturating_sub(first) / 2;
                known.insert(middle, takes(middle)?);
                // An estimate computes for long, and the signals must be heard.
                tokio::task::yield_now().await;
            };
            if is_late {
                self.lines.push(due.line);
            }
        }
        Ok(())
    }

    /// What the user should know; `None` if no job is late. `jobs` is the number of all jobs.
    pub(super) fn shown(&mut self, jobs: u64) -> Option<String> {
        if self.lines.is_empty() {
            return None;
        }
        self.lines.sort_unstable();
        let at_least = if self.is_part { "at least " } else { "" };
        let (of, all) = (thousands64(self.lines.len() as u64), thousands64(jobs));
        let mut lines: Vec<String> = self.lines.iter().take(NAMED).map(u64::to_string).collect();
        if self.lines.len() > NAMED {
            lines.push("…".to_owned());
        }
        let (their, line) = if self.lines.len() == 1 { ("its", "line") } else { ("their", "lines") };
        Some(format!(
            "{at_least}{of} of {all} jobs cannot be sent before {their} deadline ({line} {})",
            lines.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Looks at a lane of jobs with these deadlines, in seconds, each of which takes a second. Returns the late lines and
    /// the number of estimates.
    async fn late(deadlines: impl Iterator<Item = u64>) -> (Late, usize) {
        let (mut late, mut of_lane, estimates) = (Late::default(), Deadlines::default(), Cell::new(0));
        let mut jobs = 0;
        for deadline in deadlines {
            jobs += 1;
            late.keep(&mut of_lane, jobs, Duration::from_secs(deadline), jobs);
        }
        let takes = |number| {
            estimates.set(estimates.get() + 1);
            Ok(Some(Duration::from_secs(number)))
        };
        late.look(&of_lane, jobs, takes).await.unwrap();
        (late, estimates.get())
    }

    #[tokio::test]
    async fn few_estimates_find_each_late_job() {
        for deadline in [1, 20, 4_000, 9_999, 10_000, 20_000] {
            let (found, estimates) = late((1..=10_000).map(|_| deadline)).await;
            assert_eq!(found.lines, (deadline + 1..=10_000).collect::<Vec<_>>());
            assert!(estimates <= 16 && !found.is_part, "{deadline}: {estimates}");
        }
    }

    #[tokio::test]
    async fn many_deadlines_take_no_more_estimates() {
        // Every second job has a second less than it takes, the others have one more.
        let (mut found, estimates) = late((1..=10_000).map(|number| number + 1 - number % 2 * 2)).await;
        assert_eq!(estimates, ESTIMATES);
        assert!(found.lines.iter().all(|line| line % 2 == 1), "no job is called late that is not");
        assert!(found.shown(10_000).unwrap().starts_with("at least "));
    }

    #[tokio::test]
    async fn passed_deadline_is_late() {
        let (mut found, estimates) = late([0, 10, 0].into_iter()).await;
        assert_eq!(found.shown(3).unwrap(), "2 of 3 jobs cannot be sent before their deadline (lines 1, 3)");
        assert!(estimates <= 2);
    }
}
