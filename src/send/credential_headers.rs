//! The headers that are known to carry a credential.

use http::HeaderName;

/// Whether headers of this name carry a credential: those of the catalogue's vendors, and others that are well known.
///
/// A list, and no search for words such as `token`: `x-csrf-token`, `sync-token`, `x-atlassian-token` and
/// `x-snowflake-authorization-token-type` carry none, and requests with them have to be stored.
pub(super) fn is_credential(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "access-token"
            | "api-key"
            | "api-token"
            | "apikey"
            | "auth-token"
            | "authorization"
            | "circle-token"
            | "client-secret"
            | "cookie"
            | "dd-api-key"
            | "dd-application-key"
            | "deploy-token"
            | "developer-token"
            | "dhl-api-key"
            | "fastly-key"
            | "job-token"
            | "ocp-apim-subscription-key"
            | "plaid-secret"
            | "private-token"
            | "wm_sec.access_token"
            | "x-access-token"
            | "x-algolia-api-key"
            | "x-amz-access-token"
            | "x-amz-security-token"
            | "x-api-key"
            | "x-api-secret"
            | "x-api-token"
            | "x-apikey"
            | "x-app-token"
            | "x-auth-key"
            | "x-auth-token"
            | "x-authorization"
            | "x-bunq-client-authentication"
            | "x-client-secret"
            | "x-consul-token"
            | "x-figma-token"
            | "x-functions-key"
            | "x-goog-api-key"
            | "x-mbx-apikey"
            | "x-postmark-account-token"
            | "x-postmark-server-token"
            | "x-rapidapi-key"
            | "x-redmine-api-key"
            | "x-riot-token"
            | "x-secret-key"
            | "x-session-token"
            | "x-shopify-access-token"
            | "x-shopify-storefront-access-token"
            | "x-subscription-token"
            | "x-tts-access-token"
            | "x-typesense-api-key"
            | "x-user-token"
            | "x-vault-token"
    )
}

#[cfg(test)]
mod tests;
