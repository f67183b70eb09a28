#![forbid(unsafe_code)]
pub mod clock;
pub mod config;
#[allow(dead_code)]
mod engine;
mod error;
mod request;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transport;

pub use error::{Delivery, Error, ErrorKind};
pub use request::{Body, Method, Request};
