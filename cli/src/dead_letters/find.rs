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

/// The letters that match now, and none that are added later: a change affects the letters that it was announced for.
pub(super) async fn present(letters: &DeadLetters) -> Result<DeadLetters, Failure> {
    let newest = letters.newest().await?;
    Ok(letters.clone().upto(newest.unwrap_or(0)))
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
        let none = present(&all).await.unwrap();
        die(1).await;
        assert_eq!(counted(&none).await.unwrap(), (0, 0));
        let one = present(&all).await.unwrap();
        die(2).await;
        assert_eq!(counted(&one).await.unwrap().0, 1);
        assert_eq!(one.purge(usize::MAX).await.unwrap(), 1);
        assert_eq!(all.count().await.unwrap(), 1);
        client.shutdown(Duration::from_secs(5)).await;
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
