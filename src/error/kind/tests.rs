use super::*;

#[test]
fn json_of_a_kind_is_its_name() {
    for kind in KINDS {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
    }
    use crate::error::Delivery;
    for delivery in [Delivery::NotSent, Delivery::Rejected, Delivery::Ambiguous, Delivery::Delivered] {
        assert_eq!(serde_json::to_value(delivery).unwrap(), delivery.as_str());
    }
}
