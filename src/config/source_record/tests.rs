//! Tests of what is known of a configuration source.

use super::*;

fn record() -> SourceRecord {
    SourceRecord::new("https://c.example.com/v.toml".to_owned(), SourceKind::Server)
}

fn content(hash: u64) -> SourceContent {
    SourceContent { hash, fingerprint: None, copy_age: None, problem: None }
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

/// The age, the problem and its duration; the times in seconds.
#[track_caller]
fn seen(record: &SourceRecord) -> (u64, Option<String>, Option<u64>) {
    let status = record.status();
    (status.age.as_secs(), status.problem, status.problem_for.map(|time| time.as_secs()))
}

#[tokio::test(start_paused = true)]
async fn record_confirms_what_is_in_force() {
    let record = record();
    record.loaded(content(1));
    record.taken();
    pass(5).await;
    assert_eq!(seen(&record), (5, None, None));
    record.loaded(content(1));
    assert_eq!(seen(&record), (0, None, None));
    // A fingerprint says something only if it belongs to the content in force.
    record.stated(10);
    record.loaded(content(1));
    pass(5).await;
    record.stated(20);
    assert_eq!(seen(&record), (5, None, None));
    record.stated(10);
    assert_eq!(seen(&record), (0, None, None));
    // New content counts once it is taken.
    pass(5).await;
    record.stated(20);
    record.loaded(content(2));
    assert_eq!(seen(&record), (5, None, None));
    record.taken();
    pass(1).await;
    record.stated(20);
    assert_eq!(seen(&record), (0, None, None));
}

/// Another server stated the fingerprint, and it has newer content.
#[tokio::test(start_paused = true)]
async fn newer_fingerprint_confirms_no_older_content() {
    let record = record();
    record.stated(20);
    assert_eq!(record.loaded(SourceContent { fingerprint: Some(10), ..content(1) }), Some(10));
    record.taken();
    pass(5).await;
    record.stated(20);
    assert_eq!(seen(&record), (5, None, None));
    record.stated(10);
    assert_eq!(seen(&record), (0, None, None));
}

#[tokio::test(start_paused = true)]
async fn record_tells_since_when_it_fails() {
    let record = record();
    record.loaded(content(1));
    record.taken();
    pass(5).await;
    record.failed("https://c.example.com/v.toml: the server answered 500");
    pass(5).await;
    record.failed("https://c.example.com/v.toml: the server answered 502");
    assert_eq!(seen(&record), (10, Some("the server answered 502".to_owned()), Some(5)));
    // New content that is refused: the server answers again, and what is in force is still the old content.
    record.loaded(content(2));
    assert_eq!(seen(&record), (10, None, None));
    record.refused("v.toml:3:1: wrong");
    pass(5).await;
    record.loaded(content(2));
    assert_eq!(seen(&record), (15, Some("v.toml:3:1: wrong".to_owned()), Some(5)));
    record.loaded(content(1));
    assert_eq!(seen(&record), (0, None, None));
    record.refused("another source is wrong");
    assert_eq!(seen(&record), (0, None, None));
    record.failed("away");
    record.answered(7);
    assert_eq!(seen(&record), (0, None, None));
}

#[tokio::test(start_paused = true)]
async fn record_adds_the_age_of_a_copy() {
    let record = record();
    let copy_age = Some(Duration::from_secs(60));
    record.loaded(SourceContent { copy_age, problem: Some("the copy is in use".to_owned()), ..content(1) });
    record.taken();
    pass(5).await;
    assert_eq!(seen(&record), (65, Some("the copy is in use".to_owned()), Some(5)));
    record.failed("the server answered 500");
    assert_eq!(seen(&record), (65, Some("the server answered 500".to_owned()), Some(5)));
    assert!(record.status().is_copy);
    record.loaded(content(1));
    assert_eq!((seen(&record), record.status().is_copy), ((0, None, None), false));
}
