//! Every field of every request, wrong in every way that the description knows: the problem names
//! it.

use crate::common::Manager;
use crate::common::fake::{Fake, boxed, host};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn description() -> Value {
    serde_json::to_value(manager::api::description()).unwrap()
}

/// A body with every field that there is, for each route that takes one.
fn full(route: &str) -> Value {
    match route {
        "POST /v1/allocations" => json!({
            "host": "host1", "count": 1, "model": "nvme", "box": "box1", "slot": 2,
            "reason": "a test", "lease_ms": 1000, "cel": "true", "together": "island", "near": false,
            "island_rate": 1, "tenant": "us", "keep_unenumerated": true, "selector": [{"attribute": "slot", "is": "=", "values": ["1"]}],
            "link": {"paths": [0], "weight": 1, "limit": 1000, "guarantee": 10},
            "exclude": {"boxes": ["box9"], "racks": ["r9"], "slots": ["box9/1"]},
        }),
        "POST /v1/allocations/{id}/lease" => json!({"lease_ms": 1000}),
        "POST /v1/take-backs" => {
            json!({"what": "alloc-1", "grace_ms": 1, "within_ms": 1, "reason": "a test"})
        }
        "POST /v1/bindings/{id}/replace" => {
            json!({"force": false, "within_ms": 1, "reason": "a test"})
        }
        "POST /v1/drains" => {
            json!({"place": "box1", "replace": false, "within_ms": 1, "reason": "a test"})
        }
        "POST /v1/holds" => json!({"place": "box1", "reason": "a test"}),
        "POST /v1/erasures/{id}/waive" => json!({"reason": "a test"}),
        "POST /v1/boxes/{name}/slots/{slot}/erase" => json!({"waive": "a test"}),
        "PUT /v1/nodes/{name}/log-level" => json!({"level": "info"}),
        "PUT /v1/nodes/{name}/sampling" => json!({"mode": "one-in", "n": 5}),
        "POST /v1/firmware/rollout" => json!({
            "image": "0".repeat(32), "nodes": ["box1"], "wave_size": 1, "interrupt": false,
            "within_s": 60,
        }),
        "POST /v1/recordings" => json!({
            "binding": "bind-1", "format": "tlps", "seen_from": "host", "duration_ms": 10,
            "limit_bytes": 1000, "snap": 64,
        }),
        "PUT /v1/inventory" => json!({
            "sites": {"s1": {"description": "a room"}},
            "racks": {"r1": {"site": "s1"}},
            "fabrics": {"f1": {"paths": [0]}},
            "models": {"nvme": {
                "memory": "80G", "demand": 1000, "firmware": "1", "attributes": {"arch": "x"},
            }},
            "hosts": {"host1": {"rack": "r1", "fabrics": ["f1"], "capacity": "10G"}},
            "boxes": {"box1": {
                "rack": "r1", "fabrics": ["f1"], "capacity": "10G", "kind": "nvlink",
                "islands": [{"slots": [1, 2], "rate": "100G"}],
                "slots": {"1": {
                    "model": "nvme", "serial": "1f", "memory": "80G", "firmware": "1",
                    "attributes": {"arch": "x"},
                }},
            }},
        }),
        _ => panic!("{route} takes a body: say here one with every field"),
    }
}

/// A step from a field to one inside it.
fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// What to try: the wrong body, the field that is to be named, and what is wrong with it.
type Trial = (Value, String, &'static str);

struct Walk<'a> {
    description: &'a Value,
    body: &'a Value,
    trials: Vec<Trial>,
}

impl Walk<'_> {
    /// A schema without references; of alternatives, the one that the value is.
    fn resolve(&self, schema: &Value, value: &Value) -> Value {
        if let Some(reference) = schema["$ref"].as_str() {
            let found = self.description.pointer(&reference[1..]).unwrap();
            return self.resolve(found, value);
        }
        for key in ["oneOf", "anyOf"] {
            for one in schema[key].as_array().into_iter().flatten() {
                if *one != json!({"type": "null"}) && self.is_valid(one, value) {
                    return self.resolve(one, value);
                }
            }
        }
        schema.clone()
    }

    fn is_valid(&self, schema: &Value, value: &Value) -> bool {
        let mut root = schema.clone();
        root["components"] = self.description["components"].clone();
        jsonschema::validator_for(&root).unwrap().is_valid(value)
    }

    /// The JSON types that a field may have.
    fn types(&self, schema: &Value) -> BTreeSet<String> {
        if let Some(reference) = schema["$ref"].as_str() {
            return self.types(self.description.pointer(&reference[1..]).unwrap());
        }
        let own = match &schema["type"] {
            Value::String(one) => vec![one.clone()],
            Value::Array(some) => some.iter().map(|s| s.as_str().unwrap().to_owned()).collect(),
            _ => Vec::new(),
        };
        let parts = ["oneOf", "anyOf"].into_iter().filter_map(|key| schema[key].as_array());
        own.into_iter().chain(parts.flatten().flat_map(|part| self.types(part))).collect()
    }

    /// The whole body with another value at a pointer, or without it.
    fn with(&self, pointer: &str, value: Option<Value>) -> Value {
        let mut body = self.body.clone();
        match value {
            Some(value) => *body.pointer_mut(pointer).unwrap() = value,
            None => {
                let (parent, name) = pointer.rsplit_once('/').unwrap();
                body.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name).unwrap();
            }
        }
        body
    }

    fn wrong(&mut self, pointer: &str, field: &str, value: Value, what: &'static str) {
        self.trials.push((self.with(pointer, Some(value)), field.to_owned(), what));
    }

    /// Tries everything at a field and inside it.
    fn field(&mut self, schema: &Value, pointer: &str, field: &str) {
        let value = self.body.pointer(pointer).unwrap().clone();
        let types = self.types(schema);
        if !pointer.is_empty() {
            let others = [json!(true), json!("text"), json!([]), json!({})];
            let names = ["boolean", "string", "array", "object"];
            let other = names.iter().zip(others).find(|(name, _)| !types.contains(**name));
            self.wrong(pointer, field, other.unwrap().1, "type");
        }
        let schema = self.resolve(schema, &value);
        match &value {
            Value::Number(_) => self.number(&schema, pointer, field),
            Value::String(_) => self.text(&schema, pointer, field),
            Value::Array(items) => {
                if let Some(most) = schema["maxItems"].as_u64() {
                    let many = vec![items[0].clone(); most as usize + 1];
                    self.wrong(pointer, field, many.into(), "too many");
                }
                if schema["minItems"].as_u64().is_some_and(|least| least > 0) {
                    self.wrong(pointer, field, json!([]), "too few");
                }
                self.field(&schema["items"], &format!("{pointer}/0"), &format!("{field}[0]"));
            }
            Value::Object(_) => self.object(&schema, &value, pointer, field),
            _ => {}
        }
    }

    fn number(&mut self, schema: &Value, pointer: &str, field: &str) {
        if let Some(least) = schema["minimum"].as_i64() {
            self.wrong(pointer, field, (least - 1).into(), "below");
        }
        if let Some(most) = schema["maximum"].as_i64() {
            self.wrong(pointer, field, (most + 1).into(), "above");
        }
    }

    fn text(&mut self, schema: &Value, pointer: &str, field: &str) {
        if let Some(most) = schema["maxLength"].as_u64() {
            self.wrong(pointer, field, "x".repeat(most as usize + 1).into(), "too long");
        }
        if schema["minLength"].as_u64().is_some_and(|least| least > 0) {
            self.wrong(pointer, field, "".into(), "too short");
        }
        if schema["pattern"].is_string() || schema["enum"].is_array() {
            self.wrong(pointer, field, "no such thing".into(), "no such text");
        }
    }

    fn object(&mut self, schema: &Value, value: &Value, pointer: &str, field: &str) {
        let object = value.as_object().unwrap();
        if let Some(properties) = schema["properties"].as_object() {
            for name in properties.keys() {
                assert!(object.contains_key(name), "{field}: no {name} in the full body: {value}");
            }
            let mut more = value.clone();
            more["colour"] = json!(1);
            self.wrong(pointer, &below(field, "colour"), more, "unknown");
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap();
            let less = self.with(&format!("{pointer}/{name}"), None);
            self.trials.push((less, below(field, name), "missing"));
        }
        for name in object.keys() {
            let inner = match &schema["properties"][name] {
                Value::Null => &schema["additionalProperties"],
                inner => inner,
            };
            self.field(inner, &format!("{pointer}/{name}"), &below(field, name));
        }
    }
}

/// What is there of each kind in the pool of the tests.
fn here(template: &str) -> String {
    let id = match template {
        path if path.starts_with("/v1/allocations") => "alloc-1",
        path if path.starts_with("/v1/bindings") => "bind-1",
        path if path.starts_with("/v1/operations") => "op-1",
        path if path.starts_with("/v1/recordings") => "rec-1",
        _ => "erase-1",
    };
    let name = if template.starts_with("/v1/boxes") { "box1" } else { "host1" };
    template
        .replace("{id}", id)
        .replace("{name}", name)
        .replace("{slot}", "2")
        .replace("{code}", "held")
}

/// Wrong values of a parameter, as they are in an address.
fn wrong_texts(description: &Value, parameter: &Value) -> Vec<String> {
    let mut schema = &parameter["schema"];
    if let Some(reference) = schema["$ref"].as_str() {
        schema = description.pointer(&reference[1..]).unwrap();
    }
    let mut wrong = Vec::new();
    match schema["type"].as_str() {
        Some("integer") => {
            wrong.extend(["x".to_owned(), String::new(), "1.5".into(), "9".repeat(30)]);
            wrong.extend(schema["minimum"].as_i64().map(|least| (least - 1).to_string()));
            wrong.extend(schema["maximum"].as_i64().map(|most| (most + 1).to_string()));
        }
        Some("boolean") => wrong.push("maybe".into()),
        _ if schema["pattern"].is_string() || schema["enum"].is_array() => {
            wrong.push("no%20such%20thing".into());
        }
        _ => {}
    }
    wrong
}

/// Asks, and collects what was not answered as it should be, so that one run shows all of it.
struct Asker<'a> {
    manager: &'a Manager,
    asked: usize,
    bad: Vec<String>,
}

impl Asker<'_> {
    fn names(&mut self, field: &str, what: &str, (method, path, body): (&str, &str, Option<&str>)) {
        let (status, answer) = self.manager.raw(method, path, &[], body);
        let problem: Value = serde_json::from_str(&answer).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or_default();
        let named = problem["field"] == field && detail.starts_with(&format!("{field}: "));
        if status != 400 || !named {
            let body = body.unwrap_or_default();
            self.bad.push(format!("{method} {path} {field} {what}: {status} {answer}\n    {body}"));
        }
        self.asked += 1;
    }
}

#[test]
fn a_field_that_is_wrong_is_named_at_every_route() {
    let manager = Manager::start();
    let _host = Fake::join(manager.control, host("host1", 4), "");
    let _box = Fake::join(manager.control, boxed("box1", 3), "nvme");
    manager.wait_ready(&["host1", "box1"]);
    let (_, begun) = manager.request("POST", "/v1/allocations", Some(&json!({"host": "host1"})));
    manager.get(&format!("/v1/operations/{}?wait_ms=60000", begun["id"].as_str().unwrap()));
    let body = json!({"binding": "bind-1", "format": "perfetto", "duration_ms": 20});
    assert_eq!(manager.request("POST", "/v1/recordings", Some(&body)).0, 201);
    let description = description();
    let mut asker = Asker { manager: &manager, asked: 0, bad: Vec::new() };
    for (template, item) in description["paths"].as_object().unwrap() {
        for (lower, operation) in item.as_object().unwrap() {
            let method = lower.to_uppercase();
            let path = here(template);
            let needed =
                if template == "/v1/holds" && method == "DELETE" { "place=box1&" } else { "" };
            let json = &operation["requestBody"]["content"]["application/json"]["schema"];
            let full = (!json.is_null()).then(|| full(&format!("{method} {template}")));
            let body = full.as_ref().map(Value::to_string);
            let body = body.as_deref();
            let query = format!("{path}?{needed}colour=red");
            asker.names("colour", "unknown", (&method, &query, body));
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap();
                match parameter["in"].as_str().unwrap() {
                    "query" => {
                        for text in wrong_texts(&description, parameter) {
                            let path = format!("{path}?{name}={text}");
                            asker.names(name, &text, (&method, &path, body));
                            let twice = format!("{path}&{name}={text}");
                            asker.names(name, "twice", (&method, &twice, body));
                        }
                        if parameter["required"] == true {
                            asker.names(name, "missing", (&method, &path, body));
                        }
                    }
                    "path" => {
                        let wrong = here(&template.replace(&format!("{{{name}}}"), "%20"));
                        asker.names(name, "%20", (&method, &wrong, body));
                        let wrong = here(&template.replace(&format!("{{{name}}}"), "%ff"));
                        asker.names(name, "%ff", (&method, &wrong, body));
                    }
                    _ => {}
                }
            }
            let Some(full) = full else { continue };
            let trials = Vec::new();
            let mut walk = Walk { description: &description, body: &full, trials };
            walk.field(json, "", "");
            assert!(!walk.trials.is_empty());
            for (wrong, field, what) in walk.trials {
                asker.names(&field, what, (&method, &path, Some(&wrong.to_string())));
            }
            for text in ["", "{", "nonsense", "{} {}"] {
                asker.names("body", "no JSON", (&method, &path, Some(text)));
            }
        }
    }
    assert!(asker.bad.is_empty(), "{}", asker.bad.join("\n"));
    assert!(asker.asked > 300, "only {}", asker.asked);
    // None of it changed anything.
    assert_eq!(manager.get("/v1/operations")["items"].as_array().unwrap().len(), 1);
    assert_eq!(manager.get("/v1/holds")["items"], json!([]));
    assert_eq!(manager.get("/v1/inventory")["revision"], 0);
}
