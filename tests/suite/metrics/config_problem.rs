//! The gauge of what is wrong with the configuration: a source that cannot be read is told from invalid content.

use super::*;

const INVALID: &str = "nonsense = 1\n";

#[tokio::test(start_paused = true)]
async fn problem_of_the_configuration_is_told_by_its_kind() {
    let recorder = DebuggingRecorder::new();
    let _local = metrics::set_default_local_recorder(&recorder);
    let path = std::env::temp_dir().join(format!("ic-metrics-config-{}.toml", std::process::id()));
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    let remove = || std::fs::remove_file(&path).unwrap();
    write("# nothing more");
    let client = builder(|_| FakeAnswer::status(200)).vendors_file(&path).build().await.unwrap();
    // Reading sets the debugging recorder's gauges to zero, so the values are differences.
    let check_difference = |invalid: f64, unreadable: f64| {
        let expected = [("kind=invalid", invalid), ("kind=unreadable", unreadable)];
        check(&recorded_series(&recorder), "integration_client_config_problem", &expected);
    };
    let looks = || tokio::time::sleep(Duration::from_millis(4_500));
    looks().await;
    check_difference(0.0, 0.0);
    write(INVALID);
    looks().await;
    check_difference(1.0, 0.0);
    remove();
    looks().await;
    check_difference(-1.0, 1.0);
    write(INVALID);
    looks().await;
    check_difference(1.0, -1.0);

    // A reload that the program asks for finds no file. Then the same invalid file is there again.
    remove();
    client.config().reload().await.unwrap_err();
    assert!(client.config().problem().unwrap().contains("cannot be read"));
    write(INVALID);
    looks().await;
    check_difference(0.0, 0.0);
    assert!(client.config().problem().unwrap().contains("nonsense"));

    write("# nothing more");
    looks().await;
    check_difference(-1.0, 0.0);
    assert_eq!(client.config().problem(), None);
    // A client that is dropped has no problem any more.
    write(INVALID);
    looks().await;
    check_difference(1.0, 0.0);
    drop(client);
    check_difference(-1.0, 0.0);
    remove();
}
