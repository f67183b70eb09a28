//! `docs/ARCHITECTURE.md` names files that exist, and types where they are defined.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a file that cannot be read fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::repository;
use crate::support::tables::{quoted, rows};

const PAGE: &str = include_str!("../../docs/ARCHITECTURE.md");

/// The names in a table cell: the quoted ones, or the whole cell if it quotes none.
fn names(cell: &str) -> Vec<&str> {
    if cell.contains('`') { quoted(cell) } else { vec![cell] }
}

/// Finds a path that the page names: below `src`, or below the root of the repository.
fn find(path: &str) -> Option<PathBuf> {
    [repository().join("src").join(path), repository().join(path)].into_iter().find(|path| path.exists())
}

/// The source of a file, or of all files of a folder.
fn source(path: &Path) -> String {
    if !path.is_dir() {
        return fs::read_to_string(path).unwrap();
    }
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let is_source = |path: &PathBuf| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs");
    entries.filter(is_source).map(|path| source(&path)).collect()
}

fn defines(source: &str, name: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let keywords = ["struct", "enum", "trait", "type", "fn"];
    keywords.iter().any(|keyword| {
        let definition = format!("{keyword} {name}");
        source.match_indices(&definition).any(|(at, _)| ends(&source[at + definition.len()..]))
    })
}

#[test]
fn architecture_types_stand_in_their_files() {
    let mut checked = 0;
    let lives = PAGE.match_indices("| | what happens | file | type |").map(|(at, _)| &PAGE[at..]);
    for table in lives {
        for row in rows(table, "| what happens | file | type") {
            let files = names(&row[2]).into_iter();
            let sources: String =
                files.map(|path| source(&find(path).unwrap_or_else(|| panic!("{path} is gone: {row:?}")))).collect();
            for name in names(&row[3]).into_iter().flat_map(|name| name.split("::")) {
                assert!(defines(&sources, name), "{name} is defined in none of {}", row[2]);
                checked += 1;
            }
        }
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn architecture_paths_exist() {
    let mut checked = 0;
    for row in rows(PAGE, "to change").iter().chain(&rows(PAGE, "place")) {
        let is_path = |name: &&str| name.contains('/') || name.ends_with(".rs");
        for path in row.iter().flat_map(|cell| names(cell)).filter(is_path).filter(|path| !path.contains(' ')) {
            // Within a row of the code map, a name without a folder is a file of that row's folder.
            let near = row[0].trim_end_matches('/');
            let found = find(path).or_else(|| find(&format!("{near}/{path}")));
            assert!(found.is_some(), "{path} is gone: {row:?}");
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked}");
}

/// The head of the engine's crate lists each public function of `Engine`, and none that is gone.
#[test]
fn engine_verbs_are_listed() {
    let folder = repository().join("engine/src");
    let head = fs::read_to_string(folder.join("lib.rs")).unwrap();
    let head: String =
        head.lines().map_while(|line| line.strip_prefix("//!")).map(|line| format!("{}\n", line.trim())).collect();
    let listed: BTreeSet<String> =
        rows(&head, "what for").iter().flat_map(|row| quoted(&row[1])).map(str::to_owned).collect();
    let mut defined = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        let blocks = text.split("\nimpl Engine {\n").skip(1).filter_map(|rest| rest.split("\n}\n").next());
        for function in blocks.flat_map(|block| block.split("    pub fn ").skip(1)) {
            defined.extend(function.split(['(', '<']).next().map(str::to_owned));
        }
    }
    assert!(defined.len() > 40, "{defined:?}");
    assert_eq!(listed, defined);
}
