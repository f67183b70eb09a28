//! Which lines are written beside those that the output holds already.

use std::path::PathBuf;

use integration_client::IntegrationClient;
use integration_client::dead_letter::{LetterRequest, Reason};
use integration_client::store::Store;
use serde_json::Value;

use super::*;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ic-results-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

async fn client(store: PathBuf) -> IntegrationClient {
    IntegrationClient::builder().without_catalogue().store(Store::sqlite(store)).build().await.unwrap()
}

/// A letter of the job of a line.
fn letter(batch: &Batch, line: u64, reason: Reason) -> DeadLetter {
    let request = LetterRequest::outline(&http::Method::POST, "/jobs", None);
    let mut letter = DeadLetter::new(jiff::Timestamp::UNIX_EPOCH, "acme", "v", Priority::Normal, reason, request);
    // The id of a batch's job: the run, and the number behind the two bits of a UUID's variant.
    letter.id = format!("{:016x}{:016x}", batch.run(), (1_u64 << 63) | line);
    letter
}

/// A job whose response is in the results is given up, because the process ended before the store had the response.
#[tokio::test]
async fn dead_line_follows_no_done_one() {
    let folder = folder("dead");
    let (client, path) = (client(folder.join("store.db")).await, folder.join("results.jsonl"));
    let batch = client.outbox().batch("run").await.unwrap();
    let id = letter(&batch, 1, Reason::Ambiguous).id;
    std::fs::write(&path, json!({ "line": 1, "id": id, "outcome": "done" }).to_string() + "\n").unwrap();
    let results = Results::open(Some(Out::open(&path).unwrap()), batch.numbers()).unwrap();
    for line in [1, 2] {
        for reason in [Reason::Ambiguous, Reason::Exhausted] {
            results.given_up(&letter(&batch, line, reason)).await.unwrap();
        }
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let outcomes: Vec<_> = lines.map(|line| (line["line"].clone(), line["outcome"].clone())).collect();
    let expected: [(Value, Value); 2] = [(1.into(), "done".into()), (2.into(), "dead".into())];
    assert_eq!(outcomes, expected);
    client.shutdown(std::time::Duration::from_secs(5)).await;
    std::fs::remove_dir_all(&folder).unwrap();
}
