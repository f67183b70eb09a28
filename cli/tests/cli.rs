//! Tests of the program `integration-client` from the outside: arguments, output and exit codes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says why")]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use integration_client::config::{Config, Sources};

#[path = "cli/golden.rs"]
mod golden;
#[path = "cli/lines.rs"]
mod lines;
#[path = "cli/mistakes.rs"]
mod mistakes;
#[path = "cli/operators.rs"]
mod operators;
#[path = "cli/remote.rs"]
mod remote;
#[path = "cli/serve.rs"]
mod serve;

/// The environment variables that replace options. The tests remove them.
const VARIABLES: [&str; 21] = [
    "INTEGRATION_CLIENT_VENDORS",
    "INTEGRATION_CLIENT_TENANTS",
    "INTEGRATION_CLIENT_STORE",
    "INTEGRATION_CLIENT_LISTEN",
    "INTEGRATION_CLIENT_CONFIG_COPY",
    "INTEGRATION_CLIENT_CONFIG_SECRET",
    "INTEGRATION_CLIENT_LANES",
    "INTEGRATION_CLIENT_NO_TOKEN",
    "INTEGRATION_CLIENT_NO_WORK",
    "INTEGRATION_CLIENT_CONSOLE",
    "INTEGRATION_CLIENT_CONSOLE_OPERATE",
    "INTEGRATION_CLIENT_DEADLINE",
    "INTEGRATION_CLIENT_DRAIN_DELAY",
    "INTEGRATION_CLIENT_GRACE",
    "INTEGRATION_CLIENT_INTAKE_CONSOLE",
    "INTEGRATION_CLIENT_INTAKE_CONSOLE_OPERATE",
    "INTEGRATION_CLIENT_INTAKE_LISTEN",
    "INTEGRATION_CLIENT_INTAKE_NO_TOKEN",
    "INTEGRATION_CLIENT_MAX_BACKLOG",
    "INTEGRATION_CLIENT_MAX_DEAD",
    "INTEGRATION_CLIENT_MAX_LANE_BACKLOG",
];

struct ProcessOutput {
    code: i32,
    out: String,
    err: String,
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_integration-client"));
    // The output must not depend on the environment of the person who runs the tests.
    command.args(args).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "TERM"].into_iter().chain(VARIABLES) {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run_command(mut command: Command, input: &[u8]) -> ProcessOutput {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // The program may end before it has read all of the input, so write errors are ignored.
        scope.spawn(move || {
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().unwrap()
    });
    let text = |bytes| String::from_utf8(bytes).unwrap();
    ProcessOutput { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

fn run(args: &[&str], input: &str) -> ProcessOutput {
    run_command(command(args), input.as_bytes())
}

#[test]
fn output_fits_eighty_columns() {
    let config = Config::load(&Sources::new(), 1).unwrap();
    let mut commands: Vec<Vec<&str>> = config.vendors().names().map(|name| vec!["vendors", name]).collect();
    let more = [vec!["run", "--help"], vec!["send", "--help"], vec!["status", "--help"], vec!["tenants", "--help"]];
    commands.extend(more);
    commands.extend(["list", "show", "redrive", "purge"].map(|what| vec!["dead-letters", what, "--help"]));
    commands.extend(["list", "set", "retire", "cleanup"].map(|what| vec!["tenants", what, "--help"]));
    commands.extend([
        vec!["dead-letters", "--help"],
        vec!["--help"],
        vec!["vendors"],
        vec!["check", "--help"],
        vec!["inspect", "--help"],
    ]);
    commands.extend([
        vec!["vendors", "--help"],
        vec!["completions", "--help"],
        vec!["check", "vendors.toml", "--without-catalogue"],
    ]);
    for args in commands {
        let ran = run(&args, "");
        assert_eq!((ran.code, &*ran.err), (0, ""), "{args:?}");
        for line in ran.out.lines() {
            // A URL is not broken, so that people can copy it.
            let is_url = line.split_whitespace().any(|word| word.starts_with("https://") && word.chars().count() > 60);
            assert!(is_url || line.chars().count() <= 80, "{args:?}: {line}");
            assert!(line.trim_end() == line || args.contains(&"--help"), "{args:?}: blanks at the end");
        }
    }
}

#[test]
fn findings_of_check_fit_eighty_columns() {
    for (file, word) in [("parcels", "warning: "), ("broken", "error: "), ("replaces", "error: ")] {
        let ran = run(&["check", &format!("fixtures/cli/{file}.toml")], "");
        assert!(ran.out.lines().any(|line| line.starts_with(word)), "{}", ran.out);
        // The last line is one line for programs.
        let (findings, _) = ran.out.trim_end().rsplit_once('\n').unwrap();
        for line in findings.lines() {
            assert!(line.chars().count() <= 80, "{file}: {line}");
        }
    }
}

#[test]
fn usage_errors_exit_with_two() {
    for (args, said) in [
        (&[][..], "Usage:"),
        (&["inspct"], "inspect"),
        (&["vendors", "gihtub"], "did you mean `github`?"),
        (&["vendors", "nobody"], "`integration-client vendors` lists those that are"),
        (&["check"], "<FILE>"),
        (&["check", "no/such/file.toml"], "no/such/file.toml: "),
        (&["inspect", "--now", "yesterday"], "write 2026-01-15T10:00:00Z"),
        (&["inspect", "--vendor", "githb"], "did you mean `github`?"),
        (&["inspect", "--vendor", "github", "--environment", "prod"], "has no environment"),
        (&["inspect", "--status", "1000"], "100..=999"),
        (&["check", "vendors.toml", "--round-trip", "soon"], "write for example 100ms"),
        (&["completions", "basic"], "bash"),
    ] {
        let ran = run(args, "");
        assert_eq!(ran.code, 2, "{args:?} {}", ran.err);
        assert!(ran.err.contains(said), "{args:?}: {}", ran.err);
        assert_eq!(ran.out, "", "{args:?}");
    }
    let empty = run(&["inspect"], "");
    assert!(empty.code == 2 && empty.err.contains("there are no headers in it"), "{}", empty.err);
}

/// A deployment may set a variable to nothing, and its author does not know the option that it replaces.
#[test]
fn empty_variable_is_named() {
    for (variable, args) in [
        ("INTEGRATION_CLIENT_VENDORS", &["vendors"][..]),
        ("INTEGRATION_CLIENT_STORE", &["status"]),
        ("INTEGRATION_CLIENT_STORE", &["tenants", "list"]),
        ("INTEGRATION_CLIENT_LISTEN", &["health"]),
        ("INTEGRATION_CLIENT_GRACE", &["serve"]),
        ("INTEGRATION_CLIENT_INTAKE", &["intake", "--store", "none.sqlite"]),
        ("INTEGRATION_CLIENT_MAX_BACKLOG", &["intake", "table", "--store", "none.sqlite"]),
    ] {
        let mut command = command(args);
        command.env(variable, "");
        let ran = run_command(command, b"");
        let said = format!("the environment variable {variable} is empty: give it a value, or unset it\n");
        assert!(ran.code == 2 && ran.err.ends_with(&said), "{args:?}: {}", ran.err);
    }
}

/// A misspelt value of the variable must not switch off the tokens that callers of the gateway need.
#[test]
fn only_a_clear_yes_switches_tokens_off() {
    for (variable, args) in [
        ("INTEGRATION_CLIENT_NO_TOKEN", &["serve", "--vendors", "no/such/file.toml"][..]),
        (
            "INTEGRATION_CLIENT_INTAKE_NO_TOKEN",
            &["intake", "table", "--store", "none.sqlite", "--listen", "127.0.0.1:0"],
        ),
    ] {
        let mut command = command(args);
        command.env(variable, "banana");
        let ran = run_command(command, b"");
        assert!(ran.code == 2 && ran.err.contains("invalid value 'banana' for '--no-token'"), "{args:?}: {}", ran.err);
    }
}

#[test]
fn reader_that_goes_away_is_no_error() {
    for args in [
        &["vendors", "--json"][..],
        &["vendors", "--markdown"],
        &["check", "vendors.toml", "--without-catalogue"],
        &["completions", "zsh"],
    ] {
        let mut child = command(args).spawn().unwrap();
        drop(child.stdin.take());
        let mut first = [0; 10];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), &*said), (Some(0), ""), "{args:?}");
    }
}

/// The exit code of a finding is for programs, which may not read the output.
#[test]
fn closed_output_hides_no_finding() {
    let broken = ["check", "fixtures/cli/broken.toml"];
    let json = [&broken[..], &["--json"]].concat();
    for args in [&broken[..], &json[..], &["health", "127.0.0.1:1"]] {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let status = command(args).stdout(closed).status().unwrap();
        assert_eq!(status.code(), Some(1), "{args:?}");
    }
}

#[test]
fn variables_replace_options_and_stand_in_help() {
    let [vendors, tenants, ..] = VARIABLES;
    let with = |args: &[&str]| {
        let mut command = command(args);
        command.env(vendors, "fixtures/cli/parcels.toml").env(tenants, "fixtures/cli/tenants.toml");
        run_command(command, b"").out
    };
    assert!(
        with(&["check"]).ends_with("it can be used, but read what it warns of (2 vendors, 2 tenants, 1 warning)\n"),
        "{}",
        with(&["check"])
    );
    assert!(with(&["tenants", "list"]).contains("env:ACME_PARCELS_KEY"));
    assert!(with(&["vendors", "parcels"]).contains("parcels.example"));
    for args in [&["run"][..], &["send"], &["status"], &["tenants", "list"], &["dead-letters", "redrive"]] {
        let mut command = command(&[args, &["--help"]].concat());
        let help = run_command(
            {
                command.env("INTEGRATION_CLIENT_STORE", "postgres://ic:hunter2@db/jobs");
                command
            },
            b"",
        )
        .out;
        assert!(help.contains("INTEGRATION_CLIENT_STORE]") && !help.contains("hunter2"), "{help}");
    }
}

#[test]
fn colours_are_for_terminals() {
    let args = ["vendors", "stripe"];
    assert!(!run(&args, "").out.contains('\u{1b}'));
    let with = |pairs: &[(&str, &str)]| {
        let mut command = command(&args);
        command.envs(pairs.iter().copied());
        run_command(command, b"").out
    };
    assert!(with(&[("CLICOLOR_FORCE", "1")]).contains('\u{1b}'));
    assert!(!with(&[("NO_COLOR", "1")]).contains('\u{1b}'));
    assert!(!with(&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]).contains('\u{1b}'));
}

#[test]
fn empty_file_is_no_good_configuration() {
    let path = std::env::temp_dir().join(format!("integration-client-empty-{}.toml", std::process::id()));
    for (text, code, said) in [(" \n", 1, "the file is empty; put a comment"), ("# nothing\n", 0, "nothing is wrong")] {
        std::fs::write(&path, text).unwrap();
        let ran = run(&["check", path.to_str().unwrap()], "");
        assert!(ran.code == code && ran.out.contains(said), "{text:?}: {}", ran.out);
    }
    std::fs::remove_file(path).unwrap();
}

/// The parser stops at the first syntax error, so the message must say that there may be more problems.
#[test]
fn invalid_toml_reports_at_least_its_errors() {
    let path = std::env::temp_dir().join(format!("integration-client-torn-{}.toml", std::process::id()));
    std::fs::write(&path, "[vendors.v\nbase_url = 5\nsafety = 3.0\n").unwrap();
    let ran = run(&["check", path.to_str().unwrap()], "");
    std::fs::remove_file(path).unwrap();
    let last = "\n1 problem (there may be more, which shows once the file can be read)\n";
    assert!(ran.code == 1 && ran.out.ends_with(last), "{}", ran.out);
}

#[test]
fn machine_reads_every_problem_with_its_place() {
    let broken = run(&["check", "fixtures/cli/broken.toml", "--json"], "");
    let said: serde_json::Value = serde_json::from_str(&broken.out).unwrap();
    let problems = said["problems"].as_array().unwrap();
    assert_eq!((broken.code, &said["good"], problems.len()), (1, &false.into(), 6));
    assert_eq!((&problems[1]["line"], &problems[1]["place"]), (&3.into(), &"vendors.parcels.safety".into()));
    let good = run(&["check", "fixtures/cli/parcels.toml", "--json"], "");
    let said: serde_json::Value = serde_json::from_str(&good.out).unwrap();
    assert_eq!((good.code, &said["good"], &said["vendors"][0]), (0, &true.into(), &"parcels".into()));
    assert_eq!(said["warnings"].as_array().unwrap().len(), 1);
}

/// The reason for a refusal names what the vendor sent, and not the number of a rule.
#[test]
fn catalogue_rule_of_a_refusal_is_explained() {
    let answer = "HTTP/2 200\ncontent-type: application/json\n\n{\"errors\":[{\"type\":\"RATE_LIMITED\"}]}";
    let ran = run(&["inspect", "--vendor", "github"], answer);
    let said = "because the status is 200, and body `errors[].type` is RATE_LIMITED or RATE_LIMIT";
    assert!(ran.out.contains(said), "{}", ran.out);
}

#[test]
fn shells_are_all_completed() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = run(&["completions", shell], "");
        assert_eq!(ran.code, 0);
        assert!(ran.out.contains("round-trip") && ran.out.contains("inspect"), "{shell}");
    }
}

#[test]
fn vendors_are_found_by_part_of_name() {
    for (name, first) in [("gmail", "google"), ("Twitter", "x"), ("graph", "msgraph"), ("facebook", "meta")] {
        let ran = run(&["vendors", name], "");
        assert_eq!((ran.code, ran.out.lines().next()), (0, Some(first)), "{name}: {}", ran.err);
    }
    let ran = run(&["vendors", "commerce"], "");
    assert!(ran.out.contains("\nbigcommerce ") && ran.out.contains("\nwoocommerce "), "{}", ran.out);
    assert!(!ran.out.contains("\nstripe "), "{}", ran.out);
}

#[test]
fn vendors_summary_counts_figures_and_age() {
    let ran = run(&["vendors", "--summary"], "");
    let last = ran.out.lines().last().unwrap();
    let figures: Vec<(&str, usize)> = last
        .strip_prefix("catalogue: ")
        .unwrap()
        .split(' ')
        .map(|word| word.split_once('=').unwrap())
        .map(|(name, number)| (name, number.parse().unwrap()))
        .collect();
    let of = |name: &str| figures.iter().find(|(other, _)| *other == name).unwrap().1;
    assert_eq!(of("without_source"), 0);
    assert_eq!(of("documented") + of("seen_in_code") + of("from_memory"), of("figures"));
    let listed: usize = ran
        .out
        .lines()
        .filter_map(|line| line.strip_suffix(" figures").or_else(|| line.strip_suffix(" figure")))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
        .sum();
    assert_eq!(listed, of("older_than_9_months"));
}

#[test]
fn vendors_page_matches_the_catalogue() {
    let page =
        std::fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("docs/VENDORS.md")).unwrap();
    let made = run(&["vendors", "--markdown"], "").out;
    let differs = page.lines().zip(made.lines()).position(|(page, made)| page != made);
    assert!(
        page == made,
        "docs/VENDORS.md is not what vendors.toml says (line {:?}); make it anew:\n    \
         cargo run -p integration-client-cli -- vendors --markdown > docs/VENDORS.md",
        differs.map(|line| line + 1)
    );
}

#[test]
fn catalogue_as_json_holds_every_vendor() {
    let ran = run(&["vendors", "--json"], "");
    let all: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let names: Vec<&str> = all.as_array().unwrap().iter().map(|vendor| vendor["name"].as_str().unwrap()).collect();
    assert_eq!(names, Config::load(&Sources::new(), 1).unwrap().vendors().names().collect::<Vec<_>>());
    let one: serde_json::Value = serde_json::from_str(&run(&["vendors", "xero", "--json"], "").out).unwrap();
    assert_eq!(one["environments"]["live"]["limits"][0]["limit"], 60);
    assert_eq!(one["environments"]["live"]["limits"][0]["confidence"], "documented");
}
