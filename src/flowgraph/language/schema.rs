//! JSON Schema of flowgraph files, for editors.

use crate::language::hosts::MAX_HOSTS;
use crate::language::latency::DEFAULT_LATENCY_SECONDS;
use crate::language::on_fault::OnFault;
use crate::language::queue;
use fxgraph_core::edge::WhenFull;
use fxgraph_core::kind::{KindEntry, Registry};
use serde_json::{Map, Value as Json, json};

/// Pattern of names.
const NAME: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// Pattern of full names of blocks, as in an expanded flowgraph: `f[0].pfb`.
const FULL_NAME: &str = r"^[A-Za-z_][A-Za-z0-9_]*(\[(0|[1-9][0-9]*)\])?(\.[A-Za-z_][A-Za-z0-9_]*(\[(0|[1-9][0-9]*)\])?)*$";
/// Pattern of a text that is one expression.
const EXPRESSION: &str = "^\\$\\{.*\\}$";

/// JSON Schema of flowgraph files with the kinds in `registry`; it allows no unknown keys.
#[must_use]
pub fn schema(registry: &Registry) -> Json {
    let mut definitions = Map::new();
    definitions.insert(
        "expression".to_owned(),
        json!({ "type": "string", "pattern": EXPRESSION, "description": "arithmetic over parameters" }),
    );
    for kind in registry.iter() {
        definitions.insert(format!("{}_parameters", kind.name), parameters(kind));
    }
    definitions.insert("parameter".to_owned(), parameter());
    definitions.insert("block".to_owned(), block(registry));
    definitions.insert("template".to_owned(), template());
    definitions.insert("test".to_owned(), test());
    let text = json!({ "type": "string" });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fxgraph flowgraph",
        "type": "object",
        "properties": {
            "flowgraph": { "type": "string", "description": "name of the flowgraph" },
            "doc": text,
            "device": device(),
            "latency_seconds": latency(),
            "hosts": hosts(),
            "network": network(),
            "include": { "type": ["array", "null"], "items": text,
                "description": "files with templates and parameters, relative to this one" },
            "parameters": named(NAME, &json!({ "$ref": "#/$defs/parameter" })),
            "templates": named(NAME, &json!({ "$ref": "#/$defs/template" })),
            "blocks": named(FULL_NAME, &json!({ "$ref": "#/$defs/block" })),
            "tests": { "type": ["array", "null"], "items": { "$ref": "#/$defs/test" } },
        },
        // A file without `flowgraph` is for inclusion in others.
        "anyOf": [
            { "required": ["flowgraph", "blocks"] },
            { "not": { "anyOf": [{ "required": ["flowgraph"] }, { "required": ["blocks"] }] } },
        ],
        "additionalProperties": false,
        "$defs": definitions,
    })
}

fn named(pattern: &str, value: &Json) -> Json {
    json!({
        "type": ["object", "null"],
        "propertyNames": { "pattern": pattern },
        "additionalProperties": value,
    })
}

fn parameter() -> Json {
    let value = json!({ "type": ["number", "string", "boolean", "array", "object"] });
    let bound = json!({ "type": ["number", "string"] });
    json!({
        "anyOf": [
            { "type": ["number", "string", "boolean", "array", "null"] },
            {
                "type": "object",
                "properties": {
                    "default": value,
                    "doc": { "type": "string" },
                    "minimum": bound,
                    "maximum": bound,
                },
                "additionalProperties": false,
            },
        ],
    })
}

fn or_expression(schema: &Json) -> Json {
    json!({ "anyOf": [schema, { "$ref": "#/$defs/expression" }] })
}

fn device() -> Json {
    or_expression(&json!({
        "type": "string",
        "pattern": r"^(cpu|auto|(auto|cuda):(0|[1-9][0-9]*|\$\{.*\}))$",
        "description": "where blocks run: `cpu`, `cuda:0`, ..., `auto` for a GPU if there is one, or `auto:N` for GPU N modulo the number of GPUs",
    }))
}

fn latency() -> Json {
    let mut seconds = or_expression(&json!({ "type": "number", "exclusiveMinimum": 0 }));
    seconds["description"] = json!(format!(
        "latency target in seconds, from which sources in real time get the size of their frames; \
         {DEFAULT_LATENCY_SECONDS} by default"
    ));
    seconds
}

fn hosts() -> Json {
    let text = json!({ "type": "string" });
    let whole = |minimum: usize| {
        let maximum = MAX_HOSTS;
        or_expression(&json!({ "type": "integer", "minimum": minimum, "maximum": maximum }))
    };
    let positive = or_expression(&json!({ "type": "number", "exclusiveMinimum": 0 }));
    let mut classes = named(
        NAME,
        &json!({
            "type": ["object", "null"],
            "properties": {
                "count": whole(1),
                "constraint": text,
                "cores": whole(1),
                "memory_gbytes": positive,
                "gpus": whole(0),
                "gpu_memory_gbytes": positive,
                "interface": text,
                "spares": whole(0),
            },
            "additionalProperties": false,
        }),
    );
    classes["description"] = json!("classes of hosts that the blocks are divided among");
    classes
}

fn network() -> Json {
    json!({
        "type": "object",
        "properties": {
            "multicast": { "type": "string",
                "description": "range of multicast groups for data between hosts, like 239.102.0.0/16" },
            "port": or_expression(&json!({ "type": "integer", "minimum": 1, "maximum": 65535 })),
            "limit_gbit_per_second": or_expression(&json!({ "type": "number", "exclusiveMinimum": 0 })),
            "groups": { "type": ["object", "null"], "additionalProperties": { "type": "string" },
                "description": "multicast group of single outputs" },
        },
        "required": ["multicast"],
        "additionalProperties": false,
    })
}

fn block(registry: &Registry) -> Json {
    let count = |maximum: u32| {
        or_expression(&json!({ "type": "integer", "minimum": 1, "maximum": maximum }))
    };
    let action = or_expression(&json!({ "enum": WhenFull::ALL.map(WhenFull::name) }));
    let names: Vec<&str> = registry.iter().map(|kind| kind.name).collect();
    let branches: Vec<Json> = registry
        .iter()
        .map(|kind| {
            let implementations: Vec<&str> =
                kind.implementations.iter().map(|implementation| implementation.name).collect();
            let parameters = format!("#/$defs/{}_parameters", kind.name);
            json!({
                "if": { "properties": { "kind": { "const": kind.name } }, "required": ["kind"] },
                "then": { "properties": {
                    "parameters": { "$ref": parameters },
                    "implementation": { "enum": implementations },
                } },
            })
        })
        .collect();
    json!({
        "type": "object",
        "properties": {
            "kind": { "enum": names },
            "template": { "type": "string", "pattern": NAME },
            "input": { "type": "string" },
            "inputs": { "type": ["array", "string"], "items": { "type": "string" } },
            "parameters": { "type": ["object", "null"] },
            "replicate": count(10_000),
            "thread": { "anyOf": [
                { "enum": ["shared", "own"] },
                {
                    "type": "object",
                    "properties": { "core": or_expression(&json!({ "type": "integer", "minimum": 0 })) },
                    "required": ["core"],
                    "additionalProperties": false,
                },
                { "$ref": "#/$defs/expression" },
            ] },
            "queue": { "anyOf": [
                count(queue::MAX_FRAMES as u32),
                {
                    "type": "object",
                    "properties": { "seconds": or_expression(&json!({ "type": "number", "exclusiveMinimum": 0 })) },
                    "required": ["seconds"],
                    "additionalProperties": false,
                },
            ] },
            "when_full": { "anyOf": [
                action,
                { "type": "object", "additionalProperties": action },
            ], "description": "action when the queue of an input is full: the writer waits, or the oldest or the new frame is dropped; one for all inputs, or by input" },
            "latency_seconds": latency(),
            "device": device(),
            "implementation": { "type": "string" },
            "host": { "type": "string",
                "description": "host that runs the block, or the blocks of the template: `f_host[0]`, or `x_host` for the only one of its class" },
            "shadow": {
                "type": "object",
                "properties": {
                    "kind": { "enum": names },
                    "parameters": { "type": ["object", "null"] },
                    "implementation": { "type": "string" },
                },
                "additionalProperties": false,
                "description": "a second block on the same frames, whose output is compared: keys that differ",
            },
            "on_fault": or_expression(&json!({
                "enum": OnFault::ALL.map(OnFault::name),
                "description": "action when the block fails: `stop` the flowgraph, `restart` the \
                                block, or `skip` the frame",
            })),
        },
        "oneOf": [{ "required": ["kind"] }, { "required": ["template"] }],
        "allOf": branches,
        "additionalProperties": false,
    })
}

fn template() -> Json {
    json!({
        "type": "object",
        "properties": {
            "doc": { "type": "string" },
            "inputs": { "type": ["array", "null"], "items": { "type": "string", "pattern": NAME } },
            "parameters": named(NAME, &json!({ "$ref": "#/$defs/parameter" })),
            "blocks": named(NAME, &json!({ "$ref": "#/$defs/block" })),
            "outputs": named(NAME, &json!({ "type": "string" })),
        },
        "additionalProperties": false,
    })
}

fn test() -> Json {
    let number = or_expression(&json!({ "type": "number" }));
    let whole = or_expression(&json!({ "type": "integer", "minimum": 0 }));
    let element = json!({ "anyOf": [
        { "type": "number" },
        { "type": "array", "items": number, "minItems": 2, "maxItems": 2 },
        { "$ref": "#/$defs/expression" },
    ] });
    let object = |required: &[&str], properties: Json| {
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    };
    let near = object(
        &["value", "tolerance"],
        json!({ "value": number, "tolerance": number,
            "at": { "type": "object", "additionalProperties": whole } }),
    );
    let checks = json!({
        "tap": { "type": "string" },
        "peak": object(&["axis", "at"], json!({
            "axis": { "type": "string" }, "at": number, "tolerance": number })),
        "rms": near,
        "mean": near,
        "equals": element,
        "close_to": object(&["value", "tolerance"], json!({ "value": element, "tolerance": number })),
        "validity": { "anyOf": [
            { "enum": ["full", "none"] },
            number,
            object(&["fraction", "tolerance"], json!({ "fraction": number, "tolerance": number })),
        ] },
        "frames": whole,
        "same_as": { "type": "string" },
        "phase": object(&["radians", "tolerance"], json!({
            "at": { "type": "object", "additionalProperties": whole },
            "radians": number, "tolerance": number })),
    });
    let mut expect = object(&["tap"], checks);
    // The key `tap` and exactly one check.
    expect["minProperties"] = json!(2);
    expect["maxProperties"] = json!(2);
    object(
        &["name", "expect"],
        json!({
            "name": { "type": "string" },
            "set": { "type": ["object", "null"] },
            "alongside": { "type": "array", "items": object(&["flowgraph"], json!({
                "flowgraph": { "type": "string" }, "set": { "type": ["object", "null"] } })) },
            "run": {
                "type": "object",
                "properties": { "frames": whole, "seconds": number },
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": false,
            },
            "expect": { "type": "array", "items": expect, "minItems": 1 },
        }),
    )
}

/// Schema of a kind's parameters, extended so that expressions are allowed as values.
fn parameters(kind: &KindEntry) -> Json {
    let mut schema = (kind.schema)().to_value();
    // Definitions of the kind stay inside its schema; references are rewritten to point there.
    let inner = schema.as_object_mut().and_then(|object| object.remove("$defs"));
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
    }
    let prefix = format!("#/$defs/{}_parameters/$defs/", kind.name);
    let mut schema = lenient(schema, &prefix);
    if let Some(Json::Object(inner)) = inner {
        let inner: Map<String, Json> =
            inner.into_iter().map(|(name, schema)| (name, lenient(schema, &prefix))).collect();
        schema["$defs"] = Json::Object(inner);
    }
    // `parameters:` may be empty if no parameter is required.
    if schema.get("required").is_none() && schema.get("type") == Some(&json!("object")) {
        schema["type"] = json!(["object", "null"]);
    }
    schema
}

/// `schema` with `${...}` allowed in place of numbers, booleans, lists and enumerated words.
fn lenient(schema: Json, prefix: &str) -> Json {
    let Json::Object(mut object) = schema else { return schema };
    if let Some(Json::String(reference)) = object.get_mut("$ref") {
        *reference = reference.replace("#/$defs/", prefix);
    }
    for key in ["properties", "patternProperties"] {
        if let Some(Json::Object(properties)) = object.get_mut(key) {
            for value in properties.values_mut() {
                *value = lenient(value.take(), prefix);
            }
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(value) = object.get_mut(key) {
            *value = lenient(value.take(), prefix);
        }
    }
    for key in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        if let Some(Json::Array(items)) = object.get_mut(key) {
            for value in items {
                *value = lenient(value.take(), prefix);
            }
        }
    }
    // The reader accepts `1e6` as an integer; editors do not use formats like `uint32`.
    object.remove("format");
    let words: Vec<&str> = match object.get("type") {
        Some(Json::String(word)) => vec![word],
        Some(Json::Array(words)) => words.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    };
    // A list may also be one expression.
    let is_value =
        words.iter().any(|word| matches!(*word, "number" | "integer" | "boolean" | "array"));
    // Enumerated words with descriptions are alternatives (`oneOf`).
    let is_word = |schema: &Json| schema.get("const").is_some() || schema.get("enum").is_some();
    let alternatives = object.get("oneOf").and_then(Json::as_array);
    let is_words = alternatives.is_some_and(|all| all.iter().any(is_word));
    if !is_value && !is_words && !object.contains_key("enum") {
        return Json::Object(object);
    }
    // The description stays at the top, where editors look for it.
    let mut outside = Map::new();
    for key in ["description", "default", "title", "x-live", "x-unit"] {
        if let Some(value) = object.remove(key) {
            outside.insert(key.to_owned(), value);
        }
    }
    outside.insert("anyOf".to_owned(), json!([object, { "$ref": "#/$defs/expression" }]));
    Json::Object(outside)
}
