//! Drives the parsers of foreign input with invalid bytes: random ones, and changed versions of what vendors are known
//! to send. `FUZZ=10000000 cargo test --release --all-features -p suite hostile` runs for longer.

#![allow(clippy::unwrap_used, reason = "tests")]

use integration_client::testing::fuzz;

/// Rounds of each parser, unless `FUZZ` says otherwise.
const ROUNDS: usize = 3_000;

fn rounds() -> usize {
    std::env::var("FUZZ").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS)
}

/// Calls `read` with random bytes, and with `seeds` in which bytes were changed, doubled, removed or joined.
fn drive(seed: u64, seeds: &[Vec<u8>], rounds: usize, read: fn(&[u8])) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..rounds {
        let mut bytes: Vec<u8> = match random.choice(seeds).filter(|_| random.u8(0..8) > 0) {
            Some(seed) => seed.clone(),
            None => (0..random.usize(0..200)).map(|_| random.u8(..)).collect(),
        };
        for _ in 0..random.usize(0..6) {
            let at = random.usize(0..=bytes.len());
            match random.u8(0..6) {
                0 if at < bytes.len() => bytes[at] = random.u8(..),
                1 if at < bytes.len() => bytes[at] = b"0123456789-.,:;=/\"{}[]* \n"[random.usize(0..25)],
                2 => bytes.truncate(at),
                3 => bytes.insert(at, random.u8(32..127)),
                4 => {
                    let piece = bytes[at..].iter().take(random.usize(0..40)).copied().collect::<Vec<u8>>();
                    bytes.splice(at..at, piece);
                }
                _ => {
                    let other = random.choice(seeds).cloned().unwrap_or_default();
                    bytes.splice(at..at, other.into_iter().take(200));
                }
            }
        }
        read(&bytes);
    }
}

/// Known input from vendors: headers as lines, single values, bodies.
fn seeds() -> [Vec<Vec<u8>>; 3] {
    #[derive(serde::Deserialize)]
    struct Case {
        headers: Vec<(String, String)>,
        body: Option<String>,
    }
    let mut cases: Vec<Case> = serde_json::from_str(include_str!("../../fixtures/headers.json")).unwrap();
    cases.extend(serde_json::from_str::<Vec<Case>>(include_str!("../../fixtures/headers-own.json")).unwrap());
    let line = |(name, value): &(String, String)| format!("{name}:{}", value.chars().take(300).collect::<String>());
    let lines = cases.iter().map(|case| case.headers.iter().map(line).collect::<Vec<_>>().join("\n").into_bytes());
    let values = cases.iter().flat_map(|case| &case.headers);
    let values = values.map(|(_, value)| value.chars().take(300).collect::<String>().into_bytes());
    let bodies = cases.iter().filter_map(|case| Some(case.body.as_ref()?.as_bytes().to_vec()));
    [lines.collect(), values.collect(), bodies.collect()]
}

#[test]
fn hostile_headers_are_survived() {
    drive(1, &seeds()[0], rounds(), fuzz::headers);
}

#[test]
fn hostile_dates_are_survived() {
    drive(2, &seeds()[1], rounds(), fuzz::dates);
}

#[test]
fn hostile_structured_fields_are_survived() {
    drive(3, &seeds()[1], rounds(), fuzz::structured);
}

/// libFuzzer found this case: each control character became three bytes after the length had been checked.
#[test]
fn control_character_name_stays_bounded() {
    for length in 1..200 {
        let tabs = "\t".repeat(length);
        for value in [format!("2:\"{tabs}\":x"), format!("2:x:\"{tabs}\""), format!("2:\"{tabs}2:\"{tabs}\"")] {
            fuzz::structured(value.as_bytes());
        }
        // The parser joins the words of a name with a dash, which counts in the length.
        fuzz::structured(format!("2:{}:x", "n".repeat(length)).as_bytes());
        fuzz::structured(format!("2:{}:{}", "n".repeat(length), "m".repeat(length)).as_bytes());
    }
}

#[test]
fn hostile_bodies_are_survived() {
    drive(4, &seeds()[2], rounds(), fuzz::body);
}

#[test]
fn hostile_configurations_are_survived() {
    let text = include_str!("../../fixtures/dialects.toml");
    let tables = text.split("\n\n").map(|table| table.as_bytes().to_vec()).collect::<Vec<_>>();
    // Fewer rounds, because each of them also loads the catalogue.
    drive(5, &tables, rounds() / 100, fuzz::config);
}
