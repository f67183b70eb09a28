//! "Did you mean": the nearest existing name for a misspelt one.

/// The longest names that are compared, in bytes: the cost is quadratic, and longer names are not typed by hand.
const LONGEST: usize = 64;

/// The name among `candidates` that is nearest to `wanted`, if any is close enough to suggest.
pub(super) fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wanted.len() > LONGEST {
        return None;
    }
    let wanted_lower = wanted.to_lowercase();
    let allowed = (wanted_lower.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= LONGEST)
        .map(|candidate| (distance(&wanted_lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// At most three names that contain `wanted` as a word or share most of their beginning with it: `attempt_timeout` for
/// `timeout`, `retry` for `retries`.
pub(super) fn related<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    /// The shortest word, in bytes, that is compared; shorter ones match too many names.
    const WORD: usize = 4;
    let shares = |candidate: &str| {
        let same = wanted.bytes().zip(candidate.bytes()).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
        let is_word = candidate.split('_').any(|word| word.len() >= WORD && word.eq_ignore_ascii_case(wanted));
        is_word || same >= WORD.max(wanted.len().min(candidate.len()) * 3 / 4)
    };
    let mut related: Vec<&str> = candidates.into_iter().filter(|candidate| shares(candidate)).collect();
    related.truncate(3);
    related
}

/// "did you mean `x`?", or the existing names if none is near.
pub(super) fn hint<'a>(wanted: &str, what: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(near) = nearest(wanted, candidates.clone()) {
        return format!("did you mean `{near}`?");
    }
    let mut names: Vec<&str> = candidates.into_iter().take(21).collect();
    if names.is_empty() {
        return format!("there are no {what}");
    }
    let more = names.len() > 20;
    names.truncate(20);
    format!("{what}: {}{}", names.join(", "), if more { ", …" } else { "" })
}

/// The message about a word that is none of `candidates`. It repeats the word only if the word is near one of them: any
/// other text may be a secret in the wrong field.
pub(super) fn unknown<'a>(
    kind: &str,
    text: &str,
    what: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    let hint = hint(text, what, candidates.clone());
    match nearest(text, candidates) {
        Some(_) => format!("unknown {kind} {text:?}; {hint}"),
        None => format!("unknown {kind}; {hint}"),
    }
}

/// The number of edits (insert, delete, replace, swap of neighbours) between two names.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests;
