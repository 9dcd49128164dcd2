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
    pub image_size: usize,
    /// The first tower: fine patches, windowed attention, then convolutions that shrink the grid.
    pub sam: SamShape,
    /// The second tower, over what the first one leaves.
    pub clip: TowerShape,
    /// The language model.
    pub decoder: DecoderShape,
}

/// Sizes of the SAM-like tower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamShape {
    /// Side of a patch in pixels.
    pub patch: usize,
    /// The transformer.
    pub tower: TowerShape,
    /// Side of an attention window in patches.
    pub window: usize,
    /// Layers that attend over the whole grid instead.
    pub global_layers: Vec<usize>,
    /// Channels of the neck.
    pub neck: usize,
    /// Channels after the first halving of the grid; after the second it is the width of the CLIP-like tower.
    pub halved: usize,
}

/// Sizes of a vision transformer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TowerShape {
    /// Width of its tokens.
    pub width: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of attention heads.
    pub heads: usize,
}

/// Sizes of the language model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecoderShape {
    /// Width of its tokens.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of attention heads, each with keys and values of its own.
    pub heads: usize,
    /// Inner width of a dense layer.
    pub intermediate: usize,
    /// Inner width of an expert.
    pub expert_intermediate: usize,
    /// Experts the router picks from.
    pub routed_experts: usize,
    /// Experts every token goes through.
    pub shared_experts: usize,
    /// Experts the router picks for a token.
    pub experts_per_token: usize,
    /// Leading layers that are dense.
    pub dense_layers: usize,
    /// Size of the vocabulary.
    pub vocabulary: usize,
}

/// Ratio of the inner width of a layer to the width of the tower.
pub const MLP_RATIO: usize = 4;
/// Factor by which the convolutions shrink the grid of patches, per side.
pub const GRID_SHRINK: usize = 4;

impl Shape {
    /// Returns the sizes of a preset.
    pub fn of(preset: Preset) -> Self {
        match preset {
            Preset::Nano => Self {
                image_size: 64,
                sam: SamShape {
                    patch: 8,
                    tower: tower(16, 2, 2),
                    window: 3,
                    global_layers: vec![1],
                    neck: 8,
                    halved: 16,
                },
                clip: tower(24, 1, 2),
                decoder: DecoderShape {
                    hidden: 32,
                    layers: 3,
                    heads: 2,
                    intermediate: 48,
                    expert_intermediate: 16,
                    routed_experts: 8,
                    shared_experts: 2,
                    experts_per_token: 3,
                    dense_layers: 1,
                    vocabulary: 211,
                },
            },
            Preset::Tiny => Self {
                image_size: 512,
                sam: SamShape {
                    patch: 16,
                    tower: tower(192, 6, 3),
                    window: 14,
                    global_layers: vec![2, 5],
                    neck: 64,
                    halved: 128,
                },
                clip: tower(256, 8, 4),
                decoder: DecoderShape {
                    hidden: 320,
                    layers: 6,
                    heads: 5,
                    intermediate: 1712,
                    expert_intermediate: 224,
                    routed_experts: 16,
                    shared_experts: 2,
                    experts_per_token: 4,
                    dense_layers: 1,
                    vocabulary: 16_160,
                },
            },
            Preset::Small => Self {
                image_size: 640,
                sam: SamShape {
                    patch: 16,
                    tower: tower(384, 8, 6),
                    window: 14,
                    global_layers: vec![1, 3, 5, 7],
                    neck: 128,
                    halved: 256,
                },
                clip: tower(512, 12, 8),
                decoder: DecoderShape {
                    hidden: 640,
                    layers: 8,
                    heads: 10,
                    intermediate: 3424,
                    expert_intermediate: 448,
                    routed_experts: 32,
                    shared_experts: 2,
                    experts_per_token: 6,
                    dense_layers: 1,
                    vocabulary: 32_320,
                },
            },
        }
    }

    /// Returns the shape for another image size.
    pub fn with_image_size(mut self, image_size: usize) -> Result<Self, Error> {
        let unit = self.sam.patch * GRID_SHRINK;
        if image_size == 0 || image_size > 2048 || !image_size.is_multiple_of(unit) {
            let rule = format!("it must be a multiple of {unit} up to 2048");
            return Err(refused("image_size", image_size, rule));
        }
        self.image_size = image_size;
        Ok(self)
    }

    /// Patches per side of the image.
    pub fn grid(&self) -> usize {
        self.image_size / self.sam.patch
    }

    /// Returns the image tokens per side after the convolutions.
    pub fn vision_grid(&self) -> usize {
        self.grid() / GRID_SHRINK
    }

    /// Positions the image takes in the prompt: each row ends in a newline token, the whole in a separator.
    pub fn vision_tokens(&self) -> usize {
        let side = self.vision_grid();
        side * (side + 1) + 1
    }

    /// Parameters one decoded token uses: attention, norms, its experts and the head, without the embedding table and vision.
    pub fn active_parameters(&self) -> u64 {
        let d = &self.decoder;
        let attention = d.layers * (4 * d.hidden * d.hidden + 2 * d.hidden);
        let dense = d.dense_layers * 3 * d.hidden * d.intermediate;
        let experts = d.experts_per_token + d.shared_experts;
        let sparse = (d.layers - d.dense_layers)
            * (d.routed_experts * d.hidden + experts * 3 * d.hidden * d.expert_intermediate);
        let head = d.hidden + d.vocabulary * d.hidden;
        (attention + dense + sparse + head) as u64
    }

    /// Formats the architecture as the published `config.json`, with the sizes that the file leaves to the code.
    pub fn config(&self, max_positions: usize) -> Value {
        let Self { sam, clip, decoder, .. } = self;
        json!({
            "architectures": ["DeepseekOCRForCausalLM"],
            "model_type": "deepseek_ocr",
            "torch_dtype": "float32",
            "hidden_size": decoder.hidden,
            "num_hidden_layers": decoder.layers,
            "num_attention_heads": decoder.heads,
            "num_key_value_heads": decoder.heads,
            "intermediate_size": decoder.intermediate,
            "moe_intermediate_size": decoder.expert_intermediate,
            "n_routed_experts": decoder.routed_experts,
            "n_shared_experts": decoder.shared_experts,
            "num_experts_per_tok": decoder.experts_per_token,
            "first_k_dense_replace": decoder.dense_layers,
            "norm_topk_prob": false,
            "topk_method": "greedy",
            "hidden_act": "silu",
            "use_mla": false,
            "tie_word_embeddings": false,
            "max_position_embeddings": max_positions,
            "vocab_size": decoder.vocabulary,
            "projector_config": {
                "projector_type": "linear",
                "input_dim": 2 * clip.width,
                "n_embed": decoder.hidden,
            },
            "vision_config": {
                "image_size": self.image_size,
                "mlp_ratio": MLP_RATIO,
                "width": {
                    "clip-l-14-224": {
                        "width": clip.width,
                        "layers": clip.layers,
                        "heads": clip.heads,
                        "image_size": self.vision_grid(),
                        "patch_size": 1,
                        "patch_embedding": false,
                    },
                    "sam_vit_b": {
                        "width": sam.tower.width,
                        "layers": sam.tower.layers,
                        "heads": sam.tower.heads,
                        "patch_size": sam.patch,
                        "window_size": sam.window,
                        "global_attn_indexes": sam.global_layers,
                        "neck_channels": sam.neck,
                        "downsample_channels": [sam.halved, clip.width],
                    },
                },
            },
        })
    }
}

fn tower(width: usize, layers: usize, heads: usize) -> TowerShape {
    TowerShape { width, layers, heads }
}
