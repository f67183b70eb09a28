//! Finds letters by their ids, and counts them.

use integration_client::outbox::{DeadLetters, KeptLetter};

use crate::notes;
use crate::output::{Failure, Outcome};

/// Letters that are read from the store at once.
pub(super) const PAGE: usize = 500;

/// Ids that the error names at most if several begin with the given text.
const NAMED: usize = 10;

/// The letter with this id, or the only letter whose id begins with it.
pub(super) async fn find(letters: &DeadLetters, id: &str) -> Result<Option<KeptLetter>, Failure> {
    if let Some(kept) = letters.show(id).await? {
        return Ok(Some(kept));
    }
    let (mut found, mut after): (Vec<KeptLetter>, _) = (Vec::new(), None);
    loop {
        let page = letters.list(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.place);
        found.extend(page.into_iter().filter(|kept| kept.letter.id.starts_with(id)));
        if found.len() > NAMED {
            break;
        }
    }
    if found.len() > 1 {
        let more = if found.len() > NAMED { " …" } else { "" };
        let ids: Vec<&str> = found.iter().take(NAMED).map(|kept| kept.letter.id.as_str()).collect();
        let why =
            format!("{id}: several ids begin so; write more of the one that is meant:\n  {}{more}", ids.join("\n  "));
        return Err(Failure::Input(why));
    }
    Ok(found.pop())
}

/// Reports an unknown id on standard error, because a program may read standard output as JSON.
pub(super) fn missing(id: &str) -> Outcome {
    notes::say(&format!("{id}: no dead letter has this id; `dead-letters list` shows those that there are"));
    Outcome::Found
}

/// The number of letters that match, and how many of those can be sent again.
pub(super) async fn counted(letters: &DeadLetters) -> Result<(usize, usize), Failure> {
    let (mut after, mut found, mut can_be_sent) = (None, 0, 0);
    loop {
        let page = letters.list(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok((found, can_be_sent)) };
        after = Some(last.place);
        found += page.len();
        can_be_sent += page.iter().filter(|kept| kept.can_be_sent).count();
    }
}
