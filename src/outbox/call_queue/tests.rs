use std::sync::mpsc;

use super::*;

#[tokio::test]
async fn blocked_call_holds_up_no_quick_one() {
    let queue = Arc::new(CallQueue::default());
    let (told, heard) = mpsc::channel();
    let (go_on, blocked) = mpsc::channel::<()>();
    let tell = |number: usize| {
        let told = told.clone();
        Box::new(move || told.send((number, std::thread::current().id())).unwrap_or_default())
    };
    let wait = told.clone();
    queue.push(Box::new(move || {
        wait.send((0, std::thread::current().id())).unwrap_or_default();
        blocked.recv().unwrap_or_default();
    }));
    assert!(!queue.begin(1), "there may be more threads");
    let (_, first) = heard.recv().unwrap();
    queue.push(tell(1));
    queue.push(tell(2));
    assert!(!queue.begin(1), "the thread that is blocked counts as one");
    assert!(heard.try_recv().is_err());
    queue.begin(2);
    let others = [heard.recv().unwrap(), heard.recv().unwrap()];
    assert_eq!(others.map(|(number, _)| number), [1, 2]);
    assert!(others[0].1 == others[1].1 && others[0].1 != first, "both on a thread that is not blocked");
    go_on.send(()).unwrap();
    while queue.0.lock().threads > 0 {
        tokio::task::yield_now().await;
    }
}
