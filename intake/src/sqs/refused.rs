//! The copy of a refused message in the queue of refused messages. Pure.

use std::collections::HashMap;

use aws_sdk_sqs::error::BuildError;
use aws_sdk_sqs::types::{Message, MessageAttributeValue, QueueAttributeName};

use crate::reason;

/// The attribute of a refused message that holds the reason.
const WHY: &str = "refused-because";
/// The attribute of a refused message that is not sent whole: the number of bytes of its content.
const WAS_CUT: &str = "refused-cut";
/// Attributes that SQS allows a message.
const MAX_ATTRIBUTES: usize = 10;
/// Bytes of the largest message of a queue that does not tell its limit, and of several messages in one request.
pub(super) const LONGEST: usize = 262_144;

/// A message's own attributes, by name.
type Attributes = HashMap<String, MessageAttributeValue>;

/// Bytes of the largest message of a queue with these attributes.
pub(super) fn most(of_queue: &HashMap<QueueAttributeName, String>) -> usize {
    let stated = of_queue.get(&QueueAttributeName::MaximumMessageSize);
    stated.and_then(|stated| stated.parse().ok()).unwrap_or(LONGEST)
}

/// The content and the attributes of the copy of a refused message, for a queue whose messages may have `most` bytes.
/// SQS counts the names, types and values of attributes too.
pub(super) fn copy(message: &Message, why: &str, most: usize) -> Result<(String, Attributes), BuildError> {
    let content = message.body().unwrap_or_default();
    let mut attributes = message.message_attributes().cloned().unwrap_or_default();
    let why = text(&reason::line(why))?;
    if attributes.len() < MAX_ATTRIBUTES || attributes.contains_key(WHY) {
        attributes.insert(WHY.to_owned(), why.clone());
    }
    if size(&attributes).saturating_add(content.len()) <= most {
        return Ok((content.to_owned(), attributes));
    }
    let marks = Attributes::from([(WHY.to_owned(), why), (WAS_CUT.to_owned(), text(&content.len().to_string())?)]);
    attributes.extend(marks.clone());
    // The reason matters more than the message's own attributes.
    if attributes.len() > MAX_ATTRIBUTES || size(&attributes) > most / 2 {
        attributes = marks;
    }
    let room = most.saturating_sub(size(&attributes));
    let kept = content.get(..content.floor_char_boundary(room)).unwrap_or(content);
    Ok((kept.to_owned(), attributes))
}

fn text(value: &str) -> Result<MessageAttributeValue, BuildError> {
    MessageAttributeValue::builder().data_type("String").string_value(value).build()
}

/// Bytes of attributes, as SQS counts them.
pub(super) fn size(attributes: &Attributes) -> usize {
    let of_attribute = attributes.iter().map(|(name, value)| {
        let text = value.string_value().map_or(0, str::len);
        let bytes = value.binary_value().map(AsRef::<[u8]>::as_ref).map_or(0, <[u8]>::len);
        name.len() + value.data_type().len() + text + bytes
    });
    of_attribute.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(content: &str, attributes: usize) -> Message {
        let message = Message::builder().body(content);
        let own = (0..attributes).map(|number| (format!("own-{number}"), text("1").unwrap()));
        own.fold(message, |message, (name, value)| message.message_attributes(name, value)).build()
    }

    fn value<'a>(attributes: &'a Attributes, name: &str) -> Option<&'a str> {
        attributes.get(name)?.string_value()
    }

    #[test]
    fn limit_is_that_of_the_queue() {
        let stated = |size: &str| most(&HashMap::from([(QueueAttributeName::MaximumMessageSize, size.to_owned())]));
        assert_eq!((stated("1048576"), stated(""), most(&HashMap::new())), (1_048_576, LONGEST, LONGEST));
    }

    #[test]
    fn copy_of_small_message_is_whole() {
        let (content, attributes) = copy(&message("{", 2), "not\nJSON\u{ffff}", 1_024).unwrap();
        assert_eq!((content.as_str(), attributes.len()), ("{", 3));
        assert_eq!((value(&attributes, WHY), value(&attributes, "own-1")), (Some("not JSON "), Some("1")));
        let (content, attributes) = copy(&message("{", MAX_ATTRIBUTES), "not JSON", 1_024).unwrap();
        assert_eq!((content.as_str(), attributes.len(), value(&attributes, WHY)), ("{", MAX_ATTRIBUTES, None));
    }

    #[test]
    fn content_is_cut_to_the_limit() {
        let whole = LONGEST - size(&copy(&message("x", 2), "why", LONGEST).unwrap().1);
        assert_eq!(copy(&message(&"x".repeat(whole), 2), "why", LONGEST).unwrap().0.len(), whole);
        for length in [whole + 1, LONGEST, 4 * LONGEST] {
            let (content, attributes) = copy(&message(&"x".repeat(length), 2), "why", LONGEST).unwrap();
            assert_eq!(content.len() + size(&attributes), LONGEST, "{length}");
            assert_eq!(value(&attributes, WAS_CUT), Some(length.to_string().as_str()));
            assert_eq!((value(&attributes, WHY), attributes.len()), (Some("why"), 4));
        }
        let (content, attributes) = copy(&message(&"é".repeat(LONGEST), 0), "why", LONGEST).unwrap();
        let size = content.len() + size(&attributes);
        assert!((LONGEST - 1..=LONGEST).contains(&size) && content.chars().all(|character| character == 'é'), "{size}");
    }

    #[test]
    fn attributes_without_room_are_left_out() {
        for (own, most) in [(MAX_ATTRIBUTES, LONGEST), (MAX_ATTRIBUTES - 1, LONGEST), (2, 1_024)] {
            let (content, attributes) = copy(&message(&"x".repeat(LONGEST), own), &"w".repeat(9_999), most).unwrap();
            assert!(!content.is_empty() && content.len() + size(&attributes) == most, "{own}");
            assert!(attributes.len() == 2 && value(&attributes, WHY).is_some(), "{own}: {attributes:?}");
        }
    }
}
