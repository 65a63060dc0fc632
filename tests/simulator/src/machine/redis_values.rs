//! Values of Redis in a fixed order.

use ::redis::Value;

/// Redis' sets have no order, and each run must be the same.
pub(crate) fn sorted(set: Value) -> Vec<Value> {
    let mut words = byte_strings(set);
    words.sort_unstable();
    words.into_iter().map(Value::BulkString).collect()
}

pub(crate) fn sorted_pairs(hash: Value) -> Value {
    let mut words = byte_strings(hash).into_iter();
    let mut pairs: Vec<_> = std::iter::from_fn(|| Some([words.next()?, words.next()?])).collect();
    pairs.sort_unstable();
    Value::Array(pairs.into_iter().flatten().map(Value::BulkString).collect())
}

pub(crate) fn elements(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        _ => Vec::new(),
    }
}

pub(crate) fn byte_strings(value: Value) -> Vec<Vec<u8>> {
    let as_bytes = |value| match value {
        Value::BulkString(bytes) => bytes,
        other => panic!("{other:?} in an array of strings"),
    };
    elements(value).into_iter().map(as_bytes).collect()
}

pub(crate) fn single_page(values: Vec<Value>) -> Value {
    Value::Array(vec![Value::BulkString(b"0".to_vec()), Value::Array(values)])
}

pub(crate) fn sort_nested(value: &mut Value) {
    let Value::Array(parts) = value else { return };
    for part in parts {
        if let Value::Array(_) = part {
            let words = std::mem::replace(part, Value::Nil);
            *part = Value::Array(sorted(words));
        }
    }
}
