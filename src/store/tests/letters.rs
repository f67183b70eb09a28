//! A list of large dead letters is read in pages that are bounded in bytes.

use super::super::actor::Step;
use super::super::dead::{self, Filter, NewDead, Page};
use super::super::driver::{Arg, Db, DbError, Dialect, Driver, PAGE_BYTES, Row, args};
use super::*;
use crate::BoxFuture;
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

/// A connection that sees a letter at the position `seq` from its second statement on, as if another process had committed
/// it between the first two.
struct Late<'a> {
    db: Db<'a>,
    fetched: usize,
    seq: i64,
}

impl Driver for Late<'_> {
    fn dialect(&self) -> Dialect {
        self.db.dialect()
    }

    fn execute<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        self.db.execute(sql, args)
    }

    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Box::pin(async move {
            self.fetched += 1;
            if self.fetched == 2 {
                let late = "INSERT INTO ic_dead (seq, id, tenant, vendor, tier, reason, died_at, letter) \
                            VALUES ($1, $2, 'a', 'v', 1, 'exhausted', 0, $2)";
                let id = id();
                self.db.execute(late, args![self.seq, id.as_bytes().as_slice()]).await?;
            }
            self.db.fetch(sql, args).await
        })
    }

    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>> {
        self.db.now()
    }
}

#[tokio::test]
async fn late_letter_cuts_off_no_other() {
    let list: Step<(Filter, i64), Page> = |(filter, seq), db, now| {
        Box::pin(async move {
            let mut late = Late { db, fetched: 0, seq: *seq };
            dead::list(filter, &mut late, now).await
        })
    };
    for store in stores().await {
        let store = open(&store).await;
        for _ in 0..4 {
            store.write(letter(10), dead::keep).await.unwrap();
        }
        let all = Filter { most: 3, ..Filter::default() };
        let (mut before, _) = store.read(Filter { most: 4, ..all.clone() }, dead::list).await.unwrap();
        let late = before.remove(1);
        store.write(late.id, dead::remove).await.unwrap();
        let (page, last) = store.write((all, late.seq), list).await.unwrap();
        let (found, left): (Vec<Id>, Vec<Id>) =
            (page.iter().map(|letter| letter.id).collect(), before.iter().map(|letter| letter.id).collect());
        assert!(left.iter().all(|id| found.contains(id)), "{left:?} of {found:?}");
        assert_eq!(last, before.last().map(|letter| letter.seq));
    }
}
