use super::*;

#[test]
fn trace_parents_are_validated() {
    assert!(is_trace_parent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    for bad in [
        "",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
    ] {
        assert!(!is_trace_parent(bad), "{bad}");
    }
}

#[test]
fn segments_and_queries_are_data() {
    let request = Request::get("v", "/a").segment("b/../c?d#e").query("x&y", "1 2=3");
    assert!(matches!(&request.parts.target, Target::Path { path, .. } if path == "/a/b%2F..%2Fc%3Fd%23e"));
    assert_eq!(request.parts.query, "x%26y=1%202%3D3");
    assert!(Request::get("v", "/a").segment("..").problem().is_some());
}
