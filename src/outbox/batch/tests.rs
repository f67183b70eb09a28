use super::*;

#[test]
fn batch_ids_hold_and_sort_by_numbers() {
    let run = *id(&[0xff; 8], 0).as_bytes();
    let mut before = None;
    for at in [0, 1, 255, 256, 1 << 40, MAX_NUMBER] {
        let id = id(&run, at);
        assert_eq!((number(&id), is_of_batch(&id), &id.as_bytes()[..8]), (at, true, &run[..8]));
        assert!(before < Some(id), "{at}");
        before = Some(id);
    }
    let wall = std::time::SystemTime::UNIX_EPOCH;
    let others = [new_id(crate::clock::Clock::system()), crate::store::id_with_content(wall, before.unwrap())];
    assert!(others.iter().all(|id| !is_of_batch(id)));
}
