//! Consent to a command that changes more than the user named one by one: a preview, a question on the terminal, or
//! `--yes`.

use std::io::{BufRead, IsTerminal, Write};

use crate::notes;
use crate::output::Failure;

/// The two options of every command that may ask for consent.
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
    /// Fails unless the user consents. `what` says what would be done, as in `this would delete 3 dead letters for good`.
    pub(crate) fn ask(self, what: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            return Err(Failure::Input(format!("{what}: add --yes to do it, or --dry-run to see it alone")));
        }
        let mut err = anstream::stderr();
        write!(err, "{what}. Do it? [y/N] ")?;
        err.flush()?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        agreed(&answer)
    }
}

/// Whether an answer agrees. Any other answer ends the command, which then has done nothing: exit code 2.
fn agreed(answer: &str) -> Result<(), Failure> {
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    notes::say("not confirmed: nothing was changed");
    Err(Failure::Said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consent_is_yes_alone() {
        for answer in ["y\n", "Y\n", "yes\r\n"] {
            assert!(agreed(answer).is_ok(), "{answer:?}");
        }
        for answer in ["n\n", "\n", "", "yep\n"] {
            assert!(matches!(agreed(answer), Err(Failure::Said)), "{answer:?}");
        }
    }
}
