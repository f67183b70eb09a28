//! Vendors that misbehave on purpose, certificates, and the tables of the documentation.

pub mod fault;
pub mod http2;
pub mod tables;
pub mod tls;
