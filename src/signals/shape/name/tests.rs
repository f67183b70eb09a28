//! Tests of `name`.

use super::*;

fn check(header: &str) -> Option<(String, Role, Option<String>, Option<u64>)> {
    let meaning = meaning(header)?;
    let name = meaning.name.map(|name| name.as_str().to_owned());
    Some((meaning.family.to_owned(), meaning.role, name, meaning.length.map(|length| length.as_secs())))
}

#[test]
fn words_stand_in_any_order() {
    for (header, family, role, name, length) in [
        ("x-ratelimit-remaining", "x-ratelimit", Role::Remaining, None, None),
        ("x-ratelimit-remaining-tokens", "x-ratelimit", Role::Remaining, Some("tokens"), None),
        ("acme-ratelimit-input-tokens-reset", "acme-ratelimit", Role::Reset, Some("input-tokens"), None),
        ("x-rate-limit-limit-user-remaining", "x-rate-limit", Role::Remaining, Some("user"), None),
        ("x-ratelimit-limit-user", "x-ratelimit", Role::Limit, Some("user"), None),
        ("x-ratelimit-limit-second", "x-ratelimit", Role::Limit, Some("second"), Some(1)),
        ("x-acme-ratelimit-daily", "x-acme-ratelimit", Role::Limit, Some("daily"), Some(86_400)),
        ("x-ratelimit-limit-period", "x-ratelimit", Role::Limit, Some("period"), None),
        ("x-ratelimit-period", "x-ratelimit", Role::Length, None, None),
        ("x-ratelimit-interval-milliseconds", "x-ratelimit", Role::Length, None, None),
        ("x-ratelimit-retry-after", "x-ratelimit", Role::Wait, None, None),
        ("x-ratelimit-resource", "x-ratelimit", Role::Label(1), None, None),
        ("x-ratelimit-userremaining", "x-ratelimit", Role::Remaining, Some("user"), None),
        ("x-ratelimit-dailylimit", "x-ratelimit", Role::Limit, Some("daily"), Some(86_400)),
        ("x-ratelimit-delay", "x-ratelimit", Role::Unknown, Some("delay"), None),
        ("beta-ratelimit-policy", "beta-ratelimit", Role::Policy, None, None),
        ("x-daily-requests-left", "x-daily-requests", Role::Remaining, Some("daily-requests"), Some(86_400)),
        ("x-burstlimit-remaining", "x-burstlimit", Role::Remaining, Some("burst"), None),
        ("x-app-rate-limit", "x-app-rate-limit", Role::Field, Some("app"), None),
        ("x-acmeapi-remaining", "x-acmeapi", Role::Remaining, None, None),
        ("x-pool-24hour-limit", "x-pool-24hour", Role::Limit, Some("pool-24hour"), Some(86_400)),
        ("retry-after-ms", "retry-after-ms", Role::Wait, None, None),
        ("retry_after", "retry_after", Role::Wait, None, None),
        ("x-retry_after", "x-retry_after", Role::Wait, None, None),
        ("x_ratelimit_remaining", "x_ratelimit", Role::Remaining, None, None),
        ("x-ratelimit-limit_requests", "x-ratelimit", Role::Unknown, Some("limit_requests"), None),
        ("grpc-retry-pushback-ms", "grpc-retry-pushback-ms", Role::Wait, None, None),
        ("x--acme--calls-left-s", "x--acme--calls", Role::Remaining, Some("-acme--calls"), None),
    ] {
        let expected = (family.to_owned(), role, name.map(str::to_owned), length);
        assert_eq!(check(header), Some(expected), "{header}");
    }
    for header in [
        "x-ratelimit-limit",
        "ratelimit-remaining",
        "x-rate-limit-reset",
        "rate-limit-used",
        "x-ratelimit-limit-requests",
        "ratelimit-remaining-tokens",
        "ratelimit",
        "x-rate-limit",
        "ratelimit-policy",
    ] {
        let (begin, end) = marker(header).unwrap();
        assert!(common(header).is_some(), "{header}");
        assert_eq!(common(header), certain(header, begin, end), "{header}");
    }
    for end in ["-", "--limit", "s-limit", "ed", "-policy-tokens", "_limit", "-resource-used"] {
        let header = format!("x-ratelimit{end}");
        let known = common(&header);
        assert!(known.is_none() || known == by_words(&header), "{header}");
    }
    for last in ["daily", "dailylimit", "user-remaining", "ms", "24hour", "after", "policy", "a_b", "", "retry"] {
        let header = format!("x-ratelimit-limit-{last}");
        let (begin, end) = marker(&header).unwrap();
        assert!(common(&header).is_none_or(|known| Some(known) == certain(&header, begin, end)), "{header}");
    }
    assert_eq!(common("x-ratelimit-resource").map(|known| known.role), Some(Role::Label(1)));
    let others =
        "my-x-ratelimit-limit old-x-retry-after content-type retry-policy x-ratelimited limit remaining content-length";
    for header in others.split(' ') {
        assert_eq!(check(header), None, "{header}");
    }
}
