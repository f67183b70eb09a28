use super::*;

#[test]
fn requests_are_framed() {
    let sync = Request::sync("/a").frame(7);
    assert_eq!(sync, [0, 0, 0, 14, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 2, b'/', b'a']);
    let set = Request::set("/a", "xy", 3).frame(1);
    assert_eq!(set[12..], [0, 0, 0, 2, b'/', b'a', 0, 0, 0, 2, b'x', b'y', 0, 0, 0, 3]);
    let create = Request::create("/a", "", Access::Everybody).frame(1);
    assert!(create.windows(6).any(|part| part == b"anyone"), "{create:?}");
    assert_eq!(hello(10_000).len(), 4 + 4 + 8 + 4 + 8 + 4 + 16);
}

#[test]
fn frames_are_taken_when_they_are_whole() {
    let mut received = BytesMut::from(&[0, 0, 0, 2, 1][..]);
    assert_eq!(take_frame(&mut received), Ok(None));
    received.extend_from_slice(&[2, 0, 0, 0, 0, 9]);
    assert_eq!(take_frame(&mut received), Ok(Some(Bytes::from_static(&[1, 2]))));
    assert_eq!(take_frame(&mut received), Ok(Some(Bytes::new())));
    assert_eq!((take_frame(&mut received), received.len()), (Ok(None), 1));
    for wrong in [b"HTTP", &[0xff; 4], &[0x7f, 0, 0, 0]] {
        assert!(take_frame(&mut BytesMut::from(&wrong[..])).is_err(), "{wrong:?}");
    }
}

#[test]
fn answers_are_read() {
    let header = |error: i32| [number(5), vec![0; 8], number(error)].concat();
    let stat = [vec![0; 24], 1_700_000_000_123u64.to_be_bytes().to_vec(), number(12), vec![0; 40]].concat();
    let node = [header(0), texts(&["{}"]), stat].concat();
    let reply = Reply::read(node.into()).unwrap();
    assert_eq!(reply.xid, 5);
    let node = Node::read(reply.result.unwrap()).unwrap();
    assert_eq!((&node.data[..], node.stat.written_ms, node.stat.version), (&b"{}"[..], 1_700_000_000_123, 12));
    assert_eq!(Reply::read(header(NO_NODE).into()).unwrap().result, Err(NO_NODE));
}

#[test]
fn bytes_are_read_without_a_panic() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let length = random.usize(0..120);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        bytes.iter_mut().take(random.usize(0..8)).for_each(|byte| *byte = 0);
        let _ = take_frame(&mut BytesMut::from(&bytes[..]));
        let bytes = Bytes::from(bytes);
        let _ = (Reply::read(bytes.clone()), Node::read(bytes.clone()), Stat::read(bytes.clone()), is_welcome(bytes));
    }
}
