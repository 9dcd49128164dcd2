//! The model: two towers, a projector and a decoder, all made of one block. An image and tokens in, the next token out.

use crate::exec::Exec;
use crate::ops::{self, Matrix, Source};
use crate::props::{CHANNELS, Shape, Tower};

/// The whole model. A weight is stored as input by output.
#[derive(Debug)]
pub struct Model {
    shape: Shape,
    patches: Matrix,
    sam_position: Matrix,
    sam: Vec<Block>,
    convolutions: [Matrix; 2],
    clip_position: Matrix,
    clip: Vec<Block>,
    projector: Matrix,
    embedding: Matrix,
    decoder: Vec<Block>,
    norm: Vec<f32>,
    head: Matrix,
}

/// Keys and values of the positions seen so far, for each layer; keys have a column for each position.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<[Matrix; 2]>,
    pub length: usize,
}

impl Model {
    /// Takes its tensors from a source, always in the same order.
    pub fn new(source: &mut Source, shape: Shape) -> Self {
        let Shape { sam, clip, decoder, halved, .. } = &shape;
        let (grid, side) = (shape.grid(), shape.vision_grid());
        Self {
            patches: source.matrix(CHANNELS * shape.patch * shape.patch, sam.width),
            sam_position: source.matrix(grid * grid, sam.width),
            sam: Block::all(source, sam, |source, _| (Mlp::plain(source, sam), None)),
            convolutions: [source.matrix(9 * sam.width, *halved), source.matrix(9 * halved, clip.width)],
            clip_position: source.matrix(side * side, clip.width),
            clip: Block::all(source, clip, |source, _| (Mlp::plain(source, clip), None)),
            projector: source.matrix(clip.width, decoder.width),
            embedding: source.matrix(shape.vocabulary, decoder.width),
            decoder: Block::all(source, decoder, |source, layer| {
                let (width, inner) = (decoder.width, shape.expert_inner);
                // The first layer is dense. The shared experts of the others see every token, so they are one network.
                let is_dense = layer == 0;
                let all = if is_dense { decoder.inner } else { shape.shared_experts * inner };
                let all = Mlp::gated(source, width, all);
                let experts = (!is_dense).then(|| Experts {
                    router: source.matrix(width, shape.routed_experts),
                    routed: (0..shape.routed_experts).map(|_| Mlp::gated(source, width, inner)).collect(),
                    picked: shape.experts_per_token,
                });
                (all, experts)
            }),
            norm: source.ones(decoder.width),
            head: source.matrix(decoder.width, shape.vocabulary),
            shape,
        }
    }

    /// Counts the parameters of a shape without allocating them.
    pub fn count_parameters(shape: &Shape) -> u64 {
        let mut source = Source::new(None);
        drop(Self::new(&mut source, shape.clone()));
        source.parameters
    }

    /// Creates an empty cache for `capacity` positions.
    pub fn cache(&self, capacity: usize) -> KvCache {
        let Tower { width, layers, .. } = self.shape.decoder;
        let layer = |_| [Matrix::zeros(width, capacity), Matrix::zeros(capacity, width)];
        KvCache { layers: (0..layers).map(layer).collect(), length: 0 }
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
            let mut x = tower(exec, x, &self.sam_position, &self.sam);
            let mut side = self.shape.grid();
            for weight in &self.convolutions {
                x = exec.op("convolution", |threads| ops::product(threads, &unfold(&x, side), weight));
                side = side.div_ceil(2);
            }
            x
        });
        let clip = exec.note("clip", |exec| tower(exec, sam, &self.clip_position, &self.clip));
        exec.note("projector", |exec| matmul(exec, &clip, &self.projector))
    }
}

fn tower(exec: &mut Exec<'_>, mut x: Matrix, position: &Matrix, blocks: &[Block]) -> Matrix {
    exec.op("add", |_| x.add(position));
    blocks.iter().fold(x, |x, block| block.forward(exec, x, None))
}

fn matmul(exec: &mut Exec<'_>, x: &Matrix, weight: &Matrix) -> Matrix {
    exec.op("matmul", |threads| ops::product(threads, x, weight))
}

fn norm(exec: &mut Exec<'_>, x: &Matrix, weight: &[f32]) -> Matrix {
    exec.op("norm", |_| ops::norm(x, weight))
}

/// Unfolds the nine cells around every second cell of a grid into a row; cells outside the grid are zero.
fn unfold(x: &Matrix, side: usize) -> Matrix {
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

/// A layer of a tower or of the decoder: attention and a network, each after a norm.
#[derive(Debug)]
struct Block {
    norms: [Vec<f32>; 2],
    qkv: Matrix,
    out: Matrix,
    heads: usize,
    /// Tokens in a row that attend to each other alone.
    window: Option<usize>,
    /// The network for all tokens.
    mlp: Mlp,
    experts: Option<Experts>,
}

impl Block {
    /// Creates the layers of a tower. `network` gives the networks of one.
    fn all(
        source: &mut Source,
        tower: &Tower,
        network: impl Fn(&mut Source, usize) -> (Mlp, Option<Experts>),
    ) -> Vec<Self> {
        let block = |layer: usize| {
            let (mlp, experts) = network(source, layer);
            Self {
                norms: [source.ones(tower.width), source.ones(tower.width)],
                qkv: source.matrix(tower.width, 3 * tower.width),
                out: source.matrix(tower.width, tower.width),
                heads: tower.heads,
                window: tower.window_of(layer).map(|side| side * side),
                mlp,
                experts,
            }
        };
        (0..tower.layers).map(block).collect()
    }

    /// Computes the tokens of a layer. With a cache of keys and values, and how many it has, each sees those before alone.
    fn forward(
        &self,
        exec: &mut Exec<'_>,
        mut x: Matrix,
        cache: Option<(&mut [Matrix; 2], usize)>,
    ) -> Matrix {
        let (width, rows) = (x.columns, x.height());
        let [norm1, norm2] = &self.norms;
        let normed = norm(exec, &x, norm1);
        let qkv = matmul(exec, &normed, &self.qkv);
        let queries = qkv.part(0, width);
        let mixed = match cache {
            None => exec.op("attention", |threads| {
                let keys = qkv.transposed(width, width);
                let all = [queries, keys.part(0, rows), qkv.part(2 * width, width)];
                let window = self.window.unwrap_or(rows);
                ops::attend(threads, self.heads, all, rows, |row| {
                    let first = row / window * window;
                    first..rows.min(first + window)
                })
            }),
            Some(([keys, values], past)) => {
                exec.op("kv_cache", |_| {
                    for ((place, row), value) in (past..).zip(qkv.rows()).zip(values.rows_mut().skip(past)) {
                        keys.rows_mut().zip(&row[width..]).for_each(|(key, value)| key[place] = *value);
                        value.copy_from_slice(&row[2 * width..]);
                    }
                });
                exec.op("attention", |threads| {
                    let all = [queries, keys.part(0, keys.columns), values.part(0, width)];
                    ops::attend(threads, self.heads, all, rows, |row| 0..past + row + 1)
                })
            }
        };
        let mixed = matmul(exec, &mixed, &self.out);
        exec.op("add", |_| x.add(&mixed));
        let normed = norm(exec, &x, norm2);
        let mut changed = exec.op("mlp", |threads| self.mlp.apply(threads, &normed));
        if let Some(experts) = &self.experts {
            experts.add(exec, &normed, &mut changed);
        }
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
    fn plain(source: &mut Source, tower: &Tower) -> Self {
        let Tower { width, inner, .. } = *tower;
        Self { gate: None, up: source.matrix(width, inner), down: source.matrix(inner, width) }
    }

    fn gated(source: &mut Source, width: usize, inner: usize) -> Self {
        let gate = Some(source.matrix(width, inner));
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

/// The mixture of experts of a layer: a router, and experts it picks from.
#[derive(Debug)]
struct Experts {
    router: Matrix,
    routed: Vec<Mlp>,
    picked: usize,
}

impl Experts {
    /// Adds what the experts of each token give.
    fn add(&self, exec: &mut Exec<'_>, x: &Matrix, out: &mut Matrix) {
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
    use crate::exec::Silent;
    use crate::props::Preset;

    fn nano(seed: u64) -> Model {
        Model::new(&mut Source::new(Some(seed)), Shape::of(Preset::Nano))
    }

    fn image(seed: u64) -> Matrix {
        Source::new(Some(seed)).matrix(64, 192)
    }

    /// The published DeepSeek-OCR has as many in its decoder, embedding and head.
    #[test]
    fn the_full_decoder_has_the_published_number_of_parameters() {
        let nano = Shape::of(Preset::Nano);
        let full = Shape {
            decoder: Tower { width: 1280, layers: 12, heads: 10, inner: 6848, window: 0 },
            expert_inner: 896,
            routed_experts: 64,
            experts_per_token: 6,
            vocabulary: 129_280,
            ..nano
        };
        let decoder = full.decoder.clone();
        let vision = Shape { decoder: Tower { layers: 0, ..decoder }, vocabulary: 0, ..full.clone() };
        let tables = 2 * 129_280 * 1280;
        let layers = Model::count_parameters(&full) - Model::count_parameters(&vision) - tables;
        // An attention layer with two norms; a dense network; experts, a router and two shared experts.
        let attention = 4 * 1280 * 1280 + 2 * 1280;
        let sparse = 64 * 1280 + 66 * 3 * 1280 * 896;
        assert_eq!(layers, 12 * attention + 3 * 1280 * 6848 + 11 * sparse);
        // 2.93 billion, and the towers have 0.4 of the published 3.34.
        assert_eq!(layers + tables + 1280, 2_934_734_080);
    }

    #[test]
    fn a_token_that_goes_through_every_expert_uses_all_but_the_embedding_table() {
        for shape in [Shape::of(Preset::Nano), Shape::of(Preset::Tiny)] {
            let every = Shape { experts_per_token: shape.routed_experts, ..shape };
            let without = Shape { decoder: Tower { layers: 0, ..every.decoder.clone() }, ..every.clone() };
            let layers = Model::count_parameters(&every) - Model::count_parameters(&without);
            let head = (every.decoder.width * (every.vocabulary + 1)) as u64;
            assert_eq!(every.active_parameters(), layers + head);
        }
    }

    #[test]
    fn an_image_becomes_as_many_tokens_as_the_shape_says() {
        let model = nano(0);
        let mut exec = Exec::new(&Silent, 1);
        let seen = model.see(&mut exec, &image(1));
        let dimensions = (seen.height(), seen.columns);
        assert_eq!(dimensions, (model.shape.vision_tokens(), model.shape.decoder.width));
        assert!(seen.values.iter().all(|value| value.is_finite()));
        let notes: Vec<String> = exec.take_notes().into_iter().map(|n| n.name).collect();
        assert_eq!(notes, ["sam", "clip", "projector"]);
        assert_ne!(seen, model.see(&mut exec, &image(2)));
    }

    #[test]
    fn decoding_with_the_cache_equals_reading_everything_again() {
        let model = nano(3);
        let mut exec = Exec::new(&Silent, 1);
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
        let mut exec = Exec::new(&Silent, 1);
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
        let experts = model.decoder[1].experts.as_ref().unwrap();
        let x = Source::new(Some(5)).matrix(9, 32);
        let mut got = Matrix::zeros(9, 32);
        experts.add(&mut Exec::new(&Silent, 1), &x, &mut got);
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
        let halved = unfold(&x, 4);
        assert_eq!((halved.height(), halved.columns), (4, 18));
        let middle = |row: usize| halved.values[18 * row + 8..18 * row + 10].to_vec();
        assert_eq!((middle(0), middle(3)), (x.values[..2].to_vec(), x.values[20..22].to_vec()));
        assert_eq!(halved.values[..8], [0.0; 8], "above the first row");
    }

    #[test]
    fn a_windowed_token_sees_its_window_alone() {
        let mut source = Source::new(Some(2));
        let tower = Tower { width: 8, layers: 2, heads: 2, inner: 8, window: 2 };
        let blocks = Block::all(&mut source, &tower, |source, _| (Mlp::plain(source, &tower), None));
        let mut x = source.matrix(8, 8);
        let mut exec = Exec::new(&Silent, 1);
        let mut run = |x: &Matrix, layer: usize| blocks[layer].forward(&mut exec, x.clone(), None).values;
        let before = [run(&x, 0), run(&x, 1)];
        x.values[7 * 8] += 1.0;
        let after = [run(&x, 0), run(&x, 1)];
        assert_eq!(before[0][..4 * 8], after[0][..4 * 8], "two by two tokens");
        assert_ne!(before[1][..4 * 8], after[1][..4 * 8], "the last layers see the whole image");
    }
}
