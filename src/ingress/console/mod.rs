//! A console for operators in the browser. It shows which lanes wait and why, which requests were given up, and what
//! happens now. Users with the right to operate can pause and resume lanes, send dead letters again and delete them.
//!
//! The console is a tower service: nest it into a server of your own, or let a [gateway](crate::gateway) serve it below
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
//! # Access
//! A user needs the token of one of the [`[[callers]]`](crate::config) with the right `view` or `operate`. If the
//! program has a login of its own, [`ConsoleBuilder::access`] decides who may do what instead. The page asks for the
//! token once and keeps a session of 12 hours in a cookie that no script can read; programs send the token as
//! `Authorization: Bearer`.
//!
//! # What it shows
//! The console shows no credential, no header, no query and no body. Of a dead letter it shows an outline of the
//! request, even if the whole request is kept. Texts of tenants and vendors are put into the page as text, and the
//! page's content security policy allows no scripts but the page's own.
//!
//! # The API
//! The page uses the JSON API below `api/`, which `docs/CONSOLE.md` describes and which scripts may use as well.

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
