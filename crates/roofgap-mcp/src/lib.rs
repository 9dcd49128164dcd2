//! A Model Context Protocol server over runs and captures.
//!
//! [`run`] serves the tools on standard input and output until the client closes them. All tools are read-only and their answers are
//! bounded. Their rows are the types of the analysis; a number that was not measured is null, with a reason beside it.
//!
//! - [`roots`]: the folders that may be read, and the inputs in them;
//! - [`message`]: the lines of the protocol;
//! - `tools`: a request, an answer and a function for each tool; the parts of an answer and the bounds of its texts.

pub mod message;
pub mod roots;

mod tools;

pub use roots::Roots;

use message::Lines;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{Implementation, ServerCapabilities, ServerConfig};
use rmcp::{Json, ServerHandler, ServiceExt, tool, tool_handler, tool_router};
use roofgap_base::error::Error;
use roofgap_runs::cache::OpenCache;
use roofgap_runs::open::Exporter;
use std::fmt::Display;
use std::sync::Arc;
use tools::compare::{self, CompareAnswer, CompareRequest};
use tools::findings::{self, ExplainAnswer, ExplainRequest, FindingsAnswer, FindingsRequest};
use tools::list::{self, ListAnswer, ListRequest};
use tools::summary::{self, KernelsAnswer, KernelsRequest, SummaryAnswer};
use tools::timeline::{self, StepsAnswer, StepsRequest, TimelineAnswer, TimelineRequest};
use tools::{Bounded, InputRequest, State, ToolError};

/// Guidance for the client, sent when it connects.
const INSTRUCTIONS: &str = "Reads GPU profiles of LLMs. Start with `list`, then `summary` of an input, then `findings`. \
    Names of fields end in their unit: _ns, _bytes, _pct. A null value was not measured; `not_measured` has the reason, so do not \
    estimate it. A pointer such as /findings/0 leads into the JSON of `roofgap analyze INPUT --format json`.";

/// Settings of the server.
#[derive(Debug)]
pub struct McpProps {
    /// Folders that may be read.
    pub roots: Roots,
    /// nsys that exports its reports.
    pub exporter: Exporter,
    /// Version of roofgap.
    pub version: String,
}

/// Serves the tools on standard input and output until the client closes them.
///
/// # Errors
/// Fails if the client breaks the protocol.
pub fn run(props: McpProps) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(format!("cannot start the server: {error}")))?;
    let failed = |error: &dyn Display| Error::new(format!("the connection failed: {error}"));
    let ended = runtime.block_on(async {
        let tools = Tools::new(props);
        let running = match tools.serve(Lines::new(tokio::io::stdin(), tokio::io::stdout())).await {
            Ok(running) => running,
            // The client left before it said anything.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(failed(&error)),
        };
        let ended = running.waiting().await;
        ended.map(|_| ()).map_err(|error| failed(&error))
    });
    // A thread that waits for standard input must not hold up the end.
    runtime.shutdown_background();
    ended
}

/// The tools.
#[derive(Debug, Clone)]
struct Tools {
    state: Arc<State>,
    version: String,
    tool_router: ToolRouter<Self>,
}

impl Tools {
    fn new(props: McpProps) -> Self {
        let cache = OpenCache::within(props.exporter, props.roots.folders().to_vec());
        let state = State { roots: props.roots, cache };
        Tools { state: Arc::new(state), version: props.version, tool_router: Self::tool_router() }
    }

    /// Answers a request on a thread of its own, because reading a capture can take seconds.
    async fn ask<R: Send + 'static, T: Send + 'static>(
        &self,
        request: R,
        answer: fn(&State, &R) -> Result<T, Error>,
    ) -> Result<Json<Bounded<T>>, ToolError> {
        let state = self.state.clone();
        let done = tokio::task::spawn_blocking(move || answer(&state, &request)).await;
        let answer = done.unwrap_or_else(|_| Err(Error::new("the tool failed; this is a bug")));
        answer.map(|answer| Json(Bounded(answer))).map_err(ToolError)
    }
}

/// Declares the tools, which only read: name, title, request, answer, and the function that answers.
macro_rules! tools {
    ($($(#[$doc:meta])* $name:ident, $title:tt: $request:ident => $answer:ident = $how:path;)*) => {
        #[tool_router]
        impl Tools {
            $($(#[$doc])*
            #[tool(annotations(title = $title, read_only_hint = true, open_world_hint = false))]
            async fn $name(
                &self,
                Parameters(request): Parameters<$request>,
            ) -> Result<Json<Bounded<$answer>>, ToolError> {
                self.ask(request, $how).await
            })*
        }
    };
}

tools! {
    /// Lists the runs (newest first) and captures that the other tools can read.
    list, "List runs and captures": ListRequest => ListAnswer = list::answer;
    /// Summarises a run or capture: the main result, its stages with times and utilisation, and what was not measured.
    summary, "Summary": InputRequest => SummaryAnswer = summary::answer;
    /// Lists what is worth fixing, largest possible saving first, with the evidence and an action for each.
    findings, "Findings": FindingsRequest => FindingsAnswer = findings::answer;
    /// Lists kernels by total GPU time, of one stage or of the whole trace, with hardware counters where ncu measured them.
    kernels, "Kernels": KernelsRequest => KernelsAnswer = summary::answer_kernels;
    /// Gives the time of each step of a stage (a token of decode, a step of an engine), its percentiles and the slowest steps.
    steps, "Steps": StepsRequest => StepsAnswer = timeline::answer_steps;
    /// Lists the GPU operations of a time window in order, and how long each device was busy in it.
    timeline, "Timeline window": TimelineRequest => TimelineAnswer = timeline::answer;
    /// Compares two runs or captures: what changed beyond the noise, and which kernels explain it.
    compare, "Compare": CompareRequest => CompareAnswer = compare::answer;
    /// Explains one finding: what it means, its evidence, and what to do.
    explain, "Explain a finding": ExplainRequest => ExplainAnswer = findings::answer_one;
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("roofgap", self.version.clone()))
            .with_instructions(INSTRUCTIONS)
    }
}
