//! Validates `[vendors.NAME.oauth]` and a tenant's `oauth`, which together must state what the grant needs.

use std::collections::{BTreeMap, BTreeSet};

use super::fields::choice;
use crate::config::credential::CredentialRef;
use crate::config::entry::OAuthEntry;
use crate::config::format::VendorOAuthEntry;
use crate::config::oauth::{ClientAuth, JwtAlgorithm, OAuth, OAuthGrant};
use crate::config::report::{Path, Report, Step, at};
use crate::config::{base_url, suggest};

const MAX_SCOPES: usize = 256;
const LONGEST: usize = 2048;
/// Parameters of the token request that the grant sets.
const FIXED: [&str; 7] =
    ["grant_type", "scope", "client_id", "client_secret", "refresh_token", "assertion", "client_assertion"];

/// Reports the problems of a vendor's `oauth` table, which holds for all tenants of that vendor.
pub(in crate::config) fn vendor_oauth(entry: Option<&VendorOAuthEntry>, allow_http: bool, report: &mut Report) {
    let Some(entry) = entry else { return };
    let path = at(&[], "oauth");
    match entry.grant.as_deref() {
        None => report
            .problem(path.clone(), "`grant` is missing: refresh_token, client_credentials, jwt_bearer or github_app"),
        Some(grant) if OAuthGrant::parse(grant).is_none() => {
            let message = suggest::unknown("grant", grant, "grants", OAuthGrant::NAMES.iter().copied());
            report.problem(at(&path, "grant"), message);
        }
        Some(_) => {}
    }
    match entry.token_url.as_deref() {
        None => report.problem(path.clone(), "`token_url` is missing: where tokens are issued"),
        Some(url) => {
            if let Err(message) = base_url::check(url, allow_http) {
                let message = message.replace("the base URL", "the token URL").replace("a base URL", "a token URL");
                report.problem(at(&path, "token_url"), message);
            }
        }
    }
    let (names, parse) = (ClientAuth::NAMES, ClientAuth::parse);
    choice(entry.client_auth.as_deref(), "client_auth", names, parse, ClientAuth::Basic, &path, report);
    let (names, parse) = (JwtAlgorithm::NAMES, JwtAlgorithm::parse);
    choice(entry.algorithm.as_deref(), "algorithm", names, parse, JwtAlgorithm::Rs256, &path, report);
    let scopes = entry.scopes.as_deref().unwrap_or_default();
    let fine = |scope: &String| {
        (1..=LONGEST).contains(&scope.len()) && scope.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
    };
    if scopes.len() > MAX_SCOPES {
        report.problem(at(&path, "scopes"), format!("more than {MAX_SCOPES} scopes"));
    }
    if let Some(index) = scopes.iter().position(|scope| !fine(scope)) {
        report.problem(
            at(&at(&path, "scopes"), Step::Index(index)),
            "a scope is visible ASCII without a space, `\"` or `\\`",
        );
    }
    for (name, value) in entry.params.iter().flatten() {
        let place = at(&at(&path, "params"), name.as_str());
        if FIXED.contains(&name.as_str()) {
            report.problem(place, "the grant sets this parameter; remove it");
        } else if name.is_empty() || name.len() > 64 || value.len() > LONGEST {
            report.problem(place, format!("a parameter has a name of 1 to 64 bytes and a value of at most {LONGEST}"));
        }
    }
}

/// Merges a tenant's `oauth` with its vendor's; `None` if anything is missing or invalid, which is reported.
pub(in crate::config) fn tenant_oauth(
    vendor: Option<&VendorOAuthEntry>,
    tenant: &OAuthEntry,
    variables: &BTreeMap<String, String>,
    resolvers: &BTreeSet<String>,
    report: &mut Report,
) -> Option<OAuth> {
    let path = at(&[], "oauth");
    let Some(vendor) = vendor else {
        report
            .problem(path, "the vendor's entry has no `oauth`: add [vendors.NAME.oauth] with `grant` and `token_url`");
        return None;
    };
    let before = report.problems.len();
    // `vendor_oauth` has checked the vendor's fields.
    let grant = OAuthGrant::parse(vendor.grant.as_deref()?)?;
    let template = vendor.token_url.as_deref()?;
    let token_url = base_url::fill(template, variables).map_err(|why| report.problem(at(&[], "vars"), why)).ok();
    let mut read = |field: &str, own: &Option<String>, common: &Option<String>| {
        let text = own.as_deref().or(common.as_deref())?;
        CredentialRef::parse(text, resolvers).map_err(|message| report.problem(at(&path, field), message)).ok()
    };
    let client_id = read("client_id", &tenant.client_id, &vendor.client_id);
    let client_secret = read("client_secret", &tenant.client_secret, &vendor.client_secret);
    let refresh_token = read("refresh_token", &tenant.refresh_token, &None);
    let private_key = read("private_key", &tenant.private_key, &vendor.private_key);
    let is_jwt = matches!(grant, OAuthGrant::JwtBearer | OAuthGrant::GithubApp);
    needs(&path, "client_id", client_id.is_some(), report);
    match grant {
        OAuthGrant::RefreshToken => needs(&path, "refresh_token", refresh_token.is_some(), report),
        OAuthGrant::ClientCredentials => needs(&path, "client_secret", client_secret.is_some(), report),
        OAuthGrant::JwtBearer | OAuthGrant::GithubApp => needs(&path, "private_key", private_key.is_some(), report),
    }
    if grant != OAuthGrant::RefreshToken && tenant.refresh_token.is_some() {
        report.problem(
            at(&path, "refresh_token"),
            format!("the vendor's grant `{}` takes none; remove it", grant.name()),
        );
    }
    let (key_id, subject) = (tenant.key_id.clone().or(vendor.key_id.clone()), tenant.subject.clone());
    if !is_jwt && subject.is_some() {
        report.problem(at(&path, "subject"), format!("the vendor's grant `{}` takes none; remove it", grant.name()));
    }
    if report.problems.len() > before {
        return None;
    }
    let token_url = token_url?;
    Some(OAuth {
        grant,
        client_auth: vendor.client_auth.as_deref().and_then(ClientAuth::parse).unwrap_or_default(),
        scopes: vendor.scopes.clone().unwrap_or_default(),
        params: vendor.params.clone().unwrap_or_default(),
        client_id: client_id?,
        client_secret,
        refresh_token,
        private_key,
        key_id,
        algorithm: vendor.algorithm.as_deref().and_then(JwtAlgorithm::parse).unwrap_or_default(),
        audience: vendor.audience.clone().unwrap_or_else(|| token_url.to_string()),
        subject,
        rotates: vendor.rotates.unwrap_or(true),
        token_url,
        host_is_chosen: base_url::host_varies(template),
        entry: tenant.clone(),
        replaced: Default::default(),
    })
}

fn needs(path: &Path, field: &str, has: bool, report: &mut Report) {
    // A field that is present but invalid has been reported.
    let is_reported = report.problems.iter().any(|problem| problem.path == at(path, field));
    if !has && !is_reported {
        report.problem(path.clone(), format!("`{field}` is missing: add {field} = \"env:NAME\""));
    }
}
