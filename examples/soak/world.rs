//! The vendors and tenants of a run: the limits that the vendors enforce, and the configurations that state them to the
//! client.
//!
//! One table of limits ([`vendors`]) has three readers: the vendors, which enforce them; the judge, which looks for
//! windows above them; and [`Settings::toml`], which states them to the client. A configuration may state lower limits
//! than the true ones but never higher ones, so no valid configuration excuses a refusal.

use std::fmt::Write;
use std::time::Duration;

use integration_client::config::Scope;
use integration_client::testing::checker::Definition;
use integration_client::testing::{Delay, FakeVendor, HeaderStyle, VendorLimit};

use super::Fallible;

pub(crate) const TENANTS: usize = 6;
pub(crate) const ACCOUNTS: [&str; 3] = ["a", "b", "c"];
/// The most tenants in one account, so that the account's limits are enough for their load.
const MOST_IN_ACCOUNT: usize = 3;
/// No configuration file names this tenant: each program adds it with `tenants().set`. It stays in its account.
pub(crate) const SET_BY_PROGRAM: usize = TENANTS - 1;
/// An exchange ends after this time if it is not answered.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Amount {
    Window(u32, Duration),
    Concurrency(u32),
}

/// A limit as the vendor enforces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limit {
    pub(crate) name: &'static str,
    pub(crate) scope: Scope,
    pub(crate) endpoint: Option<&'static str>,
    pub(crate) amount: Amount,
}

/// A vendor. It has one endpoint, whose paths begin with the endpoint's name; other paths belong to no endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VendorPlan {
    pub(crate) name: &'static str,
    pub(crate) endpoint: &'static str,
    /// Whether the vendor honours idempotency keys: requests with the same key act once.
    pub(crate) takes_keys: bool,
    pub(crate) limits: &'static [Limit],
}

const SECOND: Duration = Duration::from_secs(1);
const TWO_SECONDS: Duration = Duration::from_secs(2);

const fn limit(name: &'static str, scope: Scope, amount: Amount) -> Limit {
    Limit { name, scope, endpoint: None, amount }
}

const fn of_endpoint(name: &'static str, endpoint: &'static str, amount: Amount) -> Limit {
    Limit { name, scope: Scope::Endpoint, endpoint: Some(endpoint), amount }
}

/// Three vendors that cover every scope, windows and concurrency. One of them has limits of each tenant only.
pub(crate) const fn vendors() -> [VendorPlan; 3] {
    const PARCELS: &[Limit] = &[
        limit("per-tenant", Scope::Tenant, Amount::Window(40, TWO_SECONDS)),
        limit("per-account", Scope::Account, Amount::Window(48, TWO_SECONDS)),
        limit("parallel", Scope::Account, Amount::Concurrency(8)),
        limit("overall", Scope::Vendor, Amount::Window(112, TWO_SECONDS)),
        of_endpoint("labels", "labels", Amount::Window(24, TWO_SECONDS)),
    ];
    const MAIL: &[Limit] = &[
        limit("per-tenant", Scope::Tenant, Amount::Window(16, SECOND)),
        limit("parallel", Scope::Account, Amount::Concurrency(12)),
        limit("overall", Scope::Vendor, Amount::Window(64, SECOND)),
    ];
    const LEDGER: &[Limit] = &[
        limit("per-tenant", Scope::Tenant, Amount::Window(24, SECOND)),
        limit("parallel", Scope::Tenant, Amount::Concurrency(8)),
        of_endpoint("entries", "entries", Amount::Window(16, SECOND)),
    ];
    [
        VendorPlan { name: "parcels", endpoint: "labels", takes_keys: true, limits: PARCELS },
        VendorPlan { name: "mail", endpoint: "letters", takes_keys: false, limits: MAIL },
        VendorPlan { name: "ledger", endpoint: "entries", takes_keys: true, limits: LEDGER },
    ]
}

pub(crate) fn tenant(number: usize) -> String {
    format!("t{number}")
}

/// The key by which the vendors know a tenant while it belongs to an account. Each account has its own credentials.
pub(crate) fn key(tenant: usize, account: usize) -> String {
    format!("t{tenant}-{}", ACCOUNTS[account])
}

/// The environment variable that holds a tenant's credential for an account.
pub(crate) fn credential_variable(tenant: usize, account: usize) -> String {
    format!("SOAK_KEY_{tenant}_{account}")
}

impl Limit {
    fn of_vendor(&self) -> VendorLimit {
        let limit = match self.amount {
            Amount::Window(limit, window) => VendorLimit::sliding_window(limit, window),
            Amount::Concurrency(limit) => VendorLimit::concurrency(limit),
        };
        let limit = limit.named(self.name).scope(self.scope);
        self.endpoint.map_or(limit.clone(), |endpoint| limit.endpoint(endpoint))
    }

    /// The definition by which the judge looks for windows above the limit.
    pub(crate) fn definition(&self) -> Definition {
        match self.amount {
            Amount::Window(limit, window) => Definition::SlidingWindow {
                limit: limit.into(),
                window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
                both_ends: false,
            },
            Amount::Concurrency(limit) => Definition::Concurrency { limit: limit.into() },
        }
    }

    fn write(&self, out: &mut String, table: &str, scope: &str, amount: Amount) {
        let _ = writeln!(out, "[[{table}]]\nname = \"{}\"\nscope = \"{scope}\"", self.name);
        let _ = match amount {
            Amount::Concurrency(limit) => writeln!(out, "concurrency = {limit}"),
            Amount::Window(limit, window) => {
                writeln!(out, "algorithm = \"sliding_window\"\nlimit = {limit}\nwindow = \"{}ms\"", window.as_millis())
            }
        };
    }

    fn scope_name(&self) -> &'static str {
        match self.scope {
            Scope::Endpoint => "endpoint",
            Scope::Tenant => "tenant",
            Scope::Account => "account",
            Scope::Vendor => "vendor",
        }
    }
}

impl VendorPlan {
    /// Half of what the vendor allows each tenant.
    fn lowered_per_tenant(&self) -> u32 {
        let stated = self.limits.iter().find(|limit| limit.name == "per-tenant").map(|limit| limit.amount);
        match stated {
            Some(Amount::Window(limit, _) | Amount::Concurrency(limit)) => limit / 2,
            None => 1,
        }
    }

    pub(crate) async fn start(&self, seed: u64) -> std::io::Result<FakeVendor> {
        let service = Delay::fixed(Duration::from_millis(20)).jitter(Duration::from_millis(80));
        let mut builder = FakeVendor::builder()
            .headers(HeaderStyle::Silent)
            .endpoint(self.endpoint, &format!("/{}", self.endpoint))
            .service_time(service)
            .seed(seed);
        for limit in self.limits {
            builder = builder.limit(limit.of_vendor());
        }
        for (number, account) in ACCOUNTS.iter().enumerate() {
            let keys: Vec<String> = (0..TENANTS).map(|tenant| key(tenant, number)).collect();
            builder = builder.account(account, keys.iter().map(String::as_str));
        }
        builder.start().await
    }
}

/// The variable part of the configuration.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Settings {
    /// The account of each tenant: an index into [`ACCOUNTS`].
    pub(crate) account: [usize; TENANTS],
    safety: [f64; 3],
    weight: [u32; TENANTS],
    /// A tenant whose configured limit is below the vendor's.
    lowered: Option<usize>,
    /// Whether the accounts' concurrency limit at `mail` is stated as a limit of the vendor. That is stricter, and
    /// moves all lanes of `mail` to another shard.
    widened: bool,
}

impl Settings {
    pub(crate) fn new() -> Settings {
        Settings {
            account: std::array::from_fn(|tenant| tenant / 2),
            safety: [0.8; 3],
            weight: [1; TENANTS],
            lowered: None,
            widened: false,
        }
    }

    /// Changes something other than the tenants' accounts.
    pub(crate) fn vary(&mut self, random: &mut fastrand::Rng) -> String {
        match random.u32(..4) {
            // A bucket gets no tokens when it grows, and keeps its debt when it shrinks.
            0 => {
                let vendor = random.usize(..3);
                self.safety[vendor] = if self.safety[vendor] < 0.8 { 0.8 } else { 0.7 };
                format!("safety of {} is {}", vendors()[vendor].name, self.safety[vendor])
            }
            1 => {
                let tenant = random.usize(..TENANTS);
                self.weight[tenant] = random.u32(1..5);
                format!("weight of t{tenant} is {}", self.weight[tenant])
            }
            2 => {
                self.lowered = if self.lowered.is_some() { None } else { Some(random.usize(..SET_BY_PROGRAM)) };
                format!("lowered limit: {:?}", self.lowered)
            }
            _ => {
                self.widened = !self.widened;
                format!("mail's concurrency limit is the {}'s", if self.widened { "vendor" } else { "account" })
            }
        }
    }

    /// Moves a tenant to another account, and returns both names. `None` if the account that was drawn is full or is the
    /// tenant's own.
    pub(crate) fn move_tenant(&mut self, random: &mut fastrand::Rng) -> Option<(String, &'static str)> {
        let (tenant, account) = (random.usize(..SET_BY_PROGRAM), random.usize(..ACCOUNTS.len()));
        let held = self.account.iter().filter(|held| **held == account).count();
        if self.account[tenant] == account || held >= MOST_IN_ACCOUNT {
            return None;
        }
        self.account[tenant] = account;
        Some((format!("t{tenant}"), ACCOUNTS[account]))
    }

    /// The configuration file of a program that may use `share` of every limit. `urls` are those of the vendors.
    pub(crate) fn toml(&self, urls: &[String], share: f64) -> String {
        let mut out = String::new();
        for ((vendor, url), safety) in vendors().iter().zip(urls).zip(self.safety) {
            self.write_vendor(&mut out, vendor, url, safety);
        }
        for tenant in 0..SET_BY_PROGRAM {
            for vendor in vendors() {
                let account = self.account[tenant];
                let _ = writeln!(
                    out,
                    "[[tenants]]\nid = \"t{tenant}\"\nvendor = \"{}\"\naccount = \"{}\"\ncredential = \"env:{}\"\n\
                     share = {share:?}\nweight = {}",
                    vendor.name,
                    ACCOUNTS[account],
                    credential_variable(tenant, account),
                    self.weight[tenant],
                );
                if self.lowered == Some(tenant) {
                    let _ = writeln!(out, "[tenants.limits.per-tenant]\nlimit = {}", vendor.lowered_per_tenant());
                }
            }
        }
        out
    }

    fn write_vendor(&self, out: &mut String, vendor: &VendorPlan, url: &str, safety: f64) {
        let name = vendor.name;
        let _ = writeln!(
            out,
            "[vendors.{name}]\nbase_url = \"{url}\"\nauth = {{ scheme = \"bearer\" }}\nsafety = {safety:?}\n\
             connect_timeout = \"1s\"\nmax_transit = \"3s\"\nattempt_timeout = \"{}ms\"\n\
             [vendors.{name}.retry]\nfirst_wait = \"200ms\"\nlongest_wait = \"1s\"\nmax_retries = 20",
            ATTEMPT_TIMEOUT.as_millis()
        );
        if vendor.takes_keys {
            // A step of the wall clock by a day may be the end of a suspension by a day, after which a key that is kept
            // for a day keeps nothing from acting twice, and a request in doubt rightly ends as ambiguous. These vendors
            // keep their keys for longer than all steps of a run together, so the judge accepts no such end.
            let _ = writeln!(out, "[vendors.{name}.idempotency]\nheader = \"idempotency-key\"\nkeeps = \"90d\"");
        }
        for limit in vendor.limits.iter().filter(|limit| limit.endpoint.is_none()) {
            let widened = self.widened && name == "mail" && limit.name == "parallel";
            let scope = if widened { "vendor" } else { limit.scope_name() };
            limit.write(out, &format!("vendors.{name}.limits"), scope, limit.amount);
        }
        let table = format!("vendors.{name}.endpoints.{}", vendor.endpoint);
        let _ = writeln!(out, "[{table}]\npaths = [\"/{}/**\"]", vendor.endpoint);
        for limit in vendor.limits.iter().filter(|limit| limit.endpoint.is_some()) {
            limit.write(out, &format!("{table}.limits"), limit.scope_name(), limit.amount);
        }
    }
}

/// Replaces the file at `path` atomically with `text`.
pub(crate) fn replace_file(path: &std::path::Path, text: &str) -> Fallible<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)?;
    Ok(std::fs::rename(&beside, path)?)
}
