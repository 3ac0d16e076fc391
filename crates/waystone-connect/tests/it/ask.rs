//! How tests ask a model.

use serde_json::{Value, json};
use waystone_connect::{ProviderSettings, Providers};
use waystone_core::api::{Role, Tool};
use waystone_core::model::{Answer, Call, Chunk, Model, ModelCall, ModelError, Said, Usage};
use waystone_testkit::model::FakeModel;

/// A key that nothing else contains.
pub(crate) const KEY: &str = "sk-5eCrEt-0123456789";

/// What the engine leaves for an answer.
pub(crate) const ANSWER_TOKENS: u64 = 2048;

pub(crate) fn call(model: &str, text: &str) -> ModelCall {
    let messages = vec![Said::Text { role: Role::User, text: text.to_owned() }];
    ModelCall {
        model: model.to_owned(),
        system: String::new(),
        messages,
        tools: Vec::new(),
        is_last: false,
        parameters: Default::default(),
        answer_tokens: ANSWER_TOKENS,
    }
}

pub(crate) fn providers(key: Option<&str>, base_url: Option<&str>) -> Providers {
    let (openai_api_key, openai_base_url) = (key.map(str::to_owned), base_url.map(str::to_owned));
    Providers::new(ProviderSettings { openai_api_key, openai_base_url, ..ProviderSettings::default() })
}

/// `fake` as a provider, with [`KEY`].
pub(crate) fn at(fake: &FakeModel) -> Providers {
    providers(Some(KEY), Some(&fake.base_url()))
}

/// All that an answer gives, and what it ends with.
pub(crate) async fn drain(mut answer: Box<dyn Answer>) -> (Vec<Chunk>, Option<ModelError>) {
    let mut chunks = Vec::new();
    while let Some(next) = answer.next().await {
        match next {
            Ok(chunk) => chunks.push(chunk),
            Err(error) => {
                assert_eq!(answer.next().await, None, "an error is the last thing that is told");
                return (chunks, Some(error));
            }
        }
    }
    assert_eq!(answer.next().await, None, "an end is an end");
    (chunks, None)
}

/// A whole answer of `fake` to a small question.
pub(crate) async fn ask(fake: &FakeModel) -> (Vec<Chunk>, Option<ModelError>) {
    drain(at(fake).call(call("gpt-4", "hi there")).await.unwrap()).await
}

/// Why `fake` does not even begin an answer.
pub(crate) async fn refusal(fake: &FakeModel) -> ModelError {
    at(fake).call(call("gpt-4", "hi there")).await.err().unwrap()
}

pub(crate) fn text(chunks: &[Chunk]) -> String {
    let text = |chunk: &Chunk| match chunk {
        Chunk::Text(text) => text.clone(),
        Chunk::Usage(_) | Chunk::Call(_) | Chunk::Cut(_) => String::new(),
    };
    chunks.iter().map(text).collect()
}

pub(crate) fn texts<const N: usize>(texts: [&str; N]) -> Vec<Chunk> {
    texts.into_iter().map(|text| Chunk::Text(text.to_owned())).collect()
}

pub(crate) fn usage(prompt: u64, completion: u64) -> Chunk {
    Chunk::Usage(Usage { prompt, completion, ..Usage::default() })
}

/// A tool that takes a city.
pub(crate) fn tool(name: &str) -> Tool {
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    Tool {
        name: name.to_owned(),
        description: format!("The {name} of a city"),
        input_schema: schema.as_object().unwrap().clone(),
        read_only: true,
        idempotent: false,
    }
}

/// The same as [`call`], with two tools.
pub(crate) fn call_with_tools(model: &str, text: &str) -> ModelCall {
    ModelCall { tools: vec![tool("weather"), tool("time")], ..call(model, text) }
}

pub(crate) fn called(id: &str, tool: &str, arguments: Value) -> Call {
    Call { id: id.to_owned(), tool: tool.to_owned(), arguments }
}

pub(crate) fn calls(chunks: &[Chunk]) -> Vec<Call> {
    let call = |chunk: &Chunk| if let Chunk::Call(call) = chunk { Some(call.clone()) } else { None };
    chunks.iter().filter_map(call).collect()
}
