//! Tests of how secrets are resolved, in virtual time.

use std::sync::atomic::{AtomicUsize, Ordering};

use secrecy::ExposeSecret as _;

use super::*;
use crate::BoxError;
use crate::config::{CredentialRef, SecretHeader};

fn tenant_with(credential: CredentialRef) -> Arc<Route> {
    let tenant = Tenant::clone(&tenant(vendor(AuthScheme::Bearer)));
    Route::alone(Tenant { credential: Some(credential), ..tenant })
}

/// The vendor refuses a secret that was replaced, while a call that began before the replacement is under way.
#[tokio::test(start_paused = true)]
async fn call_from_before_a_refusal_is_not_waited_for() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let resolver = move |_: String| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if number > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok::<_, BoxError>(SecretString::from(format!("key-{number}")))
        }
    };
    // Nothing stays cached, as if the refused secret had just expired.
    let credentials = Credentials::new().ttl(Duration::ZERO).resolver("vault", resolver);
    let tenant = tenant_with(CredentialRef::Resolver { resolver: "vault".into(), key: "k".into() });
    let read = async || credentials.secret(&tenant).await.unwrap().unwrap();
    let refused = read().await;
    let after = async {
        credentials.invalidate(&tenant, &refused).await;
        let again = async {
            credentials.invalidate(&tenant, &refused).await;
            read().await
        };
        tokio::join!(read(), again)
    };
    let (before, (first, second)) = tokio::join!(read(), after);
    let found = [&refused, &before, &first, &second].map(|secret| secret.expose_secret());
    assert_eq!(found, ["key-0", "key-1", "key-2", "key-2"], "a second refusal of the same secret changes nothing");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

/// The vendor refuses a tenant again and again, and no secret has changed. The client reads the secrets again after the
/// first refusal alone.
#[tokio::test(start_paused = true)]
async fn secret_that_stays_the_same_is_kept_when_refused() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let resolver = move |key: String| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, BoxError>(SecretString::from(key)) }
    };
    let credentials = Credentials::new().resolver("vault", resolver);
    let vault = |key: &str| CredentialRef::Resolver { resolver: "vault".into(), key: key.into() };
    let header = SecretHeader { name: http::HeaderName::from_static("x-app-key"), secret: vault("app") };
    let vendor = Vendor { secret_headers: vec![header], ..vendor(AuthScheme::Bearer) };
    let tenant = Route::alone(Tenant { credential: Some(vault("own")), ..Tenant::clone(&tenant(vendor)) });
    let refused = credentials.secrets(&tenant).await.unwrap().unwrap();
    // Of two requests that were under way with these, each is sent again.
    assert!(credentials.invalidate_all(&tenant, &refused).await);
    assert!(credentials.invalidate_all(&tenant, &refused).await);
    for _ in 0..3 {
        let again = credentials.secrets(&tenant).await.unwrap().unwrap();
        assert!(!credentials.invalidate_all(&tenant, &again).await, "the next request gets the same");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 4, "each secret is read twice");
}

/// To open a named pipe without a writer takes for ever, like a file on a mount that does not answer.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn hanging_files_occupy_a_bounded_number_of_threads() {
    use std::path::{Path, PathBuf};

    use crate::transport::secret_sources::{FILES_AT_ONCE, LONGEST_WAIT};

    let folder = std::env::temp_dir().join(format!("integration-client-{}-pipes", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let pipes: Vec<PathBuf> = (0..FILES_AT_ONCE).map(|n| folder.join(format!("pipe-{n}"))).collect();
    assert!(std::process::Command::new("mkfifo").args(&pipes).status().unwrap().success());
    let file = folder.join("file");
    std::fs::write(&file, CANARY).unwrap();

    let credentials = Arc::new(Credentials::new());
    let read = |path: &Path| {
        let tenant = tenant_with(CredentialRef::File(path.display().to_string()));
        let credentials = credentials.clone();
        async move { credentials.secret(&tenant).await }
    };
    let mut hanging = tokio::task::JoinSet::new();
    for pipe in &pipes {
        hanging.spawn(read(pipe));
    }
    for _ in 0..FILES_AT_ONCE {
        tokio::task::yield_now().await;
    }
    let (refused, ()) = tokio::join!(read(&file), tokio::time::advance(2 * LONGEST_WAIT));
    // The threads end before anything is asserted: the runtime waits for them when it is dropped.
    for pipe in &pipes {
        std::fs::write(pipe, "late").unwrap();
    }
    while let Some(read) = hanging.join_next().await {
        assert_eq!(read.unwrap().unwrap().unwrap().expose_secret(), "late");
    }
    let error = refused.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Credential, Delivery::NotSent));
    assert!(error.to_string().contains("64 other credential files are being read"), "{error}");
    assert_eq!(read(&file).await.unwrap().unwrap().expose_secret(), CANARY);
    std::fs::remove_dir_all(folder).unwrap();
}
