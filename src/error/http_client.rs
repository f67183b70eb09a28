//! Errors of reqwest in words, for servers that the operator runs: stores and sources of configuration.

use std::error::Error as _;

/// The error and its root cause, without the URL, which may hold a secret.
pub(crate) fn in_words(error: &reqwest::Error) -> String {
    let what = match error {
        error if error.is_timeout() => "the server does not answer in time",
        error if error.is_connect() => "the server cannot be reached",
        error if error.is_body() || error.is_decode() => "the answer broke off",
        _ => "the server cannot be asked",
    };
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    match cause {
        Some(cause) => format!("{what}: {cause}"),
        None => what.to_owned(),
    }
}
