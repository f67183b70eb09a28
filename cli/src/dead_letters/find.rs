//! Selects letters, finds them by their ids, and counts them.

use integration_client::dead_letter::Reason;
use integration_client::outbox::{DeadLetters, KeptLetter};

use crate::notes;
use crate::output::{Failure, Outcome};

/// Letters that are read from the store at once.
pub(super) const PAGE: usize = 500;

/// Ids that the error names at most if several begin with the given text.
const NAMED: usize = 10;

/// The letters that the options select. The status is stored inside a letter, which may be encrypted, so it and
/// the run are compared after the letters are read, page by page.
pub(super) struct Selected {
    pub(super) letters: DeadLetters,
    /// The status of the last attempt.
    pub(super) status: Option<u16>,
    /// The beginning of the ids of a run's letters.
    pub(super) run: Option<String>,
}

impl Selected {
    /// Whether a page of the store may hold letters that are not selected.
    pub(super) fn compares_letters(&self) -> bool {
        self.status.is_some() || self.run.is_some()
    }

    fn has(&self, kept: &KeptLetter) -> bool {
        let last = kept.letter.attempts.last().and_then(|last| last.status);
        self.status.is_none_or(|status| last == Some(status))
            && self.run.as_deref().is_none_or(|run| kept.letter.id.starts_with(run))
    }

    /// The letters of the next page, which may be none although more pages follow. Moves `after` behind the page.
    /// `None` after the last page.
    pub(super) async fn page(&self, after: &mut Option<i64>, most: usize) -> Result<Option<Vec<KeptLetter>>, Failure> {
        let mut page = self.letters.list(*after, most).await?;
        let Some(last) = page.last() else { return Ok(None) };
        *after = Some(last.place);
        page.retain(|kept| self.has(kept));
        Ok(Some(page))
    }

    /// The selected letters that are there now, and none that are added later: a change affects the letters that it was
    /// announced for.
    pub(super) async fn present(&self) -> Result<Selected, Failure> {
        let newest = self.letters.newest().await?;
        let letters = self.letters.clone().upto(newest.unwrap_or(0));
        Ok(Selected { letters, status: self.status, run: self.run.clone() })
    }

    /// The letter with this id, or the only letter whose id begins with it.
    pub(super) async fn find(&self, id: &str) -> Result<Option<KeptLetter>, Failure> {
        if let Some(kept) = self.letters.show(id).await? {
            return Ok(Some(kept).filter(|kept| self.has(kept)));
        }
        let (mut found, mut after): (Vec<KeptLetter>, _) = (Vec::new(), None);
        while let Some(page) = self.page(&mut after, PAGE).await? {
            found.extend(page.into_iter().filter(|kept| kept.letter.id.starts_with(id)));
            if found.len() > NAMED {
                break;
            }
        }
        if found.len() > 1 {
            let more = if found.len() > NAMED { " …" } else { "" };
            let ids: Vec<&str> = found.iter().take(NAMED).map(|kept| kept.letter.id.as_str()).collect();
            let why = format!(
                "{id}: several ids begin so; write more of the one that is meant:\n  {}{more}",
                ids.join("\n  ")
            );
            return Err(Failure::Input(why));
        }
        Ok(found.pop())
    }

    /// Counts the letters. Those with the reason `ambiguous` are counted apart if `leaves_ambiguous`.
    pub(super) async fn counted(&self, leaves_ambiguous: bool) -> Result<Counted, Failure> {
        let (mut after, mut counted) = (None, Counted::default());
        while let Some(page) = self.page(&mut after, PAGE).await? {
            for kept in page {
                counted.in_doubt += usize::from(kept.can_be_sent && kept.is_in_doubt());
                match kept.can_be_sent {
                    _ if leaves_ambiguous && is_ambiguous(&kept) => counted.left_out += 1,
                    true => counted.can_be_sent += 1,
                    false => counted.unsendable += 1,
                }
            }
        }
        Ok(counted)
    }
}

/// Numbers of letters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counted {
    pub(super) can_be_sent: usize,
    pub(super) unsendable: usize,
    /// Ambiguous letters that are left alone.
    pub(super) left_out: usize,
    /// Those that can be sent, and whose jobs are not sent where the vendor may have forgotten their keys.
    pub(super) in_doubt: usize,
}

pub(super) fn is_ambiguous(kept: &KeptLetter) -> bool {
    kept.letter.reason == Reason::Ambiguous
}

/// Reports an unknown id on standard error, because a program may read standard output as JSON.
pub(super) fn missing(id: &str) -> Outcome {
    notes::say(&format!("{id}: no dead letter has this id; `dead-letters list` shows those that there are"));
    Outcome::Found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use integration_client::config::TenantEntry;
    use integration_client::store::Store;
    use integration_client::testing::{FakeAnswer, FakeTransport};
    use integration_client::{IntegrationClient, Priority, Request};

    use super::*;

    #[tokio::test]
    async fn letters_added_later_are_not_present() {
        let folder = std::env::temp_dir().join(format!("ic-present-letters-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let entry = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
        let refusing = FakeTransport::new(|_| FakeAnswer::status(422));
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(entry).transport(refusing);
        let builder = builder.tenant(TenantEntry::new("acme", "v")).store(Store::sqlite(folder.join("store.db")));
        let client = builder.work().build().await.unwrap();
        let all = client.outbox().dead_letters().unwrap();
        let die = async |total: u64| {
            client.outbox().enqueue("acme", Priority::High, Request::post("v", "/x")).await.unwrap();
            while all.count().await.unwrap() < total {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let selected = Selected { letters: all.clone(), status: None, run: None };
        let none = selected.present().await.unwrap();
        die(1).await;
        assert_eq!(none.counted(false).await.unwrap(), Counted::default());
        let one = selected.present().await.unwrap();
        die(2).await;
        let Counted { can_be_sent, unsendable, .. } = one.counted(false).await.unwrap();
        assert_eq!(can_be_sent + unsendable, 1);
        assert_eq!(one.letters.purge(usize::MAX).await.unwrap(), 1);
        assert_eq!(all.count().await.unwrap(), 1);
        client.shutdown(Duration::from_secs(5)).await;
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
