//! Tokens that expire and are replaced: `cargo run --release --example oauth --features oauth`.
//!
//! The vendor of this program replaces the refresh token with each access token, as Xero, QuickBooks and many others
//! do. Twice it fails between issuing tokens and answering: once while it still accepts the previous refresh token, and
//! once after it has stopped accepting it. The first failure costs nothing. No client can recover from the second: the
//! tenant's user must connect again, and the status says so.

#![allow(clippy::print_stdout, reason = "a program for the command line")]

#[allow(dead_code, reason = "the tests use the rest")]
mod token_vendor;

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use integration_client::config::{OAuthEntry, TenantEntry};
use integration_client::store::Store;
use integration_client::transport::SecretString;
use integration_client::{IntegrationClient, IntegrationClientBuilder, Priority, Request};
use token_vendor::{Rules, TokenVendor, Trouble};

/// The program's store of secrets. It holds the refresh token that the user granted; newer ones are in the client's
/// store.
#[derive(Clone)]
struct Vault(Arc<Mutex<String>>);

impl Vault {
    fn put(&self, refresh_token: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = refresh_token;
    }

    fn get(&self, key: &str) -> String {
        match key {
            "refresh" => self.0.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            other => format!("the {other}"),
        }
    }
}

fn builder(vendor: &TokenVendor, vault: &Vault, store: &Store) -> IntegrationClientBuilder {
    let vault = vault.clone();
    let acme = TenantEntry::new("acme", "books").oauth(OAuthEntry::default().refresh_token("test:refresh"));
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendor.entry("books", "grant = \"refresh_token\""))
        .credential_resolver("test", move |key: String| {
            let secret = vault.get(&key);
            async move { Ok(SecretString::from(secret)) }
        })
        .store(store.clone())
        .tenant(acme)
}

async fn send(client: &IntegrationClient) -> String {
    match client.send("acme", Priority::Normal, Request::get("books", "/invoices")).await {
        Ok(response) => response.status().as_u16().to_string(),
        Err(error) => error.to_string(),
    }
}

fn state(client: &IntegrationClient) -> Result<String, Box<dyn Error>> {
    let token = client.status("acme", "books")?.token;
    Ok(token.map_or("none".to_owned(), |token| format!("{:?}", token.state)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let rules = Rules {
        life: 1800,
        grace: Duration::from_secs(30),
        takes: Duration::ZERO,
        troubles: [Trouble::DiesAfterIssuing].into(),
    };
    let vendor = TokenVendor::start(rules).await?;
    let vault = Vault(Arc::new(Mutex::new("refresh-0".to_owned())));
    let folder = std::env::temp_dir().join(format!("oauth-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    // 32 bytes in base64. Read your own key from the place where you keep your secrets.
    let store = Store::sqlite(folder.join("store.db")).seal_key("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=");

    let client = builder(&vendor, &vault, &store).build().await?;
    println!("the token URL dies after issuing: {}, token {}", send(&client).await, state(&client)?);
    let survived = state(&client)? == "Fresh";

    // A new process, days later: the configuration still names the user's first token, but the store has the newest.
    client.shutdown(Duration::from_secs(5)).await;
    vendor.revoke_access();
    let client = builder(&vendor, &vault, &store).build().await?;
    println!("a new process, with the token of the store: {}, token {}", send(&client).await, state(&client)?);
    let resumed = state(&client)? == "Fresh";

    // Stands for a vendor without a grace period, or for a process that comes back after it.
    client.shutdown(Duration::from_secs(5)).await;
    let granted = vendor.revoke_all();
    let client = builder(&vendor, &vault, &store).build().await?;
    println!("the vendor takes the token no more: {}", send(&client).await);
    println!("token {}", state(&client)?);
    let is_known = state(&client)? == "NeedsReconnect";
    client.shutdown(Duration::from_secs(5)).await;

    // The user connects again, and the program puts the new token in the place that the configuration names.
    vault.put(format!("refresh-{granted}"));
    let client = builder(&vendor, &vault, &store).build().await?;
    println!("connected again: {}, token {}", send(&client).await, state(&client)?);
    let mended = state(&client)? == "Fresh";
    client.shutdown(Duration::from_secs(5)).await;
    std::fs::remove_dir_all(&folder)?;

    let asked = vendor.asked().len();
    println!(
        "oauth: survived={survived} resumed={resumed} reconnect_known={is_known} mended={mended} token_requests={asked}"
    );
    if survived && resumed && is_known && mended { Ok(()) } else { Err("a tenant is locked out".into()) }
}
