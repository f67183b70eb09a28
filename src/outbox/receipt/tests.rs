use super::*;

#[test]
fn response_is_kept_up_to_a_size_of_its_stored_form() {
    let stored = |bytes: usize, byte: u8| KeptResponse::stored("1", None, &vec![byte; bytes].into());
    let kept = stored(MAX_KEPT - 1_000, b'a').unwrap();
    let read: KeptResponse = serde_json::from_slice(&kept).unwrap();
    assert_eq!(read.body().len(), MAX_KEPT - 1_000);
    for (bytes, byte) in [(MAX_KEPT, b'a'), (MAX_KEPT + 1, b'a'), (MAX_KEPT * 4 / 5, 0xff)] {
        assert!(stored(bytes, byte).is_none(), "{bytes} of {byte}");
    }
    // As large as a response may be by default, and no text.
    assert!(stored(8 << 20, 0xff).is_some());
}
