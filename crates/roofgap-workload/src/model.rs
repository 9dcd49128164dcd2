//! The model: two towers, a projector and a decoder, all made of one block. It reads an image and tokens and gives the next token.

use crate::exec::Exec;
use crate::ops::{self, Matrix, Source};
use crate::props::{CHANNELS, Shape, TowerShape};

/// The whole model. A weight is stored as input by output.
#[derive(Debug)]
pub struct Model {
    patches: Matrix,
    sam: Tower,
    convolutions: Vec<Matrix>,
    clip: Tower,
    projector: Matrix,
    embedding: Matrix,
    decoder: Vec<Block>,
    norm: Vec<f32>,
    head: Matrix,
    /// Parameters that one decoded token uses: without the embedding table, vision and unselected experts.
    pub active_parameters: u64,
}

/// Keys and values of the positions seen so far, for each layer.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<KeysValues>,
    pub length: usize,
}

/// Keys, with a column for each position, and values, with a row for each.
type KeysValues = [Matrix; 2];

fn keys_values(width: usize, positions: usize) -> KeysValues {
    [Matrix::zeros(width, positions), Matrix::zeros(positions, width)]
}

impl Model {
    /// Takes its tensors from a source, always in the same order.
    pub fn new(source: &mut Source, shape: &Shape) -> Self {
        let towers = shape.vision();
        let (width, expert_width) = (shape.hidden_size, shape.moe_intermediate_size);
        let mut channels = towers.sam.width;
        let patches = source.matrix(CHANNELS * towers.sam.patch_size.pow(2), channels);
        let sam = Tower::new(source, &towers.sam, shape.grid().pow(2));
        let halvings = towers.sam.downsample_channels.iter().map(|&halved| {
            let convolution = source.matrix(9 * channels, halved);
            channels = halved;
            convolution
        });
        let convolutions = halvings.collect();
        let clip = Tower::new(source, &towers.clip, shape.vision_grid().pow(2));
        let projector = source.matrix(channels, width);
        let embedding = source.matrix(shape.vocab_size, width);
        let before_decoder = source.parameters;
        let layers = (0..shape.num_hidden_layers).map(|layer| {
            // The first layer is dense. The shared experts of the others see every token, so they are one network.
            let is_dense = layer == 0;
            let inner =
                if is_dense { shape.intermediate_size } else { shape.n_shared_experts * expert_width };
            let block = Block::new(source, [width, inner], true, shape.num_attention_heads);
            let mut expert = || Mlp::new(source, [width, expert_width], true);
            let routed = (0..if is_dense { 0 } else { shape.n_routed_experts }).map(|_| expert()).collect();
            let router = source.matrix(width, if is_dense { 0 } else { shape.n_routed_experts });
            Block { experts: Experts { router, routed, picked: shape.num_experts_per_tok }, ..block }
        });
        let decoder: Vec<Block> = layers.collect();
        let (norm, head) = (source.ones(width), source.matrix(width, shape.vocab_size));
        let unselected = decoder.iter().map(|block| block.experts.unselected()).sum::<usize>();
        let active_parameters =
            source.parameters - before_decoder - (unselected * 3 * width * expert_width) as u64;
        Self {
            patches,
            sam,
            convolutions,
            clip,
            projector,
            embedding,
            decoder,
            norm,
            head,
            active_parameters,
        }
    }

    /// Creates an empty cache for `capacity` positions.
    pub fn cache(&self, capacity: usize) -> KvCache {
        let layer = |_| keys_values(self.norm.len(), capacity);
        KvCache { layers: self.decoder.iter().map(layer).collect(), length: 0 }
    }

    /// Reads the patches of an image, if there is one, and the prompt; gives the prompt as the decoder takes it.
    pub fn read(&self, exec: &mut Exec<'_>, image: Option<&Matrix>, prompt: &[usize]) -> Matrix {
        let vision = image.map(|image| self.see(exec, image));
        let text = self.embed(exec, prompt);
        match vision {
            Some(vision) => exec.op("concatenate", |_| vision.append(&text)),
            None => text,
        }
    }

    /// Returns the embeddings of tokens.
    pub fn embed(&self, exec: &mut Exec<'_>, tokens: &[usize]) -> Matrix {
        exec.op("embedding", |_| self.embedding.gather(tokens.iter().copied().map(Some)))
    }

    /// Takes new positions into the cache; gives the likeliest token after the last.
    pub fn next(&self, exec: &mut Exec<'_>, x: Matrix, cache: &mut KvCache) -> usize {
        let scores = self.scores(exec, x, cache);
        exec.op("sampling", |_| ops::top_k(&scores.values, 1).first().copied().unwrap_or_default())
    }

    fn scores(&self, exec: &mut Exec<'_>, mut x: Matrix, cache: &mut KvCache) -> Matrix {
        for (block, layer) in self.decoder.iter().zip(&mut cache.layers) {
            x = block.forward(exec, x, Some((layer, cache.length)));
        }
        cache.length += x.height();
        // Only the last position is asked what comes next.
        let last = x.gather([Some(x.height().saturating_sub(1))]);
        let last = norm(exec, &last, &self.norm);
        exec.op("lm_head", |threads| ops::product(threads, &last, &self.head))
    }

    /// Encodes the patches of an image as tokens of the decoder.
    fn see(&self, exec: &mut Exec<'_>, patches: &Matrix) -> Matrix {
        let sam = exec.note("sam", |exec| {
            let x = matmul(exec, patches, &self.patches);
            let x = self.sam.encode(exec, x);
            self.convolutions.iter().fold(x, |x, weight| {
                exec.op("convolution", |threads| ops::product(threads, &unfold(&x), weight))
            })
        });
        let clip = exec.note("clip", |exec| self.clip.encode(exec, sam));
        exec.note("projector", |exec| matmul(exec, &clip, &self.projector))
    }
}

fn matmul(exec: &mut Exec<'_>, x: &Matrix, weight: &Matrix) -> Matrix {
    exec.op("matmul", |threads| ops::product(threads, x, weight))
}

fn norm(exec: &mut Exec<'_>, x: &Matrix, weight: &[f32]) -> Matrix {
    exec.op("norm", |_| ops::norm(x, weight))
}

/// Unfolds the nine cells around every second cell of a square grid into a row; cells outside the grid are zero.
fn unfold(x: &Matrix) -> Matrix {
    let side = x.height().isqrt();
    let out_side = side.div_ceil(2);
    let cells = (0..9 * out_side * out_side).map(|place| {
        let (cell, near) = (place / 9, place % 9);
        // One cell of padding: the neighbourhood starts one above and one to the left.
        let (row, column) = (cell / out_side * 2 + near / 3, cell % out_side * 2 + near % 3);
        let inside = (1..=side).contains(&row) && (1..=side).contains(&column);
        inside.then(|| (row - 1) * side + column - 1)
    });
    Matrix { columns: 9 * x.columns, ..x.gather(cells) }
}

/// A vision encoder.
#[derive(Debug)]
struct Tower {
    position: Matrix,
    blocks: Vec<Block>,
}

impl Tower {
    fn new(source: &mut Source, shape: &TowerShape, positions: usize) -> Self {
        let position = source.matrix(positions, shape.width);
        let block = |layer| {
            let is_global = shape.window_size == 0 || shape.global_attn_indexes.contains(&layer);
            let window = if is_global { usize::MAX } else { shape.window_size.pow(2) };
            let sizes = [shape.width, shape.intermediate_size];
            Block { window, ..Block::new(source, sizes, false, shape.heads) }
        };
        Self { position, blocks: (0..shape.layers).map(block).collect() }
    }

    fn encode(&self, exec: &mut Exec<'_>, mut x: Matrix) -> Matrix {
        exec.op("add", |_| x.add(&self.position));
        self.blocks.iter().fold(x, |x, block| block.forward(exec, x, None))
    }
}

/// A layer of a tower or of the decoder: attention and a network, each after a norm.
#[derive(Debug)]
struct Block {
    norms: [Vec<f32>; 2],
    qkv: Matrix,
    out: Matrix,
    heads: usize,
    /// Number of consecutive image tokens that attend only to each other.
    window: usize,
    /// The network for all tokens.
    mlp: Mlp,
    experts: Experts,
}

impl Block {
    /// Creates a layer without experts. `sizes` are the widths of its tokens and of its network.
    fn new(source: &mut Source, sizes: [usize; 2], is_gated: bool, heads: usize) -> Self {
        let width = sizes[0];
        Self {
            mlp: Mlp::new(source, sizes, is_gated),
            norms: [source.ones(width), source.ones(width)],
            qkv: source.matrix(width, 3 * width),
            out: source.matrix(width, width),
            heads,
            window: usize::MAX,
            experts: Experts { router: Matrix::zeros(0, 0), routed: Vec::new(), picked: 0 },
        }
    }

    /// Computes the tokens of a layer. With a cache and its length, a token attends to itself and those before it; without, to its window.
    fn forward(&self, exec: &mut Exec<'_>, mut x: Matrix, cache: Option<(&mut KeysValues, usize)>) -> Matrix {
        let (width, rows, is_causal) = (x.columns, x.height(), cache.is_some());
        let normed = norm(exec, &x, &self.norms[0]);
        let qkv = matmul(exec, &normed, &self.qkv);
        let mut image;
        let ([keys, values], past) = match cache {
            Some(cache) => cache,
            None => {
                image = keys_values(width, rows);
                (&mut image, 0)
            }
        };
        exec.op(if is_causal { "kv_cache" } else { "transpose" }, |_| {
            for ((place, row), value) in (past..).zip(qkv.rows()).zip(values.rows_mut().skip(past)) {
                keys.rows_mut().zip(&row[width..]).for_each(|(key, value)| key[place] = *value);
                value.copy_from_slice(&row[2 * width..]);
            }
        });
        let attended = exec.op("attention", |threads| {
            let operands = [qkv.view().part(0, 0, width), keys.view(), values.view()];
            ops::attend(threads, self.heads, operands, rows, |row| {
                let first = row / self.window * self.window;
                if is_causal { 0..past + row + 1 } else { first..rows.min(first.saturating_add(self.window)) }
            })
        });
        let attended = matmul(exec, &attended, &self.out);
        exec.op("add", |_| x.add(&attended));
        let normed = norm(exec, &x, &self.norms[1]);
        let mut changed = exec.op("mlp", |threads| self.mlp.apply(threads, &normed));
        self.experts.add(exec, &normed, &mut changed);
        exec.op("add", |_| x.add(&changed));
        x
    }
}

/// A network of two layers, gated or not.
#[derive(Debug)]
struct Mlp {
    gate: Option<Matrix>,
    up: Matrix,
    down: Matrix,
}

impl Mlp {
    fn new(source: &mut Source, [width, inner]: [usize; 2], is_gated: bool) -> Self {
        let gate = is_gated.then(|| source.matrix(width, inner));
        Self { gate, up: source.matrix(width, inner), down: source.matrix(inner, width) }
    }

    fn apply(&self, threads: usize, x: &Matrix) -> Matrix {
        let up = ops::product(threads, x, &self.up);
        let inner = match &self.gate {
            None => ops::each(threads, up, ops::gelu),
            Some(gate) => {
                let mut gate = ops::each(threads, ops::product(threads, x, gate), ops::silu);
                gate.values.iter_mut().zip(&up.values).for_each(|(gate, up)| *gate *= up);
                gate
            }
        };
        ops::product(threads, &inner, &self.down)
    }
}

/// The mixture of experts of a layer: a router, and experts it picks from. A dense layer has none.
#[derive(Debug)]
struct Experts {
    router: Matrix,
    routed: Vec<Mlp>,
    picked: usize,
}

impl Experts {
    /// Number of experts that a token does not go through.
    fn unselected(&self) -> usize {
        self.routed.len().saturating_sub(self.picked)
    }

    /// Adds the results of the experts of each token.
    fn add(&self, exec: &mut Exec<'_>, x: &Matrix, out: &mut Matrix) {
        if self.routed.is_empty() {
            return;
        }
        let sent = exec.op("router", |threads| dispatch(ops::product(threads, x, &self.router), self.picked));
        exec.op("experts", |threads| {
            for (expert, sent) in self.routed.iter().zip(&sent).filter(|(_, sent)| !sent.is_empty()) {
                let result = expert.apply(threads, &x.gather(sent.iter().map(|(token, _)| Some(*token))));
                for ((token, weight), row) in sent.iter().zip(result.rows()) {
                    let place = token * x.columns;
                    ops::add_scaled(&mut out.values[place..place + x.columns], *weight, row);
                }
            }
        });
    }
}

/// Returns the tokens of each expert, with their weights.
fn dispatch(mut scores: Matrix, picked: usize) -> Vec<Vec<(usize, f32)>> {
    let mut sent = vec![Vec::new(); scores.columns];
    for (token, row) in scores.rows_mut().enumerate() {
        ops::softmax(row);
        for expert in ops::top_k(row, picked) {
            sent[expert].push((token, row[expert]));
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    fn nano(seed: u64) -> Model {
        let config: serde_json::Value = serde_json::from_str(include_str!("../presets/nano.json")).unwrap();
        Model::new(&mut Source::new(seed), &Shape::deserialize(config).unwrap())
    }

    fn image(seed: u64) -> Matrix {
        Source::new(seed).matrix(64, 192)
    }

    #[test]
    fn a_token_uses_all_parameters_but_the_embedding_vision_and_unselected_experts() {
        // Three layers of attention with norms, a dense network, two layers with a router, three of eight experts and the shared pair, the
        // last norm and the head.
        let attention = 4 * 32 * 32 + 2 * 32;
        let sparse = 8 * 32 + 5 * 3 * 32 * 16;
        let want = 3 * attention + 3 * 32 * 48 + 2 * sparse + 32 + 211 * 32;
        assert_eq!(nano(0).active_parameters, want);
    }

    #[test]
    fn an_image_becomes_as_many_tokens_as_the_shape_says() {
        let model = nano(0);
        let mut exec = Exec::new(&(), 1);
        let seen = model.see(&mut exec, &image(1));
        let dimensions = (seen.height(), seen.columns);
        assert_eq!(dimensions, (4, 32));
        assert!(seen.values.iter().all(|value| value.is_finite()));
        let notes: Vec<String> = exec.take_notes().into_iter().map(|n| n.name).collect();
        assert_eq!(notes, ["sam", "clip", "projector"]);
        assert_ne!(seen, model.see(&mut exec, &image(2)));
    }

    #[test]
    fn decoding_with_the_cache_equals_reading_everything_again() {
        let model = nano(3);
        let mut exec = Exec::new(&(), 1);
        let mut tokens = vec![5, 17, 200, 3, 3, 90];
        let mut cache = model.cache(20);
        let x = model.embed(&mut exec, &tokens);
        let mut scores = model.scores(&mut exec, x, &mut cache);
        for _ in 0..8 {
            let next = ops::top_k(&scores.values, 1)[0];
            tokens.push(next);
            let x = model.embed(&mut exec, &[next]);
            scores = model.scores(&mut exec, x, &mut cache);

            let mut fresh = model.cache(20);
            let x = model.embed(&mut exec, &tokens);
            let again = model.scores(&mut exec, x, &mut fresh);
            assert_eq!((cache.length, fresh.length), (tokens.len(), tokens.len()));
            let off = scores.values.iter().zip(&again.values).map(|(a, b)| (a - b).abs());
            let worst = off.fold(0.0, f32::max);
            assert!(worst < 1e-3, "off by {worst} at {} tokens", tokens.len());
        }
    }

    #[test]
    fn order_of_the_tokens_matters() {
        let model = nano(3);
        let mut exec = Exec::new(&(), 1);
        let mut scores = |tokens: &[usize]| {
            let x = model.embed(&mut exec, tokens);
            model.scores(&mut exec, x, &mut model.cache(4))
        };
        assert_ne!(scores(&[1, 2, 3, 4]), scores(&[2, 1, 3, 4]));
    }

    #[test]
    fn a_token_goes_to_its_highest_scores_and_no_other() {
        let values = [0.1f32, 0.4, 0.3, 0.2, 0.7, 0.1, 0.05, 0.15].map(f32::ln).to_vec();
        let sent = dispatch(Matrix { columns: 4, values }, 2);
        let tokens: Vec<Vec<usize>> =
            sent.iter().map(|sent| sent.iter().map(|(token, _)| *token).collect()).collect();
        assert_eq!(tokens, [vec![1], vec![0], vec![0], vec![1]]);
        assert!((sent[1][0].1 - 0.4).abs() < 1e-6 && (sent[3][0].1 - 0.15).abs() < 1e-6);
    }

    #[test]
    fn experts_together_give_the_sum_of_each_alone() {
        let model = nano(11);
        let experts = &model.decoder[1].experts;
        let x = Source::new(5).matrix(9, 32);
        let mut got = Matrix::zeros(9, 32);
        experts.add(&mut Exec::new(&(), 1), &x, &mut got);
        let scores = ops::product(1, &x, &experts.router);
        for token in 0..9 {
            let row = x.gather([Some(token)]);
            let mut weights = scores.gather([Some(token)]).values;
            ops::softmax(&mut weights);
            let mut want = vec![0.0; 32];
            for expert in ops::top_k(&weights, 3) {
                ops::add_scaled(&mut want, weights[expert], &experts.routed[expert].apply(1, &row).values);
            }
            let got = got.gather([Some(token)]).values;
            let off: f32 = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).sum();
            assert!(off < 1e-3, "token {token} is off by {off}");
        }
    }

    #[test]
    fn the_middle_of_a_neighbourhood_is_the_cell_itself() {
        let x = Matrix { columns: 2, values: (0..32).map(|value| value as f32).collect() };
        let halved = unfold(&x);
        assert_eq!((halved.height(), halved.columns), (4, 18));
        let middle = |row: usize| halved.values[18 * row + 8..18 * row + 10].to_vec();
        assert_eq!((middle(0), middle(3)), (x.values[..2].to_vec(), x.values[20..22].to_vec()));
        assert_eq!(halved.values[..8], [0.0; 8], "above the first row");
    }

    #[test]
    fn a_windowed_token_sees_its_window_alone() {
        let mut source = Source::new(2);
        let shape = TowerShape {
            width: 8,
            layers: 2,
            heads: 2,
            intermediate_size: 8,
            window_size: 2,
            global_attn_indexes: vec![1],
            ..TowerShape::default()
        };
        let blocks = Tower::new(&mut source, &shape, 8).blocks;
        let mut x = source.matrix(8, 8);
        let mut exec = Exec::new(&(), 1);
        let mut run = |x: &Matrix, layer: usize| blocks[layer].forward(&mut exec, x.clone(), None).values;
        let before = [run(&x, 0), run(&x, 1)];
        x.values[7 * 8] += 1.0;
        let after = [run(&x, 0), run(&x, 1)];
        assert_eq!(before[0][..4 * 8], after[0][..4 * 8], "two by two tokens");
        assert_ne!(before[1][..4 * 8], after[1][..4 * 8], "the last layers see the whole image");
    }
}
