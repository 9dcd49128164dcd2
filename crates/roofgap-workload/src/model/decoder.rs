//! The language model: decoder layers over a KV cache.
//!
//! The mixture of experts: a router, experts it picks from, and experts every token goes through.

use super::{GatedMlp, Linear, Norm};
use crate::exec::Exec;
use crate::ops;
use crate::props::DecoderShape;
use crate::source::Source;
use ndarray::{Array2, Array3, ArrayView2, Axis, s};
use rayon::prelude::*;

/// Query rows that one task computes.
const ROWS: usize = 64;
/// The base of the rotary positions.
const ROTARY_BASE: f32 = 10_000.0;

/// Embedding, layers and head.
#[derive(Debug)]
pub struct Decoder {
    embedding: Array2<f32>,
    layers: Vec<Layer>,
    norm: Norm,
    head: Linear,
}

#[derive(Debug)]
struct Layer {
    norm1: Norm,
    attention: Attention,
    norm2: Norm,
    network: Network,
}

#[derive(Debug)]
enum Network {
    Dense(GatedMlp),
    Sparse(Experts),
}

#[derive(Debug)]
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    heads: usize,
}

/// Keys and values of what was seen so far.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    length: usize,
}

/// Each is head by position by head width.
#[derive(Debug)]
struct LayerCache {
    keys: Array3<f32>,
    values: Array3<f32>,
}

impl KvCache {
    /// Creates a cache for `capacity` positions.
    pub fn new(shape: &DecoderShape, capacity: usize) -> Self {
        let size = (shape.heads, capacity, shape.hidden / shape.heads);
        Self {
            layers: (0..shape.layers)
                .map(|_| LayerCache { keys: Array3::zeros(size), values: Array3::zeros(size) })
                .collect(),
            length: 0,
        }
    }

    /// Positions seen so far.
    #[cfg(test)]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Forgets all, keeping the memory.
    pub fn clear(&mut self) {
        self.length = 0;
    }
}

impl Decoder {
    pub fn new(source: &mut Source, shape: &DecoderShape) -> Self {
        let hidden = shape.hidden;
        Self {
            embedding: source.matrix(shape.vocabulary, hidden),
            layers: (0..shape.layers)
                .map(|layer| Layer {
                    norm1: Norm::rms(source, hidden),
                    attention: Attention {
                        query: Linear::new(source, hidden, hidden),
                        key: Linear::new(source, hidden, hidden),
                        value: Linear::new(source, hidden, hidden),
                        out: Linear::new(source, hidden, hidden),
                        heads: shape.heads,
                    },
                    norm2: Norm::rms(source, hidden),
                    network: if layer < shape.dense_layers {
                        Network::Dense(GatedMlp::new(source, hidden, shape.intermediate))
                    } else {
                        Network::Sparse(Experts::new(source, shape))
                    },
                })
                .collect(),
            norm: Norm::rms(source, hidden),
            head: Linear::new(source, hidden, shape.vocabulary),
        }
    }

    /// Returns the embeddings of tokens.
    pub fn embed(&self, exec: &mut Exec<'_>, tokens: &[usize]) -> Array2<f32> {
        exec.op("embedding", || self.embedding.select(Axis(0), tokens))
    }

    /// Takes new positions into the cache; gives the scores of the token after the last.
    pub fn forward(&self, exec: &mut Exec<'_>, mut x: Array2<f32>, cache: &mut KvCache) -> Array2<f32> {
        let past = cache.length;
        for (layer, cache) in self.layers.iter().zip(&mut cache.layers) {
            let normed = layer.norm1.forward(exec, &x);
            let mixed = layer.attention.forward(exec, &normed, cache, past);
            exec.op("add", || x += &mixed);
            let normed = layer.norm2.forward(exec, &x);
            let changed = match &layer.network {
                Network::Dense(dense) => dense.forward(exec, &normed),
                Network::Sparse(experts) => experts.forward(exec, &normed),
            };
            exec.op("add", || x += &changed);
        }
        cache.length = past + x.nrows();
        // Only the last position is asked what comes next.
        let last = x.slice_move(s![-1.., ..]);
        let last = self.norm.forward(exec, &last);
        exec.group("lm_head", |exec| self.head.forward(exec, &last))
    }
}

impl Attention {
    fn forward(
        &self,
        exec: &mut Exec<'_>,
        x: &Array2<f32>,
        cache: &mut LayerCache,
        past: usize,
    ) -> Array2<f32> {
        let mut query = self.query.forward(exec, x);
        let mut key = self.key.forward(exec, x);
        let value = self.value.forward(exec, x);
        exec.op("rotary", || {
            rotate(&mut query, self.heads, past);
            rotate(&mut key, self.heads, past);
        });
        exec.op("kv_cache", || {
            append(&mut cache.keys, key.view(), past);
            append(&mut cache.values, value.view(), past);
        });
        let mixed = exec.op("attention", || attend(&query, cache, past));
        self.out.forward(exec, &mixed)
    }
}

fn attend(query: &Array2<f32>, cache: &LayerCache, past: usize) -> Array2<f32> {
    let (_, _, head_width) = cache.keys.dim();
    let mut out = Array2::zeros(query.dim());
    let mut tasks = Vec::new();
    for (block, out) in out.axis_chunks_iter_mut(Axis(0), ROWS).enumerate() {
        for (head, out) in ops::parts(out, Axis(1), head_width).into_iter().enumerate() {
            tasks.push((head, block * ROWS, out));
        }
    }
    tasks.into_par_iter().for_each(|(head, first, out)| {
        let seen = past + first + out.nrows();
        let column = head * head_width;
        let q = query.slice(s![first..first + out.nrows(), column..column + head_width]);
        let k = cache.keys.slice(s![head, ..seen, ..]);
        let v = cache.values.slice(s![head, ..seen, ..]);
        ops::attend(q, k, v, None, Some(past + first + 1), out);
    });
    out
}

fn append(to: &mut Array3<f32>, rows: ArrayView2<'_, f32>, past: usize) {
    let (_, _, head_width) = to.dim();
    for (mut head, rows) in to.outer_iter_mut().zip(rows.axis_chunks_iter(Axis(1), head_width)) {
        head.slice_mut(s![past..past + rows.nrows(), ..]).assign(&rows);
    }
}

/// Turns each pair of values of a head by an angle that grows with the position.
fn rotate(x: &mut Array2<f32>, heads: usize, past: usize) {
    let head_width = x.ncols() / heads;
    let half = head_width / 2;
    for (position, mut row) in x.rows_mut().into_iter().enumerate() {
        let position = (past + position) as f32;
        let Some(row) = row.as_slice_mut() else {
            continue;
        };
        for head in row.chunks_exact_mut(head_width) {
            let (first, second) = head.split_at_mut(half);
            for (pair, (a, b)) in first.iter_mut().zip(second).enumerate() {
                let angle = position / ROTARY_BASE.powf(pair as f32 / half as f32);
                let (sin, cos) = angle.sin_cos();
                (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
            }
        }
    }
}

/// One layer's experts.
#[derive(Debug)]
pub struct Experts {
    router: Linear,
    routed: Vec<GatedMlp>,
    shared: GatedMlp,
    picked: usize,
}

/// A token sent to an expert.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sent {
    token: usize,
    weight: f32,
}

impl Experts {
    pub fn new(source: &mut Source, shape: &DecoderShape) -> Self {
        let (hidden, inner) = (shape.hidden, shape.expert_intermediate);
        Self {
            router: Linear::new(source, hidden, shape.routed_experts),
            routed: (0..shape.routed_experts).map(|_| GatedMlp::new(source, hidden, inner)).collect(),
            // Shared experts see every token, so they are one network of their joint width.
            shared: GatedMlp::new(source, hidden, shape.shared_experts * inner),
            picked: shape.experts_per_token,
        }
    }

    pub fn forward(&self, exec: &mut Exec<'_>, x: &Array2<f32>) -> Array2<f32> {
        let sent = exec.group("router", |exec| self.route(exec, x));
        let routed = exec.op("experts", || self.apply(x, &sent));
        let mut out = exec.group("shared_experts", |exec| self.shared.forward(exec, x));
        exec.op("add", || out += &routed);
        out
    }

    /// Routes tokens: returns the tokens of each expert.
    fn route(&self, exec: &mut Exec<'_>, x: &Array2<f32>) -> Vec<Vec<Sent>> {
        let mut scores = self.router.forward(exec, x);
        exec.op("softmax", || {
            for mut row in scores.rows_mut() {
                if let Some(row) = row.as_slice_mut() {
                    ops::softmax(row);
                }
            }
        });
        exec.op("top_k", || dispatch(&scores, self.picked))
    }

    fn apply(&self, x: &Array2<f32>, sent: &[Vec<Sent>]) -> Array2<f32> {
        let busy: Vec<(&GatedMlp, &Vec<Sent>)> =
            self.routed.iter().zip(sent).filter(|(_, sent)| !sent.is_empty()).collect();
        let results: Vec<Array2<f32>> = busy
            .par_iter()
            .map(|(expert, sent)| {
                let tokens: Vec<usize> = sent.iter().map(|sent| sent.token).collect();
                expert.apply(&x.select(Axis(0), &tokens))
            })
            .collect();
        let mut out = Array2::zeros(x.dim());
        // Added in the order of the experts, so that the sum does not depend on which finished first.
        for ((_, sent), result) in busy.iter().zip(&results) {
            for (sent, row) in sent.iter().zip(result.rows()) {
                out.row_mut(sent.token).scaled_add(sent.weight, &row);
            }
        }
        out
    }
}

fn dispatch(scores: &Array2<f32>, picked: usize) -> Vec<Vec<Sent>> {
    let mut sent = vec![Vec::new(); scores.ncols()];
    for (token, row) in scores.rows().into_iter().enumerate() {
        let Some(row) = row.as_slice() else { continue };
        for expert in ops::top_k(row, picked) {
            if let (Some(to), Some(&weight)) = (sent.get_mut(expert), row.get(expert)) {
                to.push(Sent { token, weight });
            }
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Preset;
    use crate::exec::Silent;
    use crate::props::Shape;
    use ndarray::array;

    #[test]
    fn a_token_goes_to_its_highest_scores_and_no_other() {
        let scores = array![[0.1, 0.4, 0.3, 0.2], [0.7, 0.1, 0.05, 0.15]];
        let sent = dispatch(&scores, 2);
        let tokens: Vec<Vec<usize>> =
            sent.iter().map(|sent| sent.iter().map(|sent| sent.token).collect()).collect();
        assert_eq!(tokens, [vec![1], vec![0], vec![0], vec![1]]);
        assert_eq!(sent[1][0].weight, 0.4);
        assert_eq!(sent[3][0].weight, 0.15);
    }

    #[test]
    fn experts_together_give_the_sum_of_each_alone() {
        let shape = Shape::of(Preset::Nano).decoder;
        let mut source = Source::seeded(11);
        let experts = Experts::new(&mut source, &shape);
        let x = source.matrix(9, shape.hidden);
        let mut exec = Exec::new(&Silent);
        let got = experts.forward(&mut exec, &x);

        let scores = ops::matmul(x.view(), experts.router.weight.view());
        for (token, row) in x.rows().into_iter().enumerate() {
            let row = row.insert_axis(Axis(0)).to_owned();
            let mut weights = scores.row(token).to_vec();
            ops::softmax(&mut weights);
            let mut want = experts.shared.apply(&row);
            for expert in ops::top_k(&weights, shape.experts_per_token) {
                want.scaled_add(weights[expert], &experts.routed[expert].apply(&row));
            }
            let off = (&got.row(token) - &want.row(0)).mapv(f32::abs).sum();
            assert!(off < 1e-3, "token {token} is off by {off}");
        }
    }
}
