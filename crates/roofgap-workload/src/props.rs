//! Properties of a run, its progress events, and the sizes of the model: DeepSeek-OCR's own, and what the presets scale them to.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use roofgap_base::error::Error;
use serde_json::{Value, json};

/// A size of the embedded model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Preset {
    /// Smallest that has every part; for tests.
    Nano,
    /// About a quarter of DeepSeek-OCR in every width; a few seconds on two cores.
    #[default]
    Tiny,
    /// About half of DeepSeek-OCR in every width; about a gigabyte of weights.
    Small,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nano => "nano",
            Self::Tiny => "tiny",
            Self::Small => "small",
        })
    }
}

/// Length of a prompt, and whether an image comes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptShape {
    /// Text tokens.
    pub tokens: usize,
    /// True for a prompt with an image.
    pub has_image: bool,
}

impl FromStr for PromptShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (tokens, has_image) = match text.strip_suffix("+image") {
            Some(tokens) => (tokens, true),
            None => (text, false),
        };
        let tokens = tokens.parse().map_err(|_| format!("expected TOKENS or TOKENS+image, not {text:?}"))?;
        Ok(Self { tokens, has_image })
    }
}

/// Properties of a run, and the options of `roofgap workload`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct WorkloadProps {
    /// Size of the model: nano, tiny or small
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub preset: Preset,
    /// Seed of the weights, the image and the prompt
    #[arg(long, default_value_t = WorkloadProps::default().seed)]
    pub seed: u64,
    /// Text tokens of the prompt
    #[arg(long, default_value_t = WorkloadProps::default().prompt_tokens)]
    pub prompt_tokens: usize,
    /// Text tokens of one prompt, with +image where an image comes with it; each repeat takes the next, instead of --prompt-tokens
    #[arg(long = "prompt", value_name = "TOKENS[+image]")]
    pub prompts: Vec<PromptShape>,
    /// Tokens to generate
    #[arg(long, default_value_t = WorkloadProps::default().new_tokens)]
    pub new_tokens: usize,
    /// Measured repeats
    #[arg(long, default_value_t = WorkloadProps::default().repeats)]
    pub repeats: usize,
    /// Warm-up repeats before them
    #[arg(long, default_value_t = WorkloadProps::default().warmup)]
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

impl Default for WorkloadProps {
    fn default() -> Self {
        Self {
            preset: Preset::default(),
            seed: 0,
            prompt_tokens: 64,
            prompts: Vec::new(),
            new_tokens: 32,
            repeats: 3,
            warmup: 1,
            image_size: None,
            threads: None,
            kv_cache: true,
            context_limit: None,
            account: None,
        }
    }
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
        let longest = self.prompt_shapes().iter().map(|prompt| prompt.tokens).max().unwrap_or(0);
        let shortest = self.prompt_shapes().iter().map(|prompt| prompt.tokens).min().unwrap_or(0);
        let bounds = [
            ("prompt_tokens", shortest, 1, 8192),
            ("prompt_tokens", longest, 1, 8192),
            ("new_tokens", self.new_tokens, 1, 8192),
            ("repeats", self.repeats, 1, 1000),
            ("warmup", self.warmup, 0, 1000),
            ("threads", self.threads.unwrap_or(1), 1, 4096),
            ("context_limit", self.context_limit.unwrap_or(1), 1, 1 << 20),
        ];
        for (property, value, least, most) in bounds {
            if value < least || value > most {
                return Err(refused(property, value, format!("it must be from {least} to {most}")));
            }
        }
        Ok(())
    }
}

/// Refuses a value that the model cannot run with.
pub(crate) fn refused(property: &str, value: usize, rule: String) -> Error {
    Error::new(format!("{property} is {value}: {rule}"))
}

/// All sizes of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Side of the square image in pixels.
    pub(crate) image_size: usize,
    /// Side of a patch in pixels.
    pub(crate) patch: usize,
    /// The first tower: fine patches, attention in windows, then convolutions that shrink the grid.
    pub(crate) sam: Tower,
    /// Channels after the first halving of the grid; after the second it is the width of the second tower.
    pub(crate) halved: usize,
    /// The second tower, over what the first one leaves.
    pub(crate) clip: Tower,
    /// The layers of the language model. Each head has keys and values of its own.
    pub(crate) decoder: Tower,
    /// Inner width of an expert.
    pub(crate) expert_inner: usize,
    /// Experts the router picks from.
    pub(crate) routed_experts: usize,
    /// Experts every token goes through.
    pub(crate) shared_experts: usize,
    /// Experts the router picks for a token.
    pub(crate) experts_per_token: usize,
    /// Size of the vocabulary.
    pub(crate) vocabulary: usize,
}

/// Sizes of the layers of a tower or of the decoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tower {
    pub width: usize,
    pub layers: usize,
    pub heads: usize,
    /// Inner width of the network.
    pub inner: usize,
    /// Attention of all but the last layer stays within as many tokens as a square of this side has; 0: within the image.
    pub window: usize,
}

impl Tower {
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        (self.window > 0 && layer + 1 < self.layers).then_some(self.window)
    }
}

/// Colour channels of an image.
pub(crate) const CHANNELS: usize = 3;
/// Factor by which the convolutions shrink the grid of patches, per side.
const GRID_SHRINK: usize = 4;

impl Shape {
    /// Returns the sizes of a preset.
    pub fn of(preset: Preset) -> Self {
        let tower = |width, layers, heads, inner, window| Tower { width, layers, heads, inner, window };
        match preset {
            Preset::Nano => Self {
                image_size: 64,
                patch: 8,
                sam: tower(16, 2, 2, 64, 4),
                halved: 16,
                clip: tower(24, 1, 2, 96, 0),
                decoder: tower(32, 3, 2, 48, 0),
                expert_inner: 16,
                routed_experts: 8,
                shared_experts: 2,
                experts_per_token: 3,
                vocabulary: 211,
            },
            Preset::Tiny => Self {
                image_size: 512,
                patch: 16,
                sam: tower(192, 6, 3, 768, 16),
                halved: 128,
                clip: tower(256, 8, 4, 1024, 0),
                decoder: tower(320, 6, 5, 1712, 0),
                expert_inner: 224,
                routed_experts: 16,
                shared_experts: 2,
                experts_per_token: 4,
                vocabulary: 16_160,
            },
            Preset::Small => Self {
                image_size: 640,
                patch: 16,
                sam: tower(384, 8, 6, 1536, 20),
                halved: 256,
                clip: tower(512, 12, 8, 2048, 0),
                decoder: tower(640, 8, 10, 3424, 0),
                expert_inner: 448,
                routed_experts: 32,
                shared_experts: 2,
                experts_per_token: 6,
                vocabulary: 32_320,
            },
        }
    }

    /// Returns the shape for another image size.
    pub(crate) fn with_image_size(self, image_size: usize) -> Result<Self, Error> {
        let unit = self.patch * GRID_SHRINK;
        if image_size == 0 || image_size > 2048 || !image_size.is_multiple_of(unit) {
            let rule = format!("it must be a multiple of {unit} up to 2048");
            return Err(refused("image_size", image_size, rule));
        }
        Ok(Self { image_size, ..self })
    }

    /// Patches per side of the image.
    pub(crate) fn grid(&self) -> usize {
        self.image_size / self.patch
    }

    /// Returns the image tokens per side after the convolutions.
    pub(crate) fn vision_grid(&self) -> usize {
        self.grid() / GRID_SHRINK
    }

    /// Positions the image takes in the prompt.
    pub fn vision_tokens(&self) -> usize {
        self.vision_grid().pow(2)
    }

    /// Parameters one decoded token uses: attention, norms, its experts and the head, without the embedding table and vision.
    pub(crate) fn active_parameters(&self) -> u64 {
        let Tower { width, layers, inner, .. } = self.decoder;
        let attention = layers * (4 * width * width + 2 * width);
        let experts = self.experts_per_token + self.shared_experts;
        let sparse = (layers - 1) * (self.routed_experts * width + experts * 3 * width * self.expert_inner);
        (attention + 3 * width * inner + sparse + width + self.vocabulary * width) as u64
    }

    /// Formats the architecture as the published `config.json`, with the sizes that the file leaves to the code.
    pub(crate) fn config(&self, max_positions: usize) -> Value {
        let Self { sam, clip, decoder, .. } = self;
        let global: Vec<usize> = (0..sam.layers).filter(|layer| sam.window_of(*layer).is_none()).collect();
        json!({
            "model_type": "deepseek_ocr",
            "torch_dtype": "float32",
            "hidden_size": decoder.width,
            "num_hidden_layers": decoder.layers,
            "num_attention_heads": decoder.heads,
            "num_key_value_heads": decoder.heads,
            "intermediate_size": decoder.inner,
            "moe_intermediate_size": self.expert_inner,
            "n_routed_experts": self.routed_experts,
            "n_shared_experts": self.shared_experts,
            "num_experts_per_tok": self.experts_per_token,
            "first_k_dense_replace": 1,
            "use_mla": false,
            "tie_word_embeddings": false,
            "max_position_embeddings": max_positions,
            "vocab_size": self.vocabulary,
            "projector_config": {"projector_type": "linear", "input_dim": clip.width, "n_embed": decoder.width},
            "vision_config": {"image_size": self.image_size, "width": {
                "clip-l-14-224": {
                    "width": clip.width,
                    "layers": clip.layers,
                    "heads": clip.heads,
                    "intermediate_size": clip.inner,
                    "image_size": self.vision_grid(),
                    "patch_size": 1,
                    "patch_embedding": false,
                    "class_token": false,
                },
                "sam_vit_b": {
                    "width": sam.width,
                    "layers": sam.layers,
                    "heads": sam.heads,
                    "intermediate_size": sam.inner,
                    "patch_size": self.patch,
                    "window_size": sam.window,
                    "global_attn_indexes": global,
                    "use_rel_pos": false,
                    "qkv_bias": false,
                    "neck_channels": 0,
                    "downsample_channels": [self.halved, clip.width],
                },
            }},
        })
    }
}
