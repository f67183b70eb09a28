//! The program `integration-client`: sends files of requests and single requests within the limits, manages dead
//! letters and tenants, shows what a response says about limits, checks configurations, and shows the vendors of the
//! catalogue.
//!
//! Each command is a file or folder with its arguments (`Args`) and its function `run`. A command writes to the output
//! that it is given, and returns an outcome. This file handles broken pipes, colours and exit codes.
#![forbid(unsafe_code)]

mod check;
mod completions;
mod connect;
mod consent;
mod dead_letters;
mod inspect;
mod intake;
mod interrupt;
mod key_files;
mod metrics;
mod notes;
mod operators;
mod output;
mod run;
mod send;
mod serve;
mod sources;
mod status;
mod tenants;
mod text;
mod vendors;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

use output::{Failure, Outcome, Screen};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Examples:
  integration-client run jobs.jsonl --vendors vendors.toml --out results.jsonl
  integration-client send acme github /user --vendors vendors.toml
  integration-client serve --vendors vendors.toml --tenants tenants.toml
  integration-client intake 'amqp://mq/%2f?queue=requests' --store jobs.sqlite
  integration-client dead-letters list --store jobs.jsonl.sqlite
  curl -si https://api.github.com | integration-client inspect --vendor github
  integration-client check vendors.toml --tenants tenants.toml
  integration-client vendors shopify
  source <(integration-client completions bash)

Exit codes: 0 all is well, 1 something was found, 2 the command could not be
carried out, 3 it was interrupted and goes on when run again. Each command says
what they mean there.

INTEGRATION_CLIENT_VENDORS, INTEGRATION_CLIENT_TENANTS and
INTEGRATION_CLIENT_STORE stand in for --vendors, --tenants and --store. Colours
are for terminals alone, and never used with NO_COLOR.
integration-client COMMAND --help explains a command, with examples.";

/// Sends requests to the APIs of many vendors within their rate limits, and shows limits, queues and dead letters.
#[derive(Parser)]
#[command(name = "integration-client", version, after_help = EXAMPLES, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Send(send::Args),
    Serve(serve::Args),
    Intake(intake::Args),
    Health(serve::Health),
    Status(status::Args),
    DeadLetters(dead_letters::Args),
    Tenants(tenants::Args),
    Inspect(inspect::Args),
    Check(check::Args),
    Vendors(vendors::Args),
    Completions(completions::Args),
}

fn main() -> ExitCode {
    interrupt::outlive_file_limits();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => {
            // clap returns `--help` and `--version` as errors too. A failure to print is ignored: nobody reads the
            // output.
            let _ = told.print();
            if let Some(variable) = empty_variable(&told) {
                let _ = writeln!(
                    anstream::stderr(),
                    "the environment variable {variable} is empty: give it a value, or unset it"
                );
            }
            return ExitCode::from(if told.use_stderr() { output::CANNOT } else { 0 });
        }
    };
    // Standard output is not locked, because `run` writes its results from other threads.
    let mut out = anstream::stdout();
    let screen = Screen::of_terminal();
    // The exit codes of these say what became of the requests, also if the output failed.
    let flushes_itself = matches!(cli.command, Command::Send(_) | Command::Serve(_) | Command::Intake(_));
    let done = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Send(args) => send::run(&args, &mut out),
        Command::Serve(args) => serve::run(&args, &mut out),
        Command::Intake(args) => intake::run(&args, &mut out),
        Command::Health(args) => serve::health(&args, &mut out),
        Command::Status(args) => status::run(&args, screen, &mut out),
        Command::DeadLetters(args) => dead_letters::run(&args, &mut out),
        Command::Tenants(args) => tenants::run(&args, screen, &mut out),
        Command::Inspect(args) => inspect::run(&args, &mut out),
        Command::Check(args) => check::run(&args, screen, &mut out),
        Command::Vendors(args) => vendors::run(&args, screen, &mut out),
        Command::Completions(args) => completions::run(&args, &mut out),
    };
    let done = match flushes_itself {
        true => done,
        false => done.and_then(|outcome| match out.flush() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(outcome),
        }),
    };
    notes::finish();
    match done {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(output::FOUND),
        Ok(Outcome::Interrupted) => ExitCode::from(output::INTERRUPTED),
        // The reader closed the pipe because it has read enough, as `head` does.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failure::Said) => ExitCode::from(output::CANNOT),
        Err(failure) => {
            let _ = writeln!(anstream::stderr(), "{}error:{:#} {failure}", output::ERROR, output::ERROR);
            ExitCode::from(output::CANNOT)
        }
    }
}

/// The name of the empty environment variable because of which an argument has no valid value: clap's message names the
/// argument alone.
fn empty_variable(told: &clap::Error) -> Option<String> {
    let text = |kind| match told.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg).filter(|_| text(ContextKind::InvalidValue) == Some(""))?;
    let mut command = Cli::command();
    // An argument that is not built has no text.
    command.build();
    empty_variable_of(&command, argument)
}

/// The empty environment variable that replaces this argument of the command or of one of its subcommands.
fn empty_variable_of(command: &clap::Command, argument: &str) -> Option<String> {
    let own = command.get_arguments().filter(|own| own.to_string() == argument).find_map(|own| {
        let name = own.get_env()?;
        std::env::var_os(name)?.is_empty().then(|| name.display().to_string())
    });
    own.or_else(|| command.get_subcommands().find_map(|command| empty_variable_of(command, argument)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        super::Cli::command().debug_assert();
    }

    /// clap would wrap a longer line, so that its last word would stand alone on the next line.
    #[test]
    fn help_footer_wraps_at_eighty_columns() {
        fn check_footers(command: &clap::Command) {
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in below.lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check_footers);
        }
        check_footers(&super::Cli::command());
    }

    #[test]
    fn options_and_variables_have_one_name() {
        fn check_variables(command: &clap::Command) {
            for argument in command.get_arguments() {
                let (name, variable) = (argument.get_long().unwrap_or_default(), argument.get_env());
                let expected = match name {
                    "vendors" | "tenants" | "store" => Some(format!("INTEGRATION_CLIENT_{}", name.to_uppercase())),
                    "vendors-file" => panic!("{}: --vendors", command.get_name()),
                    _ => continue,
                };
                assert_eq!(variable, expected.as_deref().map(std::ffi::OsStr::new), "{}: --{name}", command.get_name());
                assert!(argument.is_hide_env_values_set(), "{}: --{name} may hold a password", command.get_name());
            }
            command.get_subcommands().for_each(check_variables);
        }
        check_variables(&super::Cli::command());
    }
}
