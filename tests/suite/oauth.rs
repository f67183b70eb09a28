//! Access tokens by OAuth 2.0, over real sockets or in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

mod expiry;
mod grants;
#[path = "../../examples/oauth/token_vendor.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod token_vendor;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use integration_client::config::{OAuthEntry, TenantEntry};
use integration_client::status::{TokenState, TokenStatus};
use integration_client::store::Store;
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::transport::{ExposeSecret, KeptToken, SecretString, TokenKeeper, TokenOwner};
use integration_client::{
    BoxError, BoxFuture, Delivery, Error, ErrorKind, IntegrationClient, IntegrationClientBuilder, Priority, Request,
};
use rcgen::KeyPair;
use token_vendor::{Rules, TokenVendor, Trouble};

const REFRESH: &str = "grant = \"refresh_token\"";
const CLIENT: &str = "grant = \"client_credentials\"";
const SEAL: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

static RSA: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap());
static EC: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap());

/// The secrets of a test. The test may change the one named `refresh`, which is also named `again`.
#[derive(Clone)]
struct Secrets(Arc<Mutex<String>>);

impl Secrets {
    fn new() -> Secrets {
        Secrets(Arc::new(Mutex::new("refresh-0".to_owned())))
    }

    fn set(&self, refresh: &str) {
        refresh.clone_into(&mut self.0.lock().unwrap());
    }
}

/// A token keeper in memory. Its first `failures` writes fail.
#[derive(Clone, Default)]
struct MemoryKeeper {
    tokens: Arc<Mutex<Vec<KeptToken>>>,
    failures: Arc<AtomicU32>,
}

impl MemoryKeeper {
    fn newest(&self) -> Option<String> {
        self.tokens.lock().unwrap().last().map(|token| token.refresh_token().expose_secret().to_owned())
    }
}

impl TokenKeeper for MemoryKeeper {
    fn keep<'a>(&'a self, _: &'a TokenOwner, token: &'a KeptToken) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Err("the disk is full".into());
            }
            self.tokens.lock().unwrap().push(token.clone());
            Ok(())
        })
    }

    fn load<'a>(&'a self, _: &'a TokenOwner) -> BoxFuture<'a, Result<Option<KeptToken>, BoxError>> {
        Box::pin(async { Ok(self.tokens.lock().unwrap().last().cloned()) })
    }
}

fn rules() -> Rules {
    Rules { life: 3600, grace: Duration::ZERO, takes: Duration::ZERO, troubles: [].into() }
}

fn oauth() -> OAuthEntry {
    OAuthEntry::default().refresh_token("test:refresh")
}

fn builder(vendors: String, secrets: &Secrets) -> IntegrationClientBuilder {
    let secrets = secrets.clone();
    IntegrationClient::builder().without_catalogue().vendors_toml(vendors).credential_resolver(
        "test",
        move |key: String| {
            let secret = match &*key {
                "refresh" | "again" => secrets.0.lock().unwrap().clone(),
                "rsa" => RSA.serialize_pem(),
                "ec" => EC.serialize_pem(),
                other => format!("the {other}&="),
            };
            async move { Ok(SecretString::from(secret)) }
        },
    )
}

fn builder_with_refresh(vendor: &TokenVendor, secrets: &Secrets) -> IntegrationClientBuilder {
    builder(vendor.entry("v", REFRESH), secrets).tenant(TenantEntry::new("a", "v").oauth(oauth()))
}

async fn send(client: &IntegrationClient) -> Result<u16, Error> {
    let response = client.send("a", Priority::Normal, Request::get("v", "/x")).await?;
    Ok(response.status().as_u16())
}

fn token(client: &IntegrationClient) -> TokenStatus {
    client.status("a", "v").unwrap().token.unwrap()
}

fn assert_credential_error(error: &Error) {
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Credential, Delivery::NotSent), "{error}");
    for secret in ["refresh-", "access-", "the secret"] {
        assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
    }
}

#[tokio::test]
async fn fifty_sends_share_one_refresh() {
    let vendor = TokenVendor::start(Rules { takes: Duration::from_millis(100), ..rules() }).await.unwrap();
    let kept = MemoryKeeper::default();
    let client = builder_with_refresh(&vendor, &Secrets::new()).token_keeper(kept.clone()).build().await.unwrap();
    assert_eq!(token(&client).state, TokenState::None);
    let mut sends = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let client = client.clone();
        sends.spawn(async move { send(&client).await });
    }
    while let Some(sent) = sends.join_next().await {
        assert_eq!(sent.unwrap().unwrap(), 200);
    }
    let asked = vendor.asked();
    assert_eq!(asked.len(), 1);
    // Client id and secret are form-encoded before they are joined (RFC 6749, section 2.3.1).
    let basic = base64::engine::general_purpose::STANDARD.encode("the+client%26%3D:the+secret%26%3D");
    assert!(asked[0].head.contains(&format!("authorization: Basic {basic}")), "{:?}", asked[0]);
    assert!(asked[0].form.contains("grant_type=refresh_token&refresh_token=refresh-0"), "{:?}", asked[0]);
    assert_eq!(kept.newest().as_deref(), Some("refresh-1"));
    let status = token(&client);
    assert_eq!(status.state, TokenState::Fresh);
    assert!((3_500..=3_570).contains(&status.fresh_for.unwrap().as_secs()), "{status:?}: 30 s before it expires");
}

#[tokio::test]
async fn refused_tokens_are_refreshed_once() {
    let vendor = TokenVendor::start(rules()).await.unwrap();
    let client = builder(vendor.entry("v", CLIENT), &Secrets::new());
    let client = client.tenant(TenantEntry::new("a", "v").oauth(OAuthEntry::default())).build().await.unwrap();
    assert_eq!(send(&client).await.unwrap(), 200);
    vendor.revoke_access();
    assert_eq!(send(&client).await.unwrap(), 200);
    assert_eq!((vendor.asked().len(), vendor.served()), (2, vec![200, 401, 200]));
    assert!(vendor.asked()[0].form.starts_with("grant_type=client_credentials"));
}

#[tokio::test]
async fn refreshes_use_the_newest_token() {
    let vendor = TokenVendor::start(Rules { life: 1, ..rules() }).await.unwrap();
    let kept = MemoryKeeper::default();
    let client = builder_with_refresh(&vendor, &Secrets::new()).token_keeper(kept.clone()).build().await.unwrap();
    for _ in 0..3 {
        assert_eq!(send(&client).await.unwrap(), 200);
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
    assert_eq!((vendor.asked().len(), kept.newest()), (3, Some("refresh-3".to_owned())));
}

/// The vendor has replaced the refresh token, but its response was lost. Within the vendor's grace period the client
/// asks again with the previous token.
#[tokio::test]
async fn vendor_death_after_issuing_is_survived() {
    let vendor = TokenVendor::start(Rules { grace: Duration::from_secs(60), ..rules() }).await.unwrap();
    vendor.trouble(Trouble::DiesAfterIssuing);
    let client =
        builder_with_refresh(&vendor, &Secrets::new()).token_keeper(MemoryKeeper::default()).build().await.unwrap();
    assert_eq!(send(&client).await.unwrap(), 200);
    assert_eq!(vendor.asked().len(), 2);
}

#[tokio::test]
async fn vendor_without_grace_needs_a_new_grant() {
    let vendor = TokenVendor::start(rules()).await.unwrap();
    vendor.trouble(Trouble::DiesAfterIssuing);
    let secrets = Secrets::new();
    let client = builder_with_refresh(&vendor, &secrets).token_keeper(MemoryKeeper::default()).build().await.unwrap();
    let error = send(&client).await.unwrap_err();
    assert_credential_error(&error);
    assert!(error.to_string().contains("invalid_grant") && error.to_string().contains("connect again"), "{error}");
    let status = token(&client);
    assert_eq!(status.state, TokenState::NeedsReconnect);
    let asked = vendor.asked().len();
    assert_credential_error(&send(&client).await.unwrap_err());
    assert_eq!(vendor.asked().len(), asked, "a grant that is void is not asked for again at once");
    // A new client, because a client uses a resolved secret for a minute.
    secrets.set(&vendor.newest_refresh_token());
    let client = builder_with_refresh(&vendor, &secrets).token_keeper(MemoryKeeper::default()).build().await.unwrap();
    assert_eq!((send(&client).await.unwrap(), token(&client).state), (200, TokenState::Fresh));
}

#[tokio::test]
async fn departed_callers_lose_no_refresh_token() {
    let vendor = TokenVendor::start(Rules { takes: Duration::from_millis(200), ..rules() }).await.unwrap();
    let kept = MemoryKeeper::default();
    let client = builder_with_refresh(&vendor, &Secrets::new()).token_keeper(kept.clone()).build().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(100), send(&client)).await.is_err(), "it goes in the middle");
    client.shutdown(Duration::from_secs(5)).await;
    assert_eq!(kept.newest().as_deref(), Some("refresh-1"), "a shutdown waits for it");
}

#[tokio::test]
async fn unkept_refresh_tokens_are_kept_later() {
    let vendor = TokenVendor::start(rules()).await.unwrap();
    let kept = MemoryKeeper::default();
    kept.failures.store(2, Ordering::SeqCst);
    let client = builder_with_refresh(&vendor, &Secrets::new()).token_keeper(kept.clone()).build().await.unwrap();
    assert_eq!(send(&client).await.unwrap(), 200);
    assert_eq!((kept.newest().as_deref(), token(&client).problem), (Some("refresh-1"), None));

    let (vendor, kept) = (TokenVendor::start(rules()).await.unwrap(), MemoryKeeper::default());
    kept.failures.store(3, Ordering::SeqCst);
    let client = builder_with_refresh(&vendor, &Secrets::new()).token_keeper(kept.clone()).build().await.unwrap();
    assert_eq!(send(&client).await.unwrap(), 200, "the access token is good");
    let status = token(&client);
    assert!(status.problem.as_ref().is_some_and(|why| why.contains("the disk is full")), "{status:?}");
    assert_eq!((kept.newest(), vendor.asked().len()), (None, 1));
    client.shutdown(Duration::from_secs(5)).await;
    assert_eq!((kept.newest().as_deref(), vendor.asked().len()), (Some("refresh-1"), 1), "kept, without a request");
}

#[tokio::test]
async fn vendors_that_replace_tokens_need_a_keeper() {
    let vendor = TokenVendor::start(rules()).await.unwrap();
    let client = builder_with_refresh(&vendor, &Secrets::new()).build().await.unwrap();
    let error = send(&client).await.unwrap_err();
    assert_credential_error(&error);
    assert!(error.to_string().contains("token_keeper") && vendor.asked().is_empty(), "{error}");
    let folder = std::env::temp_dir().join(format!("ic-oauth-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let store = Store::sqlite(folder.join("store.db"));
    let client = builder_with_refresh(&vendor, &Secrets::new()).store(store.clone()).build().await.unwrap();
    let error = send(&client).await.unwrap_err();
    assert!(error.to_string().contains("Store::seal_key") && vendor.asked().is_empty(), "{error}");
    client.shutdown(Duration::from_secs(5)).await;

    // With a seal key the store keeps the token, and another process uses it.
    for asked in 1..=2 {
        let client =
            builder_with_refresh(&vendor, &Secrets::new()).store(store.clone().seal_key(SEAL)).build().await.unwrap();
        assert_eq!((send(&client).await.unwrap(), vendor.asked().len()), (200, asked));
        client.shutdown(Duration::from_secs(5)).await;
    }
    for file in std::fs::read_dir(&folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(8).any(|some| some == b"refresh-"), "it is sealed");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Two processes on one store refresh again and again. A vendor that replaces refresh tokens treats one that is used
/// twice as stolen.
#[tokio::test]
async fn two_processes_use_each_refresh_token_once() {
    let vendor = TokenVendor::start(Rules { takes: Duration::from_millis(50), ..rules() }).await.unwrap();
    let folder = std::env::temp_dir().join(format!("ic-oauth-two-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let store = || Store::sqlite(folder.join("store.db")).seal_key(SEAL);
    let secrets = Secrets::new();
    let one = builder_with_refresh(&vendor, &secrets).store(store()).build().await.unwrap();
    let other = builder_with_refresh(&vendor, &secrets).store(store()).build().await.unwrap();
    for _ in 0..5 {
        // The vendor accepts only the newest access token, so both clients need a new one in every round.
        vendor.revoke_access();
        let (one, other) = tokio::join!(send(&one), send(&other));
        one.unwrap();
        other.unwrap();
    }
    let used = |asked: &token_vendor::Asked| {
        let token = asked.form.split('&').find_map(|pair| pair.strip_prefix("refresh_token="));
        token.unwrap_or_default().to_owned()
    };
    let mut used: Vec<String> = vendor.asked().iter().map(used).collect();
    let asked = used.len();
    used.sort();
    used.dedup();
    assert!(asked >= 10, "{asked}");
    assert_eq!(used.len(), asked, "no refresh token twice");
    assert_eq!((token(&one).problem, token(&other).problem), (None, None));
    for client in [one, other] {
        client.shutdown(Duration::from_secs(5)).await;
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Slack, Zoho and GitHub answer with 200 if a refresh token is invalid.
#[tokio::test]
async fn dead_token_behind_200_is_recognised() {
    for body in [
        "{\"ok\":false,\"error\":\"invalid_refresh_token\"}",
        "{\"error\":\"invalid_code\"}",
        "{\"error\":\"bad_refresh_token\",\"error_description\":\"The refresh token is incorrect or expired.\"}",
    ] {
        let vendor = TokenVendor::start(rules()).await.unwrap();
        vendor.trouble(Trouble::Says(200, body.to_owned()));
        let client =
            builder_with_refresh(&vendor, &Secrets::new()).token_keeper(MemoryKeeper::default()).build().await.unwrap();
        let error = send(&client).await.unwrap_err();
        assert_credential_error(&error);
        assert!(error.to_string().contains("connect again"), "{error}");
        assert_eq!((vendor.asked().len(), token(&client).state), (1, TokenState::NeedsReconnect), "{body}");
    }
    let vendor = TokenVendor::start(rules()).await.unwrap();
    (0..3).for_each(|_| vendor.trouble(Trouble::Says(200, "{\"ok\":false,\"error\":\"ratelimited\"}".to_owned())));
    let client =
        builder_with_refresh(&vendor, &Secrets::new()).token_keeper(MemoryKeeper::default()).build().await.unwrap();
    assert_credential_error(&send(&client).await.unwrap_err());
    assert_eq!(token(&client).state, TokenState::Failing);
}

#[tokio::test]
async fn malformed_token_answers_are_described() {
    let secret = "{\"error\":\"invalid_client\",\"error_description\":\"the secret&= is wrong\"}";
    // The secret begins before the cut of a long description, and ends after it.
    let at_the_cut = secret.replace("the", &format!("{}the", "x".repeat(195)));
    // As the request carries the secret.
    let encoded = base64::engine::general_purpose::STANDARD.encode("the+client%26%3D:the+secret%26%3D");
    let [in_base64, in_percent] = [&*encoded, "the+secret%26%3d"].map(|form| secret.replace("the secret&=", form));
    for (trouble, asked, why) in [
        (Trouble::Says(200, "{\"access_token\":".to_owned()), 3, "no token answer"),
        (Trouble::Says(200, "{\"token_type\":\"bearer\"}".to_owned()), 3, "no token answer"),
        (Trouble::Says(200, "{\"access_token\":\"\"}".to_owned()), 3, "empty"),
        (Trouble::Says(200, "{\"access_token\":\"a\\nb\"}".to_owned()), 3, "no ASCII"),
        (Trouble::Endless, 3, "more than 65536 bytes"),
        (Trouble::Says(503, String::new()), 3, "answered 503"),
        (Trouble::Says(302, String::new()), 1, "not followed"),
        (Trouble::Says(401, "{\"error\":\"invalid_client\"}".to_owned()), 1, "no access token: invalid_client"),
        (Trouble::Says(400, secret.to_owned()), 1, "repeats a secret"),
        (Trouble::Says(400, at_the_cut), 1, "repeats a secret"),
        (Trouble::Says(400, in_base64), 1, "repeats a secret"),
        (Trouble::Says(400, in_percent), 1, "repeats a secret"),
        (Trouble::Says(400, "<html>".to_owned()), 3, "no token answer"),
    ] {
        let vendor = TokenVendor::start(rules()).await.unwrap();
        for _ in 0..asked {
            vendor.trouble(trouble.clone());
        }
        let client = builder(vendor.entry("v", CLIENT), &Secrets::new());
        let client = client.tenant(TenantEntry::new("a", "v").oauth(OAuthEntry::default())).build().await.unwrap();
        let error = send(&client).await.unwrap_err();
        assert_credential_error(&error);
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!((vendor.asked().len(), token(&client).state), (asked, TokenState::Failing), "{why}");
    }
}

#[tokio::test]
async fn lives_of_tokens_are_read_leniently() {
    for (text, least, most) in
        [("\"600\"", 560, 570), ("600.9", 560, 570), ("null", 3_500, 3_570), ("-1", 3_500, 3_570)]
    {
        let vendor = TokenVendor::start(rules()).await.unwrap();
        vendor.trouble(Trouble::Says(200, format!("{{\"access_token\":\"access-0\",\"expires_in\":{text}}}")));
        let client = builder(vendor.entry("v", CLIENT), &Secrets::new());
        let client = client.tenant(TenantEntry::new("a", "v").oauth(OAuthEntry::default())).build().await.unwrap();
        send(&client).await.unwrap();
        let left = token(&client).fresh_for.unwrap().as_secs();
        assert!((least..=most).contains(&left), "{text}: {left}");
    }
}

/// In virtual time: a token is replaced 30 s before it expires; a token URL that hangs is given up after three times 15
/// s; requests during a failure do not ask again.
#[tokio::test(start_paused = true)]
async fn tokens_are_replaced_before_they_expire() {
    let hangs = Arc::new(AtomicU32::new(0));
    let answers = hangs.clone();
    let transport = FakeTransport::new(move |call| match call.path() {
        "/token" if answers.load(Ordering::SeqCst) > 0 => FakeAnswer::stall(),
        "/token" => FakeAnswer::status(200).body("{\"access_token\":\"t\",\"expires_in\":3600}"),
        _ => FakeAnswer::status(200),
    });
    let entry = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"bearer\" }\nunpublished = true\n\
                 [vendors.v.oauth]\ngrant = \"client_credentials\"\ntoken_url = \"https://v.example/token\"\n\
                 client_id = \"test:client\"\nclient_secret = \"test:secret\"\nclient_auth = \"body\"\nscopes = [\"a\", \"b\"]\n\
                 params = { audience = \"https://v.example/\" }\n";
    let client = builder(entry.to_owned(), &Secrets::new()).transport(transport.clone());
    let client = client.tenant(TenantEntry::new("a", "v").oauth(OAuthEntry::default())).build().await.unwrap();
    let asked = || transport.calls().iter().filter(|call| call.path() == "/token").count();
    send(&client).await.unwrap();
    let form = String::from_utf8(transport.calls()[0].body.to_vec()).unwrap();
    for part in
        ["scope=a+b", "client_id=the+client%26%3D", "client_secret=the+secret", "audience=https%3A%2F%2Fv.example%2F"]
    {
        assert!(form.contains(part), "{form}");
    }
    tokio::time::sleep(Duration::from_secs(3_565)).await;
    send(&client).await.unwrap();
    assert_eq!(asked(), 1);
    tokio::time::sleep(Duration::from_secs(6)).await;
    send(&client).await.unwrap();
    assert_eq!(asked(), 2);
    hangs.store(1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_credential_error(&send(&client).await.unwrap_err());
    assert_credential_error(&send(&client).await.unwrap_err());
    assert_eq!((asked(), token(&client).state), (5, TokenState::Failing));
    hangs.store(0, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(send(&client).await.unwrap(), 200);
}

/// The claims of a JWT whose signature `public` confirms.
fn claims(
    jwt: &str,
    algorithm: &'static dyn aws_lc_rs::signature::VerificationAlgorithm,
    public: &[u8],
) -> serde_json::Value {
    let (signed, signature) = jwt.rsplit_once('.').unwrap();
    let key = aws_lc_rs::signature::UnparsedPublicKey::new(algorithm, public);
    key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).expect("the signature is good");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap()).unwrap()
}

#[tokio::test]
async fn jwts_are_signed_and_exchanged() {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256};
    let vendor = TokenVendor::start(rules()).await.unwrap();
    let oauth = "grant = \"jwt_bearer\"\nprivate_key = \"test:rsa\"\nkey_id = \"k1\"\nscopes = [\"read\", \"write\"]\naudience = \"https://aud\"";
    let tenant = TenantEntry::new("a", "v").oauth(OAuthEntry::default().subject("user@acme"));
    let client = builder(vendor.entry("v", oauth), &Secrets::new()).tenant(tenant).build().await.unwrap();
    assert_eq!(send(&client).await.unwrap(), 200);
    let form = vendor.asked()[0].form.clone();
    let jwt = form.split('&').find_map(|pair| pair.strip_prefix("assertion=")).unwrap().to_owned();
    assert!(form.starts_with("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer"), "{form}");
    let found = claims(&jwt, &RSA_PKCS1_2048_8192_SHA256, RSA.public_key_raw());
    assert_eq!(
        (&found["iss"], &found["aud"], &found["sub"], &found["scope"]),
        (&"the client&=".into(), &"https://aud".into(), &"user@acme".into(), &"read write".into())
    );
    assert_eq!(found["exp"].as_u64().unwrap() - found["iat"].as_u64().unwrap(), 240);
    let header = URL_SAFE_NO_PAD.decode(jwt.split_once('.').unwrap().0).unwrap();
    let header: serde_json::Value = serde_json::from_slice(&header).unwrap();
    assert_eq!((&header["alg"], &header["kid"]), (&"RS256".into(), &"k1".into()));

    // For GitHub the JWT authenticates the token request, and the response has names of its own.
    let entry = vendor.entry("v", "grant = \"github_app\"\nprivate_key = \"test:ec\"\nalgorithm = \"ES256\"");
    let entry = entry.replace("/token\"", "/app/installations/{installation}/access_tokens\"");
    let tenant = TenantEntry::new("a", "v").oauth(OAuthEntry::default()).variable("installation", "42");
    let client = builder(entry, &Secrets::new()).tenant(tenant).build().await.unwrap();
    assert_eq!(send(&client).await.unwrap(), 200);
    let head = vendor.asked()[1].head.clone();
    assert!(head.starts_with("POST /app/installations/42/access_tokens "), "{head}");
    let jwt = head.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap();
    let found = claims(jwt, &ECDSA_P256_SHA256_FIXED, EC.public_key_raw());
    assert_eq!(found["iss"], "the client&=");

    let bad = vendor.entry("v", "grant = \"jwt_bearer\"\nprivate_key = \"test:secret\"");
    let tenant = TenantEntry::new("a", "v").oauth(OAuthEntry::default());
    let client = builder(bad, &Secrets::new()).tenant(tenant).build().await.unwrap();
    let error = send(&client).await.unwrap_err();
    assert_credential_error(&error);
    assert!(error.to_string().contains("no PEM of a key for RS256"), "{error}");
}
