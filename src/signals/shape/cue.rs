//! A quick filter on header names, which rejects most of them.

/// The first four letters of the words that a relevant name must contain: limit, left, retry, remaining, reset,
/// resource unit, quota, charge, cost, complexity, concurrent.
const CUES: [[u8; 4]; 11] =
    [*b"limi", *b"left", *b"retr", *b"rema", *b"rese", *b"reso", *b"quot", *b"char", *b"cost", *b"comp", *b"conc"];

/// Whether a header of this name may be relevant. Only `false` is certain.
///
/// Only every third pair of letters is tested: a cue has three pairs, so one of them is tested wherever the cue begins.
#[inline]
pub(super) fn may_speak(name: &str) -> bool {
    let name = name.as_bytes();
    let mut at = 0;
    while let Some(pair) = name.get(at..).and_then(<[u8]>::first_chunk) {
        if ANY.has(pair) && is_in_cue(name, at, pair) {
            return true;
        }
        at += 3;
    }
    false
}

/// Whether the pair at this index is the first, second or third pair of a cue.
#[inline]
fn is_in_cue(name: &[u8], at: usize, pair: &[u8; 2]) -> bool {
    let begins = |at: usize| {
        let four = name.get(at..).and_then(<[u8]>::first_chunk::<4>);
        four.is_some_and(|four| LAST.has(&[four[2], four[3]]) && CUES.contains(four))
    };
    (FIRST.has(pair) && begins(at))
        || (MIDDLE.has(pair) && at.checked_sub(1).is_some_and(begins))
        || (LAST.has(pair) && at.checked_sub(2).is_some_and(begins))
}

/// A set of letter pairs, indexed by the last five bits of each letter.
struct Pairs([u32; 32]);

impl Pairs {
    #[inline]
    fn has(&self, [one, two]: &[u8; 2]) -> bool {
        self.0[usize::from(one & 31)] >> (two & 31) & 1 != 0
    }

    /// The pairs that begin at one of these indices of a cue.
    const fn at(letters: &[usize]) -> Pairs {
        let mut pairs = [0; 32];
        let mut cue = 0;
        while cue < CUES.len() {
            let mut at = 0;
            while at < letters.len() {
                let (one, two) = (CUES[cue][letters[at]], CUES[cue][letters[at] + 1]);
                pairs[(one & 31) as usize] |= 1 << (two & 31);
                at += 1;
            }
            cue += 1;
        }
        Pairs(pairs)
    }
}

static FIRST: Pairs = Pairs::at(&[0]);
static MIDDLE: Pairs = Pairs::at(&[1]);
static LAST: Pairs = Pairs::at(&[2]);
static ANY: Pairs = Pairs::at(&[0, 1, 2]);

#[cfg(test)]
mod tests;
