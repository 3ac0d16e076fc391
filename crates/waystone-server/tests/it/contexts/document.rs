//! What the OpenAPI document says of conversations.

use std::collections::BTreeSet;

use serde_json::json;

use super::Talk;

const ROUTES: [(&str, &str, &str); 29] = [
    ("get", "", "200"),
    ("post", "", "201"),
    ("get", "/{context_id}", "200"),
    ("put", "/{context_id}", "200"),
    ("delete", "/{context_id}", "204"),
    ("get", "/{context_id}/messages", "200"),
    ("post", "/{context_id}/messages", "201"),
    ("get", "/{context_id}/messages/{message_id}", "200"),
    ("put", "/{context_id}/messages/{message_id}", "201"),
    ("get", "/{context_id}/messages/{message_id}/content", "200"),
    ("get", "/{context_id}/branches", "200"),
    ("post", "/{context_id}/branches", "201"),
    ("put", "/{context_id}/branches/{branch_name}", "200"),
    ("delete", "/{context_id}/branches/{branch_name}", "204"),
    ("post", "/{context_id}/branches/{branch_name}/restore", "200"),
    ("get", "/{context_id}/branches/{a}/diff/{b}", "200"),
    ("post", "/{context_id}/branches/{branch_name}/merge", "200"),
    ("post", "/{context_id}/checkpoints", "201"),
    ("get", "/{context_id}/state", "200"),
    ("get", "/{context_id}/events", "200"),
    ("post", "/{context_id}/retry", "200"),
    ("post", "/{context_id}/cancel", "200"),
    ("get", "/{context_id}/window", "200"),
    ("get", "/{context_id}/tools", "200"),
    ("post", "/{context_id}/tools/approve", "200"),
    ("post", "/{context_id}/tools/deny", "200"),
    ("get", "/{context_id}/tools/{tool_call_id}", "200"),
    ("post", "/{context_id}/tools/{tool_call_id}/arguments", "200"),
    ("post", "/{context_id}/tools/{tool_call_id}/result", "200"),
];

#[tokio::test]
async fn every_route_of_conversations_is_documented() {
    let talk = Talk::new().await;
    let (_, document) = talk.client.get("/api/openapi.json").await;
    let paths = document["paths"].as_object().unwrap();
    let documented: BTreeSet<(String, String)> = paths
        .iter()
        .filter(|(path, _)| path.starts_with("/api/contexts"))
        .flat_map(|(path, operations)| {
            operations.as_object().unwrap().keys().map(|method| (method.clone(), path.clone()))
        })
        .collect();
    let expected: BTreeSet<(String, String)> =
        ROUTES.iter().map(|(method, path, _)| ((*method).to_owned(), format!("/api/contexts{path}"))).collect();
    assert_eq!(documented, expected);
    for (method, path, status) in ROUTES {
        let operation = &document["paths"][format!("/api/contexts{path}")][method];
        assert!(operation["responses"][status].is_object(), "{method} {path}: {operation}");
        assert_eq!(operation["responses"]["404"].is_object(), !path.is_empty() || method == "post", "{method} {path}");
        let headers = operation["parameters"].as_array().into_iter().flatten();
        let has_key = headers.into_iter().any(|header| header["name"] == "Idempotency-Key" && header["in"] == "header");
        // What begins a turn or changes something may be sent again; an edit is the one that is no POST.
        let begins = method == "post" || (method, path) == ("put", "/{context_id}/messages/{message_id}");
        assert_eq!(has_key, begins, "{method} {path}: {operation}");
    }
    let events = &document["paths"]["/api/contexts/{context_id}/events"]["get"];
    assert!(events["responses"]["200"]["content"]["text/event-stream"].is_object(), "{events}");
    let query = &document["paths"]["/api/contexts/{context_id}/messages"]["get"]["parameters"];
    let names: BTreeSet<&str> =
        query.as_array().unwrap().iter().map(|parameter| parameter["name"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["branch", "context_id", "ids", "limit", "offset"]), "{query}");
    let query = &document["paths"]["/api/contexts/{context_id}/branches/{a}/diff/{b}"]["get"]["parameters"];
    let limit = query.as_array().unwrap().iter().find(|parameter| parameter["name"] == "limit").unwrap();
    assert_eq!((&limit["schema"]["maximum"], &limit["schema"]["default"]), (&json!(1000), &json!(50)), "{limit}");
    assert_eq!(document["openapi"], json!("3.1.0"));
}
