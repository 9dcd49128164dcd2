//! Prompts, random or from a JSONL file; one streaming request, and the times of its tokens.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use ureq::Agent;

use roofgap_base::error::Error;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::Load;
use roofgap_wire::account::traceparent;

/// Most bytes of an answer that are kept for a message.
const MOST_SHOWN: u64 = 300;

/// Longest line of an answer, bytes. A line holds one event.
const MOST_LINE: u64 = 4 << 20;

/// A server, which is talked to without a proxy.
#[derive(Debug, Clone)]
pub struct Server {
    agent: Agent,
    pub url: String,
}

/// A server and a model on it.
#[derive(Debug, Clone)]
pub struct Client {
    pub server: Server,
    pub model: String,
    /// Asks for exactly the tokens that were requested, which not every server can do.
    pub exact_length: bool,
    /// First half of the trace ids that requests get.
    pub trace: Option<String>,
}

/// One request after its end.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Time at which the request was due.
    pub due: Duration,
    /// Arrival of each part of the answer that holds text.
    pub parts: Vec<Duration>,
    /// Time at which the answer was complete.
    pub end: Duration,
    /// Tokens of the prompt, as the server counts them.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer, as the server counts them.
    pub output_tokens: Option<u64>,
    /// Number of the prompt, from 0.
    pub number: usize,
    /// Hash of the text of the answer so far.
    pub answer: Sha256,
    /// Failure of the request.
    pub error: Option<RequestError>,
}

/// Failure of one request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("HTTP status {status}: {text}")]
    Status { status: u16, text: String },
    #[error("{0}")]
    Transport(String),
    #[error("the answer is not what an OpenAI-compatible server sends: {0}")]
    NotUnderstood(String),
    #[error("the answer ended before it was complete")]
    Cut,
    #[error("the server says: {0}")]
    Server(String),
}

/// Most tokens of one request. A larger count is taken as none, so that the sum over all requests is exact.
const MOST_TOKENS: u64 = 1 << 26;

/// Returns the text in an event of an answer, which has parts for reasoning in the words of several engines.
fn texts(event: &Value) -> impl Iterator<Item = &str> {
    let choices = event["choices"].as_array().into_iter().flatten();
    let parts = choices.flat_map(|choice| {
        let delta = &choice["delta"];
        [&choice["text"], &delta["content"], &delta["reasoning_content"], &delta["reasoning"]]
    });
    parts.filter_map(Value::as_str)
}

impl Outcome {
    /// Takes the counts of an event that can be.
    fn count(&mut self, event: &Value) {
        let count = |name: &str| event["usage"][name].as_u64().filter(|count| *count <= MOST_TOKENS);
        self.prompt_tokens = count("prompt_tokens").or(self.prompt_tokens);
        self.output_tokens = count("completion_tokens").or(self.output_tokens);
    }
}

/// Age from which an idle connection is not used again. Servers close theirs after some seconds.
const IDLE: Duration = Duration::from_secs(2);

impl Server {
    pub fn new(url: &str, timeout: Duration, connections: usize) -> Self {
        let config = Agent::config_builder()
            .proxy(None)
            .http_status_as_error(false)
            .timeout_global(Some(timeout))
            .max_idle_connections(connections)
            .max_idle_connections_per_host(connections)
            .max_idle_age(IDLE)
            .max_redirects(0);
        Self { agent: config.build().into(), url: url.trim_end_matches('/').to_owned() }
    }

    /// Gets a status and a text of at most `limit` bytes.
    pub fn get(&self, path: &str, limit: u64) -> Result<(u16, String), RequestError> {
        let response = self.agent.get(format!("{}/{path}", self.url)).call().map_err(transport)?;
        let status = response.status().as_u16();
        let mut bytes = Vec::new();
        let read = response.into_body().into_reader().take(limit).read_to_end(&mut bytes);
        read.map_err(|error| RequestError::Transport(error.to_string()))?;
        Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
    }
}

impl Client {
    /// Sends a request and reads its answer. Times count from `origin`.
    pub fn send(&self, number: usize, prompt: &Prompt, due: Duration, origin: Instant) -> Outcome {
        let mut outcome = Outcome { due, number, ..Outcome::default() };
        outcome.error = self.stream(prompt, origin, &mut outcome).err();
        outcome.end = origin.elapsed();
        outcome
    }

    fn stream(&self, prompt: &Prompt, origin: Instant, outcome: &mut Outcome) -> Result<(), RequestError> {
        let path = if prompt.key == CHAT { "chat/completions" } else { "completions" };
        let Server { agent, url } = &self.server;
        let request = agent.post(format!("{url}/v1/{path}"));
        let mut request = request.header("content-type", "application/json");
        if let Some(trace) = &self.trace {
            // Engines name a request by its id, and so the steps of their traces.
            let parent = traceparent(trace, outcome.number as u64 + 1);
            request = request.header("traceparent", &parent).header("x-request-id", &parent);
        }
        let response = request.send(self.body(prompt).to_string()).map_err(transport)?;
        let status = response.status().as_u16();
        let body = response.into_body().into_reader();
        if status != 200 {
            let mut bytes = Vec::new();
            // The status is the error; the text only explains it.
            let _ = body.take(MOST_SHOWN).read_to_end(&mut bytes);
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            return Err(RequestError::Status { status, text });
        }
        let mut lines = BufReader::new(body);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut lines).take(MOST_LINE).read_until(b'\n', &mut line);
            let read = read.map_err(|error| RequestError::Transport(error.to_string()))?;
            let now = origin.elapsed();
            if read == 0 {
                return Err(RequestError::Cut);
            }
            if read as u64 == MOST_LINE && !line.ends_with(b"\n") {
                let why = format!("a line of more than {} MiB", MOST_LINE >> 20);
                return Err(RequestError::NotUnderstood(why));
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim();
            // Comments, names of events and empty lines between events.
            let Some(data) = text.strip_prefix("data:").map(str::trim) else {
                if text.is_empty() || [":", "event:", "id:"].iter().any(|start| text.starts_with(start)) {
                    continue;
                }
                return Err(RequestError::NotUnderstood(shortened(text)));
            };
            if data == "[DONE]" {
                // A connection that is not read to its end is closed, and the server may report that as an error.
                let _ = io::copy(&mut lines.take(MOST_SHOWN), &mut io::sink());
                return Ok(());
            }
            let is_event =
                |event: &Value| event.is_object() && event.get("choices").is_none_or(Value::is_array);
            let event = serde_json::from_str(data).ok().filter(is_event);
            let event = event.ok_or_else(|| RequestError::NotUnderstood(shortened(data)))?;
            if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
                return Err(RequestError::Server(shortened(&error.to_string())));
            }
            let mut has_text = false;
            for text in texts(&event) {
                has_text |= !text.is_empty();
                outcome.answer.update(text);
            }
            if has_text {
                outcome.parts.push(now);
            }
            outcome.count(&event);
        }
    }

    fn body(&self, prompt: &Prompt) -> Value {
        let mut body = json!({
            "model": self.model,
            "max_tokens": prompt.output_tokens,
            "temperature": 0,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        body[prompt.key] = prompt.content.clone();
        if self.exact_length {
            body["ignore_eos"] = true.into();
        }
        body
    }
}

/// Describes a failed connection.
fn transport(error: ureq::Error) -> RequestError {
    RequestError::Transport(match error {
        ureq::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(MOST_SHOWN as usize).collect()
}

/// Smallest random token id. Lower ids are often special tokens.
const FIRST_ID: u32 = 100;
/// Most bytes of a prompt file.
const MOST_BYTES: u64 = 1 << 30;

/// A request: prompt and length of the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    /// Key of the request: [`COMPLETION`] or [`CHAT`].
    key: &'static str,
    /// Text, token ids or messages.
    content: Value,
    pub output_tokens: NonZeroU32,
}

/// Key of a text or of token ids for `/v1/completions`.
const COMPLETION: &str = "prompt";

/// Key of messages for `/v1/chat/completions`.
const CHAT: &str = "messages";

/// Makes the prompts of all requests, so that nothing but sending happens under load.
pub fn make_prompts(config: &Config, count: u64) -> Result<Vec<Prompt>, Error> {
    let load = &config.load;
    if let Some(path) = &load.prompts {
        return Ok(read_prompts(path, load)?.into_iter().cycle().take(count as usize).collect());
    }
    let mut random = fastrand::Rng::with_seed(config.workload.seed);
    let last = load.vocabulary.max(FIRST_ID + 1);
    let prompts = (0..count).map(|_| {
        let ids: Vec<u32> = (0..load.prompt_tokens.get()).map(|_| random.u32(FIRST_ID..last)).collect();
        Prompt { key: COMPLETION, content: json!(ids), output_tokens: load.output_tokens }
    });
    Ok(prompts.collect())
}

/// A line of a file of prompts.
#[derive(Deserialize)]
struct Line {
    messages: Option<Value>,
    prompt: Option<Value>,
    output_tokens: Option<NonZeroU32>,
    max_tokens: Option<NonZeroU32>,
}

fn read_prompts(path: &Path, load: &Load) -> Result<Vec<Prompt>, Error> {
    let wrong = |why: String| Error::new(format!("cannot read the prompts in {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut prompts = Vec::new();
    for (number, line) in BufReader::new(file.take(MOST_BYTES)).lines().enumerate() {
        let wrong_line = |why: &dyn Display| wrong(format!("line {}: {why}", number + 1));
        let line = line.map_err(|error| wrong_line(&error))?;
        if line.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(&line).map_err(|error| wrong_line(&error))?;
        let chat = line.messages.map(|messages| (CHAT, messages));
        let given = chat.or(line.prompt.map(|prompt| (COMPLETION, prompt)));
        let (key, content) =
            given.ok_or_else(|| wrong_line(&"it has neither \"prompt\" nor \"messages\""))?;
        let output_tokens = line.output_tokens.or(line.max_tokens).unwrap_or(load.output_tokens);
        prompts.push(Prompt { key, content, output_tokens });
    }
    if prompts.is_empty() {
        return Err(wrong("it holds no prompt".to_owned()));
    }
    Ok(prompts)
}

#[cfg(test)]
mod prompts_tests {
    use super::*;
    use roofgap_runs::config::{ConfigProps, compose};

    #[test]
    fn a_count_that_no_request_has_is_none() {
        let told = |usage: &str| {
            let mut outcome = Outcome { prompt_tokens: Some(3), ..Outcome::default() };
            outcome.count(&serde_json::from_str(usage).unwrap());
            (outcome.prompt_tokens, outcome.output_tokens)
        };
        assert_eq!(told(r#"{"usage": {"prompt_tokens": 7, "completion_tokens": 5}}"#), (Some(7), Some(5)));
        for absurd in ["18446744073709551615", "99999999999999999999999", "-1", "1e300", "2.5"] {
            let usage =
                format!(r#"{{"usage": {{"prompt_tokens": {absurd}, "completion_tokens": {absurd}}}}}"#);
            assert_eq!(told(&usage), (Some(3), None), "{absurd}");
        }
    }

    #[test]
    fn random_prompts_have_the_length_that_was_asked_for_and_repeat_with_the_seed() {
        let mut props = compose(&ConfigProps::default()).unwrap().config;
        props.load.prompt_tokens = NonZeroU32::new(7).unwrap();
        let prompts = make_prompts(&props, 3).unwrap();
        assert_eq!(prompts, make_prompts(&props, 3).unwrap());
        assert_eq!(prompts[0].key, COMPLETION);
        let ids: Vec<u64> = prompts[0].content.as_array().unwrap().iter().filter_map(Value::as_u64).collect();
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
{"prompt": [7, 8], "output_tokens": 9}
"#;
        std::fs::write(&path, text).unwrap();
        let mut props = compose(&ConfigProps::default()).unwrap().config;
        props.load.prompts = Some(path.clone());
        props.load.output_tokens = NonZeroU32::new(11).unwrap();
        let prompts = make_prompts(&props, 4).unwrap();
        assert_eq!((prompts[0].key, &prompts[0].content), (COMPLETION, &json!("a cat")));
        assert_eq!(prompts[1].key, CHAT);
        let tokens: Vec<u32> = prompts.iter().map(|prompt| prompt.output_tokens.get()).collect();
        assert_eq!(tokens, [5, 11, 9, 5]);
        std::fs::write(&path, "{\"prompt\": 1}\nnothing").unwrap();
        let error = make_prompts(&props, 1).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        props.load.prompts = Some(folder.path().join("none"));
        assert!(make_prompts(&props, 1).unwrap_err().to_string().starts_with("cannot read the prompts"));
    }
}
