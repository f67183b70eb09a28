#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| integration_client::testing::fuzz::body(bytes));
