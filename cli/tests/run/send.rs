//! `send`, mostly without a store: what it says of a request whose response it does not have, or which the vendor
//! refused.

use integration_client::testing::{Fault, When};

use super::*;

async fn send(place: &RunFolder, args: &[&str]) -> ProcessOutput {
    send_to(place, args, Stdio::piped()).await
}

async fn send_to(place: &RunFolder, args: &[&str], out: impl Into<Stdio>) -> ProcessOutput {
    let mut command = place.command(&[&["send", "acme", "v"], args, &["--vendors", "vendors.toml"]].concat());
    wait(command.stdout(out).spawn().unwrap()).await
}

/// A caller that sends again because of the exit code 2 would have the vendor act twice.
#[tokio::test(flavor = "multi_thread")]
async fn request_without_response_is_not_called_unsent() {
    let vendor = FakeVendor::builder().fault(When::path("/stall"), Fault::Stall);
    let place = RunFolder::new(vendor.fault(When::path("/half"), Fault::HalfBody)).await;
    let stall = ["/stall", "-d", "{}", "--deadline", "2s"];
    let ran = send(&place, &stall).await;
    assert_eq!((ran.code, &*ran.out), (3, ""), "{}", ran.err);
    assert!(ran.err.contains("; the request was sent: the vendor may have acted. Ask it before"), "{}", ran.err);
    let ran = send(&place, &[&stall[..], &["--json"]].concat()).await;
    let shown: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &shown["delivery"]), (3, &"ambiguous".into()), "{}", ran.err);
    assert!(ran.err.contains(shown["error"].as_str().unwrap()), "{} {}", ran.out, ran.err);

    let ran = send(&place, &["/half", "-d", "{}", "--json"]).await;
    let shown: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &shown["delivery"]), (3, &"delivered".into()), "{}", ran.err);
    assert!(ran.err.contains("; the vendor answered 200 and has acted: do not send it again"), "{}", ran.err);
    assert_eq!(place.vendor.arrivals().iter().filter(|arrival| arrival.path.starts_with("/half")).count(), 1);

    // What was not sent keeps its exit code.
    let ran = send(&place, &["https://elsewhere.example/", "--json"]).await;
    let shown: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &shown["delivery"]), (2, &"not_sent".into()), "{}", ran.err);
}

/// The dead letter of a job says that the vendor may have acted, as the error does without a store.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_job_is_not_called_refused() {
    let place = RunFolder::new(FakeVendor::builder().fault(When::path("/lost"), Fault::Reset)).await;
    let keyless = fs::read_to_string(place.path("vendors.toml")).unwrap();
    let keyless = keyless.replace("[vendors.v.idempotency]\nheader = \"idempotency-key\"\n", "");
    place.write("vendors.toml", &keyless);
    let ran = send(&place, &["/lost", "-d", "{}", "--store", "s.sqlite"]).await;
    assert_eq!((ran.code, &*ran.out), (3, ""), "{}", ran.err);
    assert!(ran.err.contains("the request was given up (ambiguous)"), "{}", ran.err);
    assert!(ran.err.contains("; the request was sent: the vendor may have acted. Ask it before"), "{}", ran.err);
}

/// Sending a GET again does no harm, and is the only way to get its body.
#[tokio::test(flavor = "multi_thread")]
async fn torn_get_may_be_sent_again() {
    let vendor = FakeVendor::builder().fault(When::path("/stall"), Fault::Stall);
    let place = RunFolder::new(vendor.fault(When::path("/half"), Fault::HalfBody)).await;
    let ran = send(&place, &["/half", "--json"]).await;
    let shown: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &shown["delivery"]), (3, &"delivered".into()), "{}", ran.err);
    assert!(ran.err.contains("; the vendor answered 200\n"), "{}", ran.err);
    assert!(!ran.err.contains("do not send it again"), "{}", ran.err);

    let ran = send(&place, &["/stall", "--deadline", "2s"]).await;
    assert!(ran.code == 3 && !ran.err.contains("Ask it before"), "{}", ran.err);
}

/// Exit code 2 would say that the vendor did not act.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn answer_that_cannot_be_printed_is_not_called_unsent() {
    let vendor = FakeVendor::builder().fault(When::path("/half"), Fault::HalfBody);
    let place = RunFolder::new(vendor.poisoned("/bad", 422)).await;
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let unprinted = "; the response could not be printed: No space left on device";
    let ways: [&[&str]; 4] = [&[], &["--include"], &["--json"], &["--store", "s.sqlite"]];
    for args in ways {
        let ran = send_to(&place, &[&["/labels", "-d", "{}"], args].concat(), full()).await;
        let said = format!("error: the vendor answered 200 OK{unprinted}");
        assert!(ran.code == 3 && ran.err.contains(&said), "{args:?}: {} {}", ran.code, ran.err);
    }
    assert_eq!(place.vendor.summary().arrived, 4);

    let ran = send_to(&place, &["/bad", "-d", "{}", "--json"], full()).await;
    let said = format!("error: the vendor answered 422 Unprocessable Entity{unprinted}");
    assert!(ran.code == 3 && ran.err.contains(&said), "{} {}", ran.code, ran.err);

    let ran = send_to(&place, &["/half", "-d", "{}", "--json"], full()).await;
    assert!(ran.code == 3 && ran.err.contains("200 and has acted: do not send it again"), "{} {}", ran.code, ran.err);
    assert!(ran.err.contains("the JSON object could not be printed: No space left"), "{}", ran.err);

    // What was not sent keeps its exit code, and the reason is said.
    let ran = send_to(&place, &["https://elsewhere.example/", "--json"], full()).await;
    assert!(ran.code == 2 && ran.err.contains("the path must start with"), "{} {}", ran.code, ran.err);
}

/// `head` and others close the pipe once they have read enough. Exit code 0 would then hide how the request ended.
#[tokio::test(flavor = "multi_thread")]
async fn closed_pipe_leaves_the_exit_code() {
    let vendor = FakeVendor::builder().fault(When::path("/half"), Fault::HalfBody);
    let place = RunFolder::new(vendor.poisoned("/bad", 422)).await;
    for (path, code) in [("/labels", 0), ("/bad", 1), ("/half", 3)] {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let ran = send_to(&place, &[path, "-d", "{}", "--json"], closed).await;
        assert_eq!(ran.code, code, "{path}: {}", ran.err);
        assert!(!ran.err.contains("could not be printed"), "{path}: {}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_key_is_doubted_by_its_reference() {
    let place = RunFolder::new(FakeVendor::builder().poisoned("/locked", 401)).await;
    let said = "the vendor answered 401 Unauthorized; is env:IC_RUN_KEY right?";
    let ran = send(&place, &["/locked"]).await;
    assert!(ran.code == 1 && ran.err.contains(said), "{}", ran.err);
    let ran = send(&place, &["/locked", "--store", "my jobs.sqlite"]).await;
    assert!(ran.code == 1 && ran.err.contains("; is env:IC_RUN_KEY right?"), "{}", ran.err);
    assert!(ran.err.trim_end().ends_with(" --store 'my jobs.sqlite'"), "a command to copy: {}", ran.err);
}

/// The client follows no redirect, so the vendor may or may not have processed the request. `send` says so with and
/// without a store.
#[tokio::test(flavor = "multi_thread")]
async fn redirect_is_found_with_and_without_store() {
    let vendor = FakeVendor::builder().fault(When::path("/moved"), Fault::Status(302));
    let place = RunFolder::new(vendor.fault(When::path("/made"), Fault::Status(303))).await;
    let stores: [&[&str]; 2] = [&[], &["--store", "s.sqlite"]];
    for store in stores {
        let ran = send(&place, &[&["/moved", "-d", "{}"], store].concat()).await;
        assert!(ran.code == 1 && ran.err.contains("; redirects are not followed: look"), "{} {}", ran.code, ran.err);
        let ran = send(&place, &[&["/made", "-d", "{}", "-i"], store].concat()).await;
        assert!(ran.code == 0 && !ran.err.contains("error"), "{store:?}: {} {}", ran.code, ran.err);
        assert!(ran.out.contains("\nlocation: /\n"), "{store:?}: {}", ran.out);
    }
}

/// `inspect` reads the output of `send -i` as it reads that of `curl -i`.
#[tokio::test(flavor = "multi_thread")]
async fn status_is_printed_as_inspect_reads_it() {
    let place = RunFolder::new(FakeVendor::builder().poisoned("/bad", 422)).await;
    let ran = send(&place, &["/bad", "-i"]).await;
    assert!(ran.out.starts_with("HTTP/1.1 422 Unprocessable Entity\n"), "{}", ran.out);
    assert!(ran.err.contains("attempt 1, waited "), "{}", ran.err);
    place.write("response.txt", &ran.out);
    let inspect = wait(place.command(&["inspect", "response.txt"]).spawn().unwrap()).await;
    assert!(inspect.out.starts_with("HTTP 422 Unprocessable Entity, "), "{}{}", inspect.out, inspect.err);
}

/// A job whose key is missing would wait until its deadline without a message.
#[tokio::test(flavor = "multi_thread")]
async fn missing_key_is_named_at_once() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    let began = now();
    let args = ["send", "acme", "v", "/labels", "--store", "s.sqlite", "--vendors", "vendors.toml"];
    let ran = wait(place.command(&args).env_remove("IC_RUN_KEY").spawn().unwrap()).await;
    let said = "error: tenant acme, vendor v: env:IC_RUN_KEY is not set in this process; correct it and run the same command \
                again. Nothing was sent\n";
    assert!(ran.code == 2 && ran.out.is_empty() && ran.err.ends_with(said), "{} {}{}", ran.code, ran.out, ran.err);
    assert!(began.elapsed() < 20 * SECOND, "{:?}", began.elapsed());
    let status = wait(place.command(&["status", "--store", "s.sqlite", "--json"]).spawn().unwrap()).await;
    let seen: Value = serde_json::from_str(&status.out).unwrap();
    assert_eq!(seen["queues"], serde_json::json!([]), "no job is left behind: {}", status.out);
}

/// Waiting does not help: the configuration states no credential.
#[tokio::test(flavor = "multi_thread")]
async fn unstated_credential_is_named_at_once() {
    let place = RunFolder::new(FakeVendor::builder()).await;
    let vendors = fs::read_to_string(place.path("vendors.toml")).unwrap();
    place.write("vendors.toml", &vendors.replace("credential = \"env:IC_RUN_KEY\"\n", ""));
    let began = now();
    let ran = send(&place, &["/labels", "--store", "s.sqlite"]).await;
    let said = "error: tenant acme, vendor v: no credential is configured; correct it and run the same command again. Nothing \
                was sent\n";
    assert!(ran.code == 2 && ran.out.is_empty() && ran.err.ends_with(said), "{} {}{}", ran.code, ran.out, ran.err);
    assert!(began.elapsed() < 20 * SECOND, "{:?}", began.elapsed());
}
