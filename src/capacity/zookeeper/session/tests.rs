use super::*;

fn reply(xid: i32) -> Reply {
    Reply { xid, result: Ok(Bytes::new()) }
}

#[test]
fn answer_to_another_request_is_refused() {
    let (first, mut answers) = oneshot::channel();
    let waits = |reply, missing, xid| Sent { reply, answers: Vec::new(), missing, xid, until: Time::ZERO };
    let mut sent = VecDeque::from([waits(first, 2, i32::MAX), waits(oneshot::channel().0, 1, 2)]);
    assert!(!answered(&mut sent, reply(1)), "the answer before it is missing");
    assert!(answered(&mut sent, reply(i32::MAX)) && !answered(&mut sent, reply(i32::MAX)), "once");
    assert!(answered(&mut sent, reply(1)));
    assert_eq!(answers.try_recv().unwrap().unwrap().len(), 2);
    assert!(answered(&mut sent, reply(2)) && !answered(&mut sent, reply(3)), "nothing waits any more");
}
