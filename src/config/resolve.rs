//! The validated vendors, and how a tenant's entry is applied to one of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::credential::CredentialRef;
use super::entry::{LimitEntry, TenantEntry};
use super::format::VendorEntry;
use super::report::{Finding, Messages, Path, Report, Step, at};
use super::vendor::{Overrides, Tenant, Vendor};
use super::{base_url, overlay, suggest, validate};
use crate::{Error, ErrorKind};

/// The name of the environment that a vendor's entry itself describes.
pub(super) const LIVE: &str = "live";

/// The most entries in each table of one tenant. Each entry costs a search for its name in the vendor.
const MAX_OVERRIDES: usize = 256;

/// All vendors, by name and environment. Immutable: a reload replaces the whole value.
#[derive(Debug)]
pub struct Vendors {
    pub(super) by_name: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<Stated>>>,
    pub(super) resolvers: BTreeSet<String>,
}

/// A vendor in one environment: the validated form, and the entry as written, to which tenants' overrides are applied.
#[derive(Debug)]
pub(super) struct Stated {
    pub(super) vendor: Arc<Vendor>,
    pub(super) entry: VendorEntry,
    /// The vendor with overrides applied, keyed by the overrides, so that a thousand tenants with the same share use
    /// one copy. The references are weak so that a variant is freed with its last tenant.
    variants: Mutex<HashMap<String, Weak<Vendor>>>,
}

impl Stated {
    pub(super) fn new(vendor: Vendor, entry: VendorEntry) -> Stated {
        Stated { vendor: Arc::new(vendor), entry, variants: Mutex::new(HashMap::new()) }
    }

    fn variant(&self, overrides: &Overrides, resolvers: &BTreeSet<String>, report: &mut Report) -> Option<Arc<Vendor>> {
        let key = format!("{overrides:?}");
        if let Some(vendor) = self.variants.lock().get(&key).and_then(Weak::upgrade) {
            return Some(vendor);
        }
        // Built outside the lock: validation takes tens of microseconds, and building twice does no harm.
        let vendor = Arc::new(self.build(overrides, resolvers, report)?);
        let mut variants = self.variants.lock();
        if variants.len() == variants.capacity() {
            variants.retain(|_, vendor| vendor.strong_count() > 0);
        }
        variants.insert(key, Arc::downgrade(&vendor));
        Some(vendor)
    }

    fn build(&self, overrides: &Overrides, resolvers: &BTreeSet<String>, report: &mut Report) -> Option<Vendor> {
        let before = report.problems.len();
        let mut entry = self.entry.clone();
        for (name, upper) in &overrides.limits {
            let path = at(&at(&[], "limits"), name.as_str());
            override_by_name(&mut entry, name, upper, path, report);
        }
        for (endpoint, upper) in &overrides.endpoints {
            let path = at(&at(&[], "endpoints"), endpoint.as_str());
            let Some(lower) = entry.endpoints.get_mut(endpoint) else {
                let hint = suggest::hint(endpoint, "endpoints", entry.endpoints.keys().map(String::as_str));
                report.problem(path, format!("the vendor has no endpoint of this name; {hint}"));
                continue;
            };
            for (name, upper) in &upper.limits {
                let path = at(&at(&path, "limits"), name.as_str());
                let names: Vec<String> = lower.limits.iter().filter_map(|limit| limit.name.clone()).collect();
                match lower.limits.iter_mut().find(|limit| limit.name.as_deref() == Some(name)) {
                    Some(lower) => replace(lower, upper, path, report),
                    None => {
                        let hint = suggest::hint(name, "limits", names.iter().map(String::as_str));
                        report.problem(path, format!("endpoint `{endpoint}` has no limit of this name; {hint}"));
                    }
                }
            }
        }
        if report.problems.len() > before {
            return None;
        }
        let (name, environment) = (&self.vendor.name, &self.vendor.environment);
        let mut inner = Report::default();
        let vendor = validate::vendor(name, environment, &entry, resolvers, &mut inner);
        for mut problem in inner.problems {
            // If the tenant named an endpoint's limit without the endpoint, the path must not contain the endpoint
            // either: it points to where the tenant wrote the limit.
            if let [Step::Key(endpoints), Step::Key(endpoint), Step::Key(_), Step::Named(name), ..] = &problem.path[..]
                && endpoints == "endpoints"
                && overrides.limits.contains_key(name)
                && !overrides.endpoints.get(endpoint).is_some_and(|endpoint| endpoint.limits.contains_key(name))
            {
                problem.path.drain(..2);
            }
            // A tenant's limits are a table keyed by name; a vendor's are a list of named tables.
            for step in &mut problem.path {
                if let Step::Named(name) = step {
                    *step = Step::Key(std::mem::take(name));
                }
            }
            report.problems.push(problem);
        }
        let mut vendor = vendor?;
        if let Some(share) = overrides.share {
            let endpoints = vendor.endpoints.iter_mut().flat_map(|endpoint| &mut endpoint.limits);
            for limit in vendor.limits.iter_mut().chain(endpoints) {
                if let Err(message) = validate::share(limit, share) {
                    report.problem(at(&[], "share"), message);
                }
            }
            // A limit of less than one unit has been reported, and holds no cost anyway.
            if report.problems.len() == before {
                validate::check_shared(&vendor, share, report);
            }
        }
        (report.problems.len() == before).then_some(vendor)
    }
}

/// Overrides the vendor's limit `name` or, if no limit for all requests has that name, the only endpoint limit with it.
fn override_by_name(entry: &mut VendorEntry, name: &str, upper: &LimitEntry, path: Path, report: &mut Report) {
    let named = |limit: &LimitEntry| limit.name.as_deref() == Some(name);
    if let Some(lower) = entry.limits.iter_mut().find(|limit| named(limit)) {
        return replace(lower, upper, path, report);
    }
    let mut found: Vec<(&String, &mut LimitEntry)> = entry
        .endpoints
        .iter_mut()
        .flat_map(|(endpoint, entry)| entry.limits.iter_mut().map(move |limit| (endpoint, limit)))
        .filter(|(_, limit)| named(limit))
        .collect();
    if let [(_, lower)] = &mut found[..] {
        return replace(lower, upper, path, report);
    }
    if !found.is_empty() {
        let endpoints: Vec<&str> = found.iter().map(|(endpoint, _)| endpoint.as_str()).collect();
        let message = format!(
            "several endpoints have a limit `{name}` ({}); write endpoints.ENDPOINT.limits.{name}",
            endpoints.join(", ")
        );
        return report.problem(path, message);
    }
    let all = entry.limits.iter().chain(entry.endpoints.values().flat_map(|endpoint| &endpoint.limits));
    let names: Vec<&str> = all.filter_map(|limit| limit.name.as_deref()).collect();
    let hint = suggest::hint(name, "limits", names.iter().copied());
    report.problem(path, format!("the vendor has no limit of this name; {hint}"));
}

fn replace(lower: &mut LimitEntry, upper: &LimitEntry, path: Path, report: &mut Report) {
    if upper.name.is_some() {
        report.problem(at(&path, "name"), "a limit cannot be renamed here; the table's key is its name");
    }
    if upper.scope.is_some() && upper.scope != lower.scope {
        report
            .problem(at(&path, "scope"), "who shares a limit is the vendor's affair; change the scope under [vendors]");
    }
    if lower.scope.as_deref() == Some("vendor") {
        let help = "this limit is shared by all tenants of the vendor; change it under [vendors]";
        report.problem(path, help);
    }
    overlay::limit(lower, upper);
}

impl Vendors {
    /// The vendor `name` in `environment` (`live` unless the entry states others).
    ///
    /// # Errors
    /// `UnknownVendor`, with a suggested name.
    pub fn get(&self, name: &str, environment: &str) -> Result<Arc<Vendor>, Error> {
        self.stated(name, environment)
            .map(|stated| stated.vendor.clone())
            .map_err(|unknown| Error::not_sent(ErrorKind::UnknownVendor, unknown.named))
    }

    /// Every vendor in every environment, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Vendor>> {
        self.by_name.values().flat_map(|environments| environments.values().map(|stated| &stated.vendor))
    }

    /// The vendors' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.by_name.keys().map(|name| &**name)
    }

    /// The tenant at the vendor whose base URL `url` lies below, and the path below that base URL; the longest base URL
    /// wins. `find` looks up the tenant at a vendor: `|vendor| table.find("acme", vendor)`.
    pub fn tenant_for_url<'u>(
        &self,
        url: &'u url::Url,
        find: impl Fn(&str) -> Option<Arc<Tenant>>,
    ) -> Option<(Arc<Tenant>, &'u str)> {
        self.names()
            .filter_map(find)
            .filter_map(|tenant| tenant.path_below_base(url).map(|rest| (tenant.clone(), rest)))
            .min_by_key(|(_, rest)| rest.len())
    }

    /// The vendor that people also search for as `name`.
    fn also_named(&self, name: &str) -> Option<&str> {
        let is_also = |vendor: &Vendor| vendor.also.iter().any(|other| other.eq_ignore_ascii_case(name));
        let mut live = self.by_name.iter().filter_map(|(vendor, environments)| Some((vendor, environments.get(LIVE)?)));
        live.find(|(_, stated)| is_also(&stated.vendor)).map(|(vendor, _)| &**vendor)
    }

    /// The vendor `name` in `environment`; the error says which of the two does not exist, and suggests a name.
    fn stated(&self, name: &str, environment: &str) -> Result<&Arc<Stated>, Unknown> {
        let cut = |text: &str| text.chars().take(128).collect::<String>();
        let Some(environments) = self.by_name.get(name) else {
            let hint = match self.also_named(name) {
                Some(vendor) => format!("its entry is `{vendor}`"),
                None => suggest::hint(name, "vendors", self.names()),
            };
            return Err(Unknown {
                field: "vendor",
                named: format!("vendor {:?} is not configured; {hint}", cut(name)),
                unnamed: format!("this vendor is not configured; {hint}"),
            });
        };
        environments.get(environment).ok_or_else(|| {
            let hint = suggest::hint(environment, "environments", environments.keys().map(|name| &**name));
            Unknown {
                field: "environment",
                named: format!("vendor {:?} has no environment {:?}; {hint}", cut(name), cut(environment)),
                unnamed: format!("vendor {:?} has no such environment; {hint}", cut(name)),
            }
        })
    }
}

/// A vendor or an environment that is not configured.
struct Unknown {
    /// The field of a tenant's entry that is wrong: `vendor` or `environment`.
    field: &'static str,
    /// The message for the calling program, with the name that it asked for.
    named: String,
    /// The message for the author of the entry. It omits the field's value, which may be a secret in the wrong field.
    unnamed: String,
}

/// The tenant that `entry` describes, with every default filled in. Tenants without overrides share their vendor.
///
/// # Errors
/// `UnknownVendor` when there is no such vendor; `Config` for everything else, each problem on a line of its own.
///
/// ```
/// use integration_client::config::{Config, Sources, TenantEntry, resolve_tenant};
///
/// let config = Config::load(&Sources::new(), 1)?;
/// let error = resolve_tenant(config.vendors(), &TenantEntry::new("acme", "shopify")).unwrap_err();
/// assert!(error.to_string().contains("`shop` has no value"));
/// # Ok::<(), integration_client::Error>(())
/// ```
pub fn resolve_tenant(vendors: &Vendors, entry: &TenantEntry) -> Result<Tenant, Error> {
    let environment = entry.environment.as_deref().unwrap_or(LIVE);
    if let Err(unknown) = vendors.stated(&entry.vendor, environment) {
        return Err(Error::not_sent(ErrorKind::UnknownVendor, unknown.named));
    }
    let mut report = Report::default();
    resolve(vendors, entry, &mut report).ok_or_else(|| {
        let mut messages = Messages::default();
        let id: String = entry.id.chars().take(128).flat_map(char::escape_debug).collect();
        for problem in &report.problems {
            let text = messages.place(&[], problem);
            messages.push(Finding::plain(format!("tenant `{id}` at vendor `{}`: {text}", entry.vendor)));
        }
        messages.into_error()
    })
}

/// As [`resolve_tenant`], but adds problems to `report`, each with its path in the entry.
pub(super) fn resolve(vendors: &Vendors, entry: &TenantEntry, report: &mut Report) -> Option<Tenant> {
    let before = report.problems.len();
    let mut id = |field: &str, what: &str, text: &str| {
        if let Err(message) = validate::check_id(what, text) {
            report.problem(at(&[], field), message);
        }
    };
    id("id", "a tenant's id", &entry.id);
    id("account", "an account", entry.account.as_deref().unwrap_or(&entry.id));
    let credential = entry.credential.as_deref().and_then(|text| {
        CredentialRef::parse(text, &vendors.resolvers)
            .map_err(|message| report.problem(at(&[], "credential"), message))
            .ok()
    });
    let secret_headers = validate::secret_headers(&entry.secret_headers, &vendors.resolvers, report);
    let weight = entry.weight.unwrap_or(1);
    if !(1..=1000).contains(&weight) {
        report.problem(at(&[], "weight"), "this is out of range: a weight is 1 to 1000");
    }
    let overridden = [entry.limits.len(), entry.endpoints.len(), entry.vars.len()];
    let overridden = overridden.into_iter().chain(entry.endpoints.values().map(|endpoint| endpoint.limits.len()));
    if overridden.max() > Some(MAX_OVERRIDES) {
        report.problem(vec![], format!("more than {MAX_OVERRIDES} variables, limits or endpoints in one tenant"));
        return None;
    }
    let bad_share = entry.share.is_some() && {
        let problems = report.problems.len();
        validate::fraction(entry.share, 1.0, at(&[], "share"), report);
        report.problems.len() > problems
    };
    if let Some(Err(message)) = entry.client_certificate.as_deref().map(validate::check_file) {
        report.problem(at(&[], "client_certificate"), message);
    }
    let environment = entry.environment.as_deref().unwrap_or(LIVE);
    let stated = vendors
        .stated(&entry.vendor, environment)
        .map_err(|unknown| report.problem(at(&[], unknown.field), unknown.unnamed))
        .ok()?;
    let of_all = &stated.vendor;
    validate::taken_headers(&entry.secret_headers, (&of_all.auth, &of_all.idempotency, &[]), report);
    validate::too_many_in_all(&secret_headers, &of_all.secret_headers, report);
    let token_url = entry.oauth.as_ref().and(stated.entry.oauth.as_ref()).and_then(|oauth| oauth.token_url.as_deref());
    variables(&stated.vendor, token_url, entry, report);
    if entry.oauth.is_some() && entry.credential.is_some() {
        report.problem(at(&[], "credential"), "`oauth` gets the credential; remove one of the two");
    }
    let oauth = entry.oauth.as_ref().and_then(|own| {
        let missing = base_url::variables(token_url.unwrap_or_default());
        if missing.iter().any(|name| !entry.vars.contains_key(*name)) {
            // `variables` above has reported this.
            return None;
        }
        validate::tenant_oauth(stated.entry.oauth.as_ref(), own, &entry.vars, &vendors.resolvers, report)
    });
    let share = entry.share.filter(|share| *share < 1.0 && !bad_share);
    let plain = entry.limits.is_empty() && entry.endpoints.is_empty() && share.is_none();
    let (vendor, overrides) = if plain {
        (stated.vendor.clone(), None)
    } else {
        let overrides = Overrides { limits: entry.limits.clone(), endpoints: entry.endpoints.clone(), share };
        (stated.variant(&overrides, &vendors.resolvers, report)?, Some(Arc::new(overrides)))
    };
    if report.problems.len() > before {
        return None;
    }
    let id: Arc<str> = entry.id.as_str().into();
    let account = entry.account.as_deref().filter(|account| **account != *id).map_or_else(|| id.clone(), Into::into);
    Some(Tenant {
        id,
        vendor,
        account,
        credential,
        oauth: oauth.map(Arc::new),
        secret_headers,
        variables: entry.vars.clone(),
        weight: u32::try_from(weight).unwrap_or(1),
        client_certificate: entry.client_certificate.clone(),
        overrides,
    })
}

/// Checks that the tenant states a valid value for each variable of the vendor's URLs, and no others. `token_url` is
/// the vendor's if the tenant uses OAuth.
fn variables(vendor: &Vendor, token_url: Option<&str>, entry: &TenantEntry, report: &mut Report) {
    let path = at(&[], "vars");
    let mut wanted = base_url::variables(&vendor.base_url);
    wanted.extend(token_url.map(base_url::variables).unwrap_or_default());
    for name in entry.vars.keys().filter(|name| !wanted.contains(&name.as_str())) {
        let hint = suggest::hint(name, "variables", wanted.iter().copied());
        report.problem(
            at(&path, name.as_str()),
            format!("the base URL of `{}` has no such variable; {hint}", vendor.name),
        );
    }
    let missing: Vec<&&str> = wanted.iter().filter(|name| !entry.vars.contains_key(**name)).collect();
    for name in &missing {
        let help = format!("the base URL's variable `{name}` has no value; add `vars = {{ {name} = \"…\" }}`");
        report.problem(at(&path, **name), help);
    }
    if missing.is_empty()
        && !wanted.is_empty()
        && let Err(message) = base_url::fill(&vendor.base_url, &entry.vars)
    {
        let culprit = wanted.iter().find(|name| message.contains(&format!("`{name}`")));
        report.problem(culprit.map_or(path.clone(), |name| at(&path, *name)), message);
    }
}
