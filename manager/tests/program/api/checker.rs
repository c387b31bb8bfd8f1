//! Judges answers by the description.

use crate::common::Manager;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn description() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Objects may have no property that is not described, except where another part of an `allOf`
/// describes it.
fn close_objects(schema: &mut Value, inside_all_of: bool) {
    let Value::Object(object) = schema else {
        if let Value::Array(items) = schema {
            items.iter_mut().for_each(|item| close_objects(item, inside_all_of));
        }
        return;
    };
    let composed = object.contains_key("allOf");
    let described = object.contains_key("properties") || composed;
    if described && !inside_all_of && !object.contains_key("additionalProperties") {
        object.insert("unevaluatedProperties".into(), false.into());
    }
    for (key, value) in object.iter_mut() {
        match key.as_str() {
            "example" | "examples" | "default" | "enum" => {}
            "properties" => {
                let Value::Object(properties) = value else { continue };
                properties.values_mut().for_each(|value| close_objects(value, false));
            }
            "allOf" => close_objects(value, true),
            _ => close_objects(value, false),
        }
    }
}

/// Checks answers against the description, and remembers which were checked.
pub(super) struct Checker<'a> {
    manager: &'a Manager,
    pub(super) description: Value,
    pub(super) seen: BTreeSet<(String, String, u16)>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(manager: &'a Manager) -> Self {
        Self { manager, description: description(), seen: BTreeSet::new() }
    }

    /// Asks and checks. `template` is the path as the description has it.
    pub(super) fn check(
        &mut self,
        method: &str,
        template: &str,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let (status, answer) = self.manager.request(method, path, body.as_ref());
        self.judge(method, template, path, status, &answer);
        (status, answer)
    }

    /// Checks an answer.
    pub(super) fn judge(
        &mut self,
        method: &str,
        template: &str,
        path: &str,
        status: u16,
        answer: &Value,
    ) {
        let lower = method.to_lowercase();
        let operation = &self.description["paths"][template][&lower];
        assert!(operation.is_object(), "{method} {template} is not described");
        let mut described = &operation["responses"][status.to_string()];
        if described.is_null() {
            described = &operation["responses"]["default"];
        }
        assert!(
            described.is_object(),
            "{method} {path}: status {status} is not described: {answer}"
        );
        let content = &described["content"];
        let media = if status >= 400 { "application/problem+json" } else { "application/json" };
        let schema = &content[media]["schema"];
        if schema.is_null() {
            assert_eq!(*answer, Value::Null, "{method} {path} has a body that is not described");
        } else {
            self.validate(schema, answer, &format!("{method} {path}"));
        }
        self.seen.insert((lower, template.to_owned(), status));
    }

    pub(super) fn validate(&self, schema: &Value, answer: &Value, what: &str) {
        let mut root = json!({ "components": self.description["components"] });
        close_objects(&mut root["components"]["schemas"], false);
        // A component that is a part of another must stay open; the outer one is closed.
        open_parts(&mut root);
        for (key, value) in schema.as_object().unwrap() {
            root[key] = value.clone();
        }
        root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        let validator = jsonschema::validator_for(&root).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(answer)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{what}: {errors:#?}\n{answer:#}");
    }
}

/// Takes the seal off components that others are composed of.
fn open_parts(root: &mut Value) {
    let mut parts = BTreeSet::new();
    collect_parts(root, &mut parts);
    for part in parts {
        if let Some(Value::Object(schema)) = root.pointer_mut(part.trim_start_matches('#')) {
            schema.remove("unevaluatedProperties");
            for one in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
                one.as_object_mut().map(|one| one.remove("unevaluatedProperties"));
            }
        }
    }
}

fn collect_parts(value: &Value, parts: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for part in object.get("allOf").and_then(Value::as_array).into_iter().flatten() {
                if let Some(reference) = part["$ref"].as_str() {
                    parts.insert(reference.to_owned());
                }
            }
            object.values().for_each(|value| collect_parts(value, parts));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_parts(item, parts)),
        _ => {}
    }
}
