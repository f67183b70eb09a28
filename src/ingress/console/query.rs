//! The fields of a call's query.

use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::reply::Failed;

/// Fields that are numbers.
const NUMBERS: &[&str] = &["limit", "after_place"];

/// Parses the fields of a query. An empty field counts as absent.
///
/// # Errors
/// 400 for a field that is unknown or not of its type.
pub(super) fn read<T: DeserializeOwned>(query: &str) -> Result<T, Failed> {
    let bad = |why: String| Failed::new(StatusCode::BAD_REQUEST, format!("the query is not read: {why}"));
    let mut fields = Map::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()).filter(|(_, value)| !value.is_empty()) {
        let value = match NUMBERS.contains(&&*name) {
            true => Value::from(value.parse::<i64>().map_err(|_| bad(format!("{name} is no number")))?),
            false => Value::from(value.into_owned()),
        };
        fields.insert(name.into_owned(), value);
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| bad(error.to_string()))
}
