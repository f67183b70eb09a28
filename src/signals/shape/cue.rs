//! A first look at a header's name, which most names do not pass.

/// How the words begin that are looked for in a name before reading it: most headers have none of them. Limit, left, retry,
/// remaining, reset, resource unit, quota, charge, cost, complexity, concurrent.
const CUES: [[u8; 4]; 11] =
    [*b"limi", *b"left", *b"retr", *b"rema", *b"rese", *b"reso", *b"quot", *b"char", *b"cost", *b"comp", *b"conc"];

/// Whether a header of this name may be one of those that are read. Right only in its "no".
///
/// Every third pair of letters is looked at: of a cue, whatever its place, one of the three pairs in it is such a pair.
#[inline]
pub(super) fn may_speak(name: &str) -> bool {
    let name = name.as_bytes();
    let mut at = 0;
    while let Some([one, two]) = name.get(at..).and_then(<[u8]>::first_chunk) {
        if PAIRS[usize::from(one & 31)] & (1 << (two & 31)) != 0 && begins_near(name, at) {
            return true;
        }
        at += 3;
    }
    false
}

/// Whether a cue begins at that place or at one of the two before it.
fn begins_near(name: &[u8], at: usize) -> bool {
    let begins = |at: usize| {
        let four = name.get(at..).and_then(<[u8]>::first_chunk::<4>);
        four.is_some_and(|four| FIRST & (1 << (four[0] & 31)) != 0 && CUES.contains(four))
    };
    begins(at) || at.checked_sub(1).is_some_and(begins) || at.checked_sub(2).is_some_and(begins)
}

/// The letters with which cues begin, as [`PAIRS`] has them.
const FIRST: u32 = {
    let (mut first, mut at) = (0, 0);
    while at < CUES.len() {
        first |= 1 << (CUES[at][0] & 31);
        at += 1;
    }
    first
};

/// For the last five bits of a letter, those of the letters that follow it in a cue.
static PAIRS: [u32; 32] = pairs();

const fn pairs() -> [u32; 32] {
    let mut pairs = [0; 32];
    let mut at = 0;
    while at < CUES.len() {
        let cue = CUES[at];
        let mut letter = 0;
        while letter < 3 {
            pairs[(cue[letter] & 31) as usize] |= 1 << (cue[letter + 1] & 31);
            letter += 1;
        }
        at += 1;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cue_is_missed_and_nothing_else_found() {
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
}
