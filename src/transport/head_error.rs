//! What an error before the response's headers says: whether the request may have left, and why it failed.

use std::error::Error as _;

use super::addresses::PrivateAddress;
use super::cause::Cause;
use super::{Sent, TransportError, tls};
use crate::error::ErrorKind;

/// Converts an error. No other place converts reqwest's errors before the response's headers.
pub(super) fn head_error(error: reqwest::Error) -> TransportError {
    let error = error.without_url();
    let (sent, kind, message) = classify(&error);
    let closing = message == CLOSING;
    TransportError::new(sent, kind, message).on_closing_connection(closing).with_source(Cause::of(&error))
}

fn classify(error: &reqwest::Error) -> (Sent, ErrorKind, &'static str) {
    if error.is_builder() {
        return (Sent::NotSent, ErrorKind::InvalidRequest, "the request is not valid HTTP");
    }
    // This comes before all questions that look at the whole chain of causes: what a request body's stream says of its own
    // connection says nothing about the vendor's.
    if let Some(cause) = hyper_error(error).filter(|cause| cause.is_user()) {
        return match lost_its_connection(cause) {
            true => (Sent::MaybeSent, ErrorKind::Protocol, BROKEN),
            false => (Sent::MaybeSent, ErrorKind::InvalidRequest, "the request body's stream failed"),
        };
    }
    if error.is_connect() {
        return match tls::lasting_failure(error) {
            _ if is_private(error) => (Sent::NotSent, ErrorKind::Config, PrivateAddress::MESSAGE),
            Some(message) => (Sent::NotSent, ErrorKind::Tls, message),
            None => (Sent::NotSent, ErrorKind::Connect, connect_message(error)),
        };
    }
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<h2::Error>() {
            if let Some(message) = not_processed(cause) {
                return (Sent::Unprocessed, ErrorKind::Protocol, message);
            }
        } else if let Some(cause) = cause.downcast_ref::<hyper::Error>() {
            if cause.is_canceled() {
                // hyper returns this error only together with a request of which it has written nothing.
                return (Sent::NotSent, ErrorKind::Protocol, "the connection closed before the request was written");
            }
            if cause.is_parse_too_large() {
                return (Sent::MaybeSent, ErrorKind::ResponseTooLarge, "the response headers are too large");
            }
            if cause.is_parse() {
                return (Sent::MaybeSent, ErrorKind::Protocol, "the answer is not HTTP");
            }
        }
        source = cause.source();
    }
    match error.source() {
        Some(cause) if found_no_connection(cause) => {
            (Sent::NotSent, ErrorKind::Protocol, "the connection closed before the request got it")
        }
        _ => (Sent::MaybeSent, ErrorKind::Protocol, BROKEN),
    }
}

/// hyper's own error, without what it was caused by.
fn hyper_error(error: &reqwest::Error) -> Option<&hyper::Error> {
    std::iter::successors(error.source(), |cause| (*cause).source()).find_map(|cause| cause.downcast_ref())
}

/// Whether hyper dropped a request when its HTTP/2 connection ended: the request was the first of those that waited for a
/// free stream. Its head may have been written just before. hyper returns an error of the caller then, of which the texts
/// alone tell the cause.
fn lost_its_connection(cause: &hyper::Error) -> bool {
    cause.to_string() == "dispatch task is gone"
        && cause.source().is_some_and(|why| why.to_string() == "runtime dropped the dispatch task")
}

/// Whether the pool of connections gave up before the request had one: another request was making an HTTP/2 connection
/// to the host, and this one waited for a connection that had closed by then. hyper-util shows in the text of its error
/// alone that it canceled the request, which it does only if nothing of the request was written: in this case, and if a
/// connection returns a request (then hyper's own error is the cause).
fn found_no_connection(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.to_string() == "client error (Canceled)"
}

fn connect_message(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "no connection within the connect timeout"
    } else if error.is_dns() {
        "the host name cannot be resolved"
    } else {
        "no connection could be made"
    }
}

fn is_private(error: &reqwest::Error) -> bool {
    std::iter::successors(error.source(), |cause| (*cause).source()).any(|cause| cause.is::<PrivateAddress>())
}

const BROKEN: &str = "the connection broke before the response";
const REFUSED: &str = "the vendor refused the HTTP/2 stream unprocessed";
const DISOWNED: &str = "the vendor ended the HTTP/2 connection with an error, before it processed the stream";
const CLOSING: &str = "the vendor closed the HTTP/2 connection before it processed the stream";

/// Describes how the vendor said that it did not process a stream, if it did.
///
/// RFC 9113 has two ways: RST_STREAM with REFUSED_STREAM, and GOAWAY for the streams above the last one that it names.
/// The second promise holds for every error code (section 6.8). h2 reports a GOAWAY from the vendor as the error of
/// exactly those streams; the other streams go on, and fail with the connection if it ends before they do. A reset that
/// hyper sent itself says nothing: it takes the code from the error of a request body's stream.
fn not_processed(error: &h2::Error) -> Option<&'static str> {
    match error.reason() {
        Some(h2::Reason::REFUSED_STREAM) if error.is_reset() && error.is_remote() => Some(REFUSED),
        Some(h2::Reason::NO_ERROR) if error.is_go_away() && error.is_remote() => Some(CLOSING),
        Some(_) if error.is_go_away() && error.is_remote() => Some(DISOWNED),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
