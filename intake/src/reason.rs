//! The reason that is put aside with a refused message.

/// Characters of the reason; the rest is cut off.
pub(crate) const LONGEST: usize = 500;

/// The reason as the value of a header or an attribute, which must be a single line without control characters.
#[cfg(any(feature = "kafka", feature = "nats", feature = "sqs"))]
pub(crate) fn line(why: &str) -> String {
    let why: String = why.chars().take(LONGEST).collect();
    why.replace(char::is_control, " ")
}

#[cfg(all(test, any(feature = "kafka", feature = "nats", feature = "sqs")))]
mod tests {
    use super::*;

    #[test]
    fn reason_is_one_line_of_bounded_length() {
        assert_eq!(line("not\nJSON\t1"), "not JSON 1");
        assert_eq!(line(&"é".repeat(LONGEST + 1)), "é".repeat(LONGEST));
    }
}
