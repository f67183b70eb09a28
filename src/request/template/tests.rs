use super::*;

#[test]
fn template_keeps_words_and_versions() {
    for (path, expected) in [
        ("/", "/"),
        ("", "/"),
        ("/repos/rust-lang/rust/issues/5", "/repos/rust-lang/rust/issues/*"),
        ("/v2/users.json?token=secret#x", "/v2/users.json"),
        ("/v1beta1/getUser/API/oauth2", "/v1beta1/getUser/API/oauth2"),
        ("/admin/api/2024-10/orders/4711.json", "/admin/api/2024-10/orders/*"),
        ("/20241001/12-34/2.0", "/*/*/*"),
        ("//a//b/", "/a/b"),
        ("/bot123456:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/getMe", "/*/getMe"),
        ("/services/T024BE7LD/B0000/aBcXyZqWeRtY", "/services/*/*/*"),
        ("/users/jane%40example.com/x", "/users/*/x"),
        ("/9f86d081-884c-4d63-a1b2-5f1f5d9b8a00/deadbeefcafe1234", "/*/*"),
        ("/abcdefghijklmnopqrstuvwxyz", "/*"),
    ] {
        assert_eq!(template(path), expected, "{path}");
    }
}

#[test]
fn template_is_bounded_and_has_no_query() {
    let mut random = fastrand::Rng::with_seed(5);
    let alphabet: Vec<char> = "abcXYZ019/-_.%~:;@ü?#=&".chars().collect();
    for _ in 0..20_000 {
        let path: String = (0..random.usize(..300)).map(|_| alphabet[random.usize(..alphabet.len())]).collect();
        let template = template(&path);
        assert!(template.len() <= LONGEST && template.starts_with('/'), "{path}: {template}");
        assert!(!template.contains(['?', '#', '=', '&', '%', ':', ' ']), "{path}: {template}");
    }
    assert_eq!(template(&"/word".repeat(100)).len(), "/word".len() * 18 + "/**".len());
}
