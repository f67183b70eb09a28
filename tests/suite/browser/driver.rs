//! A headless Chromium, driven over WebDriver (<https://www.w3.org/TR/webdriver2/>).

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];
/// The key of an element's id in WebDriver's JSON.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub(super) struct Browser {
    driver: Child,
    http: reqwest::Client,
    session: String,
    profile: PathBuf,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // This runs after a failed test too: a browser that outlives its test would go on to send requests to a port
        // that soon belongs to another test.
        let _ = self.quit();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

impl Browser {
    /// Ends the session and thereby the browser. Blocking, because the runtime may have ended already.
    fn quit(&self) -> std::io::Result<()> {
        let rest = self.session.strip_prefix("http://").unwrap_or_default();
        let Some((address, path)) = rest.split_once('/') else { return Ok(()) };
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "DELETE /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }

    pub(super) async fn start() -> Browser {
        let missing =
            "chromedriver does not start; install it: apt-get install --no-install-recommends chromium chromium-driver";
        let mut driver = Command::new("chromedriver")
            .args(["--port=0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{missing}: {error}"));
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let rest = line.split("successfully on port ").nth(1)?;
            rest.trim_end_matches('.').trim().parse::<u16>().ok()
        });
        let base = format!("http://127.0.0.1:{}", port.unwrap_or_else(|| panic!("{missing}")));
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ic-browser-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let profile = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&profile);
        let mut args: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        args.push(format!("--user-data-dir={}", profile.display()));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 60_000},
        }}});
        let http = reqwest::Client::new();
        let mut browser = Browser { driver, http, session: base, profile };
        let opened = browser.call("POST", "/session", wanted).await;
        browser.session = format!("{}/session/{}", browser.session, opened["sessionId"].as_str().unwrap());
        browser
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> Value {
        let value = self.answer(method, path, &body).await;
        assert!(value.get("error").is_none(), "{method} {path} {body}: {value}");
        value
    }

    /// Sends a command and returns the driver's response, which may be an error.
    async fn answer(&self, method: &str, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.session);
        let request = self.http.request(method.parse().unwrap(), url);
        let request = if method == "POST" { request.json(body) } else { request };
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        answer["value"].clone()
    }

    pub(super) async fn open(&self, url: &str) {
        self.call("POST", "/url", json!({ "url": url })).await;
    }

    pub(super) async fn size(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    pub(super) async fn devtools(&self, command: &str, params: Value) -> Value {
        self.call("POST", "/goog/cdp/execute", json!({ "cmd": command, "params": params })).await
    }

    /// Runs the body of an asynchronous function in the page.
    pub(super) async fn run(&self, script: &str, args: Value) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; (async (...args) => {{ {script} }})(...arguments).then(done, (e) => done(String(e)));"
        );
        self.call("POST", "/execute/async", json!({ "script": script, "args": args })).await
    }

    pub(super) async fn element(&self, selector: &str) -> String {
        let found = self.call("POST", "/element", json!({"using": "css selector", "value": selector})).await;
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Clicks an element. The page redraws its rows every few seconds, so an element that was replaced meanwhile is
    /// looked up again.
    pub(super) async fn click(&self, selector: &str) {
        for _ in 0..20 {
            let element = self.element(selector).await;
            let clicked = self.answer("POST", &format!("/element/{element}/click"), &json!({})).await;
            match clicked.get("error").and_then(Value::as_str) {
                None => return,
                Some("stale element reference") => {}
                Some(_) => panic!("{selector}: {clicked}"),
            }
        }
        panic!("{selector} was replaced at each of 20 tries");
    }

    pub(super) async fn write(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.call("POST", &format!("/element/{element}/value"), json!({ "text": text })).await;
    }

    /// Presses keys in the focused element. `\u{e004}` is Tab, `\u{e007}` Enter, `\u{e00c}` Escape.
    pub(super) async fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})])
            .collect();
        let body = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.call("POST", "/actions", body).await;
    }

    pub(super) async fn text(&self, selector: &str) -> String {
        let script = "return document.querySelector(args[0])?.innerText ?? ''";
        self.run(script, json!([selector])).await.as_str().unwrap().to_owned()
    }

    /// Waits until the text of an element fulfils `what`, and returns the text.
    pub(super) async fn until(&self, selector: &str, what: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        for _ in 0..400 {
            text = self.text(selector).await;
            if what(&text) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{selector} stays {text:?}");
    }

    /// Saves a screenshot.
    pub(super) async fn save_screenshot(&self, name: &str) {
        let image = self.call("GET", "/screenshot", Value::Null).await;
        let bytes = base64::engine::general_purpose::STANDARD.decode(image.as_str().unwrap()).unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
    }

    /// The messages of the page's console: script errors, and resources that the content security policy blocked.
    pub(super) async fn console_errors(&self) -> Vec<String> {
        let log = self.call("POST", "/se/log", json!({"type": "browser"})).await;
        let entries = log.as_array().into_iter().flatten();
        entries.filter(|entry| entry["level"] == "SEVERE").map(|entry| entry["message"].to_string()).collect()
    }
}
