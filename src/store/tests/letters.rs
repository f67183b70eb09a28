//! A list of large dead letters is read in pages that are bounded in bytes.

use super::super::dead::{self, Filter, NewDead};
use super::super::driver::PAGE_BYTES;
use super::*;
use crate::config::TenantEntry;
use crate::dead_letter::{DeadLetter, LetterRequest, Reason};
use crate::testing::{FakeAnswer, FakeTransport};
use crate::{IntegrationClient, Priority};

const VENDORS: &str =
    "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";

/// A letter whose stored form takes a little more than this many bytes.
fn letter(bytes: usize) -> NewDead {
    let request = LetterRequest::Redacted { method: "POST".to_owned(), path: "x".repeat(bytes), body_bytes: None };
    let letter = DeadLetter::new(jiff::Timestamp::UNIX_EPOCH, "a", "v", Priority::Normal, Reason::Exhausted, request);
    NewDead {
        id: id(),
        lane: lane("a"),
        reason: Reason::Exhausted.as_str().to_owned(),
        letter: serde_json::to_vec(&letter).unwrap(),
        request: None,
        keep_result: false,
        reply: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_of_large_letters_is_read_in_pages() {
    const MIB: usize = 1 << 20;
    for store in stores().await {
        let transport = FakeTransport::new(|_| FakeAnswer::status(200));
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDORS).transport(transport);
        let client = builder.tenant(TenantEntry::new("a", "v")).store(store).build().await.unwrap();
        let outbox = client.outbox();
        let store = &outbox.state().unwrap().store;
        let mut written = Vec::new();
        // The last one is larger than a page.
        for size in std::iter::repeat_n(MIB, 40).chain([9 * MIB]) {
            let letter = letter(size);
            written.push(letter.id);
            store.write(letter, dead::keep).await.unwrap();
        }
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let page = Filter { after, most: 100, ..Filter::default() };
            let (page, last) = store.read(page, dead::list).await.unwrap();
            let Some(last) = last else { break };
            after = last;
            let bytes: usize = page.iter().map(|letter| letter.letter.len()).sum();
            assert!(bytes as i64 <= PAGE_BYTES || page.len() == 1, "{} letters of {bytes} bytes", page.len());
            found.extend(page.iter().map(|letter| letter.id));
        }
        assert_eq!(found, written);
        let letters = client.outbox().dead_letters().unwrap();
        for most in [40, 100] {
            let listed = letters.list(None, most).await.unwrap();
            let listed: Vec<String> = listed.into_iter().map(|kept| kept.letter.id).collect();
            let expected: Vec<String> = written.iter().take(most).map(|id| id.simple().to_string()).collect();
            assert_eq!(listed, expected);
        }
    }
}
