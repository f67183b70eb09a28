use super::*;

/// The content security policy would block inline code. Markup from strings would be unsafe, so text reaches the
/// page by `textContent` alone.
#[test]
fn page_has_no_inline_code_or_markup() {
    let names = ["", "console.css", "console.js", "dom.js", "api.js", "words.js", "lanes.js", "lane.js"];
    for name in names.into_iter().chain(["letters.js", "queues.js", "events.js", "system.js"]) {
        let text = file(name).unwrap().text;
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "new Function",
            "style=",
            "onclick=",
        ] {
            assert!(!text.contains(word), "{name}: {word}");
        }
        assert!(!text.contains("http://") || name.ends_with(".js"), "{name}");
    }
    let page = file("").unwrap().text;
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.contains("<script type=\"module\" src=\"console.js\"></script>"));
    assert!(!page.contains("<style"));
}
