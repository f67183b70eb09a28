//! Mistakes of users, and the messages that they get: every message says what to do next. The expected output is in
//! fixtures/cli/mistakes.txt.
#![cfg(target_os = "linux")]

use std::fmt::Write;
use std::fs;

use super::{command, run_command};

const VENDORS: &str = "[vendors.v]\nbase_url = \"http://127.0.0.1:9\"\nauth = { scheme = \"bearer\" }\n\
    [[vendors.v.limits]]\nname = \"second\"\nlimit = 100\nwindow = \"1s\"\nscope = \"account\"\n\
    [[tenants]]\nid = \"acme\"\nvendor = \"v\"\ncredential = \"env:IC_CLI_KEY\"\n\
    [[tenants]]\nid = \"keyless\"\nvendor = \"v\"\ncredential = \"env:IC_CLI_NO_SUCH_KEY\"\n";

const JOB: &str = "{\"tenant\":\"acme\",\"vendor\":\"v\",\"method\":\"GET\",\"path\":\"/\"}\n";

/// A job in which `to` replaces the text `from`.
fn job(from: &str, to: &str) -> String {
    JOB.replacen(from, to, 1)
}

const MISTAKES: &[&[&str]] = &[
    &[],
    &["rnu", "jobs.jsonl"],
    &["run"],
    &["run", "none.jsonl"],
    &["run", "folder"],
    &["run", "jobs.jsonl", "--vendors", "none.toml"],
    &["run", "jobs.jsonl", "--vendors", "broken.toml"],
    &["run", "jobs.jsonl", "--vendor", "vendors.toml"],
    &["run", "jobs.jsonl", "--vendors", "vendors.toml", "--keepgoing"],
    &["run", "no_json.jsonl", "--vendors", "vendors.toml"],
    &["run", "no_method.jsonl", "--vendors", "vendors.toml"],
    &["run", "unknown_field.jsonl", "--vendors", "vendors.toml"],
    &["run", "unknown_tenant.jsonl", "--vendors", "vendors.toml"],
    &["run", "unknown_vendor.jsonl", "--vendors", "vendors.toml"],
    &["run", "priority.jsonl", "--vendors", "vendors.toml"],
    &["run", "deadline.jsonl", "--vendors", "vendors.toml"],
    &["run", "credential.jsonl", "--vendors", "vendors.toml"],
    &["run", "jobs.jsonl", "--vendors", "vendors.toml", "--store", "mysql://me:hunter2@host/db"],
    &["run", "jobs.jsonl", "--vendors", "vendors.toml", "--store", "none/jobs.sqlite"],
    &["run", "jobs.jsonl", "--vendors", "vendors.toml", "--store", "aunt.txt"],
    &["run", "jobs.jsonl", "--vendors", "vendors.toml", "--out", "aunt.txt"],
    &["run", "jobs.jsonl", "--vendors", "vendors.toml", "--out", "none/results.jsonl"],
    &["dead-letters", "list"],
    &["dead-letters", "list", "--store", "none.sqlite"],
    &["dead-letters", "list", "--store", "jobs.jsonl"],
    &["dead-letters", "list", "--store", "ok.sqlite", "--reason", "boring"],
    &["dead-letters", "list", "--store", "ok.sqlite", "--before", "yesterday"],
    &["dead-letters", "list", "--store", "ok.sqlite", "--most", "0"],
    &["dead-letters", "list", "--store", "ok.sqlite", "--most", "18446744073709551615"],
    &["dead-letters", "show", "17", "--store", "ok.sqlite"],
    &["dead-letters", "redrive", "--store", "ok.sqlite"],
    &["tenants", "set", "umbra", "v"],
    &["tenants", "set", "umbra", "nobody", "--store", "ok.sqlite"],
    &["tenants", "set", "umbra", "v", "--vendors", "vendors.toml", "--credential", "hunter2", "--store", "ok.sqlite"],
    &["tenants", "set", "umbra", "v", "--vendors", "vendors.toml", "--limit", "second=many", "--store", "ok.sqlite"],
    &[
        "tenants",
        "set",
        "umbra",
        "v",
        "--secret-header",
        "x-a=env:A",
        "--secret-header",
        "X-A=env:B",
        "--store",
        "ok.sqlite",
    ],
    &["tenants", "retire", "nobody", "--vendors", "vendors.toml", "--store", "ok.sqlite"],
    &["tenants", "cleanup", "--active", "empty.txt", "--vendors", "vendors.toml", "--store", "ok.sqlite"],
    &["status", "--store", "none.sqlite"],
    &["send", "acme", "v"],
    &["send", "nobody", "v", "/", "--vendors", "vendors.toml"],
    &["send", "keyless", "v", "/", "--vendors", "vendors.toml", "--deadline", "1s"],
    &["send", "acme", "v", "/", "--vendors", "vendors.toml", "-H", "x-a"],
    &["send", "acme", "v", "/", "--vendors", "vendors.toml", "-d", "@none.json"],
    &["send", "acme", "v", "https://elsewhere.example/", "--vendors", "vendors.toml"],
    &["send", "acme", "v", "/", "--vendors", "vendors.toml", "--priority", "urgent"],
    &["send", "acme", "v", "/", "--vendors", "vendors.toml", "--deadline", "soon"],
    &["send", "acme", "v", "/", "--vendors", "vendors.toml", "--deadline", "1s"],
];

/// The system ends a process at this limit by default.
#[test]
fn limit_on_file_size_ends_no_command() {
    let program = env!("CARGO_BIN_EXE_integration-client");
    let out = std::env::temp_dir().join(format!("ic-file-limit-{}", std::process::id()));
    let line = format!("ulimit -Sf 1; exec {program} vendors --json > {}", out.display());
    let ran = std::process::Command::new("bash").args(["-c", &line]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(2) && said.contains("writing: "), "{:?} {said}", ran.status);
    fs::remove_file(&out).unwrap();
}

#[test]
fn mistakes_are_answered_with_advice() {
    let folder = std::env::temp_dir().join(format!("ic-mistakes-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("folder")).unwrap();
    for (name, text) in [
        ("vendors.toml", VENDORS.to_owned()),
        ("broken.toml", VENDORS.replace("limit =", "limt =")),
        ("jobs.jsonl", JOB.to_owned()),
        ("no_json.jsonl", JOB.to_owned() + "{\"tenant\": \"acme\", \n"),
        ("no_method.jsonl", job("\"method\":\"GET\",", "")),
        ("unknown_field.jsonl", job("\"path\"", "\"url\"")),
        ("unknown_tenant.jsonl", job("acme", "amce")),
        ("unknown_vendor.jsonl", job("\"v\"", "\"w\"")),
        ("priority.jsonl", job("\"path\"", "\"priority\":\"urgent\",\"path\"")),
        ("deadline.jsonl", job("\"path\"", "\"deadline\":\"soon\",\"path\"")),
        ("credential.jsonl", job("\"path\"", "\"headers\":{\"authorization\":\"Bearer hunter2\"},\"path\"")),
        ("aunt.txt", "a letter to my aunt. ".repeat(100)),
        ("empty.txt", String::new()),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
    let run = |args: &[&str]| {
        let mut command = command(args);
        command.current_dir(&folder).env("IC_CLI_KEY", "key").env_remove("IC_CLI_NO_SUCH_KEY");
        run_command(command, b"")
    };
    let made = run(&[
        "tenants",
        "set",
        "acme",
        "v",
        "--vendors",
        "vendors.toml",
        "--credential",
        "env:IC_CLI_KEY",
        "--store",
        "ok.sqlite",
    ]);
    assert_eq!(made.code, 0, "{}", made.err);
    let mut seen = String::new();
    for args in MISTAKES {
        let ran = run(args);
        assert_ne!(ran.code, 0, "{args:?}: {}", ran.out);
        writeln!(seen, "$ integration-client {}", args.join(" ")).unwrap();
        // Leaves out durations and all that follows the message of a usage error, because these are not under test.
        let said = ran.out + &ran.err;
        assert!(!said.contains("hunter2"), "a secret is never shown: {said}");
        let said = said.split("\nUsage:").next().unwrap_or_default();
        for line in said.lines().filter(|line| !line.trim().is_empty()) {
            let line = line.split_once("seconds=").map_or(line.to_owned(), |(line, _)| format!("{line}seconds=…"));
            writeln!(seen, "{line}").unwrap();
        }
        writeln!(seen, "(exit code {})\n", ran.code).unwrap();
    }
    let _ = fs::remove_dir_all(&folder);
    let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("fixtures/cli/mistakes.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &seen).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == seen, "{} differs; now it is:\n{seen}", path.display());
}
