//! The language model of a configuration: its layers by rule, from the names of the fields.

use super::table::{self, Extra};
use super::{Fields, MOST, UnknownModel};
use crate::model::{Block, Chosen, Decoder, LayerGroup, Linear, Pairs, Precision, feed_forward};
use serde_json::{Map, Value};

const MOST_LAYERS: u64 = 4096;

/// Activation functions that come without a gate, unless the exceptions say otherwise.
const UNGATED: [&str; 6] = ["gelu", "relu", "xielu", "quick", "identity", "tanh"];

/// Layers of attention that look at a part of the sequence.
const LOCAL: [&str; 4] = ["sliding", "chunked", "local", "swa"];

/// Layers that keep a state in place of keys and values.
const RECURRENT: [&str; 5] = ["linear", "mamba", "recurrent", "conv", "M"];

pub fn read(
    top: &Fields<'_>,
    text: &Fields<'_>,
    assumptions: &mut Vec<String>,
) -> Result<Decoder, UnknownModel> {
    let kind = text.text("model_type").filter(|kind| !kind.is_empty()).or(top.text("model_type"));
    let kind = kind.unwrap_or_default().to_ascii_lowercase();
    let mut map = text.map.clone();
    let outer = top
        .map
        .iter()
        .filter(|(key, value)| (value.is_number() || value.is_boolean()) && !map.contains_key(*key));
    let outer: Vec<_> = outer.map(|(key, value)| (key.clone(), value.clone())).collect();
    map.extend(outer);
    let types = [kind.as_str(), top.text("model_type").unwrap_or_default()];
    let (is_known, extras) = table::complete(&mut map, types)?;
    let rules = Rules { fields: Fields { map: &map, path: text.path.clone() }, extras: &extras };
    if rules.on("skip") {
        return Err(UnknownModel(format!("the layers of model type {kind:?} do not follow the rules")));
    }
    let kinds = rules.kinds();
    let layers = match rules.fields.size(&["num_hidden_layers"])? {
        Some(layers) => layers,
        None => Some(kinds.len() as u64)
            .filter(|n| *n > 0)
            .map_or_else(|| rules.fields.need(&["num_hidden_layers"]), Ok)?,
    };
    if layers > MOST_LAYERS {
        return Err(UnknownModel(format!("{} has {layers} layers", text.path)));
    }
    let hidden = rules.fields.need(&["hidden_size"])?;
    let mut groups: Vec<LayerGroup> = Vec::new();
    for layer in 0..layers {
        let kind = kinds.get(layer as usize % kinds.len().max(1)).map(String::as_str);
        let kind = kind.or_else(|| rules.kind_of(layer, layers)).unwrap_or("full");
        let own = rules.layer_map(layer, layers, kind);
        let layer_rules = Rules { fields: Fields { map: &own, path: text.path.clone() }, extras: &extras };
        let (blocks, norms) = layer_rules.blocks(layer, kind, hidden)?;
        match groups.iter_mut().find(|group| group.blocks == blocks && group.norms == norms) {
            Some(group) => group.count += 1,
            None => groups.push(LayerGroup { count: 1, blocks, norms }),
        }
    }
    let embedding = rules.fields.size_or(&["embedding_size"], hidden)?;
    let vocab = rules.fields.need(&["vocab_size"])?;
    if !is_known {
        let named = if kind.is_empty() { "without a name".to_owned() } else { format!("{kind:?}") };
        assumptions.push(format!(
            "model type {named} is not listed: its layers follow from the names of its fields"
        ));
    }
    let odd = |(key, value): &(&String, &Value)| {
        let says = !matches!(value, Value::Null | Value::Bool(false) | Value::String(_))
            && value.as_f64() != Some(0.0);
        says && !value.as_array().is_some_and(Vec::is_empty)
            && !table::is_known(key)
            && !READ.contains(&key.as_str())
    };
    let unknown: Vec<&str> = text.map.iter().filter(odd).map(|(key, _)| key.as_str()).collect();
    if !unknown.is_empty() {
        assumptions
            .push(format!("fields that are not understood and change nothing here: {}", unknown.join(", ")));
    }
    let mut model = Block { name: "other products", ..Block::default() };
    rules.add(&mut model, "model")?;
    let positions = rules.number("learned_positions")?;
    model.stored += positions * embedding as f64 + rules.extra("model_stored")? + rules.extra("hybrid")?;
    let mut head = Block { name: "output head", precision: Precision::Full, ..Block::default() };
    head.linears.push(Linear::new("output head", embedding, vocab, rules.on("head_bias")));
    rules.add(&mut head, "head")?;
    let final_norm = hidden as f64 * rules.norm_values() * rules.value("final_norm").unwrap_or(1.0);
    let tied = rules.on("tie_word_embeddings");
    Ok(Decoder { vocab, hidden, embedding, tied, groups, model, head, final_norm })
}

/// Fields that the rules read and no table names.
const READ: [&str; 21] = [
    "attn_layer_period",
    "attn_layer_offset",
    "expert_layer_offset",
    "mlp_layer_types",
    "mlp_only_layers",
    "moe_layers",
    "moe_layer_end_index",
    "full_attention_interval",
    "cross_attention_layers",
    "kv_lora_rank",
    "qk_head_dim",
    "index_n_heads",
    "index_head_dim",
    "indexer_types",
    "num_attention_heads_per_layer",
    "per_layer_config",
    "use_sliding_window",
    "num_kv_shared_layers",
    "attention_k_eq_v",
    "use_mla",
    "index_topk",
];

struct Rules<'a> {
    fields: Fields<'a>,
    extras: &'a [Extra],
}

impl Rules<'_> {
    fn value(&self, key: &str) -> Option<f64> {
        table::number(self.fields.map, key)
    }

    fn number(&self, key: &str) -> Result<f64, UnknownModel> {
        Ok(self.value(key).unwrap_or(0.0))
    }

    fn on(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| value != 0.0)
    }

    /// A flag, else another one, else false.
    fn either(&self, key: &str, other: &str) -> bool {
        self.value(key).or_else(|| self.value(other)).is_some_and(|value| value != 0.0)
    }

    fn extra(&self, part: &str) -> Result<f64, UnknownModel> {
        let own = self.extras.iter().filter(|extra| extra.part == part);
        own.map(|extra| table::evaluate(extra.formula, self.fields.map)).sum()
    }

    /// Adds the weights of the exceptions to a block.
    fn add(&self, block: &mut Block, part: &str) -> Result<(), UnknownModel> {
        for extra in self.extras.iter().filter(|extra| extra.part == part) {
            let values = table::evaluate(extra.formula, self.fields.map)?;
            block.others.push((extra.formula, values));
        }
        Ok(())
    }

    /// The kinds of the layers, where the configuration lists them.
    fn kinds(&self) -> Vec<String> {
        match self.fields.map.get("layer_types") {
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            Some(Value::String(letters)) => letters.chars().map(String::from).collect(),
            _ => Vec::new(),
        }
    }

    fn has_layer(&self, key: &str, layer: u64) -> Option<bool> {
        let list = self.fields.list(key)?;
        Some(list.iter().any(|item| item.as_u64() == Some(layer)))
    }

    /// The kind of a layer where no list says it.
    fn kind_of(&self, layer: u64, layers: u64) -> Option<&'static str> {
        let whole = |key: &str| self.value(key).map(|value| value as u64);
        let attends = if let Some(period) = whole("attn_layer_period") {
            layer % period.max(1) == whole("attn_layer_offset").unwrap_or(0)
        } else if let Some(every) = whole("full_attention_interval") {
            (layer + 1).is_multiple_of(every.max(1))
        } else if self.fields.map.contains_key("full_attn_idxs") {
            self.has_layer("full_attn_idxs", layer).unwrap_or(false)
        } else {
            self.value("num_attention_heads").is_some() || self.value("ssm_state").is_none()
        };
        if !attends {
            return Some("linear");
        }
        let window = whole("sliding_window").filter(|window| *window > 0)?;
        let slides = if let Some(every) = whole("slide_every") {
            layer.is_multiple_of(every.max(1))
        } else if let Some(every) = whole("sliding_window_pattern") {
            !(layer + 1).is_multiple_of(every.max(1))
        } else if self.value("use_sliding_window").is_some() {
            self.on("use_sliding_window") && layer >= whole("max_window_layers").unwrap_or(0)
        } else {
            layers > 0 && window > 0 && whole("max_window_layers").is_none()
        };
        slides.then_some("sliding")
    }

    /// The fields of one layer: items of lists with one for each, and what only some layers have.
    fn layer_map(&self, layer: u64, layers: u64, kind: &str) -> Map<String, Value> {
        let mut own = self.fields.map.clone();
        for value in own.values_mut() {
            let items = value
                .as_array()
                .filter(|items| items.len() as u64 == layers && items.iter().all(Value::is_u64));
            if let Some(item) = items.and_then(|items| items.get(layer as usize)) {
                *value = item.clone();
            }
        }
        let local = LOCAL.iter().any(|name| kind.contains(name));
        let prefix = if local { "swa_" } else { "global_" };
        let renamed =
            self.fields.map.iter().filter_map(|(key, value)| Some((key.strip_prefix(prefix)?, value)));
        let renamed: Vec<_> = renamed.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let by_layer = self.fields.object("per_layer_config").and_then(|all| {
            let number = |key: &str| key.parse() == Ok(layer);
            all.map.iter().find(|(key, _)| number(key)).and_then(|(_, value)| value.as_object().cloned())
        });
        own.extend(
            renamed.into_iter().filter(|(_, value)| !value.is_null()).chain(by_layer.into_iter().flatten()),
        );
        if let Some(heads) = own.get("num_attention_heads_per_layer").filter(|heads| heads.is_u64()).cloned()
        {
            own.insert("num_attention_heads".to_owned(), heads);
        }
        own
    }

    fn norm_values(&self) -> f64 {
        let by_name = || {
            let named = |name: &str| self.fields.has(name);
            (named("layer_norm_eps") || named("layer_norm_epsilon")) && !named("rms_norm_eps")
        };
        if self.value("norm_bias").map_or_else(by_name, |value| value != 0.0) { 2.0 } else { 1.0 }
    }

    /// The blocks of a layer, and the values of its norms.
    fn blocks(&self, layer: u64, kind: &str, hidden: u64) -> Result<(Vec<Block>, f64), UnknownModel> {
        let mut blocks = Vec::new();
        let is = |names: &[&str]| names.iter().any(|name| kind.starts_with(name));
        let alone = is(&["mlp", "moe", "-", "E"]);
        let recurs = is(&RECURRENT) || (kind == "hybrid" && self.on("attention_hidden_size"));
        let mixes = self.value("mixer") != Some(0.0);
        if mixes && (recurs || self.on("parallel_ssm")) {
            blocks.push(table::recurrent(self.fields.map, kind)?);
        }
        if mixes && !recurs && !alone {
            blocks.extend(self.attention(layer, kind, hidden)?);
        }
        let single = self.kinds().iter().any(|kind| ["mlp", "moe", "-", "E"].contains(&kind.as_str()));
        let has_inner = self.on("intermediate_size")
            || self.on("moe_intermediate_size")
            || self.value("ssm_state").is_none();
        let state_space_alone = !self.on("num_attention_heads") && self.value("ssm_state").is_some();
        if self.value("mlp") != Some(0.0) && has_inner && !state_space_alone && (alone || !single) {
            blocks.extend(self.mlp(layer, kind, hidden)?);
        }
        let mut other = Block { name: "other products", ..Block::default() };
        self.add(&mut other, "layer")?;
        other.stored = self.extra("layer_stored")?;
        if kind == "hybrid" {
            // The weights of a block that several layers share are counted once, for the model.
            self.add(&mut other, "hybrid")?;
            other.stored -= self.extra("hybrid")?;
            self.add(&mut other, "hybrid_own")?;
            if self.on("attention_hidden_size") {
                let width = self.fields.need(&["num_attention_heads"])? * self.fields.need(&["head_dim"])?;
                other.pairs = Some(Pairs {
                    keys: width,
                    values: width,
                    cached: 2 * width,
                    window: None,
                    latent: false,
                });
            }
        }
        if self.has_layer("cross_attention_layers", layer) == Some(true) {
            // Without an image, these layers are left out.
            let stored = blocks.iter().map(Block::parameters).sum();
            blocks = vec![Block { name: "attention to images", stored, ..Block::default() }];
        }
        if self.on("cross") {
            let [attention, ..] = blocks.as_slice() else { return Ok((blocks, 0.0)) };
            other.stored += attention.parameters() + 2.0 * hidden as f64;
        }
        if other != (Block { name: "other products", ..Block::default() }) {
            blocks.push(other);
        }
        let norms = self.value("norms").unwrap_or(if single || state_space_alone { 1.0 } else { 2.0 });
        Ok((blocks, norms * hidden as f64 * self.norm_values()))
    }

    fn attention(&self, layer: u64, kind: &str, hidden: u64) -> Result<Vec<Block>, UnknownModel> {
        let fields = &self.fields;
        let heads = fields.need(&["num_attention_heads"])?;
        let window = Some(self.number("sliding_window")? as u64).filter(|window| *window > 0);
        let window = window.filter(|_| LOCAL.iter().any(|name| kind.contains(name)) || self.on("slide_all"));
        let kv_rank = fields.size_or_zero(&["kv_lora_rank"])?;
        let mut block = Block { name: "attention projections", ..Block::default() };
        let linear = Linear::new;
        if kv_rank > 0
            && fields.size_or_zero(&["qk_nope_head_dim"])? > 0
            && self.value("use_mla") != Some(0.0)
        {
            let q_rank = Some(fields.size_or_zero(&["q_lora_rank"])?).filter(|rank| *rank > 0);
            let nope_dim = fields.need(&["qk_nope_head_dim"])?;
            let (rope_dim, v_dim) = (fields.need(&["qk_rope_head_dim"])?, fields.need(&["v_head_dim"])?);
            let queries = heads * (nope_dim + rope_dim);
            match q_rank {
                Some(rank) => block
                    .linears
                    .extend([linear("q_a", hidden, rank, false), linear("q_b", rank, queries, false)]),
                None => block.linears.push(linear("q", hidden, queries, false)),
            }
            block.linears.extend([
                linear("kv_a", hidden, kv_rank + rope_dim, false),
                linear("kv_b", kv_rank, heads * (nope_dim + v_dim), false),
                linear("o", heads * v_dim, hidden, false),
            ]);
            let index_heads = fields.size_or_zero(&["index_n_heads"])?;
            let shared = fields.list("indexer_types").and_then(|types| types.get(layer as usize)?.as_str())
                == Some("shared");
            if index_heads > 0 && !shared {
                let width = fields.need(&["index_head_dim"])?;
                block.linears.extend([
                    linear("index q", q_rank.unwrap_or(hidden), index_heads * width, false),
                    linear("index k", hidden, width, false),
                    linear("index weights", hidden, index_heads, false),
                ]);
            }
            block.vectors = (q_rank.unwrap_or(0) + kv_rank) as f64;
            let (keys, values) = (queries, heads * v_dim);
            block.pairs = Some(Pairs { keys, values, cached: kv_rank + rope_dim, window, latent: true });
        } else {
            let kv_heads = fields.size_or(&["num_key_value_heads"], heads)?;
            let head_dim = fields.size_or(&["head_dim"], hidden / heads)?;
            let v_dim =
                Some(fields.size_or_zero(&["v_head_dim"])?).filter(|dim| *dim > 0).unwrap_or(head_dim);
            let (queries, keys, values) = (heads * head_dim, kv_heads * head_dim, kv_heads * v_dim);
            let bias = self.either("qkv_bias", "attention_bias");
            let output_bias = self.either("output_bias", "attention_bias");
            let sharing = fields.size_or_zero(&["num_kv_shared_layers"])?;
            let shares = sharing > 0 && layer + sharing >= fields.need(&["num_hidden_layers"])?;
            block.linears.push(linear("q", hidden, queries, bias));
            if !shares {
                block.linears.push(linear("k", hidden, keys, bias));
                if !(self.on("attention_k_eq_v") && window.is_none()) {
                    block.linears.push(linear("v", hidden, values, bias));
                }
            }
            block.linears.push(linear("o", heads * v_dim, hidden, output_bias));
            // One norm for every head, or one over as many heads as there are.
            let (over_q, over_k) = match self.number("qk_norm")? {
                n if n > 1.0 => (queries, keys),
                n if n > 0.0 => (head_dim, head_dim),
                _ => (0, 0),
            };
            block.vectors = (over_q + over_k) as f64 + if self.on("sinks") { heads as f64 } else { 0.0 };
            let cached = if shares { 0 } else { keys + values };
            block.pairs = Some(Pairs { keys: queries, values: heads * v_dim, cached, window, latent: false });
        }
        self.add(&mut block, "attention")?;
        Ok(vec![block])
    }

    fn gated(&self) -> bool {
        self.value("gated").map_or_else(
            || {
                !self
                    .fields
                    .text("hidden_act")
                    .is_some_and(|name| UNGATED.iter().any(|start| name.starts_with(start)))
            },
            |value| value != 0.0,
        )
    }

    fn mlp(&self, layer: u64, kind: &str, hidden: u64) -> Result<Vec<Block>, UnknownModel> {
        let fields = &self.fields;
        let off = ["experts_on", "enable_moe_block", "is_moe"].iter().any(|key| self.value(key) == Some(0.0));
        let routed = if off { 0 } else { fields.size_or_zero(&["num_experts"])? };
        let gated = self.gated();
        let inner =
            |key: &[&str]| -> Result<u64, UnknownModel> {
                match fields.size(key)? {
                    Some(inner) => Ok(inner),
                    // GPT-2 and its like leave it out.
                    None if fields.map.contains_key("n_inner")
                        || !fields.map.contains_key("intermediate_size") =>
                    {
                        if self.on("moe_intermediate_size") { fields.need(key) } else { Ok(hidden * 4) }
                    }
                    None => Ok(hidden * 4),
                }
            };
        if routed <= 1 || !self.sparse(layer, kind)? {
            let inner = inner(&["dense_intermediate_size", "intermediate_size"])?;
            let linears = feed_forward(hidden, inner, gated, self.on("mlp_bias"));
            return Ok(vec![Block { name: "dense feed-forward", linears, ..Block::default() }]);
        }
        let inner = inner(&["moe_intermediate_size", "intermediate_size"])?;
        let per_token = fields.size_or(&["num_experts_per_tok"], 1)?.min(routed);
        let mut blocks = vec![Block {
            name: "routed experts",
            linears: feed_forward(hidden, inner, gated, self.on("expert_bias")),
            chosen: Some(Chosen { routed, per_token }),
            precision: Precision::Experts,
            ..Block::default()
        }];
        let shared = match fields.at_least(&["shared_expert_intermediate_size"], 0)? {
            Some(width) => width,
            None => fields.size_or_zero(&["num_shared_experts"])? * inner,
        };
        if shared > 0 {
            let mut block = Block {
                name: "shared experts",
                linears: feed_forward(hidden, shared, gated, false),
                ..Block::default()
            };
            if self.on("shared_gate") {
                block.linears.push(Linear::new("shared gate", hidden, 1, false));
            }
            blocks.push(block);
        }
        let corrected = self.on("router_bias") || fields.text("topk_method") == Some("noaux_tc");
        let router = Linear::new("router", hidden, routed, corrected);
        blocks.push(Block {
            name: "router",
            linears: vec![router],
            precision: Precision::Full,
            ..Block::default()
        });
        Ok(blocks)
    }

    /// Tells whether this layer has experts; model families say so in different ways.
    fn sparse(&self, layer: u64, kind: &str) -> Result<bool, UnknownModel> {
        let fields = &self.fields;
        if let Some(kind) =
            fields.list("mlp_layer_types").and_then(|kinds| kinds.get(layer as usize)?.as_str())
        {
            return Ok(kind.contains("sparse") || kind.contains("moe"));
        }
        if kind.starts_with("mlp") || kind == "-" || self.has_layer("mlp_only_layers", layer) == Some(true) {
            return Ok(false);
        }
        if let Some(listed) = self.has_layer("moe_layers", layer) {
            return Ok(listed);
        }
        if layer < fields.size_or_zero(&["first_k_dense_replace"])?.min(MOST) {
            return Ok(false);
        }
        if self.value("moe_layer_freq") == Some(0.0) {
            return Ok(false);
        }
        if self.value("moe_layer_freq").is_some() && fields.list("moe_layer_freq").is_none() {
            return Ok(layer.is_multiple_of(fields.size_or(&["moe_layer_freq"], 1)?));
        }
        let every = fields.size_or(&["expert_layer_period"], 1)?;
        let offset = fields.size_or(&["expert_layer_offset"], every - 1)?;
        Ok(layer % every == offset % every)
    }
}
