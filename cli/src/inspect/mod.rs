//! `inspect`: shows what a client reads in a response about limits and waits.

mod context;
mod lines;
mod pasted;
mod reading;
mod show;

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::SystemTime;

use integration_client::clock::Clock;

use self::context::{Context, moment};
use crate::connect::Configuration;
use crate::output::{Failure, Outcome};
use crate::sources;

/// Bytes that are read of a response at most: far more than any response whose headers a person wants to read.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

const EXAMPLES: &str = "\
Examples:
  curl -si https://api.github.com | integration-client inspect --vendor github
  pbpaste | integration-client inspect --status 429
  curl -si https://mine.example | integration-client inspect --vendor mine \\
      --vendors vendors.toml --environment sandbox
  integration-client inspect --now 2026-01-15T10:00:00Z response.txt
  integration-client inspect --json < responses.jsonl

With --json, each line of the input is a response:
  {\"id\": 1, \"vendor\": \"github\", \"status\": 429, \"now\": \"2026-01-15T10:00:00Z\",
   \"headers\": [[\"retry-after\", \"60\"]], \"body\": \"\"}
and each line of the output what is read in it, in seconds; null is unknown:
  {\"id\":1,\"throttled\":true,\"retry_after_s\":60,\"windows\":[],\"cost\":null}
In header values, characters up to U+00FF stand for single bytes, and others
for their UTF-8. A line that is no such object, or names a vendor that is not
known, gives
  {\"id\":null,\"error\":\"line 3: …\"}
and the others go on.

Exit codes: 0 all was read, 1 some lines were not, 2 the input is unreadable, or
nobody knows --vendor.";

/// Shows what a client reads in a response: whether the vendor refused, how long to wait, and what is left.
///
/// The input is headers, or a response as `curl -i` or `curl -v` prints it. Of several responses the last one counts.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file to read [default: standard input].
    file: Option<PathBuf>,

    /// The vendor that responded, as the catalogue or your file names it; without it, headers are read by their form.
    #[arg(long, value_name = "NAME")]
    vendor: Option<String>,

    /// The status, if the input does not state it [default: 200].
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(100..=999))]
    status: Option<u16>,

    /// When the response was received, as 2026-01-15T10:00:00Z or in seconds since 1970 [default: now].
    #[arg(long, value_name = "TIME", value_parser = moment)]
    now: Option<SystemTime>,

    /// Reads and writes JSON, one object per line.
    #[arg(long)]
    json: bool,

    /// The vendor's environment.
    #[arg(long, value_name = "NAME", default_value = "live")]
    environment: String,

    #[command(flatten)]
    configuration: Configuration,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let context = Context {
        config: sources::load(&args.configuration)?,
        vendor: args.vendor.clone(),
        environment: args.environment.clone(),
        status: args.status,
        now: args.now,
        clock: Clock::system(),
    };
    // Found before the input is read, so that an unknown vendor is reported at once.
    let vendor = context.vendor(None).map_err(Failure::Input)?;
    let mut input: Box<dyn BufRead> = match &args.file {
        Some(path) => Box::new(BufReader::new(File::open(path).map_err(|error| Failure::reading(path, &error))?)),
        None => {
            if io::stdin().is_terminal() {
                let end = if cfg!(windows) { "Ctrl-Z and Enter" } else { "Ctrl-D" };
                let what = if args.json { "Responses, one in each line" } else { "Headers, or what `curl -i` printed" };
                let _ = writeln!(anstream::stderr(), "{what}; {end} ends it.");
            }
            Box::new(io::stdin().lock())
        }
    };
    if args.json {
        return lines::run(&mut *input, &context, out);
    }
    let mut bytes = Vec::new();
    let read = input.by_ref().take(MOST_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| Failure::Input(format!("reading the response: {error}")))?;
    let response = pasted::parse(&bytes);
    if response.headers.is_empty() && response.status.is_none() {
        let message = "there are no headers in it: give headers, or a response as `curl -i` prints it \
                       (for JSON lines, add --json)";
        return Err(Failure::Input(message.into()));
    }
    show::show(&response, vendor.as_deref(), &context, out)?;
    Ok(Outcome::Fine)
}
