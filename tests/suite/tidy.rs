//! Rules of the source tree that no compiler checks: pure modules use no runtime, clock, file or socket; dependencies
//! between folders point one way; files are short and named after their content; TOML in the docs is valid; tests that
//! pages name exist.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a file that cannot be read fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

use integration_client::config::{Config, Sources};

use crate::support::repository;

fn files(folder: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => walk(&path, found),
                Some(extension) if extension == "rs" => {
                    let text = fs::read_to_string(&path).unwrap();
                    found.push((path, text));
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    walk(&repository().join(folder), &mut found);
    found
}

/// The lines of code with their numbers. Comments are left out, because they may name what the code must not use.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines().map(|line| line.split("//").next().unwrap_or_default()))
}

/// Asserts that no line of code under `folder` contains any of `words`.
#[track_caller]
fn forbid(folder: &str, words: &[&str]) {
    for (path, text) in files(folder) {
        for (number, line) in code(&text) {
            let found = words.iter().find(|word| line.contains(**word));
            assert_eq!(found, None, "{}:{number}: {line}", path.display());
        }
    }
}

/// Asserts that every `crate::` path under `folder`, outside of tests, begins with one of `modules`.
#[track_caller]
fn imports_only(folder: &str, modules: &[&str]) {
    assert!(!files(folder).is_empty(), "{folder} is gone");
    let is_test = |path: &Path| path.components().any(|part| part.as_os_str() == "tests");
    let root = repository();
    for (path, text) in files(folder).into_iter().filter(|(path, _)| !is_test(path.strip_prefix(root).unwrap())) {
        for (number, line) in code(&text) {
            for (at, _) in line.match_indices("crate::") {
                let rest = &line[at + "crate::".len()..];
                let allowed = modules.iter().any(|module| rest.starts_with(module));
                assert!(allowed, "{}:{number}: {line}", path.display());
            }
        }
    }
}

/// Asserts that no line of code under `folder`, outside of tests, imports from any of `modules`.
#[track_caller]
fn never_imports(folder: &str, modules: &[&str]) {
    let root = repository();
    let is_test = |path: &Path| path.components().any(|part| part.as_os_str() == "tests");
    let sources = files(folder);
    assert!(!sources.is_empty(), "{folder} is gone");
    for (path, text) in sources.into_iter().filter(|(path, _)| !is_test(path.strip_prefix(root).unwrap())) {
        let path = path.strip_prefix(root).unwrap();
        for (number, line) in code(&text).filter(|_| !path.ends_with("tests.rs")) {
            let found = modules.iter().find(|module| line.contains(&format!("crate::{module}")));
            assert_eq!(found, None, "{}:{number}: {line}", path.display());
        }
    }
}

#[test]
fn pure_modules_use_no_runtime_or_clock() {
    assert!(!files("engine/src").is_empty());
    assert!(!files("src/signals").is_empty());
    for folder in ["engine/src", "src/signals", "src/retry"] {
        forbid(folder, &["tokio", ".await", "async fn", "Instant::now", "SystemTime::now", ".elapsed("]);
    }
    // The other folders handle dates of headers, with the wall clock's time as an argument. The engine needs no dates.
    forbid("engine/src", &["SystemTime"]);
    // These modules are in the standard library, so no manifest can exclude them.
    forbid("engine/src", &["std::fs", "std::io", "std::net", "std::process", "std::thread"]);
}

fn manifest(folder: &str) -> toml::Table {
    let path = repository().join(folder).join("Cargo.toml");
    toml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The compiler guarantees that the engine uses no other crates than these, which are data structures and random
/// numbers.
#[test]
fn engine_depends_on_no_runtime() {
    let manifest = manifest("engine");
    let dependencies: Vec<&str> = manifest["dependencies"].as_table().unwrap().keys().map(String::as_str).collect();
    assert_eq!(dependencies, ["compact_str", "fastrand", "hashbrown", "smallvec"]);
    assert!(["dev-dependencies", "build-dependencies", "target"].iter().all(|table| !manifest.contains_key(*table)));
}

#[test]
fn both_tables_name_every_feature() {
    let features = manifest(".")["features"].as_table().unwrap().clone();
    for page in ["README.md", "src/lib.rs"] {
        let text = fs::read_to_string(repository().join(page)).unwrap();
        let rows: Vec<&str> = text.lines().map(|line| line.trim_start_matches("//! ")).collect();
        for feature in features.keys().filter(|name| *name != "default") {
            let is_named = rows.iter().any(|row| {
                let names = row.strip_prefix("| ").and_then(|row| row.split('|').next()).unwrap_or_default();
                names.contains(&format!("`{feature}`"))
            });
            assert!(is_named, "{page}: no row of the table of features names `{feature}`");
        }
    }
}

/// The engine promises no stability, so each release of the library requires exactly the engine of that release.
#[test]
fn engine_is_released_with_the_library() {
    let (library, engine) = (manifest(""), manifest("engine"));
    let version = library["package"]["version"].as_str().unwrap();
    assert_eq!(engine["package"]["version"].as_str(), Some(version));
    let wanted = library["dependencies"]["integration-client-engine"]["version"].as_str().unwrap();
    assert_eq!(wanted, format!("={version}"));
}

#[test]
fn dependencies_point_one_way() {
    // Files refer to the engine as `crate::engine`, the name that the rules below check.
    for (path, text) in files("src").into_iter().filter(|(path, _)| !path.ends_with("src/lib.rs")) {
        assert!(!text.contains("integration_client_engine"), "{}: say crate::engine", path.display());
    }
    imports_only("src/signals", &["signals"]);
    imports_only("src/retry", &["clock", "config", "error", "retry", "transport::Sent"]);
    imports_only("src/retry/breaker", &["retry", "clock"]);
    never_imports("src/core", &["client", "send", "outbox"]);
    never_imports("src/send", &["client", "outbox"]);
    never_imports("src/outbox", &["client"]);
    never_imports("src/transport", &["engine", "dispatch", "core", "client"]);
    never_imports("src/telemetry/events", &["engine", "dispatch", "core", "client"]);
    never_imports("src/telemetry/metrics", &["engine", "dispatch", "core", "client"]);
    never_imports("src/config", &["engine", "dispatch", "transport", "core", "client"]);
    never_imports("src/store", &["engine", "dispatch", "core", "client", "send"]);
    forbid("src/outbox", &["sqlx", "SELECT ", "UPDATE ", "DELETE FROM", "INSERT INTO"]);
    // These modules judge the engine, so they must not share its code and its mistakes.
    for folder in ["src/testing/limit", "src/testing/checker", "src/testing/vendor"] {
        never_imports(folder, &["engine", "dispatch", "core", "client"]);
    }
}

#[test]
fn files_hold_one_idea_each() {
    for (path, text) in ["src", "engine", "cli", "intake"].into_iter().flat_map(files) {
        let lines = text.lines().count();
        let most = if path.components().any(|part| part.as_os_str() == "tests") { 500 } else { 450 };
        assert!(lines <= most, "{}: {lines} lines; is it two ideas?", path.display());
    }
}

#[test]
fn names_say_what_is_inside() {
    for (path, _) in ["src", "engine", "cli", "intake", "tests", "benches"].into_iter().flat_map(files) {
        for part in path.strip_prefix(repository()).unwrap() {
            let name = part.to_str().unwrap().trim_end_matches(".rs");
            assert!(!["utils", "util", "helpers", "common", "misc", "manager"].contains(&name), "{}", path.display());
        }
    }
}

/// The TOML examples of the README, the guide, the page on SDKs and the page of the format are valid configurations.
/// Examples for Cargo.toml say so in their first line, and are left out.
#[test]
fn toml_examples_of_the_docs_are_valid() {
    for (name, text) in [
        ("README.md", include_str!("../../README.md")),
        ("GUIDE.md", include_str!("../../docs/GUIDE.md")),
        ("SDKS.md", include_str!("../../docs/SDKS.md")),
        ("format.md", include_str!("../../src/config/format.md")),
    ] {
        let examples = text
            .split(
                "```toml
",
            )
            .skip(1)
            .filter_map(|rest| rest.split("```").next());
        let examples: Vec<&str> = examples.filter(|example| !example.starts_with("# Cargo.toml")).collect();
        assert!(name == "README.md" || !examples.is_empty());
        for example in examples {
            let config = Config::load(&Sources::new().file(name, example), 1).unwrap();
            assert_eq!(config.warnings(), [""; 0]);
        }
    }
}

/// The configuration that compose.yaml and the Dockerfile name can be served at all addresses: it has callers, and
/// compose.yaml sets each variable that it refers to.
#[test]
fn container_has_a_configuration_with_callers() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
    let (compose, dockerfile) = (read("compose.yaml"), read("Dockerfile"));
    let mounted = compose.split("volumes: [\"./").nth(1).unwrap().split(':').next().unwrap();
    assert!(dockerfile.contains(&format!("-v ./{mounted}:/etc/integration-client/vendors.toml:ro")), "{mounted}");
    let text = read(mounted);
    let config = Config::load(&Sources::new().file(mounted, text.as_str()), 1).unwrap();
    assert!(!config.callers().is_empty() && config.tenants().len() > 0);
    for name in text.split("\"env:").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(compose.contains(&format!("\n      {name}: ")), "compose.yaml does not set {name}");
    }
}

/// The page of the configuration format shows every key that the parser knows.
#[test]
fn format_page_shows_every_key() {
    let page = include_str!("../../src/config/format.md");
    let is_shown = |key: &str| {
        page.match_indices(key).any(|(at, _)| {
            let (before, after) = (&page[..at], &page[at + key.len()..]);
            // A key stands before its value, or in the name of a table.
            !before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_')
                && [" =", "]", "."].iter().any(|end| after.starts_with(end))
        })
    };
    let mut count = 0;
    for text in [include_str!("../../src/config/format.rs"), include_str!("../../src/config/entry.rs")] {
        let fields = text.lines().filter_map(|line| line.trim().strip_prefix("pub(super) ")?.split_once(": "));
        let keys = fields.map(|(name, _)| name);
        for key in keys.filter(|name| name.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'_')) {
            assert!(is_shown(key), "src/config/format.md does not show `{key}`");
            count += 1;
        }
    }
    assert!(count > 150, "{count}");
}

/// An id in the log has the form of receipts and commands, without dashes, so that it can be searched for.
#[test]
fn logged_ids_have_no_dashes() {
    for (path, text) in ["src", "engine", "intake"].into_iter().flat_map(files) {
        let mut before = "";
        for (number, line) in code(&text) {
            let shows_id = line.contains("tracing::") && (line.contains("(%id,") || line.contains("id = %"));
            let is_simple = line.contains(".simple()") || before.contains("let id = ") && before.contains(".simple()");
            assert!(!shows_id || is_simple, "{}:{number}: {line}", path.display());
            before = line;
        }
    }
}

/// The tests that INVARIANTS.md names exist: in the second column, whatever is no path.
#[test]
fn invariants_name_tests_that_exist() {
    let sources: String =
        ["src", "engine", "tests", "cli", "intake"].into_iter().flat_map(files).map(|(_, text)| text).collect();
    let rows = include_str!("../../docs/INVARIANTS.md").lines().filter(|line| line.starts_with("| ")).skip(1);
    for row in rows {
        let [_, _, shown, ""] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else { panic!("{row}") };
        for name in shown.split('`').skip(1).step_by(2).filter(|name| !name.contains('/')) {
            assert!(sources.contains(&format!("fn {name}(")), "{name}");
        }
    }
}

/// The tests that FAILURES.md names exist, and every row names one or says why there is none.
#[test]
fn failures_name_tests_that_exist() {
    let sources: String =
        ["src", "engine", "tests", "cli", "intake"].into_iter().flat_map(files).map(|(_, text)| text).collect();
    let rows = include_str!("../../docs/FAILURES.md").lines().filter(|line| line.starts_with("| ")).skip(1);
    for row in rows {
        let [_, what, .., shown, ""] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else { panic!("{row}") };
        assert!(!what.is_empty() && (shown.contains('`') || shown.starts_with("no test")), "{row}");
        for name in shown.split('`').skip(1).step_by(2) {
            assert!(sources.contains(&format!("fn {name}(")), "{name}");
        }
    }
}
