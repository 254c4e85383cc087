//! The OpenAPI document and a page that shows it.

use std::fmt::Write;
use std::sync::OnceLock;

use axum::http::header;
use axum::response::{Html, IntoResponse, Redirect, Response};
use serde_json::Value;

/// The document, built once.
fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(::api::openapi::document)
}

/// Whether the document lists a query parameter of a route.
pub(crate) fn has_parameter(path: &str, method: &str, name: &str) -> bool {
    let parameters = document()["paths"][path][method.to_ascii_lowercase()]["parameters"].as_array();
    parameters.into_iter().flatten().any(|parameter| parameter["in"] == "query" && parameter["name"] == name)
}

pub(crate) async fn openapi() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| document().to_string());
    ([(header::CONTENT_TYPE, "application/json")], text.as_str()).into_response()
}

pub(crate) async fn front() -> Redirect {
    Redirect::temporary("/docs")
}

pub(crate) async fn page() -> Html<&'static str> {
    static PAGE: OnceLock<String> = OnceLock::new();
    Html(PAGE.get_or_init(|| render(document())))
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fdfdfc}\
 h1,h2{font-weight:600}h2{margin-top:2.5rem}code{font:14px ui-monospace,monospace}small{color:#667}pre{overflow:auto}table{border-collapse:collapse;width:100%}\
 td{padding:.35rem .8rem .35rem 0;vertical-align:top;border-top:1px solid #eee}td:first-child{white-space:nowrap;color:#456}\
 @media(prefers-color-scheme:dark){body{color:#ddd;background:#181a1b}td{border-color:#333}td:first-child{color:#9bc}}";

/// Schemas that the page shows, with their titles.
const SCHEMAS: [(&str, &str); 7] = [
    ("JobSpec", "A job"),
    ("ProcessRun", "A process"),
    ("WasmRun", "A WebAssembly component"),
    ("WorkflowStart", "A workflow"),
    ("ScheduleSpec", "A schedule"),
    ("QueueSpec", "A queue"),
    ("Manifest", "A worker"),
];

/// The document as one page without scripts.
fn render(document: &Value) -> String {
    let mut page = String::new();
    let text = |value: &Value| escape(value.as_str().unwrap_or_default());
    let _ = write!(
        page,
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>Outlast API</title><style>{STYLE}</style><h1>Outlast API</h1><p>{}</p>\
         <p>The full description: <a href=/openapi.json>openapi.json</a></p>",
        text(&document["info"]["description"])
    );
    let empty = serde_json::Map::new();
    page.push_str("<h2>Routes</h2><table>");
    for (path, methods) in document["paths"].as_object().unwrap_or(&empty) {
        for (method, operation) in methods.as_object().unwrap_or(&empty) {
            let (method, path, summary) = (method.to_uppercase(), escape(path), text(&operation["summary"]));
            let _ = write!(page, "<tr><td><code>{method} {path}</code><td>{summary}");
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let (name, meaning) = (text(&parameter["name"]), text(&parameter["description"]));
                let _ = write!(page, "<br><small><code>{name}</code> {meaning}</small>");
            }
        }
    }
    for (schema, title) in SCHEMAS {
        let shape = serde_json::to_string_pretty(&document["components"]["schemas"][schema]).unwrap_or_default();
        let _ = write!(page, "</table><h2>{title}</h2><pre><code>{}</code></pre><table>", escape(&shape));
    }
    page.push_str("</table><h2>Errors</h2><table>");
    for (code, meaning) in document["x-error-codes"].as_object().unwrap_or(&empty) {
        let _ = write!(page, "<tr id={0}><td><code>{0}</code><td>{1}", escape(code), text(meaning));
    }
    page.push_str("</table>");
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_all_routes_and_schemas() {
        let page = render(document());
        for path in document()["paths"].as_object().unwrap().keys() {
            assert!(page.contains(path.as_str()), "{path}");
        }
        for (schema, _) in SCHEMAS {
            assert!(document()["components"]["schemas"][schema].is_object(), "{schema}");
        }
    }
}
