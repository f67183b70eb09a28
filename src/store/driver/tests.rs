use super::*;

#[test]
fn rows_are_arrays_or_one_json_text() {
    let columns = || {
        vec![
            Column::Blobs(vec![Some(&[0, 0xaf]), None]),
            Column::Ints(vec![-1, i64::MAX]),
            Column::Texts(vec!["a\"b", "\u{e9}"]),
        ]
    };
    let sqlite = rows(Dialect::Sqlite, columns());
    let [Arg::Json(json)] = &sqlite[..] else { panic!("one parameter") };
    assert_eq!(json, "[[\"00af\",-1,\"a\\\"b\"],[null,9223372036854775807,\"\u{e9}\"]]");
    assert_eq!(rows(Dialect::Postgres, columns()).len(), 3);
    let none = rows(Dialect::Sqlite, vec![Column::Ints(Vec::new())]);
    assert!(matches!(&none[..], [Arg::Json(json)] if json == "[]"));
}
