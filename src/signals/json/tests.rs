use super::*;

fn find(pointer: &str, json: &str) -> Vec<(String, String)> {
    let found = super::find(&[&Pointer::parse(pointer).unwrap()], json.as_bytes());
    found.into_iter().map(|(_, found)| (found.keys.join(" "), found.value.to_string())).collect()
}

#[test]
fn pointer_finds_its_values() {
    let json = r#"{"a":{"b":[{"c":1},{"c":"two"},3]},"d/e":true,"f":null}"#;
    let at = |pointer: &str| find(pointer, json).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    assert_eq!(at("/a/b/0/c"), ["1"]);
    assert_eq!(at("/d~1e"), ["true"]);
    assert_eq!(find("/a/b/*/c", json), [("0".into(), "1".into()), ("1".into(), "\"two\"".into())]);
    assert_eq!(find("/*/b/2", json), [("a".into(), "3".into())]);
    for none in ["/a/c", "/a/b/9", "/f/x", "/a/b/0/c/d"] {
        assert!(at(none).is_empty(), "{none}");
    }
    assert_eq!(Pointer::parse("a"), None);
}

#[test]
fn joint_walk_finds_what_each_finds() {
    let json = r#"{"a":{"b":[{"c":1},{"c":"two"},3]},"d":{"a":4},"a/b":5,"x":"\ud800","e":6}"#;
    let pointers = ["", "/a", "/a/b", "/a/b/*/c", "/a/b/1/c", "/*/a", "/e", "/none", "/a~1b", "/a/b/*", "/d/a"];
    for json in [json, r#"{"a":{"b":[{"c":1},{"c":"#, "{}", "7", ""] {
        let pointers: Vec<Pointer> = pointers.iter().map(|text| Pointer::parse(text).unwrap()).collect();
        let found = super::find(&pointers.iter().collect::<Vec<_>>(), json.as_bytes());
        for (at, pointer) in pointers.iter().enumerate() {
            let own = found.iter().filter(|(of, _)| *of == at).map(|(_, found)| (&found.keys, &found.value));
            let alone = super::find(&[pointer], json.as_bytes());
            let alone = alone.iter().map(|(_, found)| (&found.keys, &found.value));
            assert_eq!(own.collect::<Vec<_>>(), alone.collect::<Vec<_>>(), "{pointer:?} in {json}");
        }
    }
    let repeated = format!("{{{}\"b\":1}}", "\"a\":1,".repeat(2 * MAX_FOUND));
    assert_eq!(find("/a", &repeated).len(), MAX_FOUND);
    let everywhere = format!("{{\"a\":[{}]}}", vec!["1"; 2 * MAX_FOUND].join(","));
    assert_eq!(find("/a/*", &everywhere).len(), MAX_FOUND);
}

#[test]
fn truncated_json_is_read_to_its_end() {
    assert_eq!(find("/error/code", r#"{"error":{"code":7},"data":[1,2"#), [("".into(), "7".into())]);
    assert_eq!(find("/error/code", r#"{"data":[1,2"#), []);
    assert_eq!(find("/a", r#"{"a":"cut"#), []);
    assert_eq!(find("/a", &"[".repeat(100_000)), []);
}

#[test]
fn cut_json_is_not_whole() {
    let json = r#"{"a":[{"b":429},{"b":"\ud83d\ude00 é"}]}"#;
    assert!(is_whole(json.as_bytes()) && is_whole(format!(" {json}\r\n").as_bytes()));
    for end in 0..json.len() {
        assert!(!is_whole(&json.as_bytes()[..end]), "{end}");
    }
    assert!(!is_whole(format!("{json}{json}").as_bytes()));
}
