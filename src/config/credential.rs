//! References to secrets.
//!
//! A file or a database row says where a secret is, never what it is. Some user will paste the secret itself, so a text
//! that does not look like a reference is refused, and no message repeats it.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read;

use secrecy::SecretString;

/// Prefixes of well-known vendors' tokens. Not a scanner: they catch a secret that was pasted into the wrong field.
const SECRETS: [&str; 26] = [
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "sk_",
    "rk_",
    "pk_live_",
    "whsec_",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xapp-",
    "shpat_",
    "shpss_",
    "AKIA",
    "eyJ",
    "pat-",
    "secret_",
    "ntn_",
    "lin_api_",
    "SG.",
    "key-",
    "Bearer",
    "-----BEGIN",
];

/// The largest credential file, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

const HELP: &str = "write where the secret is: \"env:NAME\", \"file:PATH\" or \"RESOLVER:KEY\"";

/// A reference to a secret. The configuration never holds the secret itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CredentialRef {
    /// `env:NAME`: an environment variable.
    Env(String),
    /// `file:PATH`: a file's content, without a final line end.
    File(String),
    /// `NAME:KEY`: a key of a resolver that the application registered.
    Resolver {
        /// The resolver's name.
        resolver: String,
        /// The key to ask the resolver for.
        key: String,
    },
}

impl CredentialRef {
    /// Parses `env:NAME`, `file:PATH` or `RESOLVER:KEY`; `resolvers` are the names that the application registered.
    pub(super) fn parse(text: &str, resolvers: &BTreeSet<String>) -> Result<CredentialRef, String> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(format!("this is not a reference and may be a secret (it is not repeated here); {HELP}"));
        };
        if SECRETS.iter().any(|start| text.starts_with(start) || rest.starts_with(start)) {
            return Err(format!("this looks like the secret itself (it is not repeated here); remove it and {HELP}"));
        }
        if text.len() > 4096 || rest.is_empty() || rest.chars().any(char::is_control) {
            return Err(format!("the reference is empty, too long or holds a control character; {HELP}"));
        }
        match scheme {
            "env" => {
                let mut letters = rest.chars();
                let first = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
                if !first || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_') || rest.len() > 256 {
                    return Err(
                        "after `env:` comes the name of an environment variable (letters, digits, `_`), not a value"
                            .into(),
                    );
                }
                Ok(CredentialRef::Env(rest.to_owned()))
            }
            "file" => Ok(CredentialRef::File(rest.to_owned())),
            _ if resolvers.contains(scheme) => {
                Ok(CredentialRef::Resolver { resolver: scheme.to_owned(), key: rest.to_owned() })
            }
            // The text may be `user:password`, so the part before the colon is not repeated either.
            _ => {
                let known: Vec<&str> = resolvers.iter().map(String::as_str).collect();
                let known =
                    if known.is_empty() { "none is".to_owned() } else { format!("registered: {}", known.join(", ")) };
                Err(format!(
                    "the part before `:` is neither `env` nor `file` nor a registered resolver ({known}); {HELP}"
                ))
            }
        }
    }
}

impl CredentialRef {
    /// Reads the environment variable or the file. Reading a file may block. The error holds no secret. An empty value
    /// is an error too: a vendor would refuse it, and accepted requests would be given up where they can wait.
    pub(crate) fn read(&self) -> Result<SecretString, String> {
        match self {
            CredentialRef::Env(name) => match std::env::var(name) {
                Ok(value) => stated(&format!("env:{name}"), value),
                Err(std::env::VarError::NotPresent) => Err(format!("env:{name} is not set")),
                Err(_) => Err(format!("env:{name} is not UTF-8")),
            },
            CredentialRef::File(path) => read_file(path),
            CredentialRef::Resolver { resolver, .. } => {
                Err(format!("no credential resolver called {resolver} is registered"))
            }
        }
    }
}

fn read_file(path: &str) -> Result<SecretString, String> {
    let unreadable = |error: std::io::Error| format!("file:{path} cannot be read: {error}");
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("file:{path} is larger than {MAX_FILE_BYTES} bytes"));
    }
    // The byte order mark that some editors put before a text in UTF-8. No vendor's secret begins with it.
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    stated(&format!("file:{path}"), text)
}

/// The value, unless it holds nothing but white space.
fn stated(reference: &str, value: String) -> Result<SecretString, String> {
    if value.trim().is_empty() {
        return Err(format!("{reference} is empty: put the secret there"));
    }
    Ok(value.into())
}

impl fmt::Display for CredentialRef {
    /// Writes the reference as in the configuration; it holds no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialRef::Env(name) => write!(f, "env:{name}"),
            CredentialRef::File(path) => write!(f, "file:{path}"),
            CredentialRef::Resolver { resolver, key } => write!(f, "{resolver}:{key}"),
        }
    }
}

#[cfg(test)]
mod tests;
