//! The program `integration-client`: sends files of requests and single ones through the limits, keeps their dead letters and
//! their tenants, and shows what a response says, whether a configuration is good and what the catalogue knows.
//!
//! A command is a file with its arguments (`Args`) and what it does (`run`). Commands write to what they are handed and
//! return; what becomes of a broken pipe, of colours and of the exit code is decided here.
#![forbid(unsafe_code)]

mod check;
mod completions;
mod connect;
mod inspect;
mod interrupt;
mod notes;
mod output;
mod run;
mod text;
mod vendors;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::{Failure, Outcome, Screen};

const EXAMPLES: &str = "\
Examples:
  curl -si https://api.github.com | integration-client inspect --vendor github
  integration-client check vendors.toml --tenants tenants.toml
  integration-client vendors shopify
  source <(integration-client completions bash)

Exit codes: 0 all is well, 1 something was found, 2 the command could not be
carried out. Colours are for terminals alone, and never used with NO_COLOR.
integration-client COMMAND --help explains a command, with examples.";

/// Shows what a client of many vendors' APIs knows and reads: limits, waits, configurations.
#[derive(Parser)]
#[command(name = "integration-client", version, after_help = EXAMPLES, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Inspect(inspect::Args),
    Check(check::Args),
    Vendors(vendors::Args),
    Completions(completions::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => {
            // Help and version are told the same way as mistakes; a pipe that nobody reads is no reason to complain.
            let _ = told.print();
            return ExitCode::from(if told.use_stderr() { output::CANNOT } else { 0 });
        }
    };
    let mut out = anstream::stdout().lock();
    let screen = Screen::of_terminal();
    let done = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Inspect(args) => inspect::run(&args, &mut out),
        Command::Check(args) => check::run(&args, screen, &mut out),
        Command::Vendors(args) => vendors::run(&args, screen, &mut out),
        Command::Completions(args) => completions::run(&args, &mut out),
    };
    let done = done.and_then(|outcome| Ok(out.flush().map(|()| outcome)?));
    match done {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(output::FOUND),
        Ok(Outcome::Interrupted) => ExitCode::from(output::INTERRUPTED),
        // Whoever read has what it wanted, as `head` does.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failure::Said) => ExitCode::from(output::CANNOT),
        Err(failure) => {
            let _ = writeln!(anstream::stderr(), "{}error:{:#} {failure}", output::ERROR, output::ERROR);
            ExitCode::from(output::CANNOT)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
