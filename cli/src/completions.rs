//! `completions`: prints a completion script for a shell.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::output::{Failure, Outcome};

const EXAMPLES: &str = "\
Examples:
  source <(integration-client completions bash)      # for this shell alone
  integration-client completions fish > \\
      ~/.config/fish/completions/integration-client.fish";

/// Prints the script with which a shell completes commands and options.
///
/// Save it where the shell looks for such scripts. Supported shells: bash, zsh, fish, elvish and PowerShell.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The shell that reads the script.
    shell: Shell,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    // Writes into memory first, because clap_complete panics if a write fails.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "integration-client", &mut text);
    out.write_all(&text)?;
    Ok(Outcome::Fine)
}
