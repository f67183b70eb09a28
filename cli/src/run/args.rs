//! The options of `run`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;

use super::input;
use crate::connect::{self, Configuration};

const EXAMPLES: &str = "\
A job is one line:
  {\"tenant\":\"acme\",\"vendor\":\"parcels\",\"priority\":\"low\",\"method\":\"POST\",
   \"path\":\"/labels\",\"body\":{\"order\":17}}
and may have \"headers\" (an object), \"cost\" (points, or {\"input_tokens\":1800}),
\"idempotency_key\" and \"deadline\" (\"2h\", or a moment). A body that is a text
is sent as it is, any other as JSON.

Examples:
  integration-client run jobs.jsonl --vendors vendors.toml --out results.jsonl
  make-jobs | integration-client run - --vendors vendors.toml --store may.sqlite
  integration-client run jobs.jsonl --dry-run
  integration-client run jobs.jsonl --keep-going; \\
      integration-client dead-letters list --store jobs.jsonl.sqlite

Interrupted by Ctrl-C, a crash or a full disk? Run the same command again: it
goes on, and sends nothing twice that has ended. If a file was changed after
its run has ended, the command says which lines differ, and sends nothing until
told: --changed sends those lines, --anew all of them.

The last line on standard error is `run: done=N refused=N dead=N seconds=S`:
jobs that their vendor answered with a 2xx, 303 or 304, responses with 429 to
this process, dead letters, and how long this process took; also cancelled=N, if
jobs were cancelled. A job that is rejected (any other 4xx, or a redirect: none
is followed) is a dead letter; a line that is no job is invalid.

A reader of the results that stops reading, or a disk that hangs, costs nothing
but time: responses are kept in the store, and written when it goes on.

Exit codes: 0 all jobs are done, 1 some are dead letters or cancelled, or some
lines invalid, 2 it could not be carried out, or a key was refused ten times in
a row or is missing, 3 it was interrupted: run it again.";

/// Sends a file of jobs, one JSON object per line, as fast as the limits allow.
///
/// A store keeps every job until it is done or a dead letter. The store remembers how far the
/// file was read, so that the same command continues where an interrupted one ended. A second process that would work on
/// the same store ends with an error.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file of jobs; `-` is standard input.
    #[arg(value_name = "JOBS.jsonl")]
    pub(super) jobs: String,

    #[command(flatten)]
    pub(super) configuration: Configuration,

    /// The store of the jobs: a path, `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST:PORT/DATABASE` [default: the SQLite file
    /// JOBS.jsonl.sqlite, or run.sqlite for standard input].
    #[arg(long, value_name = "URL", env = connect::STORE, hide_env_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub(super) store: Option<String>,

    /// The file for the results, one line of JSON per job, in the order in which the jobs end; `-` is standard output. Without
    /// it, the vendors' responses are not kept.
    #[arg(long, value_name = "RESULTS.jsonl")]
    pub(super) out: Option<PathBuf>,

    /// Skips lines that are not valid jobs; without this option, the first such line ends the run.
    #[arg(long)]
    pub(super) keep_going: bool,

    /// Checks every line that the run would still send, and estimates how long the jobs take, with those that wait in the store. Sends
    /// nothing, and does not change the store. The estimate leaves out the limits of endpoints.
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Sends only lines that are new or changed since the run that has ended, and lines that --keep-going skipped and
    /// that are valid now.
    #[arg(long, conflicts_with = "anew")]
    pub(super) changed: bool,

    /// Sends all lines again, also those that an earlier run of the file has sent.
    #[arg(long)]
    pub(super) anew: bool,

    /// Serves a console for operators during the run, which shows the lanes that wait and why, queues, dead letters and events. Nobody
    /// can change anything in it. The address must be one of this machine [default: a free port].
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:0")]
    pub(super) console: Option<std::net::SocketAddr>,

    /// Shows no progress, only errors and the last line.
    #[arg(long, short)]
    pub(super) quiet: bool,
}

/// The name of the run's batch in its store.
pub(super) fn name(args: &Args) -> String {
    match input::path(&args.jobs) {
        Some(path) => format!("run {}", path.file_name().unwrap_or(path.as_os_str()).display()),
        None => "run -".to_owned(),
    }
}
