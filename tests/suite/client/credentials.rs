//! Files, resolvers and token sources that hang, panic, or outlast the requests that need them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::SystemTime;

use http::{HeaderMap, StatusCode};
use integration_client::config::Tenant;
use integration_client::transport::{SecretString, SigningParts, Token};
use integration_client::{BoxError, Class};

use super::*;

/// A client that has no tenant yet, at a vendor that needs a credential.
fn bearer(transport: &FakeTransport) -> IntegrationClientBuilder {
    let text = vendor(&[]).replace("none", "bearer");
    IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone())
}

fn tenant(credential: &str) -> TenantEntry {
    TenantEntry::new("a", "v").credential(credential)
}

/// In real time. The file that hangs is a named pipe without a writer. The runtime has two threads for files, so two
/// reads that hang would stop all other files, and the look-up of host names.
#[cfg(unix)]
#[test]
fn hanging_file_occupies_one_thread() {
    let folder = crate::support::folder("hanging-file");
    let (pipe, file) = (folder.join("pipe"), folder.join("file"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::write(&file, "prompt").unwrap();
    let reference = |path: &std::path::Path| format!("file:{}", path.display());
    let transport = transport_with_delay(Duration::ZERO);
    let builder = bearer(&transport).tenant(tenant(&reference(&pipe)));
    let builder = builder.tenant(TenantEntry::new("b", "v").credential(reference(&file)));
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(2).enable_all().build().unwrap();
    let (failed, prompt, late) = runtime.block_on(async {
        let client = builder.build().await.unwrap();
        let mut failed = Vec::new();
        for _ in 0..20 {
            let sent = client.send("a", Priority::High, get("/").deadline(ms(15))).await;
            failed.push(sent.map(drop).map_err(|error| error.kind()));
        }
        let prompt = client.send("b", Priority::High, get("/").deadline(ms(10_000))).await;
        std::fs::write(&pipe, "late").unwrap();
        let late = client.send("a", Priority::High, get("/").deadline(ms(10_000))).await;
        (failed, prompt.map(drop), late.map(drop))
    });
    // Dropping it would wait for reads that hang.
    runtime.shutdown_background();
    assert_eq!(failed, vec![Err(ErrorKind::Credential); 20]);
    prompt.unwrap();
    late.unwrap();
    let calls = transport.calls();
    let secrets: Vec<_> = calls.iter().map(|call| call.header("authorization").unwrap()).collect();
    assert_eq!(secrets, ["Bearer prompt", "Bearer late"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn request_with_empty_secret_is_not_sent() {
    let folder = crate::support::folder("empty-secret");
    let file = folder.join("key");
    let transport = transport_with_delay(Duration::ZERO);
    let client = bearer(&transport).tenant(tenant(&format!("file:{}", file.display()))).build().await.unwrap();
    std::fs::write(&file, "\n").unwrap();
    let error = client.send("a", Priority::Normal, get("/")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Credential, Delivery::NotSent));
    assert!(error.to_string().contains("key is empty"), "{error}");
    std::fs::write(&file, "prompt\n").unwrap();
    client.send("a", Priority::Normal, get("/")).await.unwrap();
    let calls = transport.calls();
    assert_eq!((calls.len(), calls[0].header("authorization")), (1, Some("Bearer prompt")));
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(start_paused = true)]
async fn departed_callers_end_no_call_of_a_resolver() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let resolver = move |_: String| {
        counted.fetch_add(1, SeqCst);
        std::future::pending::<Result<SecretString, BoxError>>()
    };
    let builder = bearer(&transport_with_delay(Duration::ZERO)).credential_resolver("keys", resolver);
    let client = builder.tenant(tenant("keys:a")).build().await.unwrap();
    let request = || get("/").deadline(ms(5000));
    let mut departing = Vec::new();
    for _ in 0..201 {
        departing.push(spawn(&client, Priority::Normal, request()));
        tokio::task::yield_now().await;
    }
    let patient = spawn(&client, Priority::Normal, request());
    for send in departing {
        tokio::time::sleep(ms(1)).await;
        send.abort();
    }
    let error = patient.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Credential, Delivery::NotSent));
    assert_eq!(calls.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn hanging_resolver_is_asked_again_after_a_minute() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let resolver = move |_: String| {
        let number = counted.fetch_add(1, SeqCst);
        async move {
            if number == 0 {
                std::future::pending::<()>().await;
            }
            Ok::<_, BoxError>(SecretString::from("key"))
        }
    };
    let builder = bearer(&transport_with_delay(Duration::ZERO)).credential_resolver("keys", resolver);
    let client = builder.tenant(tenant("keys:a")).build().await.unwrap();
    let request = || get("/").deadline(ms(300_000));
    let began = now();
    let error = client.send("a", Priority::Normal, request()).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Credential, Delivery::NotSent));
    assert!(error.to_string().contains("the credential resolver keys did not answer within 60 s"), "{error}");
    assert!((60_000..=60_002).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    assert_eq!(client.send("a", Priority::Normal, request()).await.unwrap().status(), 200);
    assert_eq!(calls.load(SeqCst), 2);
}

/// A token source may have replaced a refresh token when its caller gives up.
#[tokio::test(start_paused = true)]
async fn departed_callers_lose_no_token_of_a_source() {
    let stored = Arc::new(AtomicUsize::new(0));
    let counted = stored.clone();
    let source = move |_: Tenant| {
        let stored = counted.clone();
        async move {
            tokio::time::sleep(ms(100)).await;
            Ok::<_, BoxError>(Token::new(format!("token-{}", stored.fetch_add(1, SeqCst)), None))
        }
    };
    let transport = transport_with_delay(Duration::ZERO);
    let builder = bearer(&transport).token_source("v", source).tenant(TenantEntry::new("a", "v"));
    let client = builder.tenant(TenantEntry::new("b", "v")).build().await.unwrap();
    let hurried = || get("/").deadline(ms(50));
    let error = client.send("a", Priority::Normal, hurried()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Credential);
    assert_eq!(client.send("a", Priority::Normal, get("/")).await.unwrap().status(), 200);
    assert_eq!(transport.calls()[0].header("authorization"), Some("Bearer token-0"));

    client.send("b", Priority::Normal, hurried()).await.unwrap_err();
    assert!(client.shutdown(ms(1000)).await);
    assert_eq!(stored.load(SeqCst), 2, "the shutdown has waited for it");
}

#[tokio::test(start_paused = true)]
async fn panic_of_the_programs_code_fails_its_request_alone() {
    let entry = vendor(&[]).replace("none", "bearer");
    let entries = ["sourced", "signed", "classified"].map(|name| entry.replace("s.v]", &format!("s.{name}]")));
    // Each takes a part of a text that is shorter.
    let builder = bearer(&transport_with_delay(Duration::ZERO))
        .vendors_toml(entries.concat())
        .credential_resolver("fine", |_: String| async { Ok(SecretString::from("key")) })
        .credential_resolver("at_once", |key: String| {
            let secret = SecretString::from(&key[100..]);
            async move { Ok::<_, BoxError>(secret) }
        })
        .credential_resolver("later", |key: String| async move {
            tokio::task::yield_now().await;
            Ok::<_, BoxError>(SecretString::from(&key[100..]))
        })
        .token_source("sourced", |tenant: Tenant| async move { Ok(Token::new(&tenant.id[100..], None)) })
        .signer("signed", |parts: &mut SigningParts<'_>, _: Option<&SecretString>, _: SystemTime| {
            parts.headers.insert("x-signature", parts.url.path()[100..].parse()?);
            Ok(())
        })
        .classifier("classified", |status: StatusCode, _: &HeaderMap| {
            status.as_str()[100..].is_empty().then_some(Class::Transient)
        });
    let builder = builder
        .tenant(TenantEntry::new("at_once", "v").credential("at_once:a"))
        .tenant(TenantEntry::new("later", "v").credential("later:a"))
        .tenant(TenantEntry::new("sourced", "sourced"))
        .tenant(TenantEntry::new("signed", "signed").credential("fine:a"))
        .tenant(TenantEntry::new("classified", "classified").credential("fine:a"));
    let client = builder.build().await.unwrap();
    for (tenant, vendor) in [("at_once", "v"), ("later", "v"), ("sourced", "sourced"), ("signed", "signed")] {
        let error = client.send(tenant, Priority::Normal, Request::get(vendor, "/")).await.unwrap_err();
        assert_eq!((error.kind(), error.delivery()), (ErrorKind::Credential, Delivery::NotSent), "{tenant}: {error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.ends_with("panicked"), "{cause}");
    }
    // Without the classifier's word the status decides.
    let response = client.send("classified", Priority::Normal, Request::get("classified", "/")).await.unwrap();
    assert_eq!(response.status(), 200);
    drop(response);
    assert_idle(&client);
}
