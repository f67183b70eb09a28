//! Errors at opening say what to do about them.

use super::*;

#[track_caller]
fn refusal(result: Result<(Opened, Vec<crate::BoxFuture<'static, ()>>), crate::Error>) -> crate::Error {
    let error = result.err().expect("it must be refused");
    assert_eq!(error.kind(), crate::ErrorKind::Config);
    error
}

#[track_caller]
fn refusal_text(result: Result<(Opened, Vec<crate::BoxFuture<'static, ()>>), crate::Error>) -> String {
    let error = refusal(result);
    assert!(!error.is_store_in_use(), "{error}");
    error.to_string()
}

#[tokio::test]
async fn unknown_url_is_refused() {
    let message = refusal_text(Store::url("mysql://user:secret@host/db").open(false).await);
    assert!(message.contains("mysql") && message.contains("sqlite:PATH") && !message.contains("secret"), "{message}");
    assert!(refusal_text(Store::url("store.db").open(false).await).contains("sqlite:PATH"));
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::super::super::records;
    use super::*;

    #[tokio::test]
    async fn missing_folder_is_refused() {
        let folder = folder();
        let message = refusal_text(Store::sqlite(folder.join("none/store.db")).open(false).await);
        assert!(message.contains("does not exist"), "{message}");
        assert!(refusal_text(Store::sqlite(&folder).open(false).await).contains("it is a folder"));
    }

    #[tokio::test]
    async fn long_path_is_shortened_in_messages() {
        let (folder, long) = (folder(), "l".repeat(5_000));
        for path in [folder.join(&long), folder.join(&long).join("store.db"), folder.join(format!("{long}/{long}"))] {
            let message = refusal_text(Store::sqlite(path).open(false).await);
            assert!(message.chars().count() < 1_000 && message.contains("lll…lll"), "{message}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn path_too_long_for_sqlite_is_refused() {
        let length = |path: &std::path::Path| path.as_os_str().len();
        for (bytes, is_opened) in [(504, true), (505, false)] {
            let mut inner = folder().canonicalize().unwrap();
            let short = inner.join("link");
            while bytes - length(&inner) > 200 {
                inner.push("f".repeat(100));
            }
            std::fs::create_dir_all(&inner).unwrap();
            std::os::unix::fs::symlink(&inner, &short).unwrap();
            let name = "s".repeat(bytes - length(&inner) - 1);
            for path in [inner.join(&name), short.join(&name)] {
                if is_opened {
                    open(&Store::sqlite(&path)).await;
                    continue;
                }
                let message = refusal_text(Store::sqlite(&path).open(false).await);
                assert!(message.contains("has 505 bytes") && message.contains("more than 504"), "{message}");
                assert!(!path.exists(), "no file is left");
            }
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn file_with_two_names_is_refused() {
        let folder = folder();
        let (path, link) = (folder.join("store.db"), folder.join("link.db"));
        let first = open(&Store::sqlite(&path)).await;
        std::fs::hard_link(&path, &link).unwrap();
        for name in [&path, &link] {
            let store = Store::sqlite(name);
            for work in [false, true] {
                let message = refusal_text(store.clone().open(work).await);
                assert!(message.contains("has 2 names") && message.contains("-samefile"), "{message}");
            }
            assert!(store.open_capacity().await.is_err());
        }
        accept(&first, job("a")).await;
        std::fs::remove_file(&link).unwrap();
        accept(&open(&Store::sqlite(&path)).await, job("a")).await;
    }

    #[tokio::test]
    async fn file_of_another_format_is_refused() {
        let path = folder().join("store.db");
        std::fs::write(&path, "a letter to my aunt. ".repeat(100)).unwrap();
        let message = refusal_text(Store::sqlite(&path).open(false).await);
        assert!(message.contains("not a database") && message.contains("name another file"), "{message}");
        assert!(std::fs::read_to_string(&path).unwrap().contains("my aunt"), "it is left alone");
    }

    #[tokio::test]
    async fn truncated_file_is_refused() {
        let path = folder().join("store.db");
        {
            let store = open(&Store::sqlite(&path)).await;
            for _ in 0..200 {
                accept(&store, job("a")).await;
            }
            let checkpoint: crate::store::actor::Step<(), ()> = |(), _, _| Box::pin(std::future::ready(Ok(())));
            store.write((), checkpoint).await.unwrap();
        }
        // The connection that closes the file last moves the log into it. If two close at the same moment, none does.
        let log = path.with_extension("db-wal");
        for wait in 1..=1_000 {
            if !log.exists() {
                break;
            }
            if wait % 100 == 0 {
                drop(open(&Store::sqlite(&path)).await);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!log.exists(), "the store's tasks have not ended");
        let length = std::fs::metadata(&path).unwrap().len();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(length / 2).unwrap();
        // The error comes either at opening or at the first use.
        match Store::sqlite(&path).open(false).await {
            Err(error) => assert!(error.to_string().contains("SQLite"), "{error}"),
            Ok((store, tasks)) => {
                for task in tasks {
                    #[expect(clippy::disallowed_methods, reason = "a test's own")]
                    tokio::spawn(task);
                }
                let error = store.read(1_000, records::count).await.unwrap_err();
                assert!(error.to_string().contains("damaged"), "{error}");
            }
        }
    }

    #[tokio::test]
    async fn second_worker_on_one_file_is_refused() {
        let store = Store::sqlite(folder().join("store.db"));
        let first = store.clone().open(true).await.unwrap();
        let error = refusal(store.clone().open(true).await);
        assert!(error.is_store_in_use() && error.to_string().contains("another process works on this file"), "{error}");
        store.clone().open(false).await.unwrap();
        drop(first);
        store.open(true).await.unwrap();
    }

    #[tokio::test]
    async fn file_opens_while_another_process_writes() {
        use sqlx::{Connection, Executor};
        let path = folder().join("store.db");
        let store = Store::sqlite(&path);
        let first = open(&store).await;
        let accepted = accept(&first, job("a")).await;
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
        let mut other = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        let opening = tokio::time::timeout(Duration::from_secs(4), open(&store));
        let opened = opening.await.expect("it needs no lock");
        let found = opened.read(accepted, records::find).await.unwrap();
        assert!(matches!(found, records::JobState::Waiting { .. }), "{found:?}");
        other.execute("ROLLBACK").await.unwrap();
        accept(&opened, job("a")).await;
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn file_is_private_to_its_owner() {
        use std::os::unix::fs::PermissionsExt;
        let path = folder().join("store.db");
        let _store = open(&Store::sqlite(&path)).await;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn schema_of_later_version_is_refused() {
    for store in stores().await {
        let opened = open(&store).await;
        let later: crate::store::actor::Step<(), u64> =
            |(), db, _| db.execute("UPDATE ic_schema SET version = 1000", Vec::new());
        opened.write((), later).await.unwrap();
        let message = refusal_text(store.open(false).await);
        assert!(message.contains("later version") && message.contains("1000"), "{message}");
    }
}

/// A dump or an open transaction keeps a migration waiting, and no write waits for the migration for long.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn waiting_migration_holds_up_no_write() {
    use sqlx::{Connection, Executor, PgConnection};
    let url = database().await;
    let store = Store::postgres(url.clone());
    let running = open(&store).await;
    let mut reader = PgConnection::connect(&url).await.unwrap();
    for sql in [
        "ALTER TABLE ic_job DROP COLUMN started_at",
        "DROP TABLE ic_pause",
        "UPDATE ic_schema SET version = 12",
        "BEGIN",
        "LOCK TABLE ic_job IN ACCESS SHARE MODE",
    ] {
        reader.execute(sql).await.unwrap();
    }
    let mut opening = tokio::task::JoinSet::new();
    opening.spawn(async move { open(&store).await });
    let clock = Clock::system();
    let began = clock.now();
    let mut count = 0;
    while clock.now().since(began) < Duration::from_secs(3) {
        let before = clock.now();
        accept(&running, job("a")).await;
        let took = clock.now().since(before);
        assert!(took < Duration::from_secs(4), "{took:?}");
        count += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(opening.try_join_next().is_none(), "the table is still in use");
    reader.execute("ROLLBACK").await.unwrap();
    let opened = tokio::time::timeout(Duration::from_secs(30), opening.join_next()).await;
    let opened = opened.expect("nothing is in the way any more").unwrap().unwrap();
    assert_eq!(claim(&opened, id(), "a", 1_000).await.len(), count);
}

#[tokio::test]
async fn undecodable_row_blocks_no_other() {
    for store in stores().await {
        let opened = open(&store).await;
        let broken = accept(&opened, job("a")).await;
        let good = accept(&opened, job("a")).await;
        let edit: crate::store::actor::Step<Id, u64> = |id, db, _| {
            let sql = match db.dialect() {
                crate::store::driver::Dialect::Sqlite => "UPDATE ic_job SET claims = 'many', fence = 'x' WHERE id = $1",
                // PostgreSQL does not accept a text in a column of numbers.
                _ => "UPDATE ic_job SET tier = 77, claims = -9, history = '\\x00' WHERE id = $1",
            };
            let id = id.as_bytes().as_slice();
            db.execute(sql, crate::store::driver::args![id])
        };
        opened.write(broken, edit).await.unwrap();
        let claimed = claim(&opened, id(), "a", 10).await;
        assert!(claimed.iter().any(|job| job.id == good), "{claimed:?}");
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn connection_errors_never_show_the_password() {
    let message = refusal_text(Store::postgres("postgres://user:secret@127.0.0.1:1/db").open(false).await);
    assert!(message.contains("PostgreSQL") && !message.contains("secret"), "{message}");
    let message = refusal_text(Store::postgres("postgres://[bad").open(false).await);
    assert!(message.contains("postgres://USER"), "{message}");
}
