//! A path in a message.

use std::path::Path;

/// The most characters of a path in a message. A path may have thousands.
const MOST: usize = 256;

/// The path as a message shows it: whole, or its beginning and its end if it is long.
pub(super) fn path_text(path: &Path) -> String {
    let text = path.display().to_string();
    let length = text.chars().count();
    if length <= MOST {
        return text;
    }
    let first: String = text.chars().take(MOST / 2).collect();
    let last: String = text.chars().skip(length - MOST / 2).collect();
    format!("{first}…{last}")
}
