//! Properties of a run, and the sizes of the model.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::PossibleValuesParser;
use roofgap_base::error::Error;
use serde::Deserialize;
use serde_json::Value;

/// Configurations of the model in the form of the published `config.json`, with the sizes that the file leaves to the code. `nano` has
/// every part, for tests; `tiny` is about a quarter of DeepSeek-OCR in every width and runs in a few seconds on two cores; `small` is about
/// half of it, a gigabyte of weights.
const PRESETS: [(&str, &str); 3] = [
    ("nano", include_str!("../presets/nano.json")),
    ("tiny", include_str!("../presets/tiny.json")),
    ("small", include_str!("../presets/small.json")),
];

/// Length of a prompt, and whether an image comes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptShape {
    /// Text tokens.
    pub tokens: usize,
    /// True for a prompt with an image.
    pub has_image: bool,
}

impl FromStr for PromptShape {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let without_image = text.strip_suffix("+image");
        let tokens = without_image.unwrap_or(text).parse();
        let tokens =
            tokens.map_err(|_| Error::new(format!("expected TOKENS or TOKENS+image, not {text:?}")))?;
        Ok(Self { tokens, has_image: without_image.is_some() })
    }
}

/// Properties of a run, and the options of `roofgap workload`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct WorkloadProps {
    /// Size of the model: nano, tiny or small
    #[arg(long, default_value = "tiny", value_parser = PossibleValuesParser::new(PRESETS.map(|preset| preset.0)), hide_possible_values = true)]
    pub preset: String,
    /// Seed of the weights, the image and the prompt
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Text tokens of the prompt
    #[arg(long, default_value_t = 64)]
    pub prompt_tokens: usize,
    /// Text tokens of one prompt, with +image where an image comes with it; each repeat takes the next, instead of --prompt-tokens
    #[arg(long = "prompt", value_name = "TOKENS[+image]")]
    pub prompts: Vec<PromptShape>,
    /// Tokens to generate
    #[arg(long, default_value_t = 32)]
    pub new_tokens: usize,
    /// Measured repeats
    #[arg(long, default_value_t = 3)]
    pub repeats: usize,
    /// Warm-up repeats before them
    #[arg(long, default_value_t = 1)]
    pub warmup: usize,
    /// Width and height of the image, pixels
    #[arg(long)]
    pub image_size: Option<usize>,
    /// Threads (default: all processors)
    #[arg(long)]
    pub threads: Option<usize>,
    /// Decode without a KV cache: a deliberately slow path, to try the tool on
    #[arg(long = "no-kv-cache", action = clap::ArgAction::SetFalse)]
    pub kv_cache: bool,
    /// With --no-kv-cache: read only the last N positions again, which changes the output
    #[arg(long, value_name = "N", requires = "kv_cache")]
    pub context_limit: Option<usize>,
    /// File for the account of the run (default: $ROOFGAP_WORKLOAD_JSON, if set)
    #[arg(long, value_name = "FILE")]
    pub account: Option<PathBuf>,
}

impl WorkloadProps {
    /// Lists the prompts that the repeats take in turn.
    pub(crate) fn prompt_shapes(&self) -> Vec<PromptShape> {
        match self.prompts.as_slice() {
            [] => vec![PromptShape { tokens: self.prompt_tokens, has_image: true }],
            prompts => prompts.to_vec(),
        }
    }

    /// Checks every bound that does not depend on the shape of the model.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let prompts = self.prompt_shapes().into_iter();
        let bounds = prompts.map(|prompt| ("prompt_tokens", prompt.tokens, 1, 8192)).chain([
            ("new_tokens", self.new_tokens, 1, 8192),
            ("repeats", self.repeats, 1, 1000),
            ("warmup", self.warmup, 0, 1000),
            ("threads", self.threads.unwrap_or(1), 1, 4096),
            ("context_limit", self.context_limit.unwrap_or(1), 1, 1 << 20),
        ]);
        for (property, value, least, most) in bounds {
            if value < least || value > most {
                return Err(refused(property, value, &format!("from {least} to {most}")));
            }
        }
        Ok(())
    }

    /// Returns the configuration of the model with the image size of the run, and the shape that it describes.
    pub(crate) fn model(&self) -> Result<(Value, Shape), Error> {
        let preset = PRESETS.iter().find(|(name, _)| *name == self.preset);
        let text = preset.map(|(_, text)| *text).unwrap_or_default();
        let mut config: Value = serde_json::from_str(text).map_err(Error::of)?;
        let mut shape = Shape::deserialize(&config).map_err(Error::of)?;
        if let Some(image_size) = self.image_size {
            let unit = shape.vision().sam.patch_size * GRID_SHRINK;
            if image_size == 0 || image_size > 2048 || !image_size.is_multiple_of(unit) {
                return Err(refused("image_size", image_size, &format!("a multiple of {unit} up to 2048")));
            }
            shape.vision_config.image_size = image_size;
            config["vision_config"]["image_size"] = image_size.into();
            config["vision_config"]["width"]["clip-l-14-224"]["image_size"] = shape.vision_grid().into();
        }
        Ok((config, shape))
    }
}

/// Refuses a value that the model cannot run with.
fn refused(property: &str, value: usize, expected: &str) -> Error {
    Error::new(format!("{property} is {value}: it must be {expected}"))
}

/// Sizes of the model, by the names of its configuration.
#[derive(Debug, Clone, Deserialize)]
pub struct Shape {
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub intermediate_size: usize,
    pub moe_intermediate_size: usize,
    pub n_routed_experts: usize,
    pub n_shared_experts: usize,
    pub num_experts_per_tok: usize,
    pub vocab_size: usize,
    pub vision_config: VisionShape,
}

#[derive(Debug, Clone, Deserialize)]
pub struct VisionShape {
    pub image_size: usize,
    width: Towers,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Towers {
    /// The first tower: fine patches, attention in windows, then convolutions that shrink the grid.
    #[serde(rename = "sam_vit_b")]
    pub sam: TowerShape,
    /// The second tower, over the features of the first.
    #[serde(rename = "clip-l-14-224")]
    pub clip: TowerShape,
}

/// Sizes of a vision tower.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TowerShape {
    pub width: usize,
    pub layers: usize,
    pub heads: usize,
    pub intermediate_size: usize,
    pub patch_size: usize,
    /// Attention stays within as many tokens as a square of this side has; 0: within the image.
    pub window_size: usize,
    /// Layers that attend to the whole image.
    pub global_attn_indexes: Vec<usize>,
    /// Channels after each halving of the grid.
    pub downsample_channels: Vec<usize>,
}

/// Colour channels of an image.
pub const CHANNELS: usize = 3;
/// Factor by which the convolutions shrink the grid of patches, per side.
const GRID_SHRINK: usize = 4;

impl Shape {
    pub fn vision(&self) -> &Towers {
        &self.vision_config.width
    }

    /// Returns the patches per side of the image.
    pub fn grid(&self) -> usize {
        self.vision_config.image_size / self.vision().sam.patch_size
    }

    /// Returns the image tokens per side after the convolutions.
    pub fn vision_grid(&self) -> usize {
        self.grid() / GRID_SHRINK
    }
}
