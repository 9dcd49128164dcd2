//! The mixture of experts: a router, experts it picks from, and experts every token goes through.

use ndarray::{Array2, Axis};
use rayon::prelude::*;

use super::layers::{GatedMlp, Linear};
use crate::exec::Exec;
use crate::ops;
use crate::shape::DecoderShape;
use crate::source::Source;

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
    pub fn new(source: &mut Source, shape: &DecoderShape) -> Experts {
        let (hidden, inner) = (shape.hidden, shape.expert_intermediate);
        Experts {
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
    use crate::shape::Shape;
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
