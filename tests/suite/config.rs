//! Configuration through the public API: the shipped catalogue, broken files, a hundred thousand tenants.

#![allow(clippy::panic, reason = "a test that cannot go on says why")]

use std::sync::Arc;
use std::time::Duration;

use integration_client::config::{
    Config, ConfigSource, FileSource, Keep, LimitEntry, LimitKind, OnAmbiguous, Rate, RetryPolicy, Scope, Sources,
    StaticSource, TenantEntry, Throttle, Vendor, resolve_tenant,
};
use integration_client::{Error, ErrorKind};
use proptest::prelude::*;

use crate::support::repository;

const CATALOGUE: &str = include_str!("../../vendors.toml");

/// A valid vendor, for files with an error elsewhere. It has six lines.
const FINE: &str = r#"[vendors.x]
base_url = "https://{shop}.x.example/v1"
[[vendors.x.limits]]
name = "main"
limit = 100
window = "1m"
"#;

fn load(text: &str) -> Result<Config, Error> {
    Config::load(&Sources::new().without_catalogue().file("f.toml", text), 1)
}

fn rate(vendor: &Vendor, name: &str) -> Rate {
    let all = vendor.limits.iter().chain(vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits));
    match all.filter(|limit| &*limit.name == name).map(|limit| limit.kind.clone()).next() {
        Some(LimitKind::Rate(rate)) => rate,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn catalogue_is_valid_with_sources() {
    let config = Config::load(&Sources::new(), 7).unwrap();
    assert_eq!(config.version(), 7);
    assert_eq!(config.warnings(), [""; 0]);
    assert!(config.vendors().names().count() >= 14);
    for vendor in config.vendors().iter() {
        let limits = vendor.limits.iter().chain(vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits));
        for limit in limits {
            assert!(limit.source.is_some(), "{} {}", vendor.name, limit.name);
        }
    }
    let stripe = config.vendor("stripe", "sandbox").unwrap();
    assert_eq!(rate(&stripe, "global").limit, 25);
    assert_eq!(rate(&stripe, "search").limit, 20, "what the environment does not state stays");
    assert_eq!(rate(&config.vendor("stripe", "live").unwrap(), "global").limit, 100);
}

/// The broken files are in fixtures/config/broken. The first lines of each state the expected error: `#! LINE:COLUMN`
/// and `#! FRAGMENT OF THE MESSAGE`.
#[test]
fn broken_files_are_refused_with_position() {
    let folder = repository().join("fixtures/config/broken");
    let (mut count, mut wrong) = (0, Vec::new());
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let mut expected = text.lines().filter_map(|line| line.strip_prefix("#!")).map(str::trim);
        let (place, fragment) = (expected.next().unwrap(), expected.next().unwrap());
        let error = load(&text).expect_err(name);
        let message = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Config, "{name}");
        let found =
            message.lines().any(|line| line.starts_with(&format!("f.toml:{place}: ")) && line.contains(fragment));
        let leaks = |text: &str| ["hunter2", "ghp_abc", "123456789"].iter().any(|secret| text.contains(secret));
        if !found || leaks(&message) || leaks(&format!("{error:?}")) {
            wrong.push(format!("{name}: expected {place} {fragment:?}, got:\n    {message}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 25, "{count} broken files");
}

#[test]
fn errors_read_well() {
    let text = format!("{FINE}burst = 500\nalgoritm = \"x\"\n");
    insta::assert_snapshot!(load(&text).unwrap_err(), @r#"
    f.toml:7:9: vendors.x.limits.main.burst: burst 500 is above the limit 100: no more than the limit can go at once; lower it
    f.toml:8:1: unknown field `algoritm`; did you mean `algorithm`?
    f.toml:8:12: vendors.x.limits.main.algorithm: unknown algorithm; choices: fixed_window, sliding_window, sliding_counter, token_bucket, leaky_bucket, quota, unknown
    "#);
    let text = format!(
        "{FINE}algorithm = \"token_buket\"\nsafety = nan\nburst = 500\n[[tenants]]\nid = \"acme\"\nvendor = \"x\"\n"
    );
    insta::assert_snapshot!(load(&text).unwrap_err(), @r#"
    f.toml:7:13: vendors.x.limits.main.algorithm: unknown algorithm "token_buket"; did you mean `token_bucket`?
    f.toml:8:10: vendors.x.limits.main.safety: this is not a share: it must be above 0 and at most 1, for example 0.8
    f.toml:9:9: vendors.x.limits.main.burst: burst 500 is above the limit 100: no more than the limit can go at once; lower it
    "#);
    let text = format!(
        "{FINE}[[tenants]]\nid = \"acme\"\nvendor = \"x\"\ncredential = \"admin:hunter2\"\nvars = {{ shop = \"evil.com/\" }}\n[tenants.limits.mian]\nlimit = 5\n"
    );
    insta::assert_snapshot!(load(&text).unwrap_err(), @r#"
    f.toml:10:14: tenants[0].credential: the part before `:` is neither `env` nor `file` nor a registered resolver (none is); write where the secret is: "env:NAME", "file:PATH" or "RESOLVER:KEY"
    f.toml:11:17: tenants[0].vars.shop: the value of `shop` may hold letters, digits, `-`, `_` and nothing else, or it could lead to another host
    f.toml:12:17: tenants[0].limits.mian: the vendor has no limit of this name; did you mean `main`?
    "#);
    let config = Config::load(&Sources::new(), 1).unwrap();
    insta::assert_snapshot!(config.vendor("gihtub", "live").unwrap_err(), @r#"vendor "gihtub" is not configured; did you mean `github`?"#);
    insta::assert_snapshot!(config.vendor("stripe", "sandbx").unwrap_err(), @r#"vendor "stripe" has no environment "sandbx"; did you mean `sandbox`?"#);
    insta::assert_snapshot!(config.tenant("acme", "github").unwrap_err(), @r#"tenant "acme" is not configured for vendor "github"; add a [[tenants]] entry, or add it to the client"#);
    let sources = Sources::new().tenants([TenantEntry::new("acme", "github"), TenantEntry::new("bolt", "stripe")]);
    let config = Config::load(&sources, 1).unwrap();
    insta::assert_snapshot!(config.tenant("acne", "github").unwrap_err(), @r#"tenant "acne" is not configured for vendor "github"; did you mean `acme`?"#);
    insta::assert_snapshot!(config.tenant("bolt", "github").unwrap_err(), @r#"tenant "bolt" is not configured for vendor "github"; it is configured for stripe"#);
    insta::assert_snapshot!(config.vendor("github", "live").unwrap().endpoint("serch").unwrap_err(), @r#"vendor `github` has no endpoint "serch"; did you mean `search`?"#);
}

/// A value that cannot be read is reported once. It causes no second error about a missing value, and hides no error of
/// another value.
#[test]
fn syntax_error_hides_no_other_error() {
    let text = "[vendors.v]\nbase_url = 5\nretries = 3\nattempt_timeout = \"soon\"\n[vendors.v.connection]\nproxi = \"x\"\n\
                [[tenants]]\nvendor = \"v\"\nweight = 5000\n[[tenants]]\nid = \"b\"\nvendor = \"v\"\nvars = 7\n";
    insta::assert_snapshot!(load(text).unwrap_err(), @r#"
    f.toml:2:12: invalid type: integer, expected a string
    f.toml:3:1: unknown field `retries`; did you mean `retry`?
    f.toml:4:19: vendors.v.attempt_timeout: this is not a duration; write for example "500ms", "60s", "1h", "24h" or "30d"
    f.toml:6:1: unknown field `proxi`; did you mean `proxy`?
    f.toml:6:9: vendors.v.connection.proxy: this is not a URL (relative URL without a base); write "http://host:port"
    f.toml:7:1: missing field `id`
    f.toml:9:10: tenants[0].weight: this is out of range: a weight is 1 to 1000
    f.toml:13:8: invalid type: integer, expected a table
    "#);
    // The unreadable value is inside a list; the values around it are still checked.
    let text = format!("{FINE}safety = 3.0\n[vendors.x.endpoints.e]\npaths = [\"/a\", 5]\ncosts = {{ points = 0 }}\n");
    insta::assert_snapshot!(load(&text).unwrap_err(), @"
    f.toml:7:10: vendors.x.limits.main.safety: this is not a share: it must be above 0 and at most 1, for example 0.8
    f.toml:9:16: invalid type: integer, expected a string
    f.toml:10:20: vendors.x.endpoints.e.costs.points: this is out of range: a cost is 1 to 4000000000
    ");
    let many: String = (0..200).map(|number| format!("k{number} = 1\n")).collect();
    let error = load(&many).unwrap_err().to_string();
    assert!(error.lines().count() == 21 && error.ends_with("\nand 81 more"), "{error}");
    let findings = Config::check(&Sources::new().without_catalogue().file("f.toml", many)).unwrap_err();
    assert_eq!(findings.last().unwrap().message, "f.toml: there may be more; mend these first");
}

#[test]
fn repeated_limit_hides_no_other_error() {
    let places = |sources: Sources| -> Vec<(usize, String)> {
        let found = Config::check(&sources).unwrap_err();
        found.into_iter().map(|finding| (finding.line, finding.place)).collect()
    };
    let expected = |expected: &[(usize, &str)]| -> Vec<(usize, String)> {
        expected.iter().map(|(line, place)| (*line, (*place).to_owned())).collect()
    };
    let again = "[[vendors.x.limits]]\nname = \"main\"\nlimit = 1\nwindow = \"1s\"\n";
    let sandbox = "[vendors.x.environments.sandbox]\nattempt_timeout = \"soon\"\n";
    let text = format!("{FINE}safety = 3.0\n{again}{sandbox}");
    assert_eq!(
        places(Sources::new().without_catalogue().file("f.toml", text)),
        expected(&[
            (7, "vendors.x.limits.main.safety"),
            (9, "vendors.x.limits[1].name"),
            (13, "vendors.x.environments.sandbox.attempt_timeout"),
        ])
    );
    // An entry that is laid over one of the catalogue.
    let limit = "[[vendors.github.limits]]\nname = \"mine\"\nlimit = 5\nwindow = \"1m\"\n";
    let text = format!("[vendors.github]\nextends = \"catalogue\"\nsafety = 3.0\n{limit}{limit}");
    assert_eq!(
        places(Sources::new().file("f.toml", text)),
        expected(&[(3, "vendors.github.safety"), (9, "vendors.github.limits[1].name")])
    );
}

#[test]
fn uncounted_endpoint_cost_is_warned_of() {
    let text = |unit: &str| {
        format!(
            "[vendors.x]\nbase_url = \"https://x.example\"\nauth = {{ scheme = \"none\" }}\n\
             [[vendors.x.limits]]\nname = \"all\"\nlimit = 100\nwindow = \"1m\"\nalgorithm = \"fixed_window\"\nunit = \"{unit}\"\n\
             [vendors.x.endpoints.e]\npaths = [\"/a\"]\ncosts = {{ points = 5 }}\n"
        )
    };
    let load = |unit| Config::load(&Sources::new().without_catalogue().file("f.toml", text(unit)), 1).unwrap();
    let warnings = load("requests").warnings().to_vec();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("vendors.x.endpoints.e.costs.points: the cost is ignored"), "{warnings:?}");
    assert_eq!(load("points").warnings(), [""; 0]);
}

#[test]
fn user_entry_extends_or_replaces_the_catalogues() {
    let neither = "[vendors.github]\nbase_url = \"https://ghe.example/api/v3\"\nsafety = 3.0\n";
    insta::assert_snapshot!(Config::load(&Sources::new().file("f.toml", neither), 1).unwrap_err(), @r#"
    f.toml:1:10: vendors.github.extends: the catalogue has `github`; this replaces it, limits and dialect included; did you mean `extends = "catalogue"`? To replace it, state `extends = "none"`
    f.toml:3:10: vendors.github.safety: this is not a share: it must be above 0 and at most 1, for example 0.8
    "#);
    let replaced = "[vendors.github]\nextends = \"none\"\nbase_url = \"https://ghe.example/api/v3\"\n";
    let config = Config::load(&Sources::new().file("f.toml", replaced), 1).unwrap();
    let vendor = config.vendor("github", "live").unwrap();
    assert!(vendor.limits.is_empty() && vendor.endpoints.is_empty());
    assert_eq!(config.warnings().len(), 1, "a vendor without limits is worth a warning");

    let extended = "[vendors.github]\nextends = \"catalogue\"\nsafety = 0.5\n\
                    [[vendors.github.endpoints.rest.limits]]\nname = \"rest\"\nlimit = 15000\n";
    let config = Config::load(&Sources::new().file("f.toml", extended), 1).unwrap();
    let vendor = config.vendor("github", "live").unwrap();
    assert_eq!(vendor.base_url, "https://api.github.com");
    let rest = rate(&vendor, "rest");
    assert_eq!((rest.limit, rest.window.as_secs(), rest.safety), (15_000, 3600, 0.5));
    let endpoint = vendor.endpoint("rest").unwrap().1;
    assert!(endpoint.limits[0].source.is_none(), "the catalogue's source does not vouch for the user's figure");
}

#[test]
fn problem_points_at_the_users_file() {
    let text = "[vendors.github]\nextends = \"catalogue\"\n[[vendors.github.endpoints.rest.limits]]\nname = \"rest\"\nlimit = 0\n";
    let error = Config::load(&Sources::new().file("mine.toml", text), 1).unwrap_err().to_string();
    assert!(
        error.starts_with("mine.toml:5:9: vendors.github.endpoints.rest.limits.rest.limit: this is out of range"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn retry_settings_merge_field_by_field() {
    let plain = load(FINE).unwrap().vendor("x", "live").unwrap();
    assert_eq!(plain.retry, RetryPolicy::default());
    assert_eq!((plain.throttle, plain.dead_letters), (Throttle::Adaptive, Keep::Redacted));

    let text = format!(
        r#"{FINE}
[vendors.x.retry]
max_retries = 20
first_wait = "250ms"
longest_wait = "2s"
max_age = "1m"
max_hold = "1h"
on_ambiguous = "resend"
unavailable_is_safe = true
unprocessed_is_safe = false
max_replay_bytes = 0
[vendors.x.environments.sandbox]
throttle = "off"
dead_letters = "whole"
[vendors.x.environments.sandbox.retry]
max_retries = 0
on_ambiguous = "park"
unavailable_is_safe = false
"#
    );
    let config = load(&text).unwrap();
    let live = config.vendor("x", "live").unwrap();
    let mut stated = RetryPolicy::default();
    stated.max_retries = 20;
    stated.first_wait = Duration::from_millis(250);
    stated.longest_wait = Duration::from_secs(2);
    stated.max_age = Some(Duration::from_secs(60));
    stated.max_hold = Duration::from_secs(3600);
    stated.on_ambiguous = OnAmbiguous::Resend;
    stated.unavailable_is_safe = true;
    stated.unprocessed_is_safe = false;
    stated.max_replay_bytes = 0;
    assert_eq!((&live.retry, live.throttle, live.dead_letters), (&stated, Throttle::Adaptive, Keep::Redacted));

    let sandbox = config.vendor("x", "sandbox").unwrap();
    stated.max_retries = 0;
    stated.on_ambiguous = OnAmbiguous::Park;
    stated.unavailable_is_safe = false;
    assert_eq!((&sandbox.retry, sandbox.throttle, sandbox.dead_letters), (&stated, Throttle::Off, Keep::Whole));

    let extended = "[vendors.github]\nextends = \"catalogue\"\nthrottle = \"pace\"\nretry = { max_retries = 2 }\n";
    let config = Config::load(&Sources::new().file("f.toml", extended), 1).unwrap();
    let github = config.vendor("github", "live").unwrap();
    assert_eq!((github.retry.max_retries, github.throttle), (2, Throttle::Pace));
}

#[test]
fn tenants_override_limits_and_take_a_share() {
    let config = Config::load(&Sources::new(), 1).unwrap();
    let entry = TenantEntry::new("acme", "github").limit("rest", 15_000).share(0.5).account("acme-org").weight(3);
    let tenant = resolve_tenant(config.vendors(), &entry).unwrap();
    assert_eq!(rate(&tenant.vendor, "rest").limit, 7_500);
    assert_eq!(rate(&tenant.vendor, "search").limit, 15);
    assert_eq!((&*tenant.account, tenant.weight), ("acme-org", 3));
    assert_eq!(resolve_tenant(config.vendors(), &tenant.entry()).unwrap(), tenant, "an entry comes back as it was");

    let other =
        resolve_tenant(config.vendors(), &TenantEntry::new("b", "github").limit("rest", 15_000).share(0.5)).unwrap();
    assert!(Arc::ptr_eq(&other.vendor, &tenant.vendor), "equal overrides share one vendor");

    let starved = TenantEntry::new("acme", "slack").share(0.01);
    let error = resolve_tenant(config.vendors(), &starved).unwrap_err().to_string();
    assert!(error.contains("less than one unit"), "{error}");

    let by_endpoint = TenantEntry::new("a", "github").override_endpoint_limit(
        "search",
        "search",
        LimitEntry::default().limit(10).window(Duration::from_millis(1500)),
    );
    let tenant = resolve_tenant(config.vendors(), &by_endpoint).unwrap();
    assert_eq!(rate(&tenant.vendor, "search").window.as_millis(), 1500);

    let shared = TenantEntry::new("a", "xero").limit("app_minute", 5);
    assert!(resolve_tenant(config.vendors(), &shared).unwrap_err().to_string().contains("shared by all tenants"));
}

#[test]
fn endpoints_match_the_most_literal_pattern() {
    let config = Config::load(&Sources::new(), 1).unwrap();
    let github = config.vendor("github", "live").unwrap();
    let name = |method: &str, path: &str| {
        github.match_endpoint(method, path).map(|(index, endpoint)| {
            assert_eq!(github.endpoint(&endpoint.name).unwrap().0, index);
            endpoint.name.to_string()
        })
    };
    assert_eq!(name("GET", "/search/code?q=x").as_deref(), Some("code_search"));
    assert_eq!(name("GET", "/user").as_deref(), Some("rest"));
    assert_eq!(name("POST", "/graphql").as_deref(), Some("graphql"));
    assert_eq!(name("GET", "/graphql").as_deref(), Some("rest"));
    assert_eq!(github.endpoint("rest").unwrap().1.limits[0].scope, Scope::Account);
}

#[test]
fn disagreeing_shared_limits_give_a_warning() {
    let tenant = |id: &str| TenantEntry::new(id, "github").account("one");
    let config = Config::load(&Sources::new().tenants([tenant("a"), tenant("b").limit("rest", 10)]), 1).unwrap();
    assert_eq!(config.warnings().len(), 1, "{:?}", config.warnings());
    assert!(config.warnings()[0].contains("`a` and `b` share the limit `rest`"), "{:?}", config.warnings());
    let apart = Config::load(&Sources::new().tenants([tenant("a"), tenant("b").account("two").limit("rest", 10)]), 1);
    assert_eq!(apart.unwrap().warnings(), [""; 0]);
}

#[test]
fn full_url_finds_its_vendor() {
    let sources = Sources::new()
        .tenant(TenantEntry::new("acme", "shopify").variable("shop", "acme"))
        .tenant(TenantEntry::new("acme", "github"));
    let config = Config::load(&sources, 1).unwrap();
    let url = |text: &str| reqwest::Url::parse(text).unwrap();
    let shop = url("https://acme.myshopify.com/admin/products.json?page=2");
    let (tenant, path) = config.vendor_for_url("acme", &shop).unwrap();
    assert_eq!((&*tenant.vendor.name, path), ("shopify", "/admin/products.json"));
    for other in
        ["https://other.myshopify.com/admin", "http://api.github.com/user", "https://api.github.com.evil.example/"]
    {
        assert_eq!(config.vendor_for_url("acme", &url(other)).unwrap_err().kind(), ErrorKind::UnknownVendor, "{other}");
    }
}

#[test]
fn hundred_thousand_tenants_share_one_vendor() {
    use std::fmt::Write;
    let mut text = String::from(FINE);
    for n in 0..100_000 {
        let extra = if n % 10_000 == 0 { "[tenants.limits.main]\nlimit = 5\n" } else { "" };
        writeln!(text, "[[tenants]]\nid = \"t{n}\"\nvendor = \"x\"\nvars = {{ shop = \"s{n}\" }}\n{extra}").unwrap();
    }
    let config = load(&text).unwrap();
    assert_eq!(config.tenants().count(), 100_000);
    let shared = config.vendor("x", "live").unwrap();
    for tenant in config.tenants() {
        let own = tenant.id[1..].parse::<u32>().unwrap() % 10_000 == 0;
        assert_eq!(Arc::ptr_eq(&tenant.vendor, &shared), !own, "{}", tenant.id);
    }
    assert_eq!(config.tenant("t77", "x").unwrap().base_url().unwrap().as_str(), "https://s77.x.example/v1");
}

#[tokio::test]
async fn files_are_reread_and_named_in_errors() {
    let path = std::env::temp_dir().join(format!("integration-client-config-{}.toml", std::process::id()));
    std::fs::write(&path, FINE).unwrap();
    let source: Box<dyn ConfigSource> = Box::new(FileSource::new(&path).onto(Sources::new().without_catalogue()));
    assert!(Config::load(&source.load().await.unwrap(), 1).is_ok());
    std::fs::write(&path, "oops = 1").unwrap();
    let error = Config::load(&source.load().await.unwrap(), 2).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}:1:1: unknown field `oops`", path.display())), "{error}");
    for (mark, bits) in [(&[0xff_u8, 0xfe][..], 16), (&[0xff, 0xfe, 0, 0], 32), (&[0, 0, 0xfe, 0xff], 32)] {
        std::fs::write(&path, mark).unwrap();
        let said = format!("UTF-{bits}, and not UTF-8; save it as UTF-8");
        assert!(source.load().await.unwrap_err().to_string().contains(&said));
    }
    std::fs::write(&path, [b'#', 0xff]).unwrap();
    assert!(source.load().await.unwrap_err().to_string().contains("byte 1 is not UTF-8"));
    std::fs::write(&path, format!("\u{feff}{FINE}")).unwrap();
    assert!(Config::load(&source.load().await.unwrap(), 3).is_ok(), "a byte order mark is no fault");
    std::fs::remove_file(&path).unwrap();
    assert!(source.load().await.unwrap_err().to_string().contains("cannot be read"));
}

/// Equal fingerprints prove that the files are unchanged. If that cannot be proved, there is no fingerprint.
#[tokio::test]
async fn fingerprint_changes_with_whatever_may_have_changed() {
    let path =
        |name: &str| std::env::temp_dir().join(format!("integration-client-print-{}-{name}", std::process::id()));
    let (file, other) = (path("file"), path("other"));
    let hour_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let write = |path: &std::path::Path, text: &str, modified: Option<std::time::SystemTime>| {
        std::fs::write(path, text).unwrap();
        if let Some(modified) = modified {
            std::fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
        }
    };
    let source = FileSource::new(&file);
    assert_eq!(source.fingerprint().await, None, "there is no file");
    write(&file, "# a", None);
    assert_eq!(source.fingerprint().await, None, "it may change again without getting another time");
    write(&file, "# a", Some(hour_ago));
    let first = source.fingerprint().await;
    assert!(first.is_some());
    assert_eq!(source.fingerprint().await, first);
    write(&file, "# ab", Some(hour_ago));
    let longer = source.fingerprint().await;
    assert_ne!(longer, first, "another length");
    write(&file, "# ab", Some(hour_ago + Duration::from_nanos(1_000)));
    assert_ne!(source.fingerprint().await, longer, "another time");
    write(&file, "# ab", Some(hour_ago));
    if cfg!(unix) {
        write(&other, "# cd", Some(hour_ago));
        let before = source.fingerprint().await;
        std::fs::rename(&other, &file).unwrap();
        assert!(before.is_some() && source.fingerprint().await != before, "another file of the same length and time");
    }
    let _ = std::fs::remove_file(&file);
    write(&file, " \n", None);
    let error = source.load().await.unwrap_err().to_string();
    assert!(error.contains("the file is empty"), "{error}");
    let _ = std::fs::remove_file(&file);
    assert_eq!(StaticSource::toml("").fingerprint().await, Some(0));
}

#[test]
fn entry_goes_through_serde() {
    let entry = TenantEntry::new("acme", "github").limit("rest", 5).credential("env:X").share(0.5);
    let row = serde_json::to_string(&entry).unwrap();
    assert_eq!(serde_json::from_str::<TenantEntry>(&row).unwrap(), entry);
    assert!(!format!("{:?}", TenantEntry::new("a", "b").credential("hunter2")).contains("hunter2"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_never_makes_it_panic(text in "\\PC{0,400}") {
        let _ = load(&text);
    }

    #[test]
    fn bytes_never_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = load(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn damaged_files_never_panic(at in 0.0..1.0f64, cut in 0..40usize, put in "[-a-z0-9 =.\"\\[\\]{}\n]{0,12}") {
        let mut text: Vec<char> = CATALOGUE.chars().collect();
        let at = (at * text.len() as f64) as usize;
        text.splice(at..(at + cut).min(text.len()), put.chars());
        let _ = load(&text.into_iter().collect::<String>());
    }

    #[test]
    fn values_never_lead_to_another_host(value in "[a-zA-Z0-9._@/:?#\\\\%-]{0,20}") {
        let config = Config::load(&Sources::new().without_catalogue().file("f.toml", FINE), 1).unwrap();
        if let Ok(tenant) = resolve_tenant(config.vendors(), &TenantEntry::new("t", "x").variable("shop", value)) {
            let url = tenant.base_url().unwrap();
            prop_assert!(url.host_str().unwrap().ends_with(".x.example"));
            prop_assert!(url.username().is_empty() && url.port().is_none());
        }
    }
}

#[test]
fn large_invalid_file_is_refused_quickly() {
    let mut text = String::from(FINE);
    for n in 0..20_000 {
        text.push_str(&format!("[[tenants]]\nid = \"t{n}\"\nvendor = \"x\"\nweight = 0\n"));
    }
    let error = load(&text).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 21, "twenty problems and how many more there are");
    assert!(error.ends_with("and 39980 more"), "{error}");
}

/// A configuration with every field that takes a text or a number.
const WHOLE: &str = r#"[vendors.whole]
base_url = "https://{shop}.example/api"
auth = { scheme = "header", name = "x-key", prefix = "Token " }
headers = { accept = "application/json" }
safety = 0.9
connect_timeout = "5s"
attempt_timeout = "30s"
max_transit = "5s"
max_response_bytes = 1000000
quirks = ["none"]
throttle = "bands"
dead_letters = "redacted"
at_rest = "plain"
connection = { proxy = "http://proxy:1", extra_ca = "/ca.pem", client_certificate = "/client.pem" }
[vendors.whole.retry]
max_retries = 3
first_wait = "1s"
longest_wait = "10s"
on_ambiguous = "fail"
[vendors.whole.idempotency]
header = "idempotency-key"
methods = ["POST"]
paths = ["/orders/**"]
max_length = 64
keeps = "30m"
on_unsendable = "warn"
[vendors.whole.oauth]
grant = "jwt_bearer"
token_url = "https://whole.example/token"
client_auth = "body"
scopes = ["read"]
rotates = false
client_id = "env:ID"
client_secret = "env:SECRET"
private_key = "file:/key.pem"
key_id = "k"
algorithm = "RS256"
audience = "https://whole.example"
[vendors.whole.oauth.params]
resource = "whole"
[[vendors.whole.limits]]
name = "second"
scope = "account"
algorithm = "token_bucket"
limit = 10
window = "1s"
burst = 10
unit = "points"
ceiling = 0.9
source = "https://whole.example/limits"
as_of = "2026-01"
confidence = "documented"
[vendors.whole.endpoints.search]
paths = ["/search/*"]
methods = ["GET"]
costs = { points = 2 }
[vendors.whole.environments.sandbox]
base_url = "https://sandbox.example"
[[tenants]]
id = "acme"
vendor = "whole"
environment = "live"
account = "shared"
credential = "env:KEY"
vars = { shop = "acme" }
weight = 2
share = 0.5
[tenants.limits.second]
limit = 10
[[tenants]]
id = "umbra"
vendor = "whole"
vars = { shop = "umbra" }
oauth = { client_id = "env:ID", private_key = "env:KEY", subject = "user" }
"#;

#[test]
fn messages_never_repeat_configured_values() {
    const SECRET: &str = "hunter2 99/17";
    let check = |text: &str| {
        let sources = Sources::new().without_catalogue().file("f.toml", text);
        match Config::check(&sources) {
            Ok(config) => config.warnings().join("\n"),
            Err(findings) => {
                let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
                format!("{}\n{findings:?}\n{:?}", lines.join("\n"), Config::load(&sources, 1).err())
            }
        }
    };
    assert_eq!(check(WHOLE), "", "it is good as it stands");
    let lines: Vec<&str> = WHOLE.lines().collect();
    let (mut tried, mut wrong) = (0, Vec::new());
    let mut one = |text: &str, secret: &str| {
        let said = check(text);
        tried += 1;
        if said.contains(secret) || said.contains("hunter2") {
            wrong.push(said);
        }
    };
    for (number, line) in lines.iter().enumerate() {
        let with = |changed: &str| {
            let mut lines = lines.clone();
            lines[number] = changed;
            lines.join("\n")
        };
        // A secret instead of the line, at its end, and on a line after it.
        one(&with(SECRET), SECRET);
        one(&with(&format!("{line} {SECRET}")), SECRET);
        one(&with(&format!("{line}\n\"{SECRET}\"")), SECRET);
        let Some((key, value)) = line.split_once(" = ") else { continue };
        for instead in [
            format!("\"{SECRET}\""),
            format!("'{SECRET}'"),
            format!("\"\"\"\n{SECRET}\nx={SECRET}"),
            format!("\"{SECRET}"),
            format!("[\"{SECRET}\"]"),
            format!("{{ a = \"{SECRET}\" }}"),
            SECRET.to_owned(),
            format!("{value}{SECRET}"),
        ] {
            one(&with(&format!("{key} = {instead}")), SECRET);
        }
        for number in ["-991799179917", "991799179917.5", "0x991799179917", "9917-99-17"] {
            one(&with(&format!("{key} = {number}")), "99179917");
        }
        // Each text of the line is changed by itself, also inside an inline table or an array.
        for (at, _) in value.match_indices('"').step_by(2) {
            let end = value[at + 1..].find('"').map_or(value.len(), |end| at + 1 + end);
            one(&with(&format!("{key} = {}{SECRET}{}", &value[..=at], &value[end..])), SECRET);
            one(&with(&format!("{key} = {}9917{}", &value[..at], &value[end + 1..])), "9917");
        }
    }
    assert!(tried > 400, "{tried}");
    assert!(wrong.is_empty(), "{} of {tried}: {}", wrong.len(), wrong.join("\n----\n"));
}

#[test]
fn callers_are_read_and_checked() {
    let text = "[[callers]]\nname = \"billing\"\ntoken = \"env:BILLING\"\ntenants = [\"acme\", \"eu-*\"]\nvendors = [\"stripe\"]\n\
                priority = \"normal\"\nmay = [\"send\", \"async\"]\n[[callers]]\nname = \"all\"\ntoken = \"file:/run/t\"\ntenants = [\"*\"]\n";
    let config = Config::load(&Sources::new().file("my.toml", text), 1).unwrap();
    let [billing, all] = config.callers() else { panic!("{:?}", config.callers()) };
    assert_eq!(
        (billing.may_act_for("eu-7"), billing.may_act_for("us-7"), billing.may_call("github")),
        (true, false, false)
    );
    assert_eq!((all.may_act_for("us-7"), all.may_call("github"), all.only_tenant()), (true, true, None));

    let wrong = "[[callers]]\nname = \"a b\"\ntoken = \"ghp_0123456789abcdef\"\ntenants = []\nmay = [\"sent\"]\n\
                 [[callers]]\nname = \"x\"\ntenants = [\"a/b\"]\npriority = \"urgent\"\nvendors = []\n\
                 [[callers]]\nname = \"x\"\ntoken = \"env:X\"\ntenants = [\"*\"]\n";
    let findings = Config::check(&Sources::new().file("my.toml", wrong)).unwrap_err();
    let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let told = told.join("\n");
    for part in [
        "my.toml:2:8: callers",
        "may be a secret (it is not repeated here)",
        "may act for no tenant",
        "did you mean `send`?",
        "`token` is missing",
        "may call no vendor",
        "a tenant's id, in which `*`",
        "unknown priority",
        "stated already",
    ] {
        assert!(told.contains(part), "{part} is missing in:\n{told}");
    }
    assert!(!told.contains("0123456789"), "{told}");
}
