//! Finds the call of a method and a path, and states the right that the call needs. Pure functions.

use http::Method;
use percent_encoding::percent_decode_str;

use super::access::Access;
use super::files::{File, file};

/// A call of the console.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Call {
    /// The page's own path without the slash at its end.
    Slash,
    File(File),
    /// The user who makes the request, and the rights of that user.
    Session,
    Login,
    Logout,
    Overview,
    Lanes,
    Lane(String, String),
    Pause(String, String),
    Resume(String, String),
    Queues,
    Workers,
    Letters,
    Letter(String),
    Redrive,
    Purge,
    Events,
    Vendors,
    Processes,
}

impl Call {
    /// The right that the call needs; `None` if everybody may make the call.
    pub(super) fn needs(&self) -> Option<Access> {
        match self {
            Call::Slash | Call::File(_) | Call::Session | Call::Login | Call::Logout => None,
            Call::Pause(..) | Call::Resume(..) | Call::Redrive | Call::Purge => Some(Access::Operate),
            Call::Overview
            | Call::Lanes
            | Call::Lane(..)
            | Call::Queues
            | Call::Workers
            | Call::Letters
            | Call::Letter(_)
            | Call::Events
            | Call::Vendors
            | Call::Processes => Some(Access::View),
        }
    }
}

/// Why a method and a path name no call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoCall {
    /// No call has this path.
    Path,
    /// The call has other methods: these, in the form of an `Allow` header.
    Method(&'static str),
}

/// Returns the call of a method and a path.
///
/// # Errors
/// No call has this path, or the call has another method.
pub(super) fn call(method: &Method, path: &str) -> Result<Call, NoCall> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let Some(api) = path.strip_prefix("api/") else {
        let found = if path == "." { Some(Call::Slash) } else { file(path).map(Call::File) };
        return only(method, &Method::GET, found.ok_or(NoCall::Path)?);
    };
    let parts: Vec<String> =
        api.split('/').map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned()).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let own = str::to_owned;
    let (wanted, call) = match parts[..] {
        ["session"] => (Method::GET, Call::Session),
        ["login"] => (Method::POST, Call::Login),
        ["logout"] => (Method::POST, Call::Logout),
        ["overview"] => (Method::GET, Call::Overview),
        ["lanes"] => (Method::GET, Call::Lanes),
        ["lanes", tenant, vendor] => (Method::GET, Call::Lane(own(tenant), own(vendor))),
        ["lanes", tenant, vendor, "pause"] => (Method::POST, Call::Pause(own(tenant), own(vendor))),
        ["lanes", tenant, vendor, "resume"] => (Method::POST, Call::Resume(own(tenant), own(vendor))),
        ["queues"] => (Method::GET, Call::Queues),
        ["workers"] => (Method::GET, Call::Workers),
        ["letters"] => (Method::GET, Call::Letters),
        ["letters", "redrive"] => (Method::POST, Call::Redrive),
        ["letters", "purge"] => (Method::POST, Call::Purge),
        ["letters", id] => (Method::GET, Call::Letter(own(id))),
        ["events"] => (Method::GET, Call::Events),
        ["vendors"] => (Method::GET, Call::Vendors),
        ["processes"] => (Method::GET, Call::Processes),
        _ => return Err(NoCall::Path),
    };
    only(method, &wanted, call)
}

fn only(method: &Method, wanted: &Method, call: Call) -> Result<Call, NoCall> {
    let is_get = *wanted == Method::GET;
    if method == wanted || (is_get && *method == Method::HEAD) {
        return Ok(call);
    }
    Err(NoCall::Method(if is_get { "GET, HEAD" } else { "POST" }))
}

#[cfg(test)]
mod tests;
