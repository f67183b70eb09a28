//! What a token URL answers: read leniently where vendors differ, and without a word of what it holds in an error.

use std::time::Duration;

use oauth2::basic::{BasicErrorResponse, BasicErrorResponseType, BasicTokenType};
use oauth2::{AccessToken, RefreshToken, Scope, TokenResponse};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

/// Longer than any token: what is longer does not fit a header.
const LONGEST: usize = 16 * 1024;
/// Characters of a vendor's description that are repeated.
const DESCRIBED: usize = 200;

/// Codes of errors that pass.
const LATER: [&str; 5] = ["temporarily_unavailable", "server_error", "slow_down", "ratelimited", "internal_error"];
/// What vendors call a grant that is worth nothing any more where RFC 6749 has `invalid_grant`: Slack
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

/// The answer is an error though its status is 200, as Slack's (`"ok": false`), Zoho's and GitHub's are: it names an error and has
/// no token.
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

/// A token answer. `token_type` is not asked for: some vendors leave it out, and the entry's `auth` says how a token is sent.
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

/// A number, or one in quotes as some vendors have it; anything else says nothing.
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
    /// A token by another name, as GitHub's.
    pub(super) fn of(access_token: String, expires_in: Duration) -> Issued {
        Issued {
            access_token: AccessToken::new(access_token),
            token_type: bearer(),
            expires_in: Some(expires_in.as_secs()),
            refresh_token: None,
            scopes: None,
        }
    }

    /// Whether both tokens can be used as such.
    pub(super) fn is_usable(&self) -> bool {
        let fits =
            |text: &str| (1..=LONGEST).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
        fits(self.access_token.secret()) && self.refresh_token().is_none_or(|token| fits(token.secret()))
    }
}

/// Why no token came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It may come later; after this wait, if the vendor said so.
    Later(String, Option<Duration>),
    /// Somebody has to mend something.
    Refused(String),
    /// The grant is worth nothing any more: the user must grant again.
    Reconnect(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Trouble::Later(why, _) | Trouble::Refused(why) | Trouble::Reconnect(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for Trouble {}

/// What an error of RFC 6749 means. `secrets` are not repeated, should the vendor repeat them.
pub(super) fn refusal(error: &BasicErrorResponse, secrets: &[&str]) -> Trouble {
    let described = error.error_description().map(|text| {
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(DESCRIBED).collect();
        format!(" ({})", text.trim())
    });
    let code = error.error();
    let code_text: String = code.as_ref().chars().filter(char::is_ascii_graphic).take(64).collect();
    let shown = format!("{code_text}{}", described.unwrap_or_default());
    let is_secret = secrets.iter().any(|secret| !secret.is_empty() && shown.contains(secret));
    let shown = if is_secret { "an error that repeats a secret".to_owned() } else { shown };
    match code {
        BasicErrorResponseType::InvalidGrant => Trouble::Reconnect(shown),
        BasicErrorResponseType::Extension(other) if LATER.contains(&&**other) => Trouble::Later(shown, None),
        BasicErrorResponseType::Extension(other) if DEAD.contains(&&**other) => Trouble::Reconnect(shown),
        _ => Trouble::Refused(shown),
    }
}
