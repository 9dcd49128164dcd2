//! Messages of the protocol: one JSON value a line. Lines are bounded, and a line that is no message is answered.

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

/// Longest line, bytes. Requests name an input and a few numbers.
const MOST_LINE: usize = 1 << 20;

/// Codes of JSON-RPC.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;

/// A line of the client.
#[derive(Debug)]
pub enum Incoming {
    /// A message.
    Message(Box<RxJsonRpcMessage<RoleServer>>),
    /// No message, and none to answer: an empty line, or a notification of another protocol.
    Nothing,
    /// The answer to a line that is no message.
    Refused(Value),
}

impl Incoming {
    /// Reads a line.
    pub fn read(line: &[u8]) -> Self {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
        if line.is_empty() {
            return Self::Nothing;
        }
        // The parser refuses deep nesting.
        let value: Value = match serde_json::from_slice(line) {
            Ok(value) => value,
            Err(error) => return Self::refused(PARSE_ERROR, &Value::Null, &format!("not JSON: {error}")),
        };
        let id = value.get("id").cloned();
        let is_notification = id.is_none() && value.get("method").is_some_and(Value::is_string);
        match serde_json::from_value(value) {
            Ok(message) => Self::Message(Box::new(message)),
            Err(_) if is_notification => Self::Nothing,
            Err(_) => {
                let id = id.filter(|id| id.is_string() || id.is_number()).unwrap_or_default();
                Self::refused(INVALID_REQUEST, &id, "not a message of the Model Context Protocol")
            }
        }
    }

    fn refused(code: i32, id: &Value, message: &str) -> Self {
        Self::Refused(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
    }
}

/// Two streams of lines.
pub struct Lines<R, W> {
    read: BufReader<R>,
    /// The line as far as it is read.
    line: Vec<u8>,
    /// The rest of a line that is too long is skipped.
    skips: bool,
    write: Arc<Mutex<W>>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Lines<R, W> {
    /// Reads lines of one stream, and writes to the other.
    pub fn new(read: R, write: W) -> Self {
        Self {
            read: BufReader::new(read),
            line: Vec::new(),
            skips: false,
            write: Arc::new(Mutex::new(write)),
        }
    }

    /// Reads up to the end of the next line; `None` at the end of the stream. A call that is dropped loses nothing.
    async fn next(&mut self) -> Option<Incoming> {
        loop {
            let available = self.read.fill_buf().await.ok()?;
            if available.is_empty() {
                return None;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            self.skips |= self.line.len() + part.len() > MOST_LINE;
            if self.skips {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(part);
            }
            let length = end.map_or(part.len(), |end| end + 1);
            self.read.consume(length);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return Some(match std::mem::take(&mut self.skips) {
                    false => Incoming::read(&line),
                    true => {
                        let why = format!("a line of more than {} MiB", MOST_LINE >> 20);
                        Incoming::refused(INVALID_REQUEST, &Value::Null, &why)
                    }
                });
            }
        }
    }
}

/// Writes a line.
async fn write_line<W: AsyncWrite + Unpin>(write: Arc<Mutex<W>>, mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    let mut write = write.lock().await;
    write.write_all(&line).await?;
    write.flush().await
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (write, line) = (self.write.clone(), serde_json::to_vec(&message));
        async move { write_line(write, line?).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            match self.next().await? {
                Incoming::Message(message) => return Some(*message),
                Incoming::Nothing => {}
                Incoming::Refused(answer) => {
                    // A task of its own: this call may be dropped, but a line is written whole.
                    let written = write_line(self.write.clone(), answer.to_string().into_bytes());
                    tokio::spawn(written).await.ok()?.ok()?;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(line: &[u8]) -> (Value, Value) {
        match Incoming::read(line) {
            Incoming::Refused(answer) => (answer["error"]["code"].clone(), answer["id"].clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_line_that_is_no_message_has_an_answer() {
        let deep = [&b"[".repeat(100_000)[..], &b"]".repeat(100_000)].concat();
        for line in [&b"{"[..], b"nonsense", b"\xff\xfe", b"{\"jsonrpc\": \"2.0\", \"id\": 1", &deep] {
            assert_eq!(code(line), (json!(PARSE_ERROR), Value::Null));
        }
        for (line, id) in [
            ("[]", Value::Null),
            ("7", Value::Null),
            (r#"{"id": 5}"#, json!(5)),
            (r#"{"jsonrpc": "1.0", "id": "a", "method": "ping"}"#, json!("a")),
            (r#"{"jsonrpc": "2.0", "id": {"x": 1}, "method": "ping"}"#, Value::Null),
        ] {
            assert_eq!(code(line.as_bytes()), (json!(INVALID_REQUEST), id), "{line}");
        }
    }

    #[test]
    fn messages_and_unknown_notifications_have_none() {
        for line in ["", " \r", r#"{"jsonrpc": "1.0", "method": "$/other"}"#] {
            assert!(matches!(Incoming::read(line.as_bytes()), Incoming::Nothing), "{line}");
        }
        let ping = "\u{feff}{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}\r";
        assert!(matches!(Incoming::read(ping.as_bytes()), Incoming::Message(_)));
    }

    #[test]
    fn a_long_line_is_skipped_and_the_next_one_read() {
        let mut text = vec![b'x'; 3 * MOST_LINE];
        text.extend_from_slice(b"\n{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}\n{");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut lines = Lines::new(&text[..], Vec::new());
            let Some(Incoming::Refused(answer)) = lines.next().await else {
                panic!("no answer");
            };
            assert_eq!(answer["error"]["code"], INVALID_REQUEST);
            assert!(matches!(lines.next().await, Some(Incoming::Message(_))));
            assert!(lines.next().await.is_none());
        });
    }
}
