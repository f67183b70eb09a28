use super::*;

#[tokio::test]
async fn file_of_another_listener_stays() {
    let path = std::env::temp_dir().join(format!("ic-socket-file-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let (first, old) = bind(&path).await.unwrap();
    assert!(bind(&path).await.is_err(), "the first listener still accepts");
    std::fs::remove_file(&path).unwrap();
    let (second, new) = bind(&path).await.unwrap();
    old.remove();
    drop(first);
    assert!(path.exists());
    new.remove();
    drop(second);
    assert!(!path.exists());
    // A process that was killed leaves its file.
    let (killed, _left) = bind(&path).await.unwrap();
    drop(killed);
    let (next, file) = bind(&path).await.unwrap();
    file.remove();
    drop(next);
    assert!(!path.exists());
}
