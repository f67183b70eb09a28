//! The console in a real browser: what an operator sees and does. Screenshots are kept in `target/tmp/console`.
//!
//! Needs `chromium` and `chromium-driver`, and axe-core's `axe.min.js` at the path in `IC_AXE`; `scripts/test.sh`
//! provides them. `IC_TEST_BROWSER=off` skips these tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test that cannot go on says why")]

mod driver;

use std::time::Duration;

use integration_client::{Priority, Request};
use serde_json::json;

use crate::console::scene::{OPERATOR, Scene, VIEWER};
use driver::Browser;

const LANES: usize = 10_000;

fn is_off() -> bool {
    let off = std::env::var("IC_TEST_BROWSER").is_ok_and(|value| value == "off");
    if off {
        println!("left out: IC_TEST_BROWSER=off");
    }
    off
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

async fn log_in(browser: &Browser, scene: &Scene, token: &str) {
    browser.open(&scene.url("")).await;
    browser.until("h1", |text| text == "Log in").await;
    browser.write("#token", token).await;
    browser.press("\u{e007}").await;
    browser.until("h1", |text| text == "Lanes").await;
}

async fn open_page(browser: &Browser, place: &str, title: &str) {
    browser.run("location.hash = args[0]", json!([place])).await;
    browser.until("h1", |text| text.starts_with(title)).await;
}

/// Asserts that axe-core finds no violation, in light and in dark colours.
async fn check_access(browser: &Browser, what: &str) {
    let path =
        std::env::var("IC_AXE").unwrap_or_else(|_| panic!("IC_AXE names no axe.min.js; scripts/test.sh fetches it"));
    let axe = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    for scheme in ["light", "dark"] {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.devtools("Emulation.setEmulatedMedia", features).await;
        let found = browser
            .devtools("Runtime.evaluate", json!({"expression": format!("{axe}; axe.run().then((r) => JSON.stringify(r.violations))"), "awaitPromise": true}))
            .await;
        let found = found["result"]["value"].as_str().unwrap_or_else(|| panic!("{found}")).to_owned();
        browser.save_screenshot(&format!("{what}-{scheme}")).await;
        assert_eq!(found, "[]", "{what}, {scheme}");
    }
    browser.devtools("Emulation.setEmulatedMedia", json!({"features": []})).await;
}

async fn check_narrow(browser: &Browser, what: &str) {
    browser.size(320, 640).await;
    let wider = browser
        .run("return document.documentElement.scrollWidth - document.documentElement.clientWidth", json!([]))
        .await;
    browser.save_screenshot(&format!("{what}-narrow")).await;
    assert_eq!(wider, 0, "{what} is wider than its window");
    browser.size(1100, 700).await;
}

/// Presses Tab until the element has the focus.
async fn tab_to(browser: &Browser, selector: &str) {
    browser.run("document.activeElement.blur()", json!([])).await;
    for _ in 0..120 {
        browser.press("\u{e004}").await;
        if browser.run("return document.activeElement.matches(args[0])", json!([selector])).await == true {
            return;
        }
    }
    panic!("the keyboard does not reach {selector}");
}

/// Presses Tab twice as often as there are controls, so that the focus goes round, and asserts that it has reached
/// every control. The page redraws itself meanwhile, so controls are identified by their names.
async fn check_keyboard(browser: &Browser, what: &str) {
    let name = "const name = (one) => one.dataset.key || one.id || one.outerHTML;";
    let controls = "const controls = [...document.querySelectorAll('a[href], button, input, select, textarea, summary')]\
        .filter((one) => !one.disabled && one.checkVisibility());";
    browser.run("window.reached = new Set(); document.activeElement.blur()", json!([])).await;
    let all = browser.run(&format!("{controls} return controls.length"), json!([])).await.as_u64().unwrap();
    assert!(all > 3, "{what} has controls");
    for _ in 0..2 * all {
        browser.press("\u{e004}").await;
        browser.run(&format!("{name} window.reached.add(name(document.activeElement))"), json!([])).await;
    }
    let missed = format!("{name} {controls} return controls.map(name).filter((one) => !window.reached.has(one))");
    let missed = browser.run(&missed, json!([])).await;
    assert_eq!(missed, json!([]), "{what}: the keyboard does not reach these");
}

/// The tenants of the page's table, in its order.
async fn tenants(browser: &Browser) -> Vec<String> {
    let names = "return [...document.querySelectorAll('tbody tr')].map((row) => row.querySelector('a').textContent)";
    serde_json::from_value(browser.run(names, json!([])).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn changing_lanes_are_sorted_and_paged() {
    if is_off() {
        return;
    }
    let scene = Scene::with_tenants("browser-sorted", false, 400).await;
    for number in 0..23 {
        use_part_of_limit(&scene, number);
    }
    let browser = Browser::start().await;
    browser.size(1100, 700).await;
    log_in(&browser, &scene, OPERATOR).await;
    browser.until("#count", |text| text.contains("lanes")).await;
    for (place, sort) in ["", "room", "waiting", "name"].iter().enumerate() {
        // The keyboard changes the choice while its list is closed: the arrow key selects the next one.
        if place > 0 {
            tab_to(&browser, "#sort").await;
            browser.press("\u{e015}").await;
            let chosen = format!("sort={sort}");
            let has_chosen =
                async || browser.run("return location.hash", json!([])).await.to_string().contains(&chosen);
            for _ in 0..200 {
                if has_chosen().await {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            assert!(has_chosen().await, "{sort}");
        }
        let asked = scene.get(&format!("api/lanes?sort={}", if sort.is_empty() { "worst" } else { sort })).await;
        let expected: Vec<&str> =
            asked["lanes"].as_array().unwrap().iter().map(|lane| lane["tenant"].as_str().unwrap()).collect();
        for _ in 0..200 {
            if tenants(&browser).await == expected {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        assert_eq!(tenants(&browser).await, expected, "{sort}");
    }
    check_keyboard(&browser, "lanes").await;

    // Sorted by name, no lane is shown twice and none is left out, whatever changes between two pages.
    let mut seen = tenants(&browser).await;
    for number in 23..46 {
        use_part_of_limit(&scene, number);
    }
    scene.client.tenants().pause(&seen[0], "v").unwrap();
    for page in 0..20 {
        let more = browser.run("return document.querySelector('[data-key=next]') !== null", json!([])).await == true;
        if !more {
            break;
        }
        assert!(page < 19, "the pages end");
        let last = seen.last().unwrap().clone();
        browser.click("[data-key=next]").await;
        for _ in 0..200 {
            if tenants(&browser).await.first().is_some_and(|first| *first > last) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        seen.extend(tenants(&browser).await);
    }
    let mut once = seen.clone();
    once.sort();
    once.dedup();
    assert_eq!((seen.len(), &seen), (once.len(), &once), "each once, in order");
    let total = scene.get("api/lanes").await["total"].as_u64().unwrap();
    assert_eq!(seen.len() as u64, total);

    for (place, title) in
        [("#/lanes/acme/v", "acme"), ("#/queues", "Queues"), ("#/events", "Events"), ("#/system", "Vendors")]
    {
        open_page(&browser, place, title).await;
        browser.until("main", |text| text.len() > 40).await;
        check_keyboard(&browser, place).await;
    }
    assert_eq!(unexpected_console_errors(&browser).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_finds_a_lane_among_ten_thousand() {
    if is_off() {
        return;
    }
    let scene = Scene::with_tenants("browser-lanes", false, LANES - 1).await;
    for number in 0..40 {
        use_part_of_limit(&scene, number);
    }
    let browser = Browser::start().await;
    browser.size(1100, 700).await;
    browser.open(&scene.url("")).await;
    browser.until("h1", |text| text == "Log in").await;
    check_access(&browser, "login").await;
    browser.write("#token", "a-wrong-token-of-32-characters-00").await;
    browser.press("\u{e007}").await;
    browser.until("#wrong", |text| text.contains("no caller has this token")).await;
    log_in(&browser, &scene, OPERATOR).await;
    browser.until("#count", |text| text == "10,000 lanes").await;
    let picture = browser.text("#user").await;
    assert!(picture.contains("operator, may operate"), "{picture}");

    // The keyboard alone is enough to find, open and pause a lane.
    tab_to(&browser, "#search").await;
    browser.press("bulk-7421").await;
    browser.until("#count", |text| text == "1 lane").await;
    assert!(browser.run("return location.hash", json!([])).await.as_str().unwrap().contains("search=bulk-7421"));
    browser.until("tbody", |text| text.contains("bulk-7421") && text.contains("idle")).await;
    tab_to(&browser, "tbody a").await;
    browser.press("\u{e007}").await;
    browser.until("h1", |text| text == "bulk-7421 at v").await;
    tab_to(&browser, "#pause").await;
    browser.press("\u{e007}").await;
    browser.until("#lane-state", |text| text.contains("paused by an operator")).await;
    assert!(scene.client.status("bulk-7421", "v").unwrap().pause.is_some());
    check_access(&browser, "lane").await;
    check_narrow(&browser, "lane").await;
    // The default order shows the worst lane first: of ten thousand, the one that needs attention.
    open_page(&browser, "#/lanes", "Lanes").await;
    browser.until("tbody tr", |text| text.contains("bulk-7421") && text.contains("paused by an operator")).await;
    check_access(&browser, "lanes").await;
    check_narrow(&browser, "lanes").await;
    browser.click("[data-key=next]").await;
    browser.until(".pager", |text| text.contains("First page")).await;
    browser.until("tbody tr", |text| !text.contains("bulk-7421")).await;
    open_page(&browser, "#/lanes/bulk-7421/v", "bulk-7421").await;
    tab_to(&browser, "#resume").await;
    browser.press(" ").await;
    browser.until("#lane-state", |text| text == "idle").await;
    open_page(&browser, "#/system", "Vendors").await;
    browser.until("main", |text| text.contains("10,000 tenants")).await;
    check_access(&browser, "vendors").await;
    check_narrow(&browser, "vendors").await;

    // A viewer sees no button.
    browser.click("#logout").await;
    log_in(&browser, &scene, VIEWER).await;
    open_page(&browser, "#/lanes/acme/v", "acme").await;
    assert_eq!(browser.run("return document.querySelectorAll('#pause, #resume').length", json!([])).await, 0);
    assert_eq!(unexpected_console_errors(&browser).await, Vec::<String>::new());
}

/// Uses a part of a lane's limit. In some lanes the vendor refuses the next request.
fn use_part_of_limit(scene: &Scene, number: u32) {
    let tenant = format!("bulk-{:03}", number * 17);
    for _ in 0..8 {
        let Ok(permit) = scene.client.try_acquire(&tenant, "v", Priority::Normal, 100 + number % 7 * 70) else {
            return;
        };
        match number % 9 {
            0 => {
                let headers =
                    [(http::header::RETRY_AFTER, http::HeaderValue::from_static("900"))].into_iter().collect();
                permit.answered_with(http::StatusCode::TOO_MANY_REQUESTS, &headers);
                permit.finish();
            }
            _ => permit.finish(),
        }
    }
}

/// The console's messages without those about calls that the test itself made fail: a browser logs each response with a
/// status above 399.
async fn unexpected_console_errors(browser: &Browser) -> Vec<String> {
    let all = browser.console_errors().await;
    all.into_iter().filter(|line| !line.contains("Failed to load resource")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_resends_and_deletes_letters_by_number() {
    if is_off() {
        return;
    }
    let scene = Scene::new("browser-letters", false).await;
    scene.letters(4).await;
    let browser = Browser::start().await;
    browser.size(1100, 700).await;
    log_in(&browser, &scene, OPERATOR).await;
    open_page(&browser, "#/letters", "Dead letters").await;
    browser.until("#count", |text| text == "4 letters match").await;
    check_access(&browser, "letters").await;
    check_keyboard(&browser, "letters").await;
    check_narrow(&browser, "letters").await;

    // One dead letter is redriven, and the vendor receives the request.
    let before = scene.vendor.arrivals().len();
    tab_to(&browser, "tbody input[type=checkbox]").await;
    browser.press(" ").await;
    browser.until("#redrive", |text| text.contains("(1)")).await;
    tab_to(&browser, "#redrive").await;
    browser.press("\u{e007}").await;
    browser.until("#dialog-title", |text| text.contains("1 selected letter")).await;
    browser.press("1\u{e007}").await;
    browser.until("#done", |text| text.contains("1 letter is a job again")).await;
    let again = scene.arrival_after(before).await;
    assert!(again.path.starts_with("/refused/") && !again.idempotency_key.is_empty());
    scene.until_letters(4).await;

    // Hostile text of a customer is shown as text.
    browser.click("tbody a").await;
    browser.until("main", |text| text.contains("<script>") && text.contains("onerror")).await;
    assert_eq!(
        browser.run("return [document.images.length, document.scripts.length, document.title]", json!([])).await,
        json!([0, 1, "Dead letters – integration-client"])
    );
    check_access(&browser, "letter").await;
    open_page(&browser, "#/letters", "Dead letters").await;

    // Deleting all letters needs their number: a wrong number is refused.
    browser.until("#purge-all", |text| text.contains("Delete all 4")).await;
    tab_to(&browser, "#purge-all").await;
    browser.press("\u{e007}").await;
    browser.until("#dialog-title", |text| text.contains("all 4 letters")).await;
    check_access(&browser, "purge").await;
    browser.press("3\u{e007}").await;
    browser.until("dialog [role=alert]", |text| text.contains("That is not 4")).await;
    assert_eq!(scene.get("api/letters").await["total"], 4);
    // Escape closes the dialog, and nothing was deleted.
    browser.press("\u{e00c}").await;
    browser.until("dialog[open]", str::is_empty).await;
    assert_eq!(scene.get("api/letters").await["total"], 4);
    tab_to(&browser, "#purge-all").await;
    browser.press("\u{e007}").await;
    browser.until("#dialog-title", |text| text.contains("all 4 letters")).await;
    browser.press("4\u{e007}").await;
    browser.until("#done", |text| text.contains("4 letters deleted")).await;
    assert_eq!(scene.get("api/letters").await["total"], 0);
    open_page(&browser, "#/queues", "Queues").await;
    browser.until("main", |text| text.contains("jobs waiting")).await;
    check_access(&browser, "queues").await;
    check_narrow(&browser, "queues").await;
    assert_eq!(unexpected_console_errors(&browser).await, Vec::<String>::new());
}

/// No store fails about a single limit because a test asks it to: the page gets the response from the test.
#[tokio::test(flavor = "multi_thread")]
async fn limit_without_an_answer_is_shown() {
    if is_off() {
        return;
    }
    let scene = Scene::new("browser-sharing", false).await;
    let browser = Browser::start().await;
    browser.size(1100, 700).await;
    log_in(&browser, &scene, VIEWER).await;
    let limit = |name: &str, problem: Option<&str>| {
        json!({
            "limit": name, "units": 10, "processes": 2, "held": 8, "wanted": 4, "held_here": 3,
            "figures_differ": false, "problem": problem,
        })
    };
    let told = json!({
        "sharing": {
            "limits": 2, "limits_failing": 1, "answered": 7, "failed": 0, "leases_lost": 0, "away_for_s": null,
            "mode": "sharing", "lease_left_s": 9.0, "floor_left_s": 0.0, "is_learning": false,
        },
        "limits": [limit("live|v|vendor||minute", Some("the disk fails")), limit("live|v|vendor||second", None)],
        "is_cut": false,
    });
    let tell = "const real = window.fetch; window.fetch = (path, ...all) => path.endsWith('api/processes')
        ? Promise.resolve(new Response(JSON.stringify(args[0]))) : real(path, ...all);";
    browser.run(tell, json!([told])).await;
    open_page(&browser, "#/system", "Vendors").await;
    browser.until("dl", |text| text.contains("the store does not answer about 1 limit")).await;
    browser.until("dl ~ table .bad", |text| text == "the store does not answer: the disk fails").await;
    let marked = browser.run("return document.querySelectorAll('dl ~ table .bad').length", json!([])).await;
    assert_eq!(marked, 1, "the store answers about the other limit");
    check_access(&browser, "sharing").await;
    check_narrow(&browser, "sharing").await;
    assert_eq!(unexpected_console_errors(&browser).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_tab_asks_for_no_events() {
    if is_off() {
        return;
    }
    let scene = Scene::new("browser-events", false).await;
    let browser = Browser::start().await;
    browser.size(1100, 700).await;
    log_in(&browser, &scene, VIEWER).await;
    open_page(&browser, "#/events", "Events").await;
    // By then the event stream is open.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = now();
    scene.client.tenants().pause("acme", "v").unwrap();
    browser.until("#events", |text| text.contains("paused") && text.contains("acme at v")).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    check_access(&browser, "events").await;
    check_narrow(&browser, "events").await;
    scene.client.tenants().resume("acme", "v").unwrap();

    // Counts every call of the page. Then the tab is hidden.
    let count = "window.asked = 0; const real = window.fetch; window.fetch = (...all) => { window.asked += 1; return real(...all); };";
    browser.run(count, json!([])).await;
    open_page(&browser, "#/lanes", "Lanes").await;
    let hide = "Object.defineProperty(document, 'hidden', { configurable: true, get: () => args[0] }); document.dispatchEvent(new Event('visibilitychange'));";
    browser.run(hide, json!([true])).await;
    let asked = || async { browser.run("return window.asked", json!([])).await };
    let before = asked().await;
    assert!(before.as_u64().unwrap() > 0);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(asked().await, before, "a hidden tab asked");
    browser.run(hide, json!([false])).await;
    for _ in 0..400 {
        if asked().await.as_u64() > before.as_u64() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert!(asked().await.as_u64() > before.as_u64(), "and asks again when it is seen");
    scene.client.send("acme", Priority::High, Request::get("v", "/x")).await.unwrap();
    assert_eq!(unexpected_console_errors(&browser).await, Vec::<String>::new());
}
