//! One streaming request and the times of its tokens.

use crate::traffic::prompts::{Content, Prompt};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};
use ureq::Agent;

/// Most bytes of an answer that are kept for a message.
const MOST_SHOWN: u64 = 300;

/// Longest line of an answer, bytes. A line holds one event.
const MOST_LINE: u64 = 4 << 20;

/// A server and a model on it.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    url: String,
    model: String,
    /// Asks for exactly the tokens that were requested, which not every server can do.
    pub exact_length: bool,
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

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    delta: Option<Delta>,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default, alias = "reasoning")]
    reasoning_content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
}

/// Makes an agent that talks to the server itself, without a proxy.
pub fn agent(timeout: Duration, connections: usize) -> Agent {
    Agent::config_builder()
        .proxy(None)
        .http_status_as_error(false)
        .timeout_global(Some(timeout))
        .max_idle_connections(connections)
        .max_idle_connections_per_host(connections)
        .max_redirects(0)
        .build()
        .into()
}

/// Gets a status and a short text.
pub fn get(agent: &Agent, url: &str, limit: u64) -> Result<(u16, String), RequestError> {
    let call = agent.get(url).call();
    let response = call.map_err(transport)?;
    let status = response.status().as_u16();
    let mut bytes = Vec::new();
    let read = response.into_body().into_reader().take(limit).read_to_end(&mut bytes);
    read.map_err(|error| RequestError::Transport(error.to_string()))?;
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

impl Client {
    pub fn new(agent: Agent, url: &str, model: String) -> Self {
        Self { agent, url: url.trim_end_matches('/').to_owned(), model, exact_length: true }
    }

    /// Sends a request and reads its answer. Times count from `origin`.
    pub fn send(&self, prompt: &Prompt, due: Duration, origin: Instant) -> Outcome {
        let mut outcome = Outcome { due, ..Outcome::default() };
        outcome.error = self.stream(prompt, origin, &mut outcome).err();
        outcome.end = origin.elapsed();
        outcome
    }

    fn stream(&self, prompt: &Prompt, origin: Instant, outcome: &mut Outcome) -> Result<(), RequestError> {
        let path = match prompt.content {
            Content::Completion(_) => "/v1/completions",
            Content::Chat(_) => "/v1/chat/completions",
        };
        let request = self.agent.post(format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json");
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
                if text.is_empty()
                    || text.starts_with(':')
                    || text.starts_with("event:")
                    || text.starts_with("id:")
                {
                    continue;
                }
                return Err(RequestError::NotUnderstood(shortened(text)));
            };
            if data == "[DONE]" {
                return Ok(());
            }
            let event: Event =
                serde_json::from_str(data).map_err(|_| RequestError::NotUnderstood(shortened(data)))?;
            if let Some(error) = event.error.filter(|error| !error.is_null()) {
                return Err(RequestError::Server(shortened(&error.to_string())));
            }
            let mut has_text = false;
            for text in event.choices.iter().flat_map(Choice::texts) {
                has_text |= !text.is_empty();
                outcome.answer.update(text);
            }
            if has_text {
                outcome.parts.push(now);
            }
            if let Some(usage) = event.usage {
                outcome.prompt_tokens = usage.prompt_tokens.or(outcome.prompt_tokens);
                outcome.output_tokens = usage.completion_tokens.or(outcome.output_tokens);
            }
        }
    }

    fn body(&self, prompt: &Prompt) -> Value {
        let mut body = Map::new();
        body.insert("model".into(), json!(self.model));
        match &prompt.content {
            Content::Completion(content) => body.insert("prompt".into(), content.clone()),
            Content::Chat(messages) => body.insert("messages".into(), messages.clone()),
        };
        body.insert("max_tokens".into(), json!(prompt.output_tokens));
        body.insert("temperature".into(), json!(0));
        body.insert("stream".into(), json!(true));
        body.insert("stream_options".into(), json!({"include_usage": true}));
        if self.exact_length {
            body.insert("ignore_eos".into(), json!(true));
        }
        Value::Object(body)
    }
}

impl Choice {
    /// Returns the text of this part of the answer.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let delta = self.delta.as_ref();
        let texts = [
            self.text.as_deref(),
            delta.and_then(|delta| delta.content.as_deref()),
            delta.and_then(|delta| delta.reasoning_content.as_deref()),
        ];
        texts.into_iter().flatten()
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
