//! Statements about a few sizes of groups of rows, so that a group of any size takes few round trips and the database
//! prepares few statements.

use std::sync::OnceLock;

/// The sizes, the largest first. A round trip is most of the cost of a small statement.
const SIZES: [usize; 4] = [64, 16, 4, 1];

/// The texts of a statement for groups of each size.
pub(super) struct Statements {
    text: fn(usize) -> String,
    texts: [OnceLock<String>; SIZES.len()],
}

impl Statements {
    /// `text` makes the statement for so many rows.
    pub(super) const fn new(text: fn(usize) -> String) -> Statements {
        Statements { text, texts: [const { OnceLock::new() }; SIZES.len()] }
    }

    /// The statement for a group of [`chunks`].
    pub(super) fn of(&self, rows: usize) -> &str {
        let number = SIZES.iter().position(|size| *size == rows).unwrap_or(SIZES.len() - 1);
        debug_assert_eq!(SIZES[number], rows, "a group of `chunks`");
        self.texts[number].get_or_init(|| (self.text)(SIZES[number]))
    }
}

/// Splits rows into groups of the sizes for which there are statements.
pub(super) fn chunks<T>(mut rows: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let size = SIZES.into_iter().find(|size| *size <= rows.len())?;
        let (chunk, rest) = rows.split_at(size);
        rows = rest;
        Some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_known_sizes_and_hold_all_rows() {
        let rows: Vec<usize> = (0..87).collect();
        let sizes: Vec<usize> = chunks(&rows).map(<[usize]>::len).collect();
        assert_eq!(sizes, [64, 16, 4, 1, 1, 1]);
        assert_eq!(chunks(&rows).flatten().copied().collect::<Vec<_>>(), rows);
        assert_eq!(chunks::<u8>(&[]).count(), 0);
    }

    #[test]
    fn statement_of_each_size_is_made_once() {
        static TEXTS: Statements = Statements::new(|rows| format!("{rows} rows"));
        assert_eq!([64, 16, 4, 1].map(|rows| TEXTS.of(rows)), ["64 rows", "16 rows", "4 rows", "1 rows"]);
        assert!(std::ptr::eq(TEXTS.of(4), TEXTS.of(4)));
    }
}
