//! `waystone models`

use waystone_core::Engine;
use waystone_core::api::{ModelInfo, ModelList};

use super::render::{Out, fields, table, thousands};

pub(crate) async fn run(engine: &Engine, out: &Out) -> anyhow::Result<()> {
    out.print(&engine.list_models().await, show)
}

fn show(list: &ModelList) -> String {
    let rows = list.models.iter().map(|model| {
        let is_default = model.id == list.default_model;
        let id = if is_default { format!("{} (default)", model.id) } else { model.id.clone() };
        let ready = if model.hint.is_none() { "yes" } else { "no" };
        vec![id, model.provider.clone(), limit(model), price(model), ready.to_owned()]
    });
    table(&["MODEL", "PROVIDER", "LIMIT", "PRICE", "READY"], rows) + &needs(&list.models)
}

/// What is to be done before models answer that are not ready. Those of one provider mostly need the same.
fn needs(models: &[ModelInfo]) -> String {
    let mut needs: Vec<(&str, String)> = Vec::new();
    for model in models {
        let need = model.hint.clone().map(|hint| (model.provider.as_str(), hint));
        needs.extend(need.filter(|need| !needs.contains(need)));
    }
    if needs.is_empty() { String::new() } else { format!("\n{}", fields(&needs)) }
}

/// With a mark if it is only assumed.
fn limit(model: &ModelInfo) -> String {
    let mark = if model.limit_assumed { "~" } else { "" };
    format!("{mark}{}", thousands(model.limit))
}

/// What a million tokens cost, read and written.
fn price(model: &ModelInfo) -> String {
    model.prices.map(|prices| format!("${} / ${}", prices.input, prices.output)).unwrap_or_default()
}
