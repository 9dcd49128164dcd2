//! A small model in the shape of DeepSeek-OCR that runs on any CPU, so that there is always something to profile.
//!
//! The patches of an image go through a SAM-like tower, a CLIP-like tower and a projector; its tokens and those of a text prompt go through
//! a decoder with a mixture of experts and a KV cache; tokens are picked greedily. Image and weights are random, from a seed: the output has
//! no meaning, only a cost. The program marks its stages with NVTX ranges, times its own operators and leaves an [`Account`].
//!
//! ```
//! use roofgap_workload::{Preset, WorkloadProps, run};
//!
//! let props = WorkloadProps { preset: Preset::Nano, new_tokens: 2, ..WorkloadProps::default() };
//! let account = run(&props, &mut |_| {})?;
//! assert_eq!(account.tokens.and_then(|tokens| tokens.generated), Some(2));
//! # Ok::<(), roofgap_workload::Error>(())
//! ```

mod exec;
mod model;
mod ops;
mod props;
mod run;

pub use exec::{LLM_DOMAIN, Ranges, Silent};
pub use props::{Preset, PromptShape, Shape, WorkloadProps};
pub use roofgap_base::error::Error;
pub use roofgap_wire::account::Account;
pub use run::{run, run_with};
