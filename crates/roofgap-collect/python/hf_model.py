"""The model and its input. The caller passes torch and transformers."""

import json
import os

import hf_deepseek_ocr
from hf_common import DTYPES, EXIT_FAILED, EXIT_NO_MODEL, EXIT_USAGE, DriverError, one_line, report


def build(torch, transformers, args, settings, device):
    """Builds the model on its device."""
    options = {}
    if args.attention:
        options["attn_implementation"] = args.attention
    if args.experts:
        options["experts_implementation"] = args.experts
    torch.manual_seed(args.seed)
    found = None if args.model else given_configuration(transformers, args, settings)
    if found is not None and hf_deepseek_ocr.matches(found):
        report("random weights of the DeepSeek-OCR architecture, from classes of transformers")
        dtype = getattr(torch, DTYPES[args.dtype or found.get("torch_dtype", "bfloat16")])
        return built(torch, args, lambda: hf_deepseek_ocr.build(torch, transformers, found, dtype, device, options))
    config = configuration(transformers, args, settings, found)
    dtype = getattr(torch, DTYPES[args.dtype]) if args.dtype else own_dtype(torch, config)
    kind = model_class(transformers, config, args.task)

    def make():
        if args.model:
            if getattr(config, "auto_map", None) and args.trust_remote_code:
                report(f"running the Python code of the model folder {args.model}")
            return kind.from_pretrained(
                args.model, config=config, dtype=dtype, local_files_only=True, trust_remote_code=args.trust_remote_code, **options
            ).to(device)
        with torch.device(device):
            return kind.from_config(config, dtype=dtype, trust_remote_code=args.trust_remote_code, **options)

    return built(torch, args, make)


def built(torch, args, make):
    """Returns the model that `make` builds, ready for inference."""
    try:
        return make().eval().requires_grad_(False)
    except (torch.cuda.OutOfMemoryError, DriverError):
        raise
    except Exception as error:
        raise not_built("cannot build", args, error) from error


def not_built(what, args, error):
    """Returns the failure of a model, with the remedy where the Python code of its folder needs other packages."""
    if args.model and args.trust_remote_code and isinstance(error, ImportError):
        return DriverError(
            EXIT_NO_MODEL,
            f"the Python code of {args.model} does not run with these packages: {one_line(error)}; set workload.python to an interpreter "
            "with the versions its README names, or leave model.target out for random weights",
        )
    return DriverError(EXIT_NO_MODEL, f"{what} {source_of(args)}: {one_line(error)}")


def given_configuration(transformers, args, settings):
    """Returns the configuration for random weights as a dictionary, with the settings of the user."""
    try:
        found = {"model_type": args.model_type}
        if args.config_json:
            with open(args.config_json, encoding="utf-8") as file:
                found = json.load(file, object_hook=number)
        if found.get("model_type") and not hf_deepseek_ocr.matches(found):
            check_settings(transformers, found["model_type"], found, settings)
        overlay(found, settings)
        if not found.get("model_type"):
            raise ValueError("it has no model_type")
        return found
    except DriverError:
        raise
    except Exception as error:
        raise DriverError(EXIT_NO_MODEL, f"no such model: {source_of(args)}: {one_line(error)}") from error


def number(value):
    """Returns the number that transformers writes as an object, since JSON has no infinity."""
    return float(value["__float__"]) if value.keys() == {"__float__"} else value


def configuration(transformers, args, settings, found):
    """Returns the configuration of a model folder, or `found`, as an object of transformers."""
    auto = transformers.AutoConfig
    try:
        if args.model:
            needs_code(transformers, args)
            config = auto.from_pretrained(args.model, local_files_only=True, trust_remote_code=args.trust_remote_code)
            if not settings:
                return config
            found = config.to_dict()
            overlay(found, settings)
        complete(found)
        kind = found.pop("model_type")
        return auto.for_model(kind, **found)
    except DriverError:
        raise
    except Exception as error:
        raise not_built("no such model:", args, error) from error


def needs_code(transformers, args):
    """Fails if the model folder needs its own Python code and that is not allowed; transformers would ask on the terminal."""
    with open(os.path.join(args.model, "config.json"), encoding="utf-8") as file:
        found = json.load(file)
    known = found.get("model_type") in transformers.CONFIG_MAPPING
    if found.get("auto_map") and not known and not args.trust_remote_code:
        raise DriverError(
            EXIT_NO_MODEL,
            f"{args.model} needs the Python code in its folder (model type {found.get('model_type')}): "
            "read it, then set model.trust_remote_code=true (--trust-remote-code)",
        )


def leaves(settings, parents=()):
    """Lists the paths of nested settings."""
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*parents, key))
        else:
            yield (*parents, key)


def has(settings, path):
    for key in path:
        if not isinstance(settings, dict) or key not in settings:
            return False
        settings = settings[key]
    return True


def check_settings(transformers, kind, found, settings):
    """Fails on a setting that the configuration does not have: transformers would keep it and nothing would read it."""
    try:
        known = transformers.CONFIG_MAPPING[kind]().to_dict()
    except Exception:
        return
    for path in leaves(settings):
        if has(known, path) or has(found, path):
            continue
        elsewhere = next((other for other in leaves(known) if other[-1] == path[-1]), None)
        advice = f"; write +model.set.{'.'.join(elsewhere)}" if elsewhere else ""
        raise DriverError(EXIT_USAGE, f"model.set.{'.'.join(path)} has no effect: {kind} has no such key{advice}")


def overlay(base, settings):
    """Merges nested settings into a dictionary, in place."""
    for key, value in settings.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            overlay(base[key], value)
        else:
            base[key] = value


def complete(config):
    """Adds `mlp_layer_types`, which DeepSeek-OCR-2 needs; published configurations have only `first_k_dense_replace`."""
    text = config.get("text_config")
    if isinstance(text, dict) and "first_k_dense_replace" in text and not text.get("mlp_layer_types"):
        layers = text.get("num_hidden_layers", 0)
        dense = min(text["first_k_dense_replace"], layers)
        text["mlp_layer_types"] = ["dense"] * dense + ["sparse"] * (layers - dense)


def own_dtype(torch, config):
    """Returns the dtype of the configuration, else bf16."""
    for part in (config, getattr(config, "text_config", None)):
        dtype = getattr(part, "dtype", None)
        if isinstance(dtype, str):
            dtype = getattr(torch, dtype, None)
        if isinstance(dtype, torch.dtype):
            return dtype
    return torch.bfloat16


def model_class(transformers, config, task):
    """Returns the auto class for this configuration."""
    from transformers.models.auto import modeling_auto

    causal = (transformers.AutoModelForCausalLM, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING)
    image_text = (transformers.AutoModelForImageTextToText, modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING)
    order = {"causal": [causal], "image_text": [image_text], "auto": [image_text, causal]}[task]
    remote = getattr(config, "auto_map", None) or {}
    for auto, mapping in order:
        if type(config) in mapping or auto.__name__ in remote:
            return auto
    if "AutoModel" in remote:
        # DeepSeek-OCR names its generating class only here.
        return transformers.AutoModel
    raise DriverError(
        EXIT_NO_MODEL, f"no such model: transformers {transformers.__version__} has no {task} model for type {config.model_type}"
    )


def source_of(args):
    return args.model or args.config_json or args.model_type


class Inputs:
    """Arguments of prefill, with token counts and notes."""

    def __init__(self, arguments, prompt, vision, notes):
        self.arguments = arguments
        self.prompt = prompt
        self.vision = vision
        self.notes = notes


def all_inputs(torch, transformers, args, model, device):
    """Prepares the inputs of the repeats, in turn, so that every item of the manifest is used."""
    items = len(read_manifest(args.manifest)) if args.manifest else 1
    return [inputs(torch, transformers, args, model, device, first) for first in range(0, items, args.batch)]


def inputs(torch, transformers, args, model, device, first=0):
    """Prepares token ids and pixels: from the processor of the model if there is input for it, else generated from the seed.

    A batch begins with the item number `first`.
    """
    items = read_manifest(args.manifest) if args.manifest else []
    if args.prompt is not None or args.image not in ("auto", "made", "none"):
        items.append({"prompt": args.prompt, "image": None if args.image in ("auto", "made", "none") else args.image})
    image_token = getattr(model.config, "image_token_id", getattr(model.config, "image_token_index", None))
    if image_token is None and hf_deepseek_ocr.runs_own_code(model):
        image_token = hf_deepseek_ocr.IMAGE_TOKEN
    takes_images = image_token is not None and getattr(model.config, "vision_config", None) is not None
    if args.image in ("none",):
        takes_images = False
    elif args.image == "made" and not takes_images:
        raise DriverError(EXIT_USAGE, f"--image made: {type(model).__name__} takes no image")
    batch = [items[(first + i) % len(items)] for i in range(args.batch)] if items else []
    if args.manifest and args.image == "auto" and not all(item["image"] for item in batch):
        if any(item["image"] for item in batch):
            raise DriverError(EXIT_USAGE, f"manifest {args.manifest}: a batch has items with and without an image; use workload.batch=1")
        takes_images = False
    if args.manifest and not takes_images and any(item["image"] for item in batch):
        raise DriverError(EXIT_USAGE, f"manifest {args.manifest}: {type(model).__name__} takes no image")
    if batch and args.model:
        processed = with_processor(torch, transformers, args, model, batch, takes_images, device, image_token)
        if processed is not None:
            return processed
    return generated(torch, args, model, batch, takes_images, device, image_token)


# Bytes of text for one token, where no tokenizer counts them: the usual mean of English text.
BYTES_PER_TOKEN = 4


def estimated_tokens(prompt):
    """Returns about as many tokens as a text has."""
    return max(1, -(-len(prompt.encode("utf-8")) // BYTES_PER_TOKEN))


def check_inputs(args):
    """Reads the manifest and its images, so that a missing file or package is found before a model is built."""
    for item in read_manifest(args.manifest) if args.manifest else []:
        if item["image"]:
            open_image(item["image"])


def read_manifest(path):
    """Reads a list of {image, prompt}; a plain string is an image if that file exists, else a prompt."""
    import yaml

    with open(path, encoding="utf-8") as file:
        try:
            entries = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise DriverError(EXIT_USAGE, f"manifest {path}: {one_line(error)}") from error
    if isinstance(entries, dict):
        entries = entries.get("inputs", entries.get("items"))
    if not isinstance(entries, list) or not entries:
        raise DriverError(EXIT_USAGE, f"manifest {path}: expected a list of images or prompts")
    folder = os.path.dirname(os.path.abspath(path))
    items = []
    for number, entry in enumerate(entries, 1):
        if isinstance(entry, str):
            at = os.path.join(folder, entry)
            entry = {"image": entry} if os.path.isfile(at) else {"prompt": entry}
        if not isinstance(entry, dict) or not ({"image", "prompt", "text", "path"} & entry.keys()):
            raise DriverError(EXIT_USAGE, f"manifest {path}: entry {number} has neither image nor prompt")
        image = entry.get("image", entry.get("path"))
        if image is not None:
            image = os.path.join(folder, image)
            if not os.path.isfile(image):
                raise DriverError(EXIT_USAGE, f"manifest {path}: entry {number}: no such image {image}")
        items.append({"image": image, "prompt": entry.get("prompt", entry.get("text"))})
    return items


def with_processor(torch, transformers, args, model, batch, takes_images, device, image_token):
    """Prepares the batch with the processor or tokenizer of the model folder; returns None if there is none."""
    try:
        if takes_images and any(item["image"] for item in batch):
            processor = transformers.AutoProcessor.from_pretrained(
                args.model, local_files_only=True, trust_remote_code=args.trust_remote_code
            )
        else:
            processor = transformers.AutoTokenizer.from_pretrained(
                args.model, local_files_only=True, trust_remote_code=args.trust_remote_code
            )
            takes_images = False
    except Exception:
        return None
    try:
        texts = [item["prompt"] or "Free OCR." for item in batch]
        if takes_images:
            marker = getattr(processor, "image_token", "<image>")
            texts = [text if marker in text else f"{marker}\n{text}" for text in texts]
            found = processor(text=texts, images=[open_image(item["image"]) for item in batch], return_tensors="pt", padding=len(batch) > 1)
        else:
            # A decoder continues from the end, so padding goes left.
            processor.padding_side = "left"
            if processor.pad_token is None:
                processor.pad_token = processor.eos_token
            found = processor(texts, return_tensors="pt", padding=len(batch) > 1)
    except DriverError:
        raise
    except Exception as error:
        raise DriverError(EXIT_FAILED, f"the processor of {args.model} rejected the input: {one_line(error)}") from error
    weights = next(model.parameters()).dtype
    arguments = {}
    for key, value in found.items():
        if hasattr(value, "to"):
            value = value.to(device, weights) if torch.is_floating_point(value) else value.to(device)
        arguments[key] = value
    ids = arguments["input_ids"]
    if ids.shape[1] == 0:
        # A folder without tokenizer files can still yield a tokenizer with an empty vocabulary.
        return None
    vision = no_images(model)
    if takes_images and image_token is not None:
        vision = int((ids == image_token).sum().item() // ids.shape[0])
    return Inputs(arguments, ids.shape[1], vision, [])


def no_images(model):
    """Returns the vision tokens of a prompt without images: none of a model that could take them, else not known."""
    return 0 if getattr(model.config, "vision_config", None) is not None else None


def generated(torch, args, model, batch, takes_images, device, image_token):
    """Generates input from the seed: random token ids, and pixels of a generated image or of the given images."""
    notes = ["the prompt consists of random tokens"]
    length = args.prompt_tokens
    prompts = [item["prompt"] for item in batch if item["prompt"]]
    if prompts:
        missing = "processor for images and text" if takes_images else "tokenizer"
        length = max(estimated_tokens(prompt) for prompt in prompts)
        notes.append(f"there is no {missing}: random tokens as many as the given prompt has, at {BYTES_PER_TOKEN} bytes a token ({length})")
    text = model.config if hf_deepseek_ocr.runs_own_code(model) else model.config.get_text_config()
    generator = torch.Generator().manual_seed(args.seed)
    ids = torch.randint(0, text.vocab_size, (args.batch, length), generator=generator)
    arguments = {}
    vision = no_images(model)
    if takes_images:
        # No random token may equal the image token.
        ids[ids == image_token] = (image_token + 1) % text.vocab_size
        size = args.image_size or image_size(model.config.vision_config)
        images = pixels(torch, args, batch, size, generator).to(device, next(model.parameters()).dtype)
        own_code = hf_deepseek_ocr.runs_own_code(model)
        vision = hf_deepseek_ocr.vision_tokens(size) if own_code else image_tokens(torch, model, images, args.batch)
        if prompts:
            # The text of a prompt comes after its image.
            ids = torch.cat([ids.new_zeros(args.batch, vision), ids], dim=1)
        # The answer continues from at least one text token.
        elif vision + 1 > length:
            notes.append(f"the prompt is {vision + 1} tokens, not {length}: the image alone takes {vision}")
            ids = torch.cat([ids, ids.new_zeros(args.batch, vision + 1 - length)], dim=1)
        ids[:, :vision] = image_token
        arguments = hf_deepseek_ocr.own_code_arguments(torch, ids, images, vision) if own_code else {"pixel_values": images}
        notes.append(f"the image is {size} x {size} pixels, {'generated' if not any(i['image'] for i in batch) else 'resized'}")
    arguments["input_ids"] = ids.to(device)
    return Inputs(arguments, ids.shape[1], vision, notes)


def image_size(vision):
    """Returns the image side of a vision configuration, from wherever it is stored."""
    if isinstance(vision, dict) and isinstance(vision.get("image_size"), int):
        return vision["image_size"]
    for part in (vision, getattr(vision, "sam_config", None), getattr(vision, "encoder_config", None)):
        size = getattr(part, "image_size", None)
        if isinstance(size, (list, tuple)):
            size = size[0]
        if isinstance(size, int):
            return size
    raise DriverError(EXIT_USAGE, "the configuration has no image size: set --image-size")


def pixels(torch, args, batch, size, generator):
    """Returns a batch of images with values in about -1..1."""
    if not any(item["image"] for item in batch):
        return torch.rand((args.batch, 3, size, size), generator=generator) * 2 - 1
    rows = []
    for item in batch:
        if item["image"]:
            data = bytearray(open_image(item["image"]).resize((size, size)).tobytes())
            image = torch.frombuffer(data, dtype=torch.uint8).view(size, size, 3).permute(2, 0, 1)
            rows.append(image.float() / 127.5 - 1)
        else:
            rows.append(torch.rand((3, size, size), generator=generator) * 2 - 1)
    return torch.stack(rows)


def open_image(path):
    try:
        from PIL import Image
    except ImportError as error:
        raise DriverError(EXIT_USAGE, "images need Pillow: pip install pillow") from error
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except OSError as error:
        raise DriverError(EXIT_USAGE, f"cannot read the image {path}: {one_line(error)}") from error


def image_tokens(torch, model, pixel_values, batch):
    """Returns the number of tokens per image, from the vision part of the model."""
    try:
        with torch.inference_mode():
            features = model.get_image_features(pixel_values=pixel_values)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        raise DriverError(
            EXIT_USAGE,
            f"{type(model).__name__} does not take a plain image ({one_line(error)}): use a model folder with its processor, or --image none",
        ) from error
    features = getattr(features, "pooler_output", features)
    if isinstance(features, (list, tuple)):
        return sum(part.numel() // part.shape[-1] for part in features) // batch
    return features.numel() // features.shape[-1] // batch
