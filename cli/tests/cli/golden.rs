//! Compares the output of commands with files in fixtures/cli: the first line is the command, the last the exit code.
//!
//! `UPDATE_GOLDEN=1 cargo test -p integration-client-cli --test cli` rewrites the files; read the diff before you
//! commit it.

use std::fmt::Write;
use std::path::Path;

use super::{ProcessOutput, run};

#[track_caller]
fn check(name: &str, args: &[&str], input: &str) {
    let path =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("fixtures/cli").join(name).with_extension("txt");
    let ProcessOutput { code, out, err } = run(args, input);
    let mut seen = format!("$ integration-client {}\n{out}", args.join(" "));
    if !err.is_empty() {
        write!(seen, "(standard error)\n{err}").unwrap();
    }
    writeln!(seen, "(exit code {code})").unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &seen).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == seen, "{} differs; now it is:\n{seen}", path.display());
}

const NOW: &str = "2026-01-15T10:00:00Z";

#[test]
fn help_matches_its_golden_file() {
    check("help", &["--help"], "");
}

#[test]
fn check_accepts_a_good_file() {
    check("check_good", &["check", "fixtures/cli/parcels.toml", "--tenants", "fixtures/cli/tenants.toml"], "");
}

#[test]
fn check_shows_unused_environments_when_asked() {
    let args = ["check", "fixtures/cli/parcels.toml", "--tenants", "fixtures/cli/tenants.toml"];
    for (more, is_shown) in [(&[][..], false), (&["--all"], true)] {
        let shown = run(&[&args[..], more].concat(), "").out;
        assert_eq!(shown.contains("\nparcels (sandbox) https://"), is_shown, "{shown}");
        assert_eq!(shown.contains("2 more environments that no tenant uses"), !is_shown, "{shown}");
    }
    // A vendor without tenants is shown as a whole.
    let shown = run(&["check", "fixtures/cli/parcels.toml"], "").out;
    assert!(shown.contains("\nparcels (sandbox) https://"), "{shown}");
}

#[test]
fn check_reports_a_broken_file() {
    check("check_broken", &["check", "fixtures/cli/broken.toml"], "");
}

#[test]
fn check_reports_all_errors_at_once() {
    check("check_broken_form", &["check", "fixtures/cli/broken_form.toml"], "");
}

#[test]
fn check_warns_of_a_replaced_catalogue_entry() {
    check("check_replaces", &["check", "fixtures/cli/replaces.toml"], "");
}

#[test]
fn check_says_once_that_a_file_is_the_catalogue() {
    check("check_catalogue", &["check", "vendors.toml"], "");
}

#[test]
fn vendors_describes_one_vendor() {
    check("vendors_shopify", &["vendors", "shopify"], "");
}

#[test]
fn vendors_describes_vendor_without_figures() {
    check("vendors_dropbox", &["vendors", "dropbox"], "");
}

#[test]
fn inspect_explains_a_refusal() {
    let input = "HTTP/2 429 \r\nx-ratelimit-limit: 5000\r\nx-ratelimit-remaining: 0\r\nx-ratelimit-used: 5000\r\n\
                 x-ratelimit-reset: 1768473000\r\nx-ratelimit-resource: core\r\n\r\n{}";
    check("inspect_github", &["inspect", "--vendor", "github", "--now", NOW], input);
}

#[test]
fn inspect_reads_an_environment_from_a_file() {
    let path = std::env::temp_dir().join(format!("ic-inspect-{}.toml", std::process::id()));
    let text = "[vendors.mine]\nbase_url = \"https://mine.example\"\n\
                [vendors.mine.environments.sandbox]\n[vendors.mine.environments.sandbox.dialect]\n\
                [[vendors.mine.environments.sandbox.dialect.windows]]\nname = \"day\"\nlimit = \"x-most\"\nused = \"x-had\"\n\
                [[tenants]]\nid = \"acme\"\nvendor = \"mine\"\ncredential = \"env:MINE_KEY\"\n";
    std::fs::write(&path, text).unwrap();
    let input = "HTTP/1.1 200 OK\nx-most: 700\nx-had: 77\n\n";
    let inspect = |more: &[&str]| {
        let args = [&["inspect", "--vendor", "mine", "--vendors", path.to_str().unwrap()], more].concat();
        run(&args, input)
    };
    let (live, sandbox) = (inspect(&[]), inspect(&["--environment", "sandbox"]));
    let _ = std::fs::remove_file(&path);
    assert_eq!((live.code, sandbox.code), (0, 0), "{}{}", live.err, sandbox.err);
    assert!(sandbox.out.contains("700") && !live.out.contains("700"), "{}{}", live.out, sandbox.out);
}

#[test]
fn inspect_reads_headers_of_an_unknown_vendor() {
    let input = "ratelimit: \"minute\";r=40;t=5, \"daily\";r=120;t=7200\nratelimit-policy: \"minute\";q=60;w=60, \"daily\";q=1000;w=86400\n";
    check("inspect_unknown", &["inspect", "--now", NOW], input);
}

#[test]
fn inspect_reports_silent_headers() {
    check("inspect_nothing", &["inspect", "--now", NOW], "HTTP/1.1 503 Service Unavailable\nserver: x\n\n");
}
