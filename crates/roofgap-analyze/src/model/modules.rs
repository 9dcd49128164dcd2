//! The model as the program has it: from its modules and the shapes of their weights.

use super::config::UnknownModel;
use super::{Architecture, Block, Chosen, Decoder, LayerGroup, Linear, Pairs, Precision};
use crate::names::{CROSS_ATTENTION as CROSS, EXPERTS, NORMS, block_of};
use roofgap_trace::account::{ModuleFacts, WeightFacts};
use serde_json::Value;

/// Places of what takes no part in generating a token.
const TOWERS: [&str; 8] = ["vision", "visual", "audio", "image", "img_", "patch", "speech", "patcher"];

/// Largest difference between the parameters of the modules and those of a description that is taken to be right.
const SAME: f64 = 1e-3;

impl Architecture {
    /// Reads an architecture from the modules of a program and its configuration: by the rules for the configuration where they give the
    /// parameters that the modules have, else from the modules alone.
    ///
    /// # Errors
    /// When the rules fail, and the modules tell too little.
    pub fn from_program(config: &Value, modules: &[ModuleFacts]) -> Result<Self, UnknownModel> {
        let described = Self::from_config(config);
        if modules.is_empty() {
            return described;
        }
        let own = modules.iter().flat_map(|module| module.weights.iter().map(move |weight| (module, weight)));
        let is_packed = own.clone().any(|(_, weight)| is_packed(weight));
        let all: f64 = own.map(|(module, weight)| module.count as f64 * values(weight)).sum();
        let mut model = match described {
            Ok(model) if is_packed || model.is_about(all) => model,
            described => {
                let decoder = decoder(config, modules)?;
                let mut model = Self::read(config, Some(decoder))?;
                model.vision = described.ok().and_then(|model| model.vision);
                model.assumptions.push(
                    "the layers are those of the modules that the program listed; what a module does follows from its name".to_owned(),
                );
                model
            }
        };
        model.store(modules);
        Ok(model)
    }

    /// Tells whether this many parameters are its own, with or without towers that the program may leave out.
    fn is_about(&self, parameters: f64) -> bool {
        let vision = self.vision.as_ref().map_or(0.0, super::Vision::parameters);
        let total = self.parameters().total;
        [total, total - vision].iter().any(|own| (own / parameters - 1.0).abs() <= SAME)
    }

    /// Takes the bits of a stored weight from the bytes of the modules.
    fn store(&mut self, modules: &[ModuleFacts]) {
        let precision = |module: &ModuleFacts| match part(module) {
            _ if module.layers.is_empty() || is_tower(module) => None,
            Some(EXPERTS) => Some(Precision::Experts),
            Some(NORMS | "router" | CROSS) => None,
            _ => Some(Precision::Layers),
        };
        let mut text = Vec::new();
        for (kind, name) in [(Precision::Layers, "layers"), (Precision::Experts, "experts")] {
            let rows = modules.iter().filter(|module| precision(module) == Some(kind));
            let all =
                rows.flat_map(|module| module.weights.iter().map(|weight| (module.count as f64, weight)));
            let all = all.filter(|(_, weight)| !weight.shared);
            let bytes = all.clone().map(|(count, weight)| count * weight.bytes as f64).sum::<f64>();
            let values: f64 = match all.clone().any(|(_, weight)| is_packed(weight)) {
                false => all.map(|(count, weight)| count * size(weight)).sum::<f64>(),
                true => {
                    let blocks = self
                        .decoder
                        .groups
                        .iter()
                        .flat_map(|g| g.blocks.iter().map(move |b| (g.count as f64, b)));
                    blocks
                        .filter(|(_, block)| block.precision == kind)
                        .map(|(count, block)| count * block.parameters())
                        .sum()
                }
            };
            let bits = 8.0 * bytes / values;
            let known = self.weights.bits(kind);
            // Below 2 %, it is the norms and biases that are not counted alike.
            if bits.is_finite() && bits >= 1.0 && (bits / known - 1.0).abs() > 0.02 {
                match kind {
                    Precision::Experts => self.weights.expert_bits = bits,
                    _ => self.weights.linear_bits = bits,
                }
                text.push(format!("{name} in {bits:.2} bits"));
            }
        }
        if !text.is_empty() {
            self.weights.how =
                format!("{}, as the program holds them, the rest in {}", text.join(", "), self.dtype);
        }
    }
}

fn values(weight: &WeightFacts) -> f64 {
    if weight.shared || weight.packed { 0.0 } else { size(weight) }
}

/// Tells whether a weight is stored as something else than its values.
fn is_packed(weight: &WeightFacts) -> bool {
    weight.packed || ["uint8", "int32"].contains(&weight.dtype.as_str())
}

fn size(weight: &WeightFacts) -> f64 {
    weight.shape.iter().map(|side| *side as f64).product()
}

fn is_tower(module: &ModuleFacts) -> bool {
    TOWERS.iter().any(|name| module.path.contains(name))
}

fn part(module: &ModuleFacts) -> Option<&'static str> {
    if module.class.contains("Norm") { Some(NORMS) } else { block_of(&module.path) }
}

fn decoder(config: &Value, modules: &[ModuleFacts]) -> Result<Decoder, UnknownModel> {
    let fields = Architecture::fields(config);
    let field = |name: &str| fields.get(name).and_then(Value::as_u64);
    let is_table = |module: &&ModuleFacts| module.class.contains("Embedding") && !is_tower(module);
    let tables = modules.iter().filter(is_table).filter_map(|module| Some((module, module.weights.first()?)));
    let tables = tables.filter(|(module, _)| !module.path.contains("per_layer"));
    let (_, table) = tables.max_by_key(|(_, weight)| weight.shape.first().copied()).ok_or_else(|| {
        UnknownModel(
            "the modules of the program have no embedding: the work of the model cannot be counted"
                .to_owned(),
        )
    })?;
    let [vocab, embedding] = table.shape.as_slice() else {
        return Err(UnknownModel("the embedding of the program is no matrix".to_owned()));
    };
    let (mut model, mut head) = (block("other products"), block("output head"));
    head.precision = Precision::Full;
    let mut final_norm = 0.0;
    let layers = modules.iter().filter(|module| !is_tower(module)).flat_map(|module| &module.layers);
    let last = layers.max().copied().unwrap_or(0).min(4096);
    for module in modules.iter().filter(|module| module.layers.is_empty() || is_tower(module)) {
        for weight in &module.weights {
            let all = module.count as f64 * values(weight);
            let is_matrix = weight.shape.len() == 2;
            if is_tower(module) || is_table(&module) || (weight.shared && !is_matrix) {
                model.stored += all;
            } else if is_matrix && weight.shape.contains(vocab) {
                head.linears = vec![Linear::new("output head", size_of_row(weight, *vocab), *vocab, false)];
            } else if is_matrix {
                model.others.push(("modules outside of the layers", all));
            } else {
                final_norm += all;
            }
        }
    }
    model.stored -= values(table);
    let tied = head.linears.is_empty()
        || modules.iter().flat_map(|m| &m.weights).any(|w| w.shared && w.shape == table.shape);
    if tied {
        head.linears = vec![Linear::new("output head", *embedding, *vocab, false)];
    }
    let mut groups: Vec<LayerGroup> = Vec::new();
    for layer in 0..=last {
        let own = modules.iter().filter(|module| !is_tower(module) && module.layers.contains(&layer));
        let own: Vec<&ModuleFacts> = own.collect();
        let (blocks, norms) = layer_blocks(&field, &own);
        match groups.iter_mut().find(|group| group.blocks == blocks && group.norms == norms) {
            Some(group) => group.count += 1,
            None => groups.push(LayerGroup { count: 1, blocks, norms }),
        }
    }
    let hidden = field("hidden_size").unwrap_or(*embedding);
    Ok(Decoder { vocab: *vocab, hidden, embedding: *embedding, tied, groups, model, head, final_norm })
}

/// Values of a matrix for each of this many rows or columns.
fn size_of_row(weight: &WeightFacts, rows: u64) -> u64 {
    (size(weight) / rows.max(1) as f64) as u64
}

fn block(name: &'static str) -> Block {
    Block { name, ..Block::default() }
}

fn layer_blocks(field: &dyn Fn(&str) -> Option<u64>, modules: &[&ModuleFacts]) -> (Vec<Block>, f64) {
    let mut blocks: Vec<Block> = Vec::new();
    let mut norms = 0.0;
    // A part with a state has no keys and values, whatever it is called.
    let recurs = |module: &ModuleFacts| {
        let parent = module.path.rsplit_once('.').map_or("", |(parent, _)| parent);
        let state = |w: &WeightFacts| ["A_log", "dt_bias", "time_decay"].contains(&w.name.as_str());
        modules
            .iter()
            .any(|m| (m.path == parent || m.path.starts_with(parent)) && m.weights.iter().any(state))
    };
    for module in modules {
        let each = module.count as f64 / module.layers.len().max(1) as f64;
        let found = part(module);
        let name = match found {
            Some("attention") if recurs(module) => "state space",
            Some("attention") => "attention projections",
            Some(part) => part,
            None => "other products",
        };
        if name == NORMS {
            norms += each * module.weights.iter().map(values).sum::<f64>();
            continue;
        }
        let at = blocks.iter().position(|block| block.name == name).unwrap_or_else(|| {
            blocks.push(block(name));
            blocks.len() - 1
        });
        let Some(block) = blocks.get_mut(at) else { continue };
        for weight in module.weights.iter().filter(|weight| !weight.shared) {
            let all = each * size(weight);
            let is_product =
                weight.shape.len() > 1 && !weight.name.contains("bias") && !weight.name.contains("_log");
            if name == CROSS || module.class.contains("Embedding") {
                block.stored += all;
            } else if !is_product {
                block.vectors += all;
            } else if name == EXPERTS {
                let routed =
                    if each > 1.0 { each as u64 } else { weight.shape.first().copied().unwrap_or(1) };
                let per_token = field("num_experts_per_tok").unwrap_or(1).min(routed);
                let routed = block.chosen.map_or(routed, |chosen| chosen.routed.max(routed));
                block.chosen = Some(Chosen { routed, per_token });
                block.precision = Precision::Experts;
                block.others.push(("an expert", all));
            } else {
                block.others.push(("modules", all));
            }
        }
        if name == "attention projections" {
            add_pairs(field, block, module);
        }
    }
    for block in &mut blocks {
        let routed = block.chosen.map_or(1, |chosen| chosen.routed.max(1)) as f64;
        block.others.iter_mut().for_each(|(_, values)| *values /= routed);
    }
    (blocks, norms)
}

/// Adds the widths of queries, keys and values that a module of attention tells.
fn add_pairs(field: &dyn Fn(&str) -> Option<u64>, block: &mut Block, module: &ModuleFacts) {
    let Some(&[rows, columns]) =
        module.weights.first().map(|weight| weight.shape.as_slice()).and_then(|s| s.first_chunk::<2>())
    else {
        return;
    };
    let last = module.path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let mut pairs =
        block.pairs.unwrap_or(Pairs { keys: 0, values: 0, cached: 0, window: None, latent: false });
    let is = |names: &[&str]| names.contains(&last.as_str());
    if is(&["q_proj", "q", "query", "q_lin", "wq", "q_b_proj", "project_q", "query_proj"]) {
        pairs.keys = rows;
    } else if is(&["o_proj", "out_proj", "o", "out_lin", "wo", "dense", "attention_out", "c_proj"]) {
        pairs.values = columns;
        pairs.keys = if pairs.keys == 0 { columns } else { pairs.keys };
    } else if last.starts_with("kv_a_proj") {
        (pairs.latent, pairs.cached) = (true, rows);
    } else if is(&[
        "k_proj",
        "v_proj",
        "key",
        "value",
        "k_lin",
        "v_lin",
        "wk",
        "wv",
        "project_k",
        "project_v",
    ]) && !pairs.latent
    {
        pairs.cached += rows;
    } else if last.contains("qkv") || last.contains("query_key_value") || last == "c_attn" {
        let heads = field("num_attention_heads").unwrap_or(1);
        let kv_heads = field("num_key_value_heads").unwrap_or(heads);
        let fused = if last == "c_attn" { rows.max(columns) } else { rows };
        pairs.cached = fused * 2 * kv_heads / (heads + 2 * kv_heads).max(1);
    }
    block.pairs = Some(pairs);
}
