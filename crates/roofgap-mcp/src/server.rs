//! The server: tools over standard input and output.

use std::sync::Arc;

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{Implementation, ServerCapabilities, ServerConfig};
use rmcp::{Json, ServerHandler, ServiceExt, tool, tool_handler, tool_router};
use roofgap_analyze::compare::{CompareOptions, Side, compare};
use roofgap_runs::cache::LoadCache;
use roofgap_runs::open::{Exporter, Loaded, Overrides, load_side};

use crate::error::McpError;
use crate::roots::Roots;
use crate::tools::compare::{CompareAnswer, CompareRequest};
use crate::tools::explain::{ExplainAnswer, ExplainRequest};
use crate::tools::findings::{FindingsAnswer, FindingsRequest};
use crate::tools::kernels::{KernelsAnswer, KernelsRequest};
use crate::tools::list::{ListAnswer, ListRequest};
use crate::tools::request::InputRequest;
use crate::tools::steps::{StepsAnswer, StepsRequest};
use crate::tools::summary::SummaryAnswer;
use crate::tools::timeline::{TimelineAnswer, TimelineRequest};
use crate::tools::{compare as compare_tool, explain, findings, kernels, list, steps, summary, timeline};

/// Guidance for the client, sent when it connects.
const INSTRUCTIONS: &str = "Reads GPU profiles of LLMs. Start with `list`, then `summary` of an input, then `findings`. \
    Times are nanoseconds. A null value has a reason beside it: it was not measured, so do not estimate it. \
    Ids such as /findings/0 are JSON pointers into `roofgap analyze INPUT --format json`.";

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
pub fn run(props: McpProps) -> Result<(), McpError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(McpError::Runtime)?;
    let ended = runtime.block_on(async {
        let tools = Tools::new(props);
        let running = match tools.serve(rmcp::transport::stdio()).await {
            Ok(running) => running,
            // The client left before it said anything.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(McpError::Protocol(error.to_string())),
        };
        let ended = running.waiting().await;
        ended.map(|_| ()).map_err(|error| McpError::Protocol(error.to_string()))
    });
    // A thread that waits for standard input must not hold up the end.
    runtime.shutdown_background();
    ended
}

/// The tools.
#[derive(Debug, Clone)]
struct Tools {
    state: Arc<State>,
    tool_router: ToolRouter<Self>,
}

/// Shared state of the tools.
#[derive(Debug)]
struct State {
    roots: Roots,
    cache: LoadCache,
    version: String,
}

impl State {
    /// Loads the input of a request; returns its name and content.
    fn load(&self, request: &InputRequest) -> Result<(String, Arc<Loaded>), McpError> {
        let inputs = std::iter::once(&request.input).chain(&request.with);
        let paths = inputs.map(|input| self.roots.find(input)).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<String> = paths.iter().map(|path| self.roots.name_of(path)).collect();
        Ok((names.join(", "), self.cache.load(&paths)?))
    }

    fn compare(&self, request: &CompareRequest) -> Result<CompareAnswer, McpError> {
        let side = |input: &str| -> Result<_, McpError> {
            let path = self.roots.find(input)?.display().to_string();
            let overrides = Overrides::default();
            Ok(load_side(self.roots.runs(), &path, &overrides, self.cache.exporter())?)
        };
        let (base, head) = (side(&request.base)?, side(&request.head)?);
        let [before, after] =
            [&base, &head].map(|side| Side { analysis: &side.analysis, facts: &side.facts });
        let comparison = compare(before, after, &CompareOptions::default());
        Ok(compare_tool::answer(&comparison, request.page))
    }
}

impl Tools {
    fn new(props: McpProps) -> Self {
        Tools {
            state: Arc::new(State {
                roots: props.roots,
                cache: LoadCache::new(props.exporter),
                version: props.version,
            }),
            tool_router: Self::tool_router(),
        }
    }

    /// Runs a tool on a thread of its own, because reading a capture can take seconds.
    async fn work<T: Send + 'static>(
        &self,
        tool: impl FnOnce(&State) -> Result<T, McpError> + Send + 'static,
    ) -> Result<Json<T>, McpError> {
        let state = self.state.clone();
        let done = tokio::task::spawn_blocking(move || tool(&state)).await;
        done.unwrap_or(Err(McpError::Panic)).map(Json)
    }
}

#[tool_router]
impl Tools {
    /// Lists the runs (newest first) and captures that the other tools can read.
    #[tool(annotations(title = "List runs and captures", read_only_hint = true, open_world_hint = false))]
    async fn list(&self, Parameters(request): Parameters<ListRequest>) -> Result<Json<ListAnswer>, McpError> {
        self.work(move |state| list::answer(&state.roots, &request)).await
    }

    /// Summarises a run or capture: the main result, its stages with times and utilisation, and what was not measured.
    #[tool(annotations(title = "Summary", read_only_hint = true, open_world_hint = false))]
    async fn summary(
        &self,
        Parameters(request): Parameters<InputRequest>,
    ) -> Result<Json<SummaryAnswer>, McpError> {
        self.work(move |state| {
            let (name, loaded) = state.load(&request)?;
            Ok(summary::answer(&name, &loaded.analysis, &loaded.unreadable))
        })
        .await
    }

    /// Lists what is worth fixing, largest possible saving first, with the evidence and an action for each.
    #[tool(annotations(title = "Findings", read_only_hint = true, open_world_hint = false))]
    async fn findings(
        &self,
        Parameters(request): Parameters<FindingsRequest>,
    ) -> Result<Json<FindingsAnswer>, McpError> {
        self.work(move |state| {
            let (name, loaded) = state.load(&request.input)?;
            findings::answer(&name, &loaded.analysis, &request)
        })
        .await
    }

    /// Lists kernels by total GPU time, of one stage or of the whole trace, with hardware counters where ncu measured them.
    #[tool(annotations(title = "Kernels", read_only_hint = true, open_world_hint = false))]
    async fn kernels(
        &self,
        Parameters(request): Parameters<KernelsRequest>,
    ) -> Result<Json<KernelsAnswer>, McpError> {
        self.work(move |state| {
            let (name, loaded) = state.load(&request.input)?;
            kernels::answer(&name, &loaded.analysis, &request)
        })
        .await
    }

    /// Gives the time of each step of a stage (a token of decode, a step of an engine), its percentiles and the slowest steps.
    #[tool(annotations(title = "Steps", read_only_hint = true, open_world_hint = false))]
    async fn steps(
        &self,
        Parameters(request): Parameters<StepsRequest>,
    ) -> Result<Json<StepsAnswer>, McpError> {
        self.work(move |state| {
            let (name, loaded) = state.load(&request.input)?;
            steps::answer(&name, &loaded.analysis, &request)
        })
        .await
    }

    /// Lists the GPU operations of a time window in order, and how long each device was busy in it.
    #[tool(annotations(title = "Timeline window", read_only_hint = true, open_world_hint = false))]
    async fn timeline(
        &self,
        Parameters(request): Parameters<TimelineRequest>,
    ) -> Result<Json<TimelineAnswer>, McpError> {
        self.work(move |state| {
            let (name, loaded) = state.load(&request.input)?;
            timeline::answer(&name, &loaded, &request)
        })
        .await
    }

    /// Compares two runs or captures: what changed beyond the noise, and which kernels explain it.
    #[tool(annotations(title = "Compare", read_only_hint = true, open_world_hint = false))]
    async fn compare(
        &self,
        Parameters(request): Parameters<CompareRequest>,
    ) -> Result<Json<CompareAnswer>, McpError> {
        self.work(move |state| state.compare(&request)).await
    }

    /// Explains one finding: what it means, its evidence, and what to do.
    #[tool(annotations(title = "Explain a finding", read_only_hint = true, open_world_hint = false))]
    async fn explain(
        &self,
        Parameters(request): Parameters<ExplainRequest>,
    ) -> Result<Json<ExplainAnswer>, McpError> {
        self.work(move |state| {
            let (name, loaded) = state.load(&request.input)?;
            explain::answer(&name, &loaded.analysis, &request)
        })
        .await
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("roofgap", self.state.version.clone()))
            .with_instructions(INSTRUCTIONS)
    }
}
