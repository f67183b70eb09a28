//! Rows of `ic_intake`, from an application's insert to the vendor.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::time::Duration;

use crate::config::TenantEntry;
use crate::store::Store;
use crate::store::actor::Step;
use crate::store::driver::{Row, args};
use crate::testing::{FakeAnswer, FakeTransport};
use crate::{ErrorKind, IntegrationClient};

const VENDORS: &str =
    "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";

const INSERT: Step<String, u64> =
    |request, db, _| Box::pin(db.execute("INSERT INTO ic_intake (request) VALUES ($1)", args![request]));
const REFUSED: Step<(), Vec<(String, String)>> = |(), db, _| {
    Box::pin(async move {
        let sql = "SELECT request, why FROM ic_intake_refused ORDER BY seq";
        db.fetch(sql, Vec::new()).await?.iter_mut().map(|row| Ok((row.text()?, row.text()?))).collect()
    })
};
const LEFT: Step<(), i64> = |(), db, _| {
    Box::pin(async move {
        let mut rows = db.fetch("SELECT count(*) FROM ic_intake", Vec::new()).await?;
        Ok(rows.first_mut().map(Row::int).transpose()?.unwrap_or_default())
    })
};

fn store(name: &str) -> Store {
    let folder = std::env::temp_dir().join(format!("ic-intake-table-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    Store::sqlite(folder.join("s.db"))
}

async fn client(transport: &FakeTransport, store: Store) -> IntegrationClient {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDORS).transport(transport.clone());
    let builder = builder.tenant(TenantEntry::new("acme", "v")).tenant(TenantEntry::new("umbra", "v"));
    builder.store(store).work().build().await.unwrap()
}

fn post(tenant: &str, path: &str) -> String {
    format!(r#"{{"tenant":"{tenant}","vendor":"v","method":"POST","path":"{path}"}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_inserted_rows_are_kept() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let client = client(&transport, store("all")).await;
    let outbox = client.outbox();
    let state = outbox.state().unwrap();
    let inserting = async {
        for number in 0..600 {
            state.store.write(post("acme", &format!("/{number}")), INSERT).await.unwrap();
        }
        for bad in ["{", r#"{"tenant":"nobody","vendor":"v","method":"GET","path":"/"}"#] {
            state.store.write(bad.to_owned(), INSERT).await.unwrap();
        }
        while transport.calls().len() < 600 || state.store.read((), LEFT).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        client.shutdown(Duration::from_secs(5)).await;
    };
    let fed = async { tokio::join!(client.outbox().feed_from_table(), inserting).0 };
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), fed).await.unwrap().unwrap(), 600);
    let mut paths: Vec<String> = transport.calls().iter().map(|call| call.path().to_owned()).collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 600, "each once");
    let refused = state.store.read((), REFUSED).await.unwrap();
    assert_eq!(refused.len(), 2);
    assert!(refused[0].1.starts_with("not JSON") && refused[1].1.contains("nobody"), "{refused:?}");
    let error = client.outbox().feed_from_table().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shutdown);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_lanes_rows_hold_up_no_other() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).delay(Duration::from_secs(3600)));
    let client = client(&transport, store("full").max_lane_backlog(2)).await;
    let outbox = client.outbox();
    let state = outbox.state().unwrap();
    for number in 0..300 {
        state.store.write(post("acme", &format!("/{number}")), INSERT).await.unwrap();
    }
    state.store.write(post("umbra", "/behind"), INSERT).await.unwrap();
    let looking = async {
        while !transport.calls().iter().any(|call| call.path() == "/behind") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let feeding = client.outbox().feed_from_table();
    let found = async {
        tokio::select! {
            fed = feeding => panic!("it ended: {fed:?}"),
            () = looking => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(30), found).await.unwrap();
    let left = state.store.read((), LEFT).await.unwrap();
    assert!(left > 200, "{left} rows stay where they are");
}
