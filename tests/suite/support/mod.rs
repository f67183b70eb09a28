//! Helpers of the tests: vendors that misbehave on purpose, certificates, and a reader of the documentation's tables.

pub mod fault;
pub mod http2;
pub mod tables;
pub(crate) mod text_source;
pub mod tls;

/// The root of the repository.
pub(crate) fn repository() -> &'static std::path::Path {
    let of_package = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    of_package.parent().expect("the package of the tests is in the repository")
}

/// The URL of an empty database of the server that `IC_TEST_POSTGRES` names.
#[cfg(feature = "postgres")]
pub(crate) async fn database(name: &str) -> String {
    use sqlx::{Connection, Executor};
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let url = std::env::var("IC_TEST_POSTGRES").expect("`eval $(scripts/postgres.sh start)` before");
    let name = format!("{name}{}_{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let mut server = sqlx::PgConnection::connect(&url).await.unwrap();
    server.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/{name}")
}

/// Makes an empty folder for one test, below the system's folder for temporary files.
pub(crate) fn folder(name: &str) -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("ic-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
    folder
}
