#![forbid(unsafe_code)]
pub mod clock;
pub mod config;
mod error;
mod request;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transport;

pub use error::{Delivery, Error, ErrorKind};
pub use request::{Body, Method, Request};
