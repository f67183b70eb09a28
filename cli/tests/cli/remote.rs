//! Commands that send nothing read a configuration from a server too.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use super::{ProcessOutput, command, run_command};

const VENDOR: &str = "[vendors.mine]\nbase_url = \"https://mine.example\"\n\
    [[vendors.mine.limits]]\nname = \"minute\"\nlimit = 700\nwindow = \"1m\"\n";
const TENANT: &str = "[[tenants]]\nid = \"acme\"\nvendor = \"mine\"\n";

/// Serves a text to this many requests, and then ends. The URL holds a secret, as those of object stores do.
#[expect(clippy::disallowed_methods, reason = "a server beside the test")]
fn serve(text: &'static str, requests: usize) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/vendors.toml?sig=hunter2", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        for stream in listener.incoming().take(requests) {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let length = text.len();
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}").unwrap();
        }
    });
    (url, serving)
}

fn ask(args: &[&str], input: &str) -> ProcessOutput {
    let mut command = command(args);
    // A proxy of this machine must not be asked for a server on loopback.
    command.env("NO_PROXY", "127.0.0.1");
    let ran = run_command(command, input.as_bytes());
    assert!(!ran.out.contains("hunter2") && !ran.err.contains("hunter2"), "{}{}", ran.out, ran.err);
    ran
}

#[test]
fn configuration_is_read_from_a_url() {
    let (url, serving) = serve(VENDOR, 4);
    let check = ask(&["check", &url], "");
    assert_eq!((check.code, &*check.err), (0, ""));
    assert!(check.out.starts_with("mine https://mine.example\n"), "{}", check.out);
    assert!(check.out.contains("/vendors.toml: ") && check.out.contains("(1 vendor, no tenants"), "{}", check.out);
    let check = ask(&["check", "--json", "--vendors", &url], "");
    assert!(check.code == 0 && check.out.contains("\"vendors\":[\"mine\"]"), "{}{}", check.out, check.err);
    let shown = ask(&["vendors", "mine", "--vendors", &url], "");
    assert!(shown.code == 0 && shown.out.contains("700 in 1m"), "{}{}", shown.out, shown.err);
    let read = ask(&["inspect", "--vendor", "mine", "--vendors", &url], "retry-after: 60\n");
    assert!(read.code == 0 && read.out.contains("read as mine"), "{}{}", read.out, read.err);
    serving.join().unwrap();
}

#[test]
fn mistake_on_a_server_is_shown_with_its_place() {
    let (url, serving) = serve("[vendors.mine]\nbase_url = \"https://mine.example\"\nsafty = 0.5\n", 1);
    let check = ask(&["check", &url], "");
    serving.join().unwrap();
    assert!(check.code == 1 && check.out.contains("/vendors.toml:3:1\n"), "{}{}", check.out, check.err);
    // The server is gone.
    let check = ask(&["check", &url], "");
    assert!(check.code == 2 && check.err.contains("/vendors.toml: "), "{}{}", check.out, check.err);
}

/// The only URL may be that of the vendors, or that of the tenants.
#[test]
fn copy_stands_in_for_a_server() {
    let file = |name: &str| std::env::temp_dir().join(format!("ic-inspect-copy-{}-{name}", std::process::id()));
    let (vendors, copy) = (file("vendors.toml"), file("copy.json"));
    std::fs::write(&vendors, VENDOR).unwrap();
    let by_file = ["--vendors", vendors.to_str().unwrap(), "--tenants"];
    for (text, options) in [(VENDOR, &["--vendors"][..]), (TENANT, &by_file[..])] {
        let _ = std::fs::remove_file(&copy);
        let (url, serving) = serve(text, 1);
        let inspect = ["inspect", "--vendor", "mine", "--config-copy", copy.to_str().unwrap()];
        let args = [&inspect[..], options, &[&*url]].concat();
        let first = ask(&args, "retry-after: 60\n");
        assert!(first.code == 0 && first.err.is_empty(), "{}", first.err);
        serving.join().unwrap();
        let again = ask(&args, "retry-after: 60\n");
        assert!(again.code == 0 && again.out.contains("read as mine"), "{}{}", again.out, again.err);
        assert!(again.err.contains("the copy of"), "{}", again.err);
    }
    std::fs::remove_file(vendors).unwrap();
    std::fs::remove_file(copy).unwrap();
}
