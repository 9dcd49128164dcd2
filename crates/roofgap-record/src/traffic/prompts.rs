//! Prompts: random token ids, or the lines of a JSONL file.

use crate::error::Error;
use crate::traffic::props::LoadProps;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

/// Smallest random token id. Lower ids are often special tokens.
const FIRST_ID: u32 = 100;
/// Most bytes of a prompt file.
const MOST_BYTES: u64 = 1 << 30;

/// A request: prompt and length of the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    pub content: Content,
    pub output_tokens: u32,
}

/// The prompt of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Text or token ids for `/v1/completions`.
    Completion(Value),
    /// Messages for `/v1/chat/completions`.
    Chat(Value),
}

/// One line of a prompt file.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(default)]
    prompt: Option<Value>,
    #[serde(default)]
    messages: Option<Value>,
    #[serde(default)]
    prompt_tokens: Option<u32>,
    #[serde(default, alias = "max_tokens")]
    output_tokens: Option<u32>,
}

/// Makes the prompts of all requests, so that nothing but sending happens under load.
pub fn all(props: &LoadProps, count: u64) -> Result<Vec<Prompt>, Error> {
    let mut random = fastrand::Rng::with_seed(props.seed);
    let lines = match &props.prompts {
        Some(_) => read(props)?,
        None => Vec::new(),
    };
    let at = |at: u64| lines.get((at % lines.len().max(1) as u64) as usize);
    let prompts = (0..count).map(|number| {
        let line = at(number);
        let output = line.and_then(|line| line.output_tokens);
        let output_tokens = output.unwrap_or_else(|| props.output_tokens.draw(&mut random));
        let content = match line {
            Some(Line { messages: Some(messages), .. }) => Content::Chat(messages.clone()),
            Some(Line { prompt: Some(prompt), .. }) => Content::Completion(prompt.clone()),
            _ => {
                let length = line.and_then(|line| line.prompt_tokens);
                let length = length.unwrap_or_else(|| props.prompt_tokens.draw(&mut random));
                let last = props.vocabulary.max(FIRST_ID + 1);
                let ids: Vec<u32> = (0..length).map(|_| random.u32(FIRST_ID..last)).collect();
                Content::Completion(json!(ids))
            }
        };
        Prompt { content, output_tokens }
    });
    Ok(prompts.collect())
}

fn read(props: &LoadProps) -> Result<Vec<Line>, Error> {
    let path = props.prompts.clone().unwrap_or_default();
    let wrong = |why: String| Error::new(format!("cannot read the prompts in {}: {why}", path.display()));
    let file = File::open(&path).map_err(|error| wrong(error.to_string()))?;
    let mut lines = Vec::new();
    for (number, line) in BufReader::new(file.take(MOST_BYTES)).lines().enumerate() {
        let line = line.map_err(|error| wrong(format!("line {}: {error}", number + 1)))?;
        if line.trim().is_empty() {
            continue;
        }
        let parsed: Line =
            serde_json::from_str(&line).map_err(|error| wrong(format!("line {}: {error}", number + 1)))?;
        let valid = |tokens: Option<u32>| tokens != Some(0);
        if !valid(parsed.prompt_tokens) || !valid(parsed.output_tokens) {
            return Err(wrong(format!("line {}: a length of 0 tokens", number + 1)));
        }
        lines.push(parsed);
    }
    if lines.is_empty() {
        return Err(wrong("it holds no prompt".to_owned()));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Lengths;

    #[test]
    fn random_prompts_have_the_length_that_was_asked_for_and_repeat_with_the_seed() {
        let props = LoadProps { prompt_tokens: Lengths::Fixed(7), ..LoadProps::default() };
        let prompts = all(&props, 3).unwrap();
        assert_eq!(prompts, all(&props, 3).unwrap());
        let Content::Completion(ids) = &prompts[0].content else {
            panic!("{prompts:?}");
        };
        let ids: Vec<u64> = ids.as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        assert_eq!(ids.len(), 7);
        assert!(ids.iter().all(|id| (100..10_000).contains(id)));
        assert_ne!(prompts[0], prompts[1]);
    }

    #[test]
    fn lines_of_a_file_are_used_in_turn() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prompts.jsonl");
        let text = r#"{"prompt": "a cat", "max_tokens": 5}

{"messages": [{"role": "user", "content": "hi"}]}
{"prompt_tokens": 2, "output_tokens": 9}
"#;
        std::fs::write(&path, text).unwrap();
        let mut props = LoadProps {
            prompts: Some(path.clone()),
            output_tokens: Lengths::Fixed(11),
            ..LoadProps::default()
        };
        let prompts = all(&props, 4).unwrap();
        assert_eq!(prompts[0].content, Content::Completion(json!("a cat")));
        assert!(matches!(prompts[1].content, Content::Chat(_)));
        let tokens: Vec<u32> = prompts.iter().map(|prompt| prompt.output_tokens).collect();
        assert_eq!(tokens, [5, 11, 9, 5]);
        std::fs::write(&path, "{\"prompt\": 1}\nnothing").unwrap();
        let error = all(&props, 1).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        props.prompts = Some(folder.path().join("none"));
        assert!(all(&props, 1).unwrap_err().to_string().starts_with("cannot read the prompts"));
    }
}
