"""DeepSeek-OCR, which transformers does not have: random weights of its architecture, and the input of its own code.

SAM features feed a CLIP tower; both, concatenated and projected, take the place of image tokens in the prompt of a mixture-of-experts decoder.
SAM and the decoder are those of DeepSeek-OCR-2 in transformers with the sizes of the first version; CLIP is that of transformers.
"""

import inspect
import math

from hf_common import EXIT_NO_MODEL, DriverError

TYPES = ("deepseek_ocr", "deepseekocr", "deepseek_vl_v2")
# Id of `<image>` in the published tokenizer.
IMAGE_TOKEN = 128815


def matches(found):
    """Returns true for a configuration in the published form of DeepSeek-OCR."""
    vision = found.get("vision_config")
    width = vision.get("width") if isinstance(vision, dict) else None
    return str(found.get("model_type", "")).lower() in TYPES and isinstance(width, dict) and {"sam_vit_b", "clip-l-14-224"} <= width.keys()


def runs_own_code(model):
    """Returns true for a model from the Python files of a DeepSeek-OCR folder."""
    forward = getattr(model, "forward", None)
    return forward is not None and "images_seq_mask" in inspect.signature(forward).parameters


def vision_tokens(size):
    """Returns the tokens of an image: one for 64 x 64 pixels, a line break after each row, and a separator."""
    side = size // 64
    return side * (side + 1) + 1


def own_code_arguments(torch, ids, pixel_values, tokens):
    """Returns the arguments of the published `forward`: one whole view for each image, no crops."""
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[:, :tokens] = True
    no_crops = torch.zeros_like(pixel_values[:1])
    return {
        "images": [(no_crops, pixel_values[row : row + 1]) for row in range(pixel_values.shape[0])],
        "images_seq_mask": mask,
        "images_spatial_crop": torch.ones((pixel_values.shape[0], 2), dtype=torch.long),
    }


class Config:
    """The configuration as far as the driver and the account need it."""

    def __init__(self, found, text):
        self._found = found
        self._text = text
        self._name_or_path = found.get("_name_or_path", "")
        self.model_type = found["model_type"]
        self.image_token_id = min(found.get("image_token_id", IMAGE_TOKEN), text.vocab_size - 1)
        self.vision_config = _Vision(found["vision_config"].get("image_size", 1024))

    def get_text_config(self):
        return self._text

    def to_dict(self):
        return self._found


class _Vision:
    def __init__(self, image_size):
        self.image_size = image_size


def build(torch, transformers, found, dtype, device, options):
    """Builds the model with random weights."""
    try:
        from transformers.models.clip.modeling_clip import CLIPEncoder, CLIPVisionEmbeddings
        from transformers.models.deepseek_ocr2 import configuration_deepseek_ocr2 as sizes
        from transformers.models.deepseek_ocr2 import modeling_deepseek_ocr2 as parts
    except ImportError as error:
        raise DriverError(
            EXIT_NO_MODEL,
            f"transformers {transformers.__version__} has no DeepSeek-OCR-2, whose classes random weights of DeepSeek-OCR need: "
            "install transformers 5.17 or later, or set model.target to a folder of weights",
        ) from error

    nn = torch.nn
    text = sizes.DeepseekOcr2TextConfig(**text_sizes(found))
    sam = sizes.DeepseekOcr2SamVisionConfig(**sam_sizes(found))
    clip = transformers.CLIPVisionConfig(**clip_sizes(found))
    # Neither is a model of its own there, so nothing chooses their attention.
    sam._attn_implementation = clip._attn_implementation = options.get("attn_implementation") or "sdpa"
    projector = found.get("projector_config") or {}
    features = projector.get("input_dim", sam.downsample_channels[-1] + clip.hidden_size)

    class ClipTower(nn.Module):
        """CLIP-L without its last norm, on the features of SAM instead of its own patches."""

        def __init__(self):
            super().__init__()
            self.embeddings = CLIPVisionEmbeddings(clip)
            self.pre_layrnorm = nn.LayerNorm(clip.hidden_size, eps=clip.layer_norm_eps)
            self.encoder = CLIPEncoder(clip)

        def positions(self, side):
            table = self.embeddings.position_embedding.weight
            own = math.isqrt(table.shape[0] - 1)
            if own == side:
                return table
            grid = table[1:].view(1, own, own, -1).permute(0, 3, 1, 2).float()
            grid = nn.functional.interpolate(grid, size=(side, side), mode="bicubic", antialias=True, align_corners=False)
            return torch.cat([table[:1], grid.to(table.dtype).flatten(2).squeeze(0).T], dim=0)

        def forward(self, patches):
            side = patches.shape[-1]
            tokens = patches.flatten(2).transpose(1, 2)
            first = self.embeddings.class_embedding.expand(tokens.shape[0], 1, -1)
            tokens = torch.cat([first, tokens], dim=1) + self.positions(side)
            return self.encoder(inputs_embeds=self.pre_layrnorm(tokens)).last_hidden_state

    class DeepseekOcrModel(nn.Module):
        """Vision part and decoder, with the attribute names of the published code."""

        def __init__(self):
            super().__init__()
            self.sam_model = parts.DeepseekOcr2SamVisionEncoder._from_config(sam, dtype=dtype)
            self.vision_model = ClipTower()
            self.projector = nn.Linear(features, text.hidden_size)
            self.image_newline = nn.Parameter(torch.randn(text.hidden_size) / math.sqrt(text.hidden_size))
            self.view_seperator = nn.Parameter(torch.randn(text.hidden_size) / math.sqrt(text.hidden_size))
            self.language_model = parts.DeepseekOcr2TextModel._from_config(text, dtype=dtype, **options)

    class DeepseekOcrForCausalLM(nn.Module):
        """DeepSeek-OCR with the interface of an image-text model of transformers."""

        def __init__(self):
            super().__init__()
            self.config = Config(found, text)
            self.model = DeepseekOcrModel()
            self.lm_head = nn.Linear(text.hidden_size, text.vocab_size, bias=False)

        def get_image_features(self, pixel_values):
            model = self.model
            patches = model.sam_model(pixel_values).last_hidden_state
            local = model.vision_model(patches)[:, 1:]
            images = model.projector(torch.cat([local, patches.flatten(2).transpose(1, 2)], dim=-1))
            count, tokens, width = images.shape
            side = math.isqrt(tokens)
            rows = images.view(count, side, side, width)
            rows = torch.cat([rows, model.image_newline.expand(count, side, 1, width)], dim=2)
            return torch.cat([rows.flatten(1, 2), model.view_seperator.expand(count, 1, width)], dim=1)

        def forward(self, input_ids, pixel_values=None, logits_to_keep=0, **more):
            embeddings = self.model.language_model.embed_tokens(input_ids)
            if pixel_values is not None:
                images = self.get_image_features(pixel_values)
                embeddings = embeddings.masked_scatter((input_ids == self.config.image_token_id).unsqueeze(-1), images.to(embeddings.dtype))
            out = self.model.language_model(inputs_embeds=embeddings, **more)
            out["logits"] = self.lm_head(out.last_hidden_state[:, -logits_to_keep:] if logits_to_keep else out.last_hidden_state)
            return out

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return DeepseekOcrForCausalLM()
    finally:
        torch.set_default_dtype(before)


# Keys of the decoder that mean the same in both versions.
_TEXT = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_act",
    "max_position_embeddings", "rms_norm_eps", "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size",
    "n_group", "topk_group", "topk_method", "routed_scaling_factor", "tie_word_embeddings",
)  # fmt: skip


def text_sizes(found):
    """Returns the decoder's sizes under the names of transformers."""
    language = found.get("language_config") or found
    layers = language["num_hidden_layers"]
    dense = min(language.get("first_k_dense_replace", 0), layers)
    result = {key: language[key] for key in _TEXT if language.get(key) is not None}
    return {**result, "mlp_layer_types": ["dense"] * dense + ["sparse"] * (layers - dense)}


def sam_sizes(found):
    """Returns the sizes of SAM under the names of transformers."""
    vision, sam = found["vision_config"], found["vision_config"]["width"]["sam_vit_b"]
    return {
        "hidden_size": sam.get("width", 768),
        "num_hidden_layers": sam.get("layers", 12),
        "num_attention_heads": sam.get("heads", 12),
        "image_size": vision.get("image_size", 1024),
        "patch_size": sam.get("patch_size", 16),
        "window_size": sam.get("window_size", 14),
        "output_channels": sam.get("neck_channels", 256),
        "global_attn_indexes": sam.get("global_attn_indexes", [2, 5, 8, 11]),
        "downsample_channels": sam.get("downsample_channels", [512, 1024]),
    }


def clip_sizes(found):
    """Returns the sizes of CLIP under the names of transformers."""
    clip = found["vision_config"]["width"]["clip-l-14-224"]
    width = clip.get("width", 1024)
    return {
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": clip.get("layers", 24),
        "num_attention_heads": clip.get("heads", 16),
        "image_size": clip.get("image_size", 224),
        "patch_size": clip.get("patch_size", 14),
        "hidden_act": "quick_gelu",
    }
