use super::*;

fn name(tenant: &str) -> Name {
    (tenant.into(), "v".into())
}

fn line(history: &History, tenant: &str) -> Vec<u8> {
    history.line(tenant, "v")
}

#[test]
fn line_is_the_last_hour_oldest_first() {
    let mut history = History::default();
    assert_eq!(line(&history, "a"), Vec::<u8>::new());
    for number in 0..200u8 {
        history.sample([(name("a"), number % 100)].into_iter());
    }
    let shown = line(&history, "a");
    assert_eq!(shown.len(), KEPT / TOGETHER);
    assert_eq!((shown[0], shown[59]), (20, 97), "the lowest of each three, from sample 20 to 199");
    assert!(line(&history, "b").is_empty());
}

#[test]
fn lanes_at_rest_take_no_room() {
    let mut history = History::default();
    history.sample([(name("a"), 40)].into_iter());
    for _ in 1..KEPT {
        history.sample(std::iter::empty());
        assert_eq!(history.rings.len(), 1);
    }
    assert_eq!(line(&history, "a")[0], 40, "it was so an hour ago");
    history.sample(std::iter::empty());
    assert!(history.rings.is_empty());
}
