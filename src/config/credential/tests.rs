//! Tests of references to credentials.

use super::*;

#[test]
fn references_are_read_back_as_written() {
    let resolvers = BTreeSet::from(["vault".to_owned()]);
    for text in ["env:ACME_TOKEN", "file:/run/secrets/acme", "vault:acme/github#token"] {
        assert_eq!(CredentialRef::parse(text, &resolvers).unwrap().to_string(), text);
    }
}

#[test]
fn empty_value_is_no_secret() {
    use secrecy::ExposeSecret as _;
    let path = std::env::temp_dir().join(format!("integration-client-empty-{}.secret", std::process::id()));
    let file = CredentialRef::File(path.display().to_string());
    for text in ["", "\n", " \r\n\n", "\u{feff}\n"] {
        std::fs::write(&path, text).unwrap();
        let error = file.read().unwrap_err();
        assert_eq!(error, format!("file:{} is empty: put the secret there", path.display()));
    }
    for text in [" x \r\n", "\u{feff} x \n"] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(file.read().unwrap().expose_secret(), " x ");
    }
    std::fs::remove_file(&path).unwrap();
    // A variable goes the same way.
    assert_eq!(stated("env:ACME_KEY", String::new()).unwrap_err(), "env:ACME_KEY is empty: put the secret there");
}

#[test]
fn secret_is_refused_and_not_repeated() {
    for text in [
        "ghp_0123456789abcdef",
        "env:ghp_0123456789abcdef",
        "admin:hunter2",
        "sk_live_51H8",
        "vault:eyJhbGciOi",
        "",
        "env:",
        "env:a b",
        "hunter2",
        "file:a\nb",
        "https://user:hunter2@host",
    ] {
        let message = CredentialRef::parse(text, &BTreeSet::from(["vault".to_owned()])).unwrap_err();
        for secret in ["0123456789", "hunter2", "admin", "51H8", "hbGciOi"] {
            assert!(!message.contains(secret), "{message}");
        }
    }
}
