use super::problem;

fn problem_of(lines: &[(&str, &str)]) -> Option<String> {
    problem(|name| lines.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
}

#[test]
fn unsafe_server_is_refused_with_advice() {
    let good =
        [("redis_version", "7.0.15"), ("role", "master"), ("maxmemory", "0"), ("maxmemory_policy", "noeviction")];
    assert_eq!(problem_of(&good), None);
    let with = |name, value| {
        let mut lines = good.to_vec();
        lines.insert(0, (name, value));
        problem_of(&lines).unwrap_or_default()
    };
    assert!(with("redis_version", "4.0.9").contains("use 5 or later"));
    assert!(with("cluster_enabled", "1").contains("cluster"));
    assert!(with("role", "slave").contains("name the primary"));
    assert_eq!(with("maxmemory_policy", "allkeys-lru"), "", "nothing is evicted without a bound");
    let evicts = [("maxmemory", "100"), ("maxmemory_policy", "allkeys-lru"), ("redis_version", "8.0.0")];
    assert!(problem_of(&evicts).is_some_and(|problem| problem.contains("set it to noeviction")));
    assert!(problem_of(&[]).is_some_and(|problem| problem.contains("too old")));
}
