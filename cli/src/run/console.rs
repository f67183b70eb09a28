//! The console for operators that `run --console` serves while the run lasts.

use std::net::SocketAddr;

use integration_client::IntegrationClient;
use integration_client::console::Console;
use integration_client::gateway::{Gateway, Listen, Serving};

use crate::notes;
use crate::output::Failure;

/// Serves the console at `address`, and prints its URL and the token that it asks for.
pub(super) async fn serve(address: Option<SocketAddr>, client: &IntegrationClient) -> Result<Option<Serving>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let console = Console::builder(client.clone()).read_only().build();
    let gateway = Gateway::builder(client.clone()).without_sending().console(&console).build();
    let serving = gateway.serve(Listen::tcp(address)).await?;
    let at = serving.address().unwrap_or(address);
    // Printed with --quiet too: nobody can log in without the token.
    notes::say(&match serving.token() {
        Some(token) => format!("run: console: http://{at}/~/console/ (token: {token})"),
        None => format!("run: console: http://{at}/~/console/ (token: one of [[callers]] with the right `view`)"),
    });
    Ok(Some(serving))
}
