//! A console for operators in the browser: which lanes wait and why, what was given up, what happens now; and, for those who
//! may, pausing and resuming lanes, sending dead letters again and deleting them.
//!
//! It is a service of tower: nest it into a server of your own, or let a [gateway](crate::gateway) serve it below
//! `/~/console/`.
//!
//! ```no_run
//! use integration_client::IntegrationClient;
//! use integration_client::console::Console;
//! use integration_client::gateway::{Gateway, Listen};
//!
//! # async fn run(client: IntegrationClient) -> Result<(), integration_client::Error> {
//! let console = Console::builder(client.clone()).read_only().build();
//! let serving = Gateway::builder(client).console(&console).build().serve(Listen::loopback()).await?;
//! println!("http://{:?}/~/console/ with {:?}", serving.address(), serving.token());
//! # Ok(()) }
//! ```
//!
//! # Who may
//! Whoever has the token of one of the [`[[callers]]`](crate::config) with the right `view` or `operate`; or whom
//! [`ConsoleBuilder::access`] lets in, where the program has a login of its own. The page asks for the token once and keeps a
//! session of 12 hours in a cookie that no script can read; programs send the token as `Authorization: Bearer`.
//!
//! # What it shows
//! No credential, no header, no query and no body: of a dead letter the outline of its request, also where the whole is kept.
//! Texts of tenants and vendors are put into the page as text, and its content security policy runs no script but its own.
//!
//! # The API
//! The page is one user of the JSON below `api/`, which `docs/CONSOLE.md` describes and scripts may use as well.

mod access;
mod answer;
mod call;
mod caller;
mod entry;
mod feed;
mod files;
mod history;
mod lanes;
mod letters;
mod origin;
mod overview;
mod query;
mod recent;
mod reply;
mod sessions;
mod shared;
mod snapshot;
mod stream;

pub use access::Access;
pub use entry::{Console, ConsoleBuilder};
