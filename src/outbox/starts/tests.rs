use super::*;

#[tokio::test(start_paused = true)]
async fn stall_ends_when_any_record_is_written() {
    let starts = Starts::new(Clock::system());
    assert!(starts.stall().is_none(), "nothing is being written");
    let (first, second) = (starts.begin(), starts.begin());
    tokio::time::sleep(STALL / 2).await;
    assert!(starts.stall().is_none());
    tokio::time::sleep(STALL).await;
    let over = starts.stall().expect("it stalls");
    tokio::join!(over, async {
        tokio::time::sleep(STALL).await;
        drop(first);
    });
    assert!(starts.stall().is_none(), "it has just ended one");
    tokio::time::sleep(STALL).await;
    assert!(starts.stall().is_some(), "the other is still being written");
    drop(second);
    assert!(starts.stall().is_none());
}
