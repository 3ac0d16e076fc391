//! What is written without spaces between words, and letters that are written in two ways.

use serde_json::json;
use waystone_core::api::ListCheckpoints;
use waystone_testkit::Harness;

use super::{add_one, ids, in_window, retrieve, search, stash};

/// Parts of a text that it is to be found by.
const TEXTS: [(&str, &[&str]); 6] = [
    ("数据库连接失败,请检查端口设置", &["数据库", "连接失败", "端口", "库", "置", "\"检查端口\"", "数据库 端口设置"]),
    ("データベースに接続できません", &["データベース", "接続", "できません"]),
    ("การเชื่อมต่อฐานข้อมูลล้มเหลว", &["ฐานข้อมูล", "เชื่อมต่อ"]),
    ("데이터베이스를 다시연결했습니다", &["데이터베이스", "연결", "베이스를"]),
    ("the cafe\u{301} is closed", &["café", "cafe\u{301}"]),
    ("the na\u{ef}ve approach", &["nai\u{308}ve", "naïve"]),
];

#[tokio::test]
async fn a_part_of_a_run_of_letters_is_found_and_stashed_in_any_script() {
    for (text, queries) in TEXTS {
        let h = Harness::new();
        add_one(&h, json!({ "text": "nothing to do with it at all", "stash": true })).await;
        let id = add_one(&h, json!({ "text": text, "task_id": "t" })).await;
        for query in queries {
            let stashed = stash(&h, json!({ "query": query })).await.unwrap();
            assert_eq!(json!(stashed.stashed_segments), json!([id]), "{query} in {text}");
            let found = search(&h, json!({ "query": query })).await.unwrap();
            assert_eq!(ids(&found.segments)[0], id, "{query} in {text}");
            let why = found.segments[0].hit.as_ref().unwrap().why;
            assert!(why.starts_with("words"), "{query} in {text}: {why}");
            let moved = retrieve(&h, json!({ "query": query, "move_to_active": true })).await.unwrap();
            assert_eq!(json!(moved.moved_to_active), json!([id]), "{query} in {text}");
        }
        assert_eq!(stash(&h, json!({ "query": "硬盘" })).await.unwrap().segments_matched, 0);
        assert_eq!(in_window(&h).await, [id]);
    }
}

#[tokio::test]
async fn what_has_more_of_a_query_without_spaces_comes_first() {
    let h = Harness::new();
    let texts = ["数据已经保存", "数据库连接失败,请检查端口设置", "连接已经关闭", "请检查日志"];
    let mut all = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        all.push(add_one(&h, json!({ "text": text, "stash": true, "task_id": format!("t{at}") })).await);
    }
    let found = search(&h, json!({ "query": "数据库连接" })).await.unwrap();
    assert_eq!(ids(&found.segments)[0], all[1]);
}

#[tokio::test]
async fn sessions_are_found_by_what_they_saved_in_any_script() {
    let mut h = Harness::new();
    h.save("s", json!({ "goal": TEXTS[0].0 })).await;
    h.restart_mirrored().await;
    for query in TEXTS[0].1 {
        let request = json!({ "query": query, "content": true });
        let request: ListCheckpoints = serde_json::from_value(request).unwrap();
        let found = h.engine.list_checkpoints(&h.scope, request).await.unwrap();
        assert_eq!(
            (found.total, found.checkpoints[0].hit.as_ref().unwrap().why.starts_with("words")),
            (1, true),
            "{query}"
        );
    }
}
