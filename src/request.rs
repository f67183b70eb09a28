//! A request to a configured vendor.
/// placeholder
#[derive(Debug)]
pub struct Body;
/// placeholder
#[derive(Debug)]
pub struct Request;
