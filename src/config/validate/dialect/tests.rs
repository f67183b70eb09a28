use crate::config::dialects;

#[test]
fn unconditional_verdict_is_refused() {
    let read = |rule: &str| dialects("d.toml", &format!("[vendors.x.dialect]\nanswers = [{{ {rule} }}]\n"));
    for rule in ["throttled = false", "exhausted = false, throttled = false", "exhausted = false, throttled = true"] {
        let error = read(rule).unwrap_err().to_string();
        assert!(error.contains("this rule fits every answer"), "{rule}: {error}");
    }
    for rule in ["exhausted = true, throttled = false", "exhausted = false, status = [402], throttled = true"] {
        assert!(read(rule).is_ok(), "{rule}");
    }
}

#[test]
fn dialect_has_at_most_32_pointers() {
    let read = |count: usize, more: &str| {
        let answer = |number| format!("{{ from = \"body#/a{number}\", is = [\"x\"], throttled = true }}");
        let answers: Vec<String> = (0..count).map(answer).collect();
        dialects("d.toml", &format!("[vendors.x.dialect]\nanswers = [{}]\n{more}", answers.join(", ")))
    };
    // A place that occurs twice is looked up once, and a header is no place in a body.
    assert!(read(32, "rate = \"body#/a1\"\nwaits = [{ from = \"x-wait\" }]\n").is_ok());
    for (count, more) in [(33, ""), (32, "rate = \"body#/b\"\n")] {
        let error = read(count, more).unwrap_err().to_string();
        assert!(error.contains("reads 33 different places") && error.contains("at most 32"), "{error}");
    }
}
