use super::*;

#[test]
fn batch_ids_hold_and_sort_by_numbers() {
    let run = *id(&[0xff; 8], 0).as_bytes();
    let mut before = None;
    for at in [0, 1, 255, 256, 1 << 40, MAX_NUMBER] {
        let id = id(&run, at);
        assert_eq!((number(&id), id.get_version_num(), &id.as_bytes()[..8]), (at, 8, &run[..8]));
        assert!(before < Some(id), "{at}");
        before = Some(id);
    }
}
