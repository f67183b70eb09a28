//! The reason that is put aside with a refused message, and how many messages are put aside at once.

/// Bytes of the reason; the rest is cut off.
const LONGEST: usize = 500;

/// The most refused messages that are put aside at once by a broker that takes each by itself.
#[cfg(any(feature = "kafka", feature = "nats"))]
pub(crate) const AT_ONCE: usize = 16;

/// The reason without what is cut off.
pub(crate) fn short(why: &str) -> &str {
    why.get(..why.floor_char_boundary(LONGEST)).unwrap_or(why)
}

/// The reason as the value of a header or an attribute, which must be a single line without control characters.
#[cfg(any(feature = "kafka", feature = "nats", feature = "sqs"))]
pub(crate) fn line(why: &str) -> String {
    short(why).replace(is_replaced, " ")
}

/// Whether a character is a control character or one of the two others that XML does not allow. SQS accepts only the
/// characters of XML.
#[cfg(any(feature = "kafka", feature = "nats", feature = "sqs"))]
fn is_replaced(character: char) -> bool {
    character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}')
}

#[cfg(all(test, any(feature = "kafka", feature = "nats", feature = "sqs")))]
mod tests {
    use super::*;

    #[test]
    fn reason_is_one_line_of_bounded_length() {
        assert_eq!(line("not\nJSON\t1"), "not JSON 1");
        assert_eq!(line(&"é".repeat(LONGEST)), "é".repeat(LONGEST / 2));
        assert_eq!(line(&format!("a{}", "é".repeat(LONGEST))).len(), LONGEST - 1, "no character is cut in two");
    }

    #[test]
    fn reason_has_characters_of_xml_only() {
        let is_of_xml = |character: char| matches!(character, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
        for character in ['\0'..='\u{100}', '\u{d7f0}'..='\u{e010}', '\u{fff0}'..='\u{10010}'].into_iter().flatten() {
            let line = line(&character.to_string());
            assert!(line.chars().count() == 1 && line.chars().all(is_of_xml), "{character:?}");
        }
        assert_eq!(line("\u{fffd}\u{fffe}\u{ffff}\u{10000}"), "\u{fffd}  \u{10000}");
    }
}
