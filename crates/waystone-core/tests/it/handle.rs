//! Handles: whatever a view left out is one call away.

use serde_json::{Value, json};
use waystone_core::Result;
use waystone_core::api::{ExpandHandle, ExpandedHandle};
use waystone_testkit::Harness;

async fn expand(h: &Harness, handle: &str, offset: Option<u64>, limit: Option<u64>) -> Result<ExpandedHandle> {
    h.engine.expand_handle(&h.scope, ExpandHandle { handle: handle.to_owned(), offset, limit }).await
}

async fn content(h: &Harness, handle: &str) -> Value {
    expand(h, handle, None, None).await.unwrap().content
}

async fn code(h: &Harness, handle: &str) -> &'static str {
    expand(h, handle, None, None).await.unwrap_err().code()
}

#[tokio::test]
async fn a_handle_names_a_value_or_a_part_of_its_text() {
    let h = Harness::new();
    let text = "zero\nöne\ntwo\r\n\nfour";
    let context =
        json!({ "text": text, "list": [1, { "a": "b" }], "": "empty", "a/b": { "c~d": [7] }, "nothing": null });
    let id = h.save("s", context.clone()).await.checkpoint_id;
    let check = async |pointer: &str, expected: Value| {
        assert_eq!(content(&h, &format!("ws:checkpoint:{id}{pointer}")).await, expected, "{pointer}");
    };
    check("", context.clone()).await;
    check("#/text", json!(text)).await;
    check("#/", json!("empty")).await;
    check("#/list", context["list"].clone()).await;
    check("#/list/1/a", json!("b")).await;
    check("#/a~1b/c~0d/0", json!(7)).await;
    check("#/a~1b/c%7E0d", json!([7])).await;
    check("#/nothing", Value::Null).await;
    check("#/text?lines=1-1", json!("zero")).await;
    check("#/text?lines=2-3", json!("öne\ntwo\r")).await;
    check("#/text?lines=4-4", json!("")).await;
    check("#/text?lines=5-99", json!("four")).await;
    check("#/text?bytes=0-4", json!("zero")).await;
    check("#/text?bytes=5-7", json!("ö")).await;
    check("#/list?bytes=0-2", json!("[1")).await;
    for missing in ["#/none", "#/text/0", "#/list/2", "#/text?lines=6-7", "#/text?bytes=99-100", "#/text?bytes=6-7"] {
        assert_eq!(code(&h, &format!("ws:checkpoint:{id}{missing}")).await, "HANDLE_NOT_FOUND", "{missing}");
    }
    let hash = "0".repeat(64);
    for missing in ["ws:checkpoint:none", "ws:checkpoint:none#/a", "ws:segment:none", &format!("ws:context:{hash}#/a")]
    {
        assert_eq!(code(&h, missing).await, "HANDLE_NOT_FOUND", "{missing}");
    }
    for bad in ["", "text", "ws:checkpoint:", "ws:context:12", "ws:segment:a b", &format!("ws:checkpoint:{id}#text")] {
        assert_eq!(code(&h, bad).await, "INVALID_INPUT", "{bad}");
    }
}

#[tokio::test]
async fn the_parts_that_a_limit_gives_make_up_the_whole() {
    let h = Harness::new();
    let text: String = "aö漢🦀\n\u{0}e\u{301} ".repeat(50);
    let list: Vec<Value> = (0..60).map(|n| json!({ "n": n, "text": "ü\"" })).collect();
    let context = json!({ "text": text, "list": list });
    let id = h.save("s", context.clone()).await.checkpoint_id;
    for (pointer, whole) in [("#/text", text), ("#/list", context["list"].to_string()), ("", context.to_string())] {
        let handle = format!("ws:checkpoint:{id}{pointer}");
        for limit in [1, 7, 100, whole.chars().count() as u64 - 1] {
            let (mut together, mut offset) = (String::new(), Some(0));
            while let Some(at) = offset {
                let part = expand(&h, &handle, Some(at), Some(limit)).await.unwrap();
                assert_eq!((part.offset, part.total_chars), (at, whole.chars().count() as u64));
                together += part.content.as_str().unwrap();
                assert!(part.next_offset.is_none_or(|next| next == at + limit), "{:?}", part.next_offset);
                offset = part.next_offset;
                // One character at a time shows no more after the first few.
                if limit == 1 && together.chars().count() == 20 {
                    together = whole.clone();
                    break;
                }
            }
            assert_eq!(together, whole, "{handle} by {limit}");
        }
    }
    let handle = format!("ws:checkpoint:{id}#/list");
    let whole = expand(&h, &handle, Some(0), Some(1_000_000)).await.unwrap();
    assert_eq!((whole.content, whole.next_offset), (context["list"].clone(), None), "all of it is the value itself");
    let beyond = expand(&h, &handle, Some(u64::MAX), Some(u64::MAX)).await.unwrap();
    assert_eq!((beyond.content, beyond.next_offset), (json!(""), None));
    assert_eq!(expand(&h, &handle, None, Some(0)).await.unwrap_err().code(), "INVALID_INPUT");
    let lines = expand(&h, &format!("ws:checkpoint:{id}#/text?lines=1-2"), Some(2), Some(3)).await.unwrap();
    assert_eq!((lines.content, lines.offset), (json!("漢🦀\n"), 2), "an offset counts in what the range names");
}

#[tokio::test]
async fn what_was_deleted_is_still_behind_its_handle() {
    let mut h = Harness::new();
    let id = h.save("s", json!({ "text": "first" })).await.checkpoint_id;
    h.save("s", json!({ "text": "second" })).await;
    let handle = format!("ws:checkpoint:{id}#/text");
    h.engine.delete_checkpoint(&h.scope, &id, Default::default()).await.unwrap();
    assert_eq!(content(&h, &handle).await, "first");
    h.engine.delete_session(&h.scope, &"s".parse().unwrap(), Default::default()).await.unwrap();
    h.restart().await;
    assert_eq!(content(&h, &handle).await, "first");
}
