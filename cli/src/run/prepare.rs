//! Finds out what an earlier run of the same input left in the store: it may have been interrupted, or have ended, and
//! the input may have changed since. Decides whether to continue it, or what `--changed` and `--anew` do.

use std::time::Duration;

use integration_client::IntegrationClient;
use integration_client::clock::Clock;
use integration_client::outbox::{Batch, BatchCounts};

use super::args::{Args, name};
use super::input::{Input, Mark, Place};
use super::result_lines::Out;
use super::results::Results;
use super::sent::{self, Sent};
use crate::connect::Named;
use crate::output::Failure;
use crate::text::count;

/// The state from which the run starts or continues.
pub(super) struct Prepared {
    pub(super) results: Results,
    pub(super) counts: BatchCounts,
    pub(super) mark: Mark,
    /// The lines that are not sent again, and the number of the run that has sent them.
    pub(super) sent: Option<(Sent, u64)>,
    /// The mark of the new run; `None` if the run that the store holds goes on.
    anew: Option<String>,
    /// The number and the mark of the run that the store held.
    found: (u64, String),
}

impl Prepared {
    /// Refuses to go on if another process has changed the run since [`prepare`] has read it: lines that it has accepted
    /// would be accepted again. Called when this process holds the lock of a SQLite file.
    pub(super) fn check_unchanged(&self, batch: &Batch) -> Result<(), Failure> {
        if (batch.run(), batch.mark()) == (self.found.0, &*self.found.1) {
            return Ok(());
        }
        let why = "another process has gone on with this run while it was looked at here; run the same command again";
        Err(Failure::Input(why.to_owned()))
    }

    /// Whether a new run takes the place of the one that the store holds.
    pub(super) fn is_anew(&self) -> bool {
        self.anew.is_some()
    }

    /// Begins a new run in the store, if the one that the store holds does not go on. From here on the store does not know
    /// which lines that one has sent, so this comes after all that may refuse the run.
    pub(super) async fn begin_anew(&self, batch: &mut Batch) -> Result<(), Failure> {
        if let Some(mark) = &self.anew {
            batch.begin_anew(mark).await?;
            self.results.run_has_begun(batch.numbers());
        }
        Ok(())
    }
}

/// A client that has the run's configuration, and a batch of it, which check whether a line is a job.
#[derive(Clone, Copy)]
pub(super) struct Checks<'a> {
    pub(super) client: &'a IntegrationClient,
    pub(super) batch: &'a Batch,
}

/// How the run begins, by what an earlier run of the same input left in the store.
pub(super) enum Beginning {
    /// There was no earlier run.
    New,
    /// The earlier run goes on: its input is the same, and is read up to where the run ended.
    GoOn(Mark, Option<(Sent, u64)>),
    /// The earlier run has ended, and the input has changed, or a line that the run left out is a job by now: lines that
    /// the run sent are not sent again.
    Changed(Sent),
    /// The earlier run has ended, and every line is sent again.
    Anew,
}

impl Beginning {
    /// Finds out how the run begins. Nothing is written.
    pub(super) async fn of(
        args: &Args,
        checks: Checks<'_>,
        named: &Named,
        batch: &Batch,
        counts: BatchCounts,
        input: &mut Input,
    ) -> Result<Beginning, Failure> {
        if batch.mark().is_empty() {
            return Ok(Beginning::New);
        }
        let mark: Mark = serde_json::from_str(batch.mark()).map_err(|_| {
            Failure::Input(format!("the store {} was written by another version; use that one", named.shown()))
        })?;
        let shown = input.shown.clone();
        let has_ended = mark.complete && counts.waiting == 0;
        // Standard input, a named pipe, or whatever else is no regular file.
        let is_pipe = input.size.is_none();
        if args.anew {
            return match has_ended {
                true => Ok(Beginning::Anew),
                false => Err(Failure::Input(unfinished(&shown, named, counts))),
            };
        }
        let reading = |error| Failure::Input(format!("{shown}: {error}"));
        // A pipe cannot be read again from its beginning, so with `--changed` it is not compared here: each line is
        // compared with the lines sent before while it is fed.
        let is_compared = !(is_pipe && args.changed && has_ended);
        let is_same = is_compared && input.go_on_at(&mark).await.map_err(reading)?;
        let may_be_new = is_same && args.changed && has_ended && mark.invalid > 0;
        if is_same && !(may_be_new && has_new_job(args, checks, batch, &mark).await?) {
            let Some(since) = mark.since else { return Ok(Beginning::GoOn(mark, None)) };
            let known = Sent::by(batch, since).await?.ok_or_else(|| Failure::Input(forgotten_lines(&shown, named)))?;
            return Ok(Beginning::GoOn(mark, Some((known.without_those_of(batch).await?, since))));
        }
        if !has_ended {
            return Err(Failure::Input(changed(&shown, named, &mark, counts)));
        }
        if !args.changed {
            return Err(Failure::Input(differs(args, (&shown, is_pipe), batch, &mark).await?));
        }
        if !is_pipe {
            *input = Input::open(&args.jobs)?;
        }
        match Sent::by(batch, batch.run()).await? {
            Some(known) => Ok(Beginning::Changed(known)),
            // The run left out every line.
            None if mark.jobs == 0 => Ok(Beginning::Anew),
            None => Err(Failure::Input(unknown_lines(&shown))),
        }
    }
}

/// Whether a line that the run left out is a job by now: a tenant was added, for example.
async fn has_new_job(args: &Args, checks: Checks<'_>, batch: &Batch, mark: &Mark) -> Result<bool, Failure> {
    let mut sent = Sent::by(batch, batch.run()).await?.unwrap_or_default();
    let (mut input, clock) = (Input::open(&args.jobs)?, Clock::system());
    loop {
        let page = input.page(|| clock.wall());
        let page = page.map_err(|error| Failure::Input(format!("{}: {error}", input.shown)))?;
        let is_last = page.complete || page.end.lines >= mark.lines;
        // Lines that were added behind the part that was read are no reason to begin anew.
        for line in page.lines.into_iter().filter(|line| line.number <= mark.lines) {
            if sent.take(&line.text) {
                continue;
            }
            let Ok(job) = line.job else { continue };
            if checks.client.costs(&job.tenant, &job.request).is_ok()
                && checks.batch.check(line.number, &job.tenant, job.priority, job.request).is_ok()
            {
                return Ok(true);
            }
        }
        if is_last {
            return Ok(false);
        }
    }
}

/// Finds out what an earlier run of the same input left, and opens the results. Begins nothing in the store.
pub(super) async fn prepare(args: &Args, named: &Named, input: &mut Input) -> Result<Prepared, Failure> {
    let client =
        args.configuration.builder()?.config_in_store().store(named.store()).without_watching().build().await?;
    let batch = client.outbox().batch(&name(args)).await?;
    let mut counts = batch.counts().await?;
    let (mut mark, mut sent, mut anew) = (Mark::default(), None, None);
    let checks = Checks { client: &client, batch: &batch };
    let beginning = Beginning::of(args, checks, named, &batch, counts, input).await?;
    let out = args.out.as_deref().map(Out::open).transpose()?;
    match beginning {
        Beginning::New => {}
        Beginning::GoOn(left, lines) => (mark, sent) = (left, lines),
        Beginning::Changed(known) => {
            let since = batch.run();
            mark = Mark { since: Some(since), ..Place::default().mark(0, 0, false) };
            // Written together with the new run, so that the same command, with or without `--changed`, continues it
            // whenever this process ends. Serializing cannot fail, because all keys are strings.
            anew = Some(serde_json::to_string(&mark).unwrap_or_default());
            sent = Some((known, since));
        }
        Beginning::Anew => anew = Some(String::new()),
    }
    let results = match anew {
        Some(_) => {
            counts = BatchCounts::default();
            Results::open_anew(out)?
        }
        None => {
            let results = Results::open(out, batch.numbers())?;
            results.complete(&batch).await?;
            results
        }
    };
    let found = (batch.run(), batch.mark().to_owned());
    client.shutdown(Duration::from_secs(1)).await;
    Ok(Prepared { results, counts, mark, sent, anew, found })
}

const UNTIL_TOLD: &str =
    "Nothing was sent. --changed sends only lines that are new or were changed, --anew sends all of them";

/// The message for an input that differs from that of the run that has ended.
async fn differs(args: &Args, (shown, is_pipe): (&str, bool), batch: &Batch, mark: &Mark) -> Result<String, Failure> {
    if is_pipe {
        return Ok(format!("{shown} is not what the last run was given, which has ended. {UNTIL_TOLD}"));
    }
    let sent = match Sent::by(batch, batch.run()).await? {
        Some(sent) => sent,
        None if mark.jobs == 0 => Sent::default(),
        None => return Ok(unknown_lines(shown)),
    };
    let lines = sent::differences(Input::open(&args.jobs)?, sent);
    let lines = lines.map_err(|error| Failure::Input(format!("{shown}: {error}")))?;
    Ok(format!("{shown} differs from the file whose run has ended here: {lines}. {UNTIL_TOLD}"))
}

fn unknown_lines(shown: &str) -> String {
    format!(
        "{shown} differs from the file whose run has ended here, and an earlier version of this program sent that one, \
         which kept no note of its lines. Nothing was sent. --anew sends all of it"
    )
}

/// The message for a run of changed lines if the store does not hold the lines of the run before any more.
fn forgotten_lines(shown: &str, named: &Named) -> String {
    format!(
        "{shown}: this run sends only lines that the run before has not sent, and {} no longer holds which these are. \
         Nothing was sent. Put the lines that are left into a file of their own; the results of the run before (--out) \
         name the others",
        named.shown()
    )
}

fn unfinished(shown: &str, named: &Named, counts: BatchCounts) -> String {
    format!(
        "the run of {shown} has not ended: {} wait in {}. Nothing was sent. Run it without --anew to its end first, or give \
         the new run a store of its own with --store",
        count(usize::try_from(counts.waiting).unwrap_or(usize::MAX), "job"),
        named.shown()
    )
}

fn changed(shown: &str, named: &Named, mark: &Mark, counts: BatchCounts) -> String {
    format!(
        "{shown} was changed since it was sent in part: its first {} lines are not those of before, of which {} wait. \
         Nothing was sent. Put the old file back to go on (lines may be added at its end), or give the new one a store of its \
         own with --store; the old jobs are in {}",
        mark.lines,
        counts.waiting,
        named.shown()
    )
}
