use super::*;

#[test]
fn passwords_in_urls_are_recognised() {
    for url in [
        "postgres://user:hunter2@host/db",
        "redis://:hunter2@host",
        "postgres://host/db?password=hunter2",
        "postgres://one:5432,two:5432/db?sslmode=require&PASSWORD=hunter2#x",
        "postgres://host?p%61ssword=hunter2",
        "redis+unix:///run/redis.sock?user=u&pass=hunter2",
        "s3://bucket/prefix?secret_access_key=hunter2",
        "az://container?sas_token=hunter2",
    ] {
        assert!(has_password(url), "{url}");
    }
    for url in [
        "store",
        "env:SHARING_URL",
        "postgres://user@host/db?sslmode=verify-full&sslkey=/etc/key.pem",
        "postgres://one:5432,two:5432/db",
        "redis://host:6379/2#password=no",
        "s3://bucket/prefix?region=eu-central-1",
    ] {
        assert!(!has_password(url), "{url}");
    }
}

#[test]
fn unusable_variable_is_described() {
    let read = |value| of_variable("SHARING_URL", value);
    assert_eq!(read(Ok("store".to_owned())).as_deref(), Ok("store"));
    for (value, why) in [
        (Ok(String::new()), "SHARING_URL is empty"),
        (Err(VarError::NotPresent), "SHARING_URL is not set"),
        (Err(VarError::NotUnicode("x".into())), "SHARING_URL is not UTF-8"),
    ] {
        assert!(read(value).unwrap_err().contains(why), "{why}");
    }
}
