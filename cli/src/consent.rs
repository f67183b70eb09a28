//! Consent to a command that changes more than the user named one by one: a preview, a question on the terminal, or
//! `--yes`.

use std::io::{BufRead, IsTerminal, Write};

use crate::output::Failure;

/// The two options of every command that changes something.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Consent {
    /// Shows what the command would do, and changes nothing.
    #[arg(long, conflicts_with = "yes", display_order = 90)]
    pub(crate) dry_run: bool,
    /// Does not ask for confirmation; required without a terminal.
    #[arg(long, display_order = 91)]
    pub(crate) yes: bool,
}

impl Consent {
    /// Whether the user consents. `what` says what would be done, as in `this would delete 3 dead letters for good`.
    pub(crate) fn given(self, what: &str) -> Result<bool, Failure> {
        if self.yes {
            return Ok(true);
        }
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            return Err(Failure::Input(format!("{what}: add --yes to do it, or --dry-run to see it alone")));
        }
        let mut err = anstream::stderr();
        write!(err, "{what}. Do it? [y/N] ")?;
        err.flush()?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }
}
