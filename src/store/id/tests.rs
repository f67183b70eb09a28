use super::*;

#[test]
fn ids_of_messages_sort_by_time() {
    let at = |millis: u64| UNIX_EPOCH + Duration::from_millis(1_800_000_000_000 + millis);
    let content = |text: &str| Id::new_v5(&Id::NAMESPACE_URL, text.as_bytes());
    let (one, other) = (id_with_content(at(0), content("one")), id_with_content(at(0), content("other")));
    let later = id_with_content(at(1), content("one"));
    assert!(one < later && other < later);
    assert!(same_content(one, later) && !same_content(one, other));
    assert!(same_content(one, content("one")), "the hash itself was the id in earlier versions");
}
#[test]
fn ids_of_numbered_messages_are_neighbours() {
    let hash = |text: &str| Id::new_v5(&Id::NAMESPACE_URL, text.as_bytes());
    let id = |name: &str| id_by_number(name, hash(name));
    for names in [["3:99", "3:100", "3:101"], ["7", "8", "10"], ["a-9", "a-10", "a-4294967295"]] {
        let ids = names.map(id);
        assert!(ids.is_sorted() && ids.iter().all(|id| *id > FIRST_BY_NUMBER), "{names:?} {ids:?}");
    }
    // Names without a number, with the same number modulo 2^32, and of which only the hashes differ.
    let names = ["", "a", "é", "1", "4294967297", "01", "99999999999999999999999", "a1", "b1"];
    let ids: std::collections::HashSet<Id> = names.map(id).into();
    assert_eq!(ids.len(), names.len());
    assert_ne!(id_by_number("1", hash("acme")), id_by_number("1", hash("beta")));
}
