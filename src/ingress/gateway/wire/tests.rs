use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

#[tokio::test(start_paused = true)]
async fn head_and_idle_connection_have_separate_deadlines() {
    let clock = Clock::system();
    let (mut peer, ours) = duplex(64);
    let mut wire = Wire::new(ours, Arc::default(), clock);
    let mut buf = [0; 8];
    peer.write_all(b"request").await.unwrap();
    assert_eq!(wire.read(&mut buf).await.unwrap(), 7);
    wire.write_all(b"response").await.unwrap();
    let began = clock.now();
    assert_eq!(wire.read(&mut buf).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(clock.now().since(began).as_secs(), 300);

    let (mut slow, ours) = duplex(64);
    let mut wire = Wire::new(ours, Arc::default(), clock);
    let began = clock.now();
    slow.write_all(b"G").await.unwrap();
    assert_eq!(wire.read(&mut buf).await.unwrap(), 1);
    tokio::time::advance(Duration::from_secs(6)).await;
    slow.write_all(b"E").await.unwrap();
    assert_eq!(wire.read(&mut buf).await.unwrap(), 1);
    assert_eq!(wire.read(&mut buf).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(clock.now().since(began).as_secs(), 10, "a byte now and then wins no time");
    peer.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn silent_connection_has_ten_seconds() {
    let clock = Clock::system();
    let began = clock.now();
    let (_peer, ours) = duplex(64);
    let mut wire = Wire::new(ours, Arc::default(), clock);
    assert_eq!(wire.read(&mut [0; 8]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(clock.now().since(began).as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn reader_has_a_minute_for_each_piece() {
    let (_peer, ours) = duplex(4);
    let busy = Arc::new(AtomicBool::new(true));
    let mut wire = Wire::new(ours, busy, Clock::system());
    assert_eq!(wire.write(b"12345678").await.unwrap(), 4);
    assert_eq!(wire.write(b"5678").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
}
