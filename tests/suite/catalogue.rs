//! The shipped catalogue: its content, and the errors for mistakes in it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says why")]

use std::collections::BTreeSet;

use integration_client::config::{Config, Limit, LimitKind, Sources, Vendor};

const CATALOGUE: &str = include_str!("../../vendors.toml");

fn limits(vendor: &Vendor) -> impl Iterator<Item = &Limit> {
    vendor.limits.iter().chain(vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits))
}

#[test]
fn catalogue_figures_have_a_source_and_confidence() {
    let config = Config::load(&Sources::new(), 1).unwrap();
    let names: Vec<&str> = config.vendors().names().collect();
    assert!(names.len() >= 100, "{}", names.len());
    let (mut figures, mut from_memory) = (0, 0);
    for vendor in config.vendors().iter() {
        assert!(vendor.base_url.starts_with("https://"), "{}", vendor.name);
        for limit in limits(vendor) {
            let source = limit.source.as_ref().unwrap_or_else(|| panic!("{} {}", vendor.name, limit.name));
            assert!(source.reference.len() > 3, "{} {}", vendor.name, limit.name);
            assert!(["documented", "seen in code", "from memory"].contains(&&*source.confidence));
            figures += 1;
            from_memory += usize::from(source.confidence == "from memory");
        }
        // An entry has figures, or states that the vendor publishes none and where to find them.
        assert_eq!(limits(vendor).next().is_none(), vendor.unpublished, "{}", vendor.name);
        assert!(!vendor.unpublished || !vendor.quirks.is_empty(), "{}", vendor.name);
        for quirk in &vendor.quirks {
            assert!(quirk.ends_with(['.', ']']), "{}: {quirk}", vendor.name);
        }
    }
    assert!(figures >= 200, "{figures}");
    assert!(from_memory * 10 <= figures, "{from_memory} of {figures} figures are from memory: look some up");
}

#[test]
fn largest_request_fits_its_bucket() {
    let config = Config::load(&Sources::new(), 1).unwrap();
    assert_eq!(config.warnings(), [""; 0]);
    let stated = config.vendors().iter().flat_map(|vendor| limits(vendor)).filter(|limit| match &limit.kind {
        LimitKind::Rate(rate) => rate.largest_request.is_some(),
        _ => false,
    });
    assert!(stated.count() >= 10);
    // An earlier entry stated a window of one second, whose bucket was too small.
    let bucket = "name = \"graphql\"\nlimit = 2000\nwindow = \"20s\"";
    assert!(CATALOGUE.contains(bucket));
    let small = CATALOGUE.replace(bucket, "name = \"graphql\"\nlimit = 100\nwindow = \"1s\"");
    let config = Config::load(&Sources::new().without_catalogue().file("vendors.toml", small), 1).unwrap();
    let warning = config.warnings().iter().find(|warning| warning.contains("shopify")).unwrap();
    assert!(warning.contains("takes a request of 1000, but the bucket holds 80"), "{warning}");
}

#[test]
fn catalogue_named_as_a_file_is_one_error() {
    let why = "vendors.toml:1:1: this is the shipped catalogue itself, or a copy of it, which is built in: name a file of \
               your own, which states what differs";
    let error = |text: &str| Config::load(&Sources::new().file("vendors.toml", text), 1).unwrap_err().to_string();
    assert_eq!(error(CATALOGUE), why);
    // A copy may have a vendor that the catalogue does not have, and tenants. Both are checked as elsewhere.
    let more = "[vendors.own]\nbase_url = \"https://own.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n\
                [[tenants]]\nid = \"acme\"\nvendor = \"own\"\n";
    assert_eq!(error(&format!("{CATALOGUE}\n{more}")), why);
    let found = error(&format!("{CATALOGUE}\n{more}weight = 5000\n"));
    assert_eq!(found.lines().count(), 2, "{found}");
    assert!(found.starts_with(why) && found.contains("tenants[0].weight"), "{found}");
    // Without the catalogue, its file is a configuration like any other.
    assert!(Config::load(&Sources::new().without_catalogue().file("vendors.toml", CATALOGUE), 1).is_ok());
}

#[test]
fn another_name_leads_to_one_vendor() {
    let config = Config::load(&Sources::new(), 1).unwrap();
    let live = || config.vendors().iter().filter(|vendor| &*vendor.environment == "live");
    let names: BTreeSet<&str> = config.vendors().names().collect();
    let also: Vec<&str> = live().flat_map(|vendor| &vendor.also).map(String::as_str).collect();
    let once: BTreeSet<&str> = also.iter().copied().collect();
    assert_eq!(once.len(), also.len(), "two vendors have a name in common");
    assert_eq!(once.intersection(&names).next(), None, "it is a vendor's own name");
    for (name, vendor) in [("gmail", "google"), ("graph", "msgraph"), ("twitter", "x"), ("facebook", "meta")] {
        let found = live().find(|entry| entry.also.iter().any(|other| other == name)).map(|entry| &*entry.name);
        assert_eq!(found, Some(vendor));
    }
}

#[test]
fn catalogue_is_sorted_by_name() {
    let headings = CATALOGUE.lines().filter_map(|line| line.strip_prefix("[vendors.")?.strip_suffix(']'));
    let names: Vec<&str> = headings
        .map(|name| name.trim_matches('"'))
        .filter(|name| !name.contains(['.', '"']) || name.ends_with(".io"))
        .collect();
    let sorted: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names, sorted.into_iter().collect::<Vec<_>>());
}

/// Mistakes that people make in the catalogue: the original text, its replacement, the part of the replacement whose
/// line and column the error must name, and a part of the message.
const SLIPS: &[(&str, &str, &str, &str)] = &[
    // Figures.
    ("limit = 12000\n", "limit = 0\n", "0", "this is out of range: a limit per window is 1 to 4000000000"),
    ("limit = 12000\n", "limit = -1\n", "-1", "out of range"),
    ("limit = 12000\n", "limit = 1000000000001\n", "1000000000001", "this is out of range"),
    ("limit = 12000\n", "limit = \"12000\"\n", "\"12000\"", "invalid type: string, expected a whole number"),
    ("limit = 12000\n", "limit = 12_000.0\n", "12_000.0", "invalid type: floating point"),
    ("limit = 12000\nwindow = \"1h\"", "limit = 12000\nwindow = \"1ns\"", "12000", "more than 1,000,000,000 a second"),
    ("concurrency = 52\n", "concurrency = 0\n", "0", "concurrency is 1 to"),
    // Windows.
    ("window = \"31d\"", "window = \"0s\"", "\"0s\"", "the duration is zero; write for example"),
    ("window = \"31d\"", "window = \"-1m\"", "\"-1m\"", "negative"),
    ("window = \"31d\"", "window = \"367d\"", "\"367d\"", "longer than 366 days"),
    ("window = \"31d\"", "window = \"1 month\"", "\"1 month\"", "has no fixed length"),
    ("window = \"31d\"", "window = \"monthly\"", "\"monthly\"", "is not a duration; write for example"),
    ("window = \"31d\"", "window = 31", "31", "invalid type: integer"),
    // Fields that do not fit together.
    (
        "concurrency = 52\n",
        "concurrency = 52\nwindow = \"1m\"\n",
        "\"1m\"",
        "`window` has no meaning beside `concurrency`",
    ),
    ("concurrency = 52\n", "concurrency = 52\nburst = 5\n", "5\nscope", "`burst` has no meaning beside `concurrency`"),
    ("concurrency = 52\n", "concurrency = 52\nunit = \"points\"\n", "\"points\"", "state two limits"),
    ("limit = 12000\n", "limit = 12000\nrefill_interval = \"1m\"\n", "\"1m\"", "remove it or use `token_bucket`"),
    ("limit = 12000\n", "limit = 12000\nburst = 12001\n", "12001", "no more than the limit can go at once; lower it"),
    ("limit = 12000\n", "limit = 12000\nsafety = 1.5\n", "1.5", "must be above 0 and at most 1"),
    ("limit = 12000\n", "limit = 12000\nrelease_interval = \"7s\"\n", "\"7s\"", "does not divide the window"),
    (
        "algorithm = \"token_bucket\"",
        "algorithm = \"token_bucket\"\nrefill_interval = \"20m\"",
        "\"20m\"",
        "that is how a `fixed_window` counts",
    ),
    // A bucket of 500 points (a tenth of the limit, because it is unknown how the vendor counts) and a request that
    // costs more.
    ("points = 3 }\n", "points = 501 }\n", "501", "but the bucket of `hourly` holds"),
    ("points = 3 }\n", "points = 0 }\n", "0 }\n", "a cost is 1 to"),
    // Names.
    ("algorithm = \"token_bucket\"", "algorithm = \"token_buket\"", "\"token_buket\"", "did you mean `token_bucket`?"),
    ("scope = \"vendor\"", "scope = \"app\"", "\"app\"", "unknown scope; choices: endpoint, tenant, account, vendor"),
    ("unit = \"points\"", "unit = \"point\"", "\"point\"", "did you mean `points`?"),
    (
        "confidence = \"seen in code\"",
        "confidence = \"seen in the code\"",
        "\"seen in the code\"",
        "unknown confidence",
    ),
    ("auth = { scheme = \"bearer\" }", "auth = { scheme = \"barer\" }", "\"barer\"", "did you mean `bearer`?"),
    ("quirks = [", "qirks = [", "qirks", "unknown field `qirks`; did you mean `quirks`?"),
    ("algorithm = \"token_bucket\"", "algoritm = \"token_bucket\"", "algoritm", "did you mean `algorithm`?"),
    ("unpublished = true", "unpublished = \"yes\"", "\"yes\"", "invalid type: string, expected a boolean"),
    // Addresses and paths.
    ("\"https://api.openai.com/v1\"", "\"http://api.openai.com/v1\"", "\"http://api.openai", "plain http"),
    (
        "\"https://api.openai.com/v1\"",
        "\"https://api.openai.com/v1?key=1\"",
        "\"https://api.openai.com/v1?",
        "a base URL has no query",
    ),
    ("\"https://{org}.okta.com\"", "\"https://{org.okta.com\"", "\"https://{org.okta", "{"),
    ("paths = [\"/search/*\"]", "paths = [\"search/*\"]", "\"search/*\"", "a path pattern starts with `/`"),
    ("paths = [\"/search/*\"]", "paths = [\"/**/search\"]", "\"/**/search\"", "`**` can only be the last segment"),
    ("methods = [\"POST\"]", "methods = [\"post\"]", "\"post\"", "a method is upper case, for example \"GET\""),
    // The file itself.
    ("[vendors.okta]\n", "[vendors.okta\n", "\n", "unclosed table"),
    ("[vendors.okta]\n", "[vendors.notion]\n", "notion", "duplicate key"),
    ("name = \"default\"\n", "", "[[vendors.okta.limits]]\nlimit", "a limit needs a name: add `name = \"…\"`"),
    ("name = \"default\"\n", "name = \"concurrent\"\n", "\"concurrent\"\nconcurrency = 75", "is stated already"),
];

#[test]
fn catalogue_typos_are_refused_with_advice() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (piece, slip, place, fragment) in SLIPS {
        let at = CATALOGUE.find(piece).unwrap_or_else(|| panic!("not in the catalogue: {piece:?}"));
        let text = format!("{}{slip}{}", &CATALOGUE[..at], &CATALOGUE[at + piece.len()..]);
        let found =
            Config::check(&Sources::new().without_catalogue().file("vendors.toml", text.as_str())).expect_err(slip);
        let here = found.iter().find(|finding| finding.message.contains(fragment));
        let Some(finding) = here else {
            wrong.push(format!("{slip:?}: {}", found[0]));
            continue;
        };
        let lines: Vec<&str> = text.lines().skip(finding.line - 1).collect();
        let pointed: String = lines.join("\n").chars().skip(finding.column - 1).take(60).collect();
        if !pointed.starts_with(place) {
            wrong.push(format!("{slip:?}: {finding}\n    points at {pointed:?}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 30, "{count}");
}

#[test]
fn problems_are_all_listed_with_their_places() {
    let broken = CATALOGUE.replace("confidence = \"documented\"", "confidence = \"rumour\"");
    let found = Config::check(&Sources::new().without_catalogue().file("vendors.toml", broken)).unwrap_err();
    assert!(found.len() > 60, "{}", found.len());
    assert!(found.iter().all(|finding| finding.line > 0 && finding.place.ends_with(".confidence")));
}

#[test]
fn vendor_without_figures_is_warned_of() {
    let load = |fields: &str| {
        let text = format!("[vendors.v]\nbase_url = \"https://v.example\"\n{fields}");
        Config::load(&Sources::new().without_catalogue().file("f.toml", text), 1).unwrap()
    };
    assert!(load("").warnings()[0].contains("unpublished = true"), "{:?}", load("").warnings());
    assert_eq!(load("unpublished = true\n").warnings(), [""; 0]);
    let own = "[vendors.linkedin]\nextends = \"catalogue\"\n[[vendors.linkedin.limits]]\nname = \"day\"\nlimit = 500\nwindow = \"24h\"\n";
    let config = Config::load(&Sources::new().file("f.toml", own), 1).unwrap();
    assert_eq!(config.vendor("linkedin", "live").unwrap().limits.len(), 1);
}

/// `fixtures/dialects.toml` repeats the dialects beside their test cases. The catalogue must hold the same ones.
#[test]
fn fixture_dialects_match_the_catalogue() {
    let tables = |text: &str| -> toml::Table { toml::from_str(text).unwrap() };
    let (fixture, catalogue) = (tables(include_str!("../../fixtures/dialects.toml")), tables(CATALOGUE));
    for (name, vendor) in fixture["vendors"].as_table().unwrap() {
        let says_something = |dialect: &&toml::Value| dialect.as_table().is_some_and(|table| !table.is_empty());
        let of_fixture = vendor.get("dialect").filter(says_something);
        let found = catalogue["vendors"].get(name).and_then(|vendor| vendor.get("dialect"));
        // Some vendors of the fixtures are made up or are not in the catalogue.
        let known = catalogue["vendors"].get(name).is_some();
        assert!(found == of_fixture || !known, "{name}: fixtures/dialects.toml differs from vendors.toml");
    }
}

#[test]
fn vendors_other_name_leads_to_its_entry() {
    let config = Config::load(&Sources::new(), 1).unwrap();
    for (name, entry) in [("gmail", "`google`"), ("Outlook", "`msgraph`")] {
        let error = config.vendor(name, "live").unwrap_err().to_string();
        assert!(error.contains(&format!("its entry is {entry}")), "{error}");
    }
}
