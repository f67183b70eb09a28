//! Runs a gateway from its start to its end by SIGTERM.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::Duration;

use integration_client::testing::{FakeVendor, VendorLimit};

use super::{command, run};

const VENDORS: &str = "[vendors.v]\nbase_url = \"http://127.0.0.1:9\"\nauth = { scheme = \"none\" }\n\
    [[vendors.v.limits]]\nname = \"second\"\nlimit = 100\nwindow = \"1s\"\n[[tenants]]\nid = \"acme\"\nvendor = \"v\"\n";

/// A process that is killed at the end of its test.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

fn status_of(address: &str, token: &str) -> String {
    answer(address, "/nobody/v/x", token).split(' ').nth(1).unwrap().to_owned()
}

fn answer(address: &str, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn gateway_asks_for_its_token_and_drains() {
    let vendors = std::env::temp_dir().join(format!("ic-serve-{}.toml", std::process::id()));
    std::fs::write(&vendors, VENDORS).unwrap();
    let mut child = KilledOnDrop(
        command(&["serve", "--listen", "127.0.0.1:0", "--deadline", "1s", "--vendors", vendors.to_str().unwrap()])
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let base = lines.next().unwrap();
    let address = base.strip_prefix("base URL: http://").and_then(|rest| rest.strip_suffix("/TENANT/VENDOR")).unwrap();
    let told = lines.next().unwrap();
    let token = told.strip_prefix("token: ").and_then(|rest| rest.split(' ').next()).unwrap();
    assert_eq!(status_of(address, token), "403", "no such tenant");
    assert_eq!(status_of(address, "another"), "401");
    assert!(answer(address, "/acme/v/x", token).starts_with("HTTP/1.1 50"), "the vendor is not there");
    let metrics = answer(address, "/~/metrics", token);
    assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains("wait_seconds_count{vendor=\"v\""), "{metrics}");
    assert!(answer(address, "/~/metrics", "another").starts_with("HTTP/1.1 401"));
    let health = run(&["health", address], "");
    assert_eq!((health.code, health.out.as_str()), (0, "ready\n"));
    assert!(Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status().unwrap().success());
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    let health = run(&["health", address], "");
    assert!(health.code == 1 && health.out.contains("no gateway answers"), "{}", health.out);
    std::fs::remove_file(vendors).unwrap();
}

/// A vendor that answers its only request when it is told to.
struct HeldVendor {
    address: String,
    has_request: mpsc::Receiver<()>,
    answer: mpsc::Sender<()>,
}

impl HeldVendor {
    #[expect(clippy::disallowed_methods, reason = "a vendor beside the test")]
    fn start() -> HeldVendor {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let ((has_come, has_request), (answer, may_answer)) = (mpsc::channel(), mpsc::channel());
        std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            has_come.send(()).unwrap();
            if may_answer.recv().is_ok() {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
            }
        });
        HeldVendor { address, has_request, answer }
    }
}

/// The first signal lets a request end that the vendor has; a second one does not.
#[test]
#[expect(clippy::disallowed_methods, reason = "a caller beside the test, and a wait for another process")]
fn signal_lets_requests_end_and_a_second_does_not() {
    let folder = std::env::temp_dir().join(format!("ic-serve-signals-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let vendors = folder.join("vendors.toml");
    for signals in [1, 2] {
        let vendor = HeldVendor::start();
        std::fs::write(&vendors, VENDORS.replace("127.0.0.1:9", &vendor.address)).unwrap();
        let mut child = KilledOnDrop(
            command(&["serve", "--listen", "127.0.0.1:0", "--vendors", vendors.to_str().unwrap()]).spawn().unwrap(),
        );
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        let base = lines.next().unwrap();
        let address =
            base.strip_prefix("base URL: http://").and_then(|rest| rest.strip_suffix("/TENANT/VENDOR")).unwrap();
        let told = lines.next().unwrap();
        let token = told.strip_prefix("token: ").and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
        let request = {
            let address = address.to_owned();
            std::thread::spawn(move || answer(&address, "/acme/v/x", &token))
        };
        vendor.has_request.recv().unwrap();
        let id = child.0.id().to_string();
        for signal in 1..=signals {
            assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
            // The listener is closed once the signal has been taken.
            while signal == 1 && TcpStream::connect(address).is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        if signals == 1 {
            vendor.answer.send(()).unwrap();
        }
        assert_eq!(child.0.wait().unwrap().code(), Some(if signals == 1 { 0 } else { 3 }));
        let answer = request.join().unwrap();
        assert_eq!(answer.starts_with("HTTP/1.1 200"), signals == 1, "after {signals} signals: {answer}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Three hundred requests at once, to a vendor that takes a hundred a second: all that had come before the signal are
/// answered.
#[tokio::test(flavor = "multi_thread")]
async fn signal_among_waiting_requests_loses_none() {
    let limit = VendorLimit::sliding_window(100, Duration::from_secs(1));
    let vendor = FakeVendor::builder().limit(limit).start().await.unwrap();
    let file = std::env::temp_dir().join(format!("ic-serve-drain-{}.toml", std::process::id()));
    let toml = vendor.vendors_toml("v").replacen("\nauth", "\nauth = { scheme = \"none\" }\n# auth", 1);
    std::fs::write(&file, toml + "\n[[tenants]]\nid = \"acme\"\nvendor = \"v\"\n").unwrap();
    let args = ["serve", "--listen", "127.0.0.1:0", "--drain-delay", "3s", "--vendors", file.to_str().unwrap()];
    let mut child = KilledOnDrop(command(&args).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let base = lines.next().unwrap();
    let address = base.strip_prefix("base URL: http://").and_then(|rest| rest.strip_suffix("/TENANT/VENDOR")).unwrap();
    let token = lines.next().unwrap();
    let token = token.strip_prefix("token: ").and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    let ask = |path: String| {
        let (address, token) = (address.to_owned(), token.clone());
        tokio::task::spawn_blocking(move || answer(&address, &path, &token))
    };
    let asked: Vec<_> = (0..300).map(|number| ask(format!("/acme/v/{number}"))).collect();
    while vendor.arrivals().len() < 120 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // By now all requests have come. While the signal is waited out, the gateway is not ready and serves.
    assert!(Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status().unwrap().success());
    let late = ask("/acme/v/late".to_owned());
    while !ask("/~/readyz".to_owned()).await.unwrap().starts_with("HTTP/1.1 503") {}
    for answer in asked.into_iter().chain([late]) {
        let answer = answer.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    assert_eq!((vendor.refused(), vendor.arrivals().len()), (0, 301));
    std::fs::remove_file(file).unwrap();
}

/// A request that the vendor keeps beyond the grace is answered before the gateway ends.
#[test]
fn grace_that_is_over_is_said() {
    let vendor = HeldVendor::start();
    let file = std::env::temp_dir().join(format!("ic-serve-grace-{}.toml", std::process::id()));
    std::fs::write(&file, VENDORS.replace("127.0.0.1:9", &vendor.address)).unwrap();
    let args = ["serve", "--listen", "127.0.0.1:0", "--grace", "200ms", "--vendors", file.to_str().unwrap()];
    let mut child = KilledOnDrop(command(&args).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let base = lines.next().unwrap();
    let address = base.strip_prefix("base URL: http://").and_then(|rest| rest.strip_suffix("/TENANT/VENDOR")).unwrap();
    let token = lines.next().unwrap();
    let token = token.strip_prefix("token: ").and_then(|rest| rest.split(' ').next()).unwrap();
    std::thread::scope(|scope| {
        let request = scope.spawn(|| answer(address, "/acme/v/x", token));
        vendor.has_request.recv().unwrap();
        assert!(Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status().unwrap().success());
        let answer = request.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("\"kind\":\"shutdown\""), "{answer}");
    });
    assert_eq!(child.0.wait().unwrap().code(), Some(1));
    std::fs::remove_file(file).unwrap();
}

#[test]
fn options_of_serve_have_variables() {
    for service in ["serve", "intake"] {
        let help = run(&[service, "--help"], "").out;
        // Examples name options, too.
        let (help, _) = help.split_once("Examples:").unwrap();
        let options: Vec<&str> = help.split("\n      --").skip(1).collect();
        assert!(options.len() > 12, "{help}");
        for option in options {
            let name = option.split(|c: char| !(c.is_ascii_lowercase() || c == '-')).next().unwrap();
            let words = option.split_whitespace().collect::<Vec<_>>().join(" ");
            // It sets a position once, and is no setting of a service.
            let is_service = name != "begin-at";
            assert!(!is_service || words.contains("[env: INTEGRATION_CLIENT_"), "--{name} has no variable: {option}");
        }
    }
    // Switches, as other programs take them from the environment.
    for (value, expected) in [("1", "console: "), ("true", "console: "), ("0", "token: "), ("false", "token: ")] {
        let file = std::env::temp_dir().join(format!("ic-serve-switch-{}.toml", std::process::id()));
        std::fs::write(&file, VENDORS).unwrap();
        let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--vendors", file.to_str().unwrap()]);
        let mut child = KilledOnDrop(serve.env("INTEGRATION_CLIENT_CONSOLE", value).spawn().unwrap());
        let second = BufReader::new(child.0.stdout.take().unwrap()).lines().nth(1);
        let second = second.unwrap_or_else(|| panic!("{value}: it did not begin")).unwrap();
        assert!(second.starts_with(expected), "{value}: {second}");
        std::fs::remove_file(file).unwrap();
    }
}

/// What the container does: the program alone in a folder that it cannot write, started by a user without rights, with all
/// settings from the environment.
#[test]
fn copied_program_needs_its_environment_alone() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::os::unix::process::CommandExt as _;

    let folder = std::env::temp_dir().join(format!("ic-serve-alone-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (program, vendors) = (folder.join("integration-client"), folder.join("vendors.toml"));
    std::fs::copy(env!("CARGO_BIN_EXE_integration-client"), &program).unwrap();
    let callers = "[[callers]]\nname = \"billing\"\ntoken = \"env:BILLING_TOKEN\"\ntenants = [\"acme\"]\n";
    std::fs::write(&vendors, format!("{VENDORS}{callers}")).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    let token = "billing-token-of-32-characters-00";
    let alone = |argument: &str, listen: &str| {
        let mut command = Command::new(&program);
        command.arg(argument).env_clear().current_dir(&folder).stdout(std::process::Stdio::piped());
        command.env("INTEGRATION_CLIENT_VENDORS", &vendors).env("BILLING_TOKEN", token);
        command.env("INTEGRATION_CLIENT_LISTEN", listen).env("INTEGRATION_CLIENT_DEADLINE", "1s");
        if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            command.uid(65_532).gid(65_532);
        }
        command
    };
    let mut child = KilledOnDrop(alone("serve", "0.0.0.0:0").spawn().unwrap());
    let base = BufReader::new(child.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let (_, port) = base.strip_suffix("/TENANT/VENDOR").and_then(|base| base.rsplit_once(':')).unwrap();
    let health = alone("health", &format!("0.0.0.0:{port}")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&health.stdout), "ready\n", "{health:?}");
    let address = format!("127.0.0.1:{port}");
    assert!(answer(&address, "/acme/v/x", token).starts_with("HTTP/1.1 50"), "the vendor is not there");
    assert!(Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status().unwrap().success());
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[cfg(unix)]
#[test]
fn health_asks_a_unix_socket() {
    let folder = std::env::temp_dir().join(format!("ic-serve-socket-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (vendors, listen) = (folder.join("vendors.toml"), format!("unix:{}", folder.join("gateway").display()));
    std::fs::write(&vendors, VENDORS).unwrap();
    let args = ["serve", "--listen", &listen, "--no-token", "--vendors", vendors.to_str().unwrap()];
    let mut child = KilledOnDrop(command(&args).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    lines.next().unwrap();
    // As a container's health check has it: from the variable that `serve` reads too.
    let asked = command(&["health"]).env("INTEGRATION_CLIENT_LISTEN", &listen).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "ready\n", "{asked:?}");
    drop(child);
    let health = run(&["health", &listen], "");
    let expected = format!("no gateway answers at {listen}");
    assert!(health.code == 1 && health.out.contains(&expected), "{}", health.out);
    assert_eq!(run(&["health", "localhost"], "").code, 2);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A supervisor reads the first lines of the service's output and closes it. The service goes on.
#[test]
#[expect(clippy::disallowed_methods, reason = "a wait for another process")]
fn closed_output_ends_no_service() {
    let folder = std::env::temp_dir().join(format!("ic-serve-closed-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (vendors, store) = (folder.join("vendors.toml"), folder.join("jobs.sqlite"));
    std::fs::write(&vendors, VENDORS).unwrap();
    for service in [&["serve"][..], &["intake", "table", "--store", store.to_str().unwrap()]] {
        let listen = format!("unix:{}", folder.join(service[0]).display());
        let options = ["--listen", &listen, "--no-token", "--vendors", vendors.to_str().unwrap()];
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = KilledOnDrop(command(&[service, &options].concat()).stdout(closed).spawn().unwrap());
        let is_ready = || run(&["health", &listen], "").code == 0;
        while !is_ready() {
            assert_eq!(child.0.try_wait().unwrap(), None, "{service:?} has ended");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status().unwrap().success());
        assert_eq!(child.0.wait().unwrap().code(), Some(0), "{service:?}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn console_is_read_only_by_default() {
    let vendors = std::env::temp_dir().join(format!("ic-serve-console-{}.toml", std::process::id()));
    std::fs::write(&vendors, VENDORS).unwrap();
    for (flag, expected) in [("--console", "403"), ("--console-operate", "200")] {
        let args = ["serve", "--listen", "127.0.0.1:0", "--vendors", vendors.to_str().unwrap(), flag];
        let mut child = command(&args).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        let told: Vec<String> = lines.by_ref().take(3).collect();
        let url = told[1].strip_prefix("console: http://").unwrap();
        let (address, _) = url.split_once('/').unwrap();
        let token = told[2].strip_prefix("token: ").and_then(|rest| rest.split(' ').next()).unwrap();
        let ask = |method: &str, path: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(
                stream,
                "{method} /~/console/{path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
                 content-length: 0\r\nconnection: close\r\n\r\n"
            )
            .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        assert!(ask("GET", "").contains("<title>integration-client</title>"));
        assert!(ask("GET", "api/lanes").contains("\"tenant\":\"acme\""));
        let paused = ask("POST", "api/lanes/acme/v/pause");
        assert_eq!(paused.split(' ').nth(1), Some(expected), "{flag}: {paused}");
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said.contains("an operator acted"), expected == "200", "{flag}: {said}");
    }
    std::fs::remove_file(vendors).unwrap();
}

#[test]
fn gateway_that_cannot_begin_says_why() {
    for (args, help) in [
        (["serve", "--listen", "8099"], "127.0.0.1:8099"),
        (["serve", "--lane", "acme/stripe"], "127.0.0.1:8101=acme/stripe"),
        (["serve", "--listen", "0.0.0.0:0"], "[[callers]]"),
    ] {
        let ran = run(&args, "");
        assert!(ran.code == 2 && ran.err.contains(help), "{args:?}: {}", ran.err);
    }
}
