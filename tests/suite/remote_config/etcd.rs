//! Configuration in a real etcd with a new folder. `IC_TEST_ETCD=off` skips the test where etcd cannot be installed.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use integration_client::config::RemoteSource;
use serde_json::{Value, json};

use super::{builder, config_with_limit, folder, limit_in_force, refused, wait_until};

struct Etcd {
    process: Child,
    url: String,
    peers: String,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Etcd {
    async fn start(folder: &Path) -> Etcd {
        let free = || format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
        let (url, peers) = (free(), free());
        let etcd = Etcd { process: Etcd::process(folder, &url, &peers), url, peers };
        etcd.is_up().await;
        etcd
    }

    fn process(folder: &Path, url: &str, peers: &str) -> Child {
        Command::new("etcd")
            .args(["--data-dir", &folder.join("etcd").display().to_string(), "--unsafe-no-fsync"])
            .args(["--listen-client-urls", url, "--advertise-client-urls", url])
            .args(["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("no etcd (Debian's package etcd-server), or set IC_TEST_ETCD=off: {error}"))
    }

    async fn is_up(&self) {
        for _ in 0..200 {
            if self.try_post("/v3/kv/range", json!({"key": "AA=="})).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("etcd did not start within 10 s");
    }

    async fn restart(&mut self, folder: &Path) {
        self.stop();
        self.process = Etcd::process(folder, &self.url, &self.peers);
        self.is_up().await;
    }

    fn stop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    async fn try_post(&self, path: &str, body: Value) -> Result<Value, reqwest::Error> {
        let answer = reqwest::Client::new().post(format!("{}{path}", self.url)).json(&body).send().await?;
        answer.error_for_status()?.json().await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.try_post(path, body).await.unwrap()
    }

    async fn put(&self, key: &str, value: &str) {
        let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(value));
        self.post("/v3/kv/put", json!({"key": key, "value": value})).await;
    }
}

#[tokio::test]
async fn etcd_source_survives_a_kill() {
    if std::env::var("IC_TEST_ETCD").is_ok_and(|value| value == "off") {
        eprintln!("IC_TEST_ETCD=off: etcd is not tried");
        return;
    }
    let folder = folder("remote-etcd");
    let mut etcd = Etcd::start(&folder).await;
    let url = etcd.url.clone();
    let password = folder.join("password");
    std::fs::write(&password, "pass-1\n").unwrap();
    let source = || RemoteSource::etcd(&url, "ic/");
    assert!(refused(source()).await.to_string().contains("no key begins with this prefix"));
    etcd.put("ic/1", &config_with_limit(10)).await;
    etcd.put("ic/2", "[[tenants]]\nid = \"b\"\nvendor = \"v\"\n").await;
    etcd.put("ic0", "no part of it").await;
    let client = builder(source()).build().await.unwrap();
    assert_eq!(client.config().current().tenants().count(), 2);
    etcd.put("ic/1", &config_with_limit(20)).await;
    wait_until("the new limit is in force", || limit_in_force(&client).contains("20")).await;

    etcd.stop();
    wait_until("the problem is told", || client.config().problem().is_some()).await;
    assert!(limit_in_force(&client).contains("20"));
    etcd.restart(&folder).await;
    wait_until("the problem is over", || client.config().problem().is_none()).await;

    // Adds a user that may read these keys.
    etcd.post("/v3/auth/user/add", json!({"name": "root", "password": "root-1"})).await;
    etcd.post("/v3/auth/user/grant", json!({"user": "root", "role": "root"})).await;
    etcd.post("/v3/auth/user/add", json!({"name": "reader", "password": "pass-1"})).await;
    etcd.post("/v3/auth/role/add", json!({"name": "reads"})).await;
    let (key, end) = (BASE64_STANDARD.encode("ic/"), BASE64_STANDARD.encode("ic0"));
    let may = json!({"permType": "READ", "key": key, "range_end": end});
    etcd.post("/v3/auth/role/grant", json!({"name": "reads", "perm": may})).await;
    etcd.post("/v3/auth/user/grant", json!({"user": "reader", "role": "reads"})).await;
    etcd.post("/v3/auth/enable", json!({})).await;
    wait_until("nobody reads without a user", || client.config().problem().is_some()).await;
    let reads = || source().user("reader", &format!("file:{}", password.display()));
    let reader = builder(reads()).build().await.unwrap();
    assert!(limit_in_force(&reader).contains("20"));
    std::fs::write(&password, "hunter2").unwrap();
    let told = refused(reads()).await.to_string();
    assert!(told.contains("answered 400") && !told.contains("hunter2"), "{told}");
}
