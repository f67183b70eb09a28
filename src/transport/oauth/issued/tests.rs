use super::*;

const ID: &str = "client 7";
const SECRET: &str = "s3cr3t/+ &=x";
const TOKEN: &str = "1//0refresh";

fn described(code: &str, description: &str) -> String {
    let error = serde_json::json!({"error": code, "error_description": description});
    let error: BasicErrorResponse = serde_json::from_value(error).unwrap();
    refusal(&error, &carried(ID, Some(SECRET), Some(TOKEN))).to_string()
}

#[test]
fn secrets_are_quoted_in_no_form() {
    // The crate oauth2 sends the base64 of this.
    let id_and_secret = "client+7:s3cr3t%2F%2B+%26%3Dx";
    let sent = in_base64(id_and_secret);
    let raw = in_base64("client 7:s3cr3t/+ &=x");
    for form in [
        SECRET,
        TOKEN,
        "1%2F%2F0refresh",
        "1%2f%2f0refresh",
        "1\\/\\/0refresh",
        "1&#x2F;&#47;0refresh",
        id_and_secret,
        "s3cr3t%2F%2B%20%26%3Dx",
        sent.expose_secret(),
        raw.expose_secret(),
    ] {
        for description in [format!("bad: {form}"), form.to_owned(), format!("{}{form}", "x".repeat(195))] {
            assert_eq!(described("invalid_grant", &description), "an error that repeats a secret", "{description}");
        }
        assert_eq!(described(form, "bad"), "an error that repeats a secret", "{form}");
        assert_eq!(described(&format!("{}{form}", "x".repeat(60)), "bad"), "an error that repeats a secret");
    }
}

#[test]
fn descriptions_without_secrets_are_quoted() {
    assert_eq!(described("invalid_grant", "1 %2F 0 for client 7"), "invalid_grant (1 %2F 0 for client 7)");
    assert_eq!(described("invalid_grant", "the token 1//0re"), "invalid_grant (the token 1//0re)");
    let error = serde_json::from_str::<BasicErrorResponse>("{\"error\":\"slow_down\"}").unwrap();
    assert_eq!(refusal(&error, &carried("", None, Some(""))), Trouble::Later("slow_down".to_owned(), None));
}
