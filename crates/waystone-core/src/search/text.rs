//! What is searched of a text: of a long one its beginning and its end, and of a context all that is said in it.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::api::ContentPart;

/// Of a longer text only the beginning and the end are searched.
const HEAD_BYTES: usize = 64 * 1024;
const TAIL_BYTES: usize = 192 * 1024;
/// As much of a key stands before what is said under it.
const KEY_BYTES: usize = 100;

/// What is searched of a text.
pub fn searched(text: &str) -> Cow<'_, str> {
    if text.len() <= HEAD_BYTES + TAIL_BYTES {
        return Cow::Borrowed(text);
    }
    let mut parts = Parts::default();
    parts.push(text);
    Cow::Owned(parts.join())
}

/// What is searched of a message.
pub fn searched_message<'a>(text: &'a str, parts: &[ContentPart]) -> Cow<'a, str> {
    match words_of_message(text, parts) {
        Cow::Borrowed(text) => searched(text),
        Cow::Owned(all) => Cow::Owned(searched(&all).into_owned()),
    }
}

/// What a message says, and what it calls tools with, in lines.
pub fn words_of_message<'a>(text: &'a str, parts: &[ContentPart]) -> Cow<'a, str> {
    let mut all = Cow::Borrowed(text);
    for part in parts {
        if let ContentPart::ToolCall { name, arguments, .. } = part {
            let said = text_of_context(arguments.to_string().as_bytes());
            let all = all.to_mut();
            if !all.is_empty() {
                all.push('\n');
            }
            all.push_str(&format!("{name}\n{said}"));
        }
    }
    all
}

/// What is searched of a context: a line for each text in it, with the key that it stands under. Holds no more than it returns, however
/// large the context is.
pub fn text_of_context(raw: &[u8]) -> String {
    let mut parts = Parts::default();
    let mut deserializer = serde_json::Deserializer::from_slice(raw);
    // Contexts are no deeper than they may be; what is damaged gives what comes before the damage.
    deserializer.disable_recursion_limit();
    let _ = Said { key: "", parts: &mut parts }.deserialize(&mut deserializer);
    parts.join()
}

/// The beginning and the end of what is pushed.
#[derive(Default)]
struct Parts {
    head: String,
    tail: String,
    is_cut: bool,
}

impl Parts {
    fn push(&mut self, text: &str) {
        let end = text.floor_char_boundary(HEAD_BYTES - self.head.len().min(HEAD_BYTES));
        let (head, rest) = if self.tail.is_empty() { text.split_at(end) } else { ("", text) };
        self.head.push_str(head);
        let from = rest.ceil_char_boundary(rest.len().saturating_sub(TAIL_BYTES));
        self.is_cut |= from > 0;
        self.tail.push_str(&rest[from..]);
        // Not at every push, as all of it is moved.
        if self.tail.len() > 2 * TAIL_BYTES {
            let from = self.tail.ceil_char_boundary(self.tail.len() - TAIL_BYTES);
            self.tail.drain(..from);
            self.is_cut = true;
        }
    }

    fn join(mut self) -> String {
        let from = self.tail.ceil_char_boundary(self.tail.len().saturating_sub(TAIL_BYTES));
        if self.is_cut || from > 0 {
            self.head.push('\n');
        }
        self.head + &self.tail[from..]
    }
}

struct Said<'a> {
    key: &'a str,
    parts: &'a mut Parts,
}

impl Said<'_> {
    fn line(self, said: &str) {
        if !self.key.is_empty() {
            self.parts.push(&self.key[..self.key.floor_char_boundary(KEY_BYTES)]);
            self.parts.push(": ");
        }
        self.parts.push(said);
        self.parts.push("\n");
    }
}

impl<'de> DeserializeSeed<'de> for Said<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Said<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, said: bool) -> Result<(), E> {
        self.line(if said { "true" } else { "false" });
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.line(&number.to_string());
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.line(&number.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.line(&number.to_string());
        Ok(())
    }

    fn visit_str<E>(self, said: &str) -> Result<(), E> {
        self.line(said);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut key = self.key;
        while items.next_element_seed(Said { key, parts: self.parts })?.is_some() {
            // Said once for all of them.
            key = "";
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(key) = members.next_key::<Cow<'_, str>>()? {
            members.next_value_seed(Said { key: &key, parts: self.parts })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_searched_by_all_that_it_says() {
        let check =
            |context: &str, expected: &str| assert_eq!(text_of_context(context.as_bytes()), expected, "{context}");
        check(r#"{"goal":"x y","n":[1,2.5,null,true],"a":{"b":["deep"]}}"#, "goal: x y\nn: 1\n2.5\ntrue\nb: deep\n");
        check("{}", "");
        check("[\"plain\"]", "plain\n");
        check("garbage", "");
        check("{\"goal\":\"read\",\"rest\":\"is dam", "goal: read\n");
    }

    #[test]
    fn of_what_is_long_the_beginning_and_the_end_are_searched() {
        let long = format!("{{\"a\":\"{}\",\"z\":\"{} end\"}}", "é".repeat(HEAD_BYTES), "ü".repeat(TAIL_BYTES));
        let text = text_of_context(long.as_bytes());
        assert!(text.len() <= HEAD_BYTES + TAIL_BYTES + 8 && text.starts_with("a: é") && text.ends_with("end\n"));
        let many = format!("{{\"{}\":[{}1]}}", "k".repeat(200_000), "1,".repeat(30_000));
        assert!(text_of_context(many.as_bytes()).len() < 100_000, "a key is not said for every item");
        let text = format!("begin {} end", "x".repeat(HEAD_BYTES + TAIL_BYTES));
        let cut = searched(&text);
        assert!(cut.len() <= HEAD_BYTES + TAIL_BYTES + 8 && cut.starts_with("begin ") && cut.ends_with(" end"));
        assert_eq!(searched("short"), "short");
        let exact = "y".repeat(HEAD_BYTES + TAIL_BYTES);
        assert_eq!(searched(&exact), exact);
        let between: String = (0..40_000).map(|n| format!("word{n} ")).collect();
        let cut = searched(&between);
        assert!(cut.contains("word0 ") && cut.ends_with("word39999 ") && !cut.contains("word9000 "));
    }
}
