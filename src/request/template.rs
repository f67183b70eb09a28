//! The template of a path, for logs, events and dead letters of requests that match no configured endpoint.
//!
//! A path may hold identifiers of people and orders, and at some vendors a secret (`/bot<token>/getMe`). So the
//! template keeps only segments that look like words of the vendor's interface, and replaces the others by `*`. In
//! doubt it replaces.

/// The most bytes of a template. Segments beyond this length become `**`.
const LONGEST: usize = 96;
/// The most bytes of a segment that is taken for a word.
const LONGEST_WORD: usize = 32;

/// Returns the template of `path`, without query and fragment: that of `/orders/17?page=2` is `/orders/*`. It begins
/// with a slash, so it equals no endpoint's name.
pub(crate) fn template(path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut template = String::new();
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        let shown = if is_word(segment) { segment } else { "*" };
        if template.len() + 1 + shown.len() + "/**".len() > LONGEST {
            template.push_str("/**");
            break;
        }
        template.push('/');
        template.push_str(shown);
    }
    if template.is_empty() {
        template.push('/');
    }
    template
}

/// Whether `segment` consists of words (`orders`, `getUser`, `API`) and versions (`v2`), separated by `-`, `_` or `.`,
/// or is a date.
fn is_word(segment: &str) -> bool {
    let has_words = || segment.split(['-', '_', '.']).all(|part| is_plain(part) || is_version(part));
    segment.len() <= LONGEST_WORD && (has_words() || is_date(segment))
}

/// Whether `part` consists of letters, with at most one digit after them, and is in upper case only at the beginning of
/// words or throughout.
fn is_plain(part: &str) -> bool {
    let letters = part.strip_suffix(|last: char| last.is_ascii_digit()).unwrap_or(part);
    let bytes = letters.as_bytes();
    let is_lower = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_lowercase);
    let begins_word = |at: usize| is_lower(at + 1) && (is_lower(at + 2) || at + 2 == bytes.len());
    let begins_words = || (0..bytes.len()).all(|at| bytes[at].is_ascii_lowercase() || begins_word(at));
    !bytes.is_empty()
        && bytes.len() <= 20
        && bytes.iter().all(u8::is_ascii_alphabetic)
        && (begins_words() || (bytes.len() <= 6 && bytes.iter().all(u8::is_ascii_uppercase)))
}

/// Whether `part` is a version such as `v2`, `v12` or `v1beta1`.
fn is_version(part: &str) -> bool {
    let Some(number) = part.strip_prefix('v') else { return false };
    let behind = number.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let digits = number.len() - behind.len();
    (1..=3).contains(&digits) && (behind.is_empty() || (behind.len() <= 7 && is_plain(behind)))
}

/// Whether `segment` is a date, by which some vendors name versions: `2024-10`, `2024-10-01`.
fn is_date(segment: &str) -> bool {
    let mut parts = segment.split('-');
    let is_number = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.next().is_some_and(|year| is_number(year, 4) && (year.starts_with("19") || year.starts_with("20")))
        && segment.contains('-')
        && parts.by_ref().take(2).all(|part| is_number(part, 2))
        && parts.next().is_none()
}

#[cfg(test)]
mod tests;
