//! A small model in the shape of DeepSeek-OCR that runs on any CPU, so that there is always something to profile.
//!
//! The patches of an image go through a SAM-like tower, a CLIP-like tower and a projector; its tokens and those of a text prompt go through
//! a decoder with a mixture of experts and a KV cache; tokens are picked greedily. Image and weights are random, from a seed: the output has
//! no meaning, only a cost. The program marks its stages with NVTX ranges, times its operators and writes an [`Account`].
//!
//! ```
//! use clap::Parser;
//! use roofgap_workload::{WorkloadProps, run};
//!
//! #[derive(Parser)]
//! struct Args {
//!     #[command(flatten)]
//!     props: WorkloadProps,
//! }
//!
//! let args = Args::parse_from(["workload", "--preset=nano", "--new-tokens=2"]);
//! let account = run(&args.props, &(), &mut |_| {})?;
//! assert_eq!(account.tokens.and_then(|tokens| tokens.generated), Some(2));
//! # Ok::<(), roofgap_workload::Error>(())
//! ```

mod exec;
mod model;
mod ops;
mod props;
mod run;

pub use exec::{LLM_DOMAIN, Ranges};
pub use props::{PromptShape, WorkloadProps};
pub use roofgap_base::error::Error;
pub use roofgap_wire::account::Account;
pub use run::run;
