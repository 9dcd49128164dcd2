//! The evaluation: questions with known answers over the fixtures, in `questions.json`.
//!
//! The numbers are those of `nsys stats` on the same captures where it has them.

use super::client::{Client, fixtures};
use serde_json::Value;

#[test]
fn all_questions_are_answered() {
    let questions: Vec<Value> = serde_json::from_str(include_str!("questions.json")).unwrap();
    assert_eq!(questions.len(), 20);
    let runs = tempfile::tempdir().unwrap();
    let mut client = Client::connect(&[&fixtures()], runs.path());
    let mut wrong = Vec::new();
    for entry in &questions {
        let tool = entry["tool"].as_str().unwrap();
        let answer = client.call(tool, entry["arguments"].clone());
        let found = match &answer {
            Ok(answer) => answer.pointer(entry["at"].as_str().unwrap()).cloned().unwrap_or_default(),
            Err(error) => Value::String(error.clone()),
        };
        if !is_answer(&found, &entry["answer"]) {
            wrong.push(format!("{}\n  expected {}\n  found    {found}", entry["question"], entry["answer"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(client.close(), Some(0));
}

/// Compares numbers by value, and texts by the part that matters.
fn is_answer(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Number(found), Value::Number(expected)) => {
            let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
            (found - expected).abs() <= 1e-6 * expected.abs()
        }
        (Value::String(found), Value::String(expected)) => found.contains(expected.as_str()),
        (Value::Array(found), Value::String(expected)) => {
            found.iter().any(|found| found.to_string().contains(expected.as_str()))
        }
        (found, expected) => found == expected,
    }
}
