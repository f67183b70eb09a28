use super::*;

#[test]
fn cue_search_misses_and_invents_nothing() {
    let plain = |name: &str| name.as_bytes().windows(4).any(|four| CUES.iter().any(|cue| cue == four));
    let pieces =
        ["x", "-", "co", "nt", "ent", "re", "st", "rate", "limit", "lef", "t", "quo", "conc", "omp", "le", "li"];
    let mut random = fastrand::Rng::with_seed(1);
    let (mut speak, mut silent) = (0, 0);
    for _ in 0..20_000 {
        let name: String = (0..random.usize(0..7)).map(|_| pieces[random.usize(..pieces.len())]).collect();
        assert_eq!(may_speak(&name), plain(&name), "{name}");
        *(if plain(&name) { &mut speak } else { &mut silent }) += 1;
    }
    assert!(speak > 1_000 && silent > 1_000);
    for cue in CUES {
        let cue = String::from_utf8(cue.to_vec()).unwrap();
        assert!((0..6).all(|before| may_speak(&format!("{}{cue}", &"xxxxxx"[..before]))), "{cue}");
    }
}
