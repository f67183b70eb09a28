//! Parses the responses of token URLs: leniently where vendors differ, and with errors that quote nothing secret.

use std::time::Duration;

use oauth2::basic::{BasicErrorResponse, BasicErrorResponseType, BasicTokenType};
use oauth2::{AccessToken, RefreshToken, Scope, TokenResponse};
use secrecy::{ExposeSecret, SecretString};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::transport::conceal::{in_base64, places};

/// Longest token, in bytes; a longer one does not fit a header.
const LONGEST: usize = 16 * 1024;
/// Most characters of a vendor's error description that are quoted.
const DESCRIBED: usize = 200;

/// Error codes of temporary failures.
const LATER: [&str; 5] = ["temporarily_unavailable", "server_error", "slow_down", "ratelimited", "internal_error"];
/// Error codes for a grant that is no longer valid, used in place of RFC 6749's `invalid_grant`: Slack
/// (<https://docs.slack.dev/reference/methods/oauth.v2.access>), Zoho (`invalid_code`), GitHub (`bad_refresh_token`).
const DEAD: [&str; 8] = [
    "invalid_refresh_token",
    "bad_refresh_token",
    "token_revoked",
    "token_expired",
    "account_inactive",
    "invalid_code",
    "invalid_auth",
    "access_token_revoked",
];

/// Whether a response is an error although its status is 200, as Slack's (`"ok": false`), Zoho's and GitHub's are: it
/// names an error and holds no token.
pub(super) fn is_error(answer: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Members {
        error: Option<String>,
        access_token: Option<IgnoredAny>,
        token: Option<IgnoredAny>,
    }
    let members: Option<Members> = serde_json::from_slice(answer).ok();
    members.is_some_and(|it| it.error.is_some() && it.access_token.is_none() && it.token.is_none())
}

/// A successful token response. `token_type` is ignored: some vendors omit it, and the entry's `auth` says how to send
/// a token.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Issued {
    access_token: AccessToken,
    #[serde(skip, default = "bearer")]
    token_type: BasicTokenType,
    #[serde(default, deserialize_with = "whole_seconds")]
    expires_in: Option<u64>,
    #[serde(default)]
    refresh_token: Option<RefreshToken>,
    #[serde(skip)]
    scopes: Option<Vec<Scope>>,
}

fn bearer() -> BasicTokenType {
    BasicTokenType::Bearer
}

/// Parses a number, or a number in quotes as some vendors send it; ignores anything else.
fn whole_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    let number =
        value.as_u64().or_else(|| value.as_f64().filter(|seconds| *seconds >= 0.0).map(|seconds| seconds as u64));
    Ok(number.or_else(|| value.as_str()?.trim().parse().ok()))
}

impl TokenResponse for Issued {
    type TokenType = BasicTokenType;

    fn access_token(&self) -> &AccessToken {
        &self.access_token
    }

    fn token_type(&self) -> &BasicTokenType {
        &self.token_type
    }

    fn expires_in(&self) -> Option<Duration> {
        self.expires_in.map(Duration::from_secs)
    }

    fn refresh_token(&self) -> Option<&RefreshToken> {
        self.refresh_token.as_ref().filter(|token| !token.secret().is_empty())
    }

    fn scopes(&self) -> Option<&Vec<Scope>> {
        self.scopes.as_ref()
    }
}

impl Issued {
    /// Builds a response from a token that the vendor returns in another field, as GitHub does.
    pub(super) fn of(access_token: String, expires_in: Duration) -> Issued {
        Issued {
            access_token: AccessToken::new(access_token),
            token_type: bearer(),
            expires_in: Some(expires_in.as_secs()),
            refresh_token: None,
            scopes: None,
        }
    }

    /// Whether both tokens can be sent: 1 byte to 16 KiB of printable ASCII.
    pub(super) fn is_usable(&self) -> bool {
        let fits =
            |text: &str| (1..=LONGEST).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
        fits(self.access_token.secret()) && self.refresh_token().is_none_or(|token| fits(token.secret()))
    }
}

/// Why a token request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A temporary failure, with the wait that the vendor stated, if any.
    Later(String, Option<Duration>),
    /// The request or the configuration is wrong and must be corrected.
    Refused(String),
    /// The grant is no longer valid: the user must grant access again.
    Reconnect(String),
}

impl Trouble {
    /// Adds the wait that the response states, if any. A refusal that states a wait is temporary. A grant that is no
    /// longer valid stays so, however long the client waits.
    pub(super) fn with_wait(self, stated: Option<Duration>) -> Trouble {
        match (self, stated) {
            (Trouble::Later(why, None), stated) => Trouble::Later(why, stated),
            (Trouble::Refused(why), Some(wait)) if !wait.is_zero() => Trouble::Later(why, Some(wait)),
            (trouble, _) => trouble,
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Trouble::Later(why, _) | Trouble::Refused(why) | Trouble::Reconnect(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for Trouble {}

/// The forms in which a token request carries the client's secret and `token`, a refresh token or a JWT. Forms with
/// percent-encoded characters are left out, because [`refusal`] decodes the text that it searches.
pub(super) fn carried(client_id: &str, client_secret: Option<&str>, token: Option<&str>) -> Vec<SecretString> {
    let form = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let mut forms = Vec::new();
    for secret in client_secret.into_iter().chain(token).filter(|secret| !secret.is_empty()) {
        // A form has `+` in place of a space.
        forms.extend([SecretString::from(secret), SecretString::from(secret.replace(' ', "+"))]);
    }
    if let Some(secret) = client_secret.filter(|secret| !secret.is_empty()) {
        // RFC 6749 encodes both parts as in a form before base64; not all libraries of vendors do.
        forms.extend([
            in_base64(&format!("{}:{}", form(client_id), form(secret))),
            in_base64(&format!("{client_id}:{secret}")),
        ]);
    }
    forms
}

/// Classifies an error of RFC 6749. `secrets` are not quoted, even if the vendor's description contains them.
pub(super) fn refusal(error: &BasicErrorResponse, secrets: &[SecretString]) -> Trouble {
    let described = error.error_description().map(|text| {
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(DESCRIBED).collect();
        format!(" ({})", text.trim())
    });
    let code = error.error();
    let code_text: String = code.as_ref().chars().filter(char::is_ascii_graphic).take(64).collect();
    let shown = format!("{code_text}{}", described.unwrap_or_default());
    // Code and description are searched as a whole, because a secret at a cut would be shown in part.
    let whole = error.error_description().map_or("", String::as_str);
    let secrets: Vec<&str> = secrets.iter().map(|secret| secret.expose_secret()).collect();
    let texts: [&str; 3] = [&shown, code.as_ref(), whole];
    let is_secret = texts.iter().any(|text| !places(text, &secrets, false).is_empty());
    let shown = if is_secret { "an error that repeats a secret".to_owned() } else { shown };
    match code {
        BasicErrorResponseType::InvalidGrant => Trouble::Reconnect(shown),
        BasicErrorResponseType::Extension(other) if LATER.contains(&&**other) => Trouble::Later(shown, None),
        BasicErrorResponseType::Extension(other) if DEAD.contains(&&**other) => Trouble::Reconnect(shown),
        _ => Trouble::Refused(shown),
    }
}

#[cfg(test)]
mod tests;
