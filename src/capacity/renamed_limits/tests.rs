use super::*;
use crate::config::Sources;

#[test]
fn renamed_shared_limits_are_found() {
    let limits = |stated: &[(&str, &str, &str)]| {
        let mut text = "[vendors.v]\nbase_url = \"https://v.test\"\nauth = { scheme = \"bearer\" }\n".to_owned();
        for (name, window, more) in stated {
            text += &format!("[[vendors.v.limits]]\nname = \"{name}\"\nlimit = 100\nwindow = \"{window}\"\n{more}\n");
        }
        limits_of(&Config::load(&Sources::new().without_catalogue().file("v", text), 1).unwrap())
    };
    let before = limits(&[("a", "1m", "")]);
    let cases = [
        (vec![("a", "1m", "")], None),
        (vec![("b", "1m", "")], Some("b")),
        (vec![("a", "1m", "scope = \"account\"")], Some("a")),
        (vec![("b", "1h", "")], None),
        (vec![("a", "1m", ""), ("b", "1m", "scope = \"account\"")], None),
        (vec![("b", "1m", "shared = false")], None),
    ];
    for (now, expected) in cases {
        let limits = limits(&now);
        let found: Vec<&str> = renamed(&before, &limits).iter().map(|(_, now)| &*now.name).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{now:?}");
    }
}
