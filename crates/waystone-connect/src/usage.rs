//! How many tokens a server says that it counted. Servers say it in their own ways, and an answer is not lost for one of them.

use serde_json::Value;

/// More than any model takes: a figure beyond it is none.
const TOKENS_MAX: u64 = u32::MAX as u64;

/// A number of tokens, as far as it can be understood.
pub(crate) fn tokens(value: &Value) -> Option<u64> {
    let whole = |number: f64| (number >= 0.0).then_some(number as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(whole)).filter(|tokens| *tokens <= TOKENS_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_taken_as_far_as_they_are_figures() {
        let check = |value: Value, expected: Option<u64>| assert_eq!(tokens(&value), expected, "{value}");
        check(json!(12), Some(12));
        check(json!(12.0), Some(12));
        check(json!(12.9), Some(12));
        for none in [json!(-1), json!("12"), json!(null), json!([]), json!(1e300), json!(u64::MAX)] {
            check(none, None);
        }
    }
}
