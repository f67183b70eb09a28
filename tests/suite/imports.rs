//! Imports go one way: reads which source file takes names from which, and asserts that no two files take names from
//! each other.
//!
//! The graph is read from `use` statements and from paths in the code. A name that a module re-exports counts as taken
//! from the file that defines it, as far as the re-export names it. `mod` lines, `pub use` lines and tests are left out
//! of the graph.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a file that cannot be read fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::support::repository;

type Module = Vec<String>;

/// The source of each module under `src` and, as modules below `engine`, under `engine/src`. Tests and programs are
/// left out, and comments and test modules are cut away.
fn sources() -> BTreeMap<Module, String> {
    fn walk(folder: &Path, module: &Module, found: &mut BTreeMap<Module, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if matches!(&*name, "tests" | "bin") || name.ends_with("_off") || name == "off" {
                continue;
            }
            let mut inside = module.clone();
            if path.is_dir() {
                inside.push(name);
                walk(&path, &inside, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                if !matches!(&*name, "mod" | "lib") {
                    inside.push(name);
                }
                let text = fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
                found.insert(inside, lines.collect::<Vec<_>>().join("\n"));
            }
        }
    }
    let root = repository();
    let mut found = BTreeMap::new();
    walk(&root.join("engine/src"), &vec!["engine".to_owned()], &mut found);
    assert!(found.len() > 50);
    // The root of the library names the engine's crate `engine`, so its modules are below that name.
    found.values_mut().for_each(|text| *text = text.replace("crate::", "crate::engine::"));
    walk(&root.join("src"), &Vec::new(), &mut found);
    assert!(found.len() > 200);
    found
}

/// The paths in a tree of `use`: `a::{b, c::{self, d}}` has `a::b`, `a::c::self` and `a::c::d`. Renames with `as` are
/// ignored.
fn paths(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some((before, inside)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.split("::").map(|part| part.trim().to_owned()).collect()];
    };
    let inside = inside.strip_suffix('}').unwrap_or(inside);
    let (mut depth, mut parts, mut part) = (0, Vec::new(), String::new());
    for letter in inside.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match letter {
            ',' if depth == 0 => parts.push(std::mem::take(&mut part)),
            _ => part.push(letter),
        }
    }
    parts.push(part);
    let before: Vec<String> = before.split("::").map(|part| part.trim().to_owned()).filter(|p| !p.is_empty()).collect();
    let under = |part: &String| paths(part).into_iter().map(|path| [before.clone(), path].concat()).collect::<Vec<_>>();
    parts.iter().filter(|part| !part.trim().is_empty()).flat_map(under).collect()
}

/// The paths of a file's `use` statements, and those of its statements with a visibility before `use`.
fn statements(text: &str) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
    let (mut own, mut exported) = (Vec::new(), Vec::new());
    for statement in text.split(';') {
        let Some(at) = statement.rfind("use ").filter(|at| statement[..*at].ends_with(['\n', ' ', ')']) || *at == 0)
        else {
            continue;
        };
        let line = statement[..at].rsplit('\n').next().unwrap_or_default().trim();
        match line {
            "" => own.extend(paths(&statement[at + 4..])),
            _ if line.starts_with("pub") => exported.extend(paths(&statement[at + 4..])),
            _ => {}
        }
    }
    (own, exported)
}

/// A file without its `use` statements.
fn code(text: &str) -> String {
    text.split(';').filter(|statement| !statement.contains("use ")).collect::<Vec<_>>().join(";")
}

/// Paths in the code itself: `crate::a::b` and `super::a`.
fn inline(text: &str) -> Vec<Vec<String>> {
    // The path in a visibility imports nothing.
    let text = &code(&text.replace("pub(in crate::", "pub(in "));
    let mut found = Vec::new();
    for root in ["crate::", "super::"] {
        for (at, _) in text.match_indices(root) {
            let end = text[at..].find(|letter: char| !(letter.is_alphanumeric() || matches!(letter, '_' | ':')));
            let path = text[at..end.map_or(text.len(), |end| at + end)].trim_end_matches(':');
            found.push(path.split("::").map(str::to_owned).collect());
        }
    }
    found
}

struct Graph {
    sources: BTreeMap<Module, String>,
    exported: BTreeMap<Module, Vec<Vec<String>>>,
}

impl Graph {
    fn read() -> Graph {
        let sources = sources();
        let exported = sources.iter().map(|(module, text)| (module.clone(), statements(text).1)).collect();
        Graph { sources, exported }
    }

    /// The module whose file defines what `path` names, as seen from `module`.
    fn target(&self, module: &Module, path: &[String], depth: u32) -> Option<Module> {
        let mut at = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            first => {
                let child = [module.clone(), vec![first.to_owned()]].concat();
                return self.sources.contains_key(&child).then(|| self.within(child, &path[1..], depth)).flatten();
            }
        };
        let mut rest = &path[1..];
        while rest.first().is_some_and(|part| part == "super") {
            at.pop()?;
            rest = &rest[1..];
        }
        self.within(at, rest, depth)
    }

    fn within(&self, mut at: Module, mut rest: &[String], depth: u32) -> Option<Module> {
        while let Some(part) = rest.first() {
            let child = [at.clone(), vec![part.clone()]].concat();
            if !self.sources.contains_key(&child) {
                break;
            }
            (at, rest) = (child, &rest[1..]);
        }
        let name = rest.first();
        let exported = name.and_then(|name| self.exported[&at].iter().find(|path| path.last() == Some(name)));
        match exported {
            Some(path) if depth < 8 => self.target(&at, path, depth + 1).or(Some(at)),
            _ => Some(at),
        }
    }

    /// Paths into the modules that this one declares.
    fn children(&self, module: &Module, text: &str) -> Vec<Vec<String>> {
        let code = code(text);
        let mut found = Vec::new();
        for child in self.sources.keys().filter(|child| child.len() == module.len() + 1 && child.starts_with(module)) {
            let Some(name) = child.last() else { continue };
            for (at, _) in code.match_indices(&format!("{name}::")) {
                if code[..at].ends_with(|before: char| before.is_alphanumeric() || matches!(before, '_' | ':')) {
                    continue;
                }
                let end = code[at..].find(|letter: char| !(letter.is_alphanumeric() || matches!(letter, '_' | ':')));
                let path = code[at..end.map_or(code.len(), |end| at + end)].trim_end_matches(':');
                found.push(["self"].into_iter().chain(path.split("::")).map(str::to_owned).collect());
            }
        }
        found
    }

    fn arrows(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let mut arrows: BTreeMap<&Module, BTreeSet<Module>> = BTreeMap::new();
        for (module, text) in &self.sources {
            let of_file = arrows.entry(module).or_default();
            let children = self.children(module, text);
            for path in statements(text).0.into_iter().chain(inline(text)).chain(children) {
                of_file.extend(self.target(module, &path, 0).filter(|target| target != module && !target.is_empty()));
            }
        }
        arrows
    }
}

/// The cycles of the graph: sets of files in which each file imports from each other one, directly or through others.
fn circles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let arrows = graph.arrows();
    let reach = |from: &Module| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(at) = left.pop() {
            for next in arrows.get(&at).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    left.push(next.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> = arrows.keys().map(|module| (*module, reach(module))).collect();
    let mut found: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for (module, all) in &reached {
        let both = all.iter().filter(|other| reached.get(other).is_some_and(|back| back.contains(*module)));
        let circle: BTreeSet<String> = both.map(|other| other.join("/")).collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

#[test]
fn files_import_in_no_circle() {
    let graph = Graph::read();
    let found = circles(&graph);
    let inside = |from: &Module, to: &Module| {
        found.iter().any(|circle| circle.contains(&from.join("/")) && circle.contains(&to.join("/")))
    };
    let arrows = graph.arrows();
    let pairs = arrows.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, to)));
    let shown: Vec<String> = pairs
        .filter(|(from, to)| inside(from, to))
        .map(|(from, to)| format!("{} takes names from {}", from.join("/"), to.join("/")))
        .collect();
    assert!(found.is_empty(), "files import from each other; move what both need into a file below them: {shown:#?}");
}

#[test]
fn circles_are_found() {
    let text = |text: &str| text.to_owned();
    let module = |path: &str| path.split('/').map(str::to_owned).collect::<Module>();
    let sources = BTreeMap::from([
        (Vec::new(), text("mod a;\nmod b;")),
        (module("a"), text("use crate::b::{self, C as D};\npub(crate) struct A;")),
        (module("b"), text("mod c;\npub(crate) use self::c::C;")),
        (module("b/c"), text("fn f() -> crate::a::A { crate::a::A }")),
    ]);
    let exported = sources.iter().map(|(module, text)| (module.clone(), statements(text).1)).collect();
    let found = circles(&Graph { sources, exported });
    assert_eq!(found, [BTreeSet::from(["a".to_owned(), "b/c".to_owned()])]);
}

/// The folders of `src` from the top down: each imports from those below it. `lib.rs` is above all.
const FOLDERS: [&str; 19] = [
    "ingress",
    "testing",
    "client",
    "outbox",
    "send",
    "store",
    "capacity",
    "core",
    "dispatch",
    "telemetry",
    "dead_letter",
    "retry",
    "request",
    "transport",
    "route",
    "config",
    "signals",
    "error",
    "clock",
];

/// Files that import from a folder above theirs, each with the reason.
const UPWARDS: [(&str, &str); 1] = [
    // A store of SQL is one of the stores that can keep the units of a shared limit, beside Redis, etcd and others.
    ("capacity/pool_store", "store"),
];

#[test]
fn folders_import_downwards() {
    let graph = Graph::read();
    let floor = |module: &Module| FOLDERS.iter().position(|folder| module.first().is_some_and(|top| top == folder));
    let mut upwards = BTreeSet::new();
    for (from, to) in graph.arrows() {
        if from.is_empty() || from[0] == "engine" {
            continue;
        }
        let own = floor(from).unwrap_or_else(|| panic!("{} is in no folder of FOLDERS", from.join("/")));
        let above = to.iter().filter(|target| floor(target).is_some_and(|floor| floor < own));
        upwards.extend(above.map(|target| (from.join("/"), target[0].clone())));
    }
    let allowed = BTreeSet::from(UPWARDS.map(|(from, to)| (from.to_owned(), to.to_owned())));
    assert_eq!(upwards, allowed, "a folder imports from one above it: move what both need into a folder below them");
}

#[test]
fn folders_at_the_top_are_few() {
    let entries = fs::read_dir(repository().join("src")).unwrap();
    let top = entries.filter(|entry| entry.as_ref().unwrap().file_name() != "bin").count();
    assert!(top <= 20, "{top} files and folders at the top of src");
}
