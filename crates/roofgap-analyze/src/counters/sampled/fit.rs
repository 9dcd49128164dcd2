//! Least squares without negative values: how much of a counter each kernel accounts for, by the time that it ran in each window.
//!
//! A window has the value `sum over kernels of (time in the window x rate of the kernel)`. Steps of a model repeat, and their kernels
//! begin at other times of the sampling grid in each, so that rates of kernels shorter than a window can be told too.

use roofgap_base::stats::{Confidence, student_t};

/// Most parts of the time by whose spread intervals are computed.
const MOST_BLOCKS: usize = 200;

/// Least windows of such a part.
const LEAST_IN_BLOCK: usize = 10;

/// Rounds after which the set of kernels with a rate above zero is final.
const MOST_ROUNDS: usize = 50;

/// Correlation of two rates, from -1 on, below which the windows do not tell their kernels apart where an interval is also wide: its half
/// more than this share of the rate, or of the mean rate.
const APART: f64 = -0.7;
pub const WIDE: f64 = 0.25;

/// Rounds of merging kernels that cannot be told apart.
const MOST_MERGES: usize = 40;

/// Time of a kernel in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overlap {
    /// Position of the window.
    pub window: u32,
    /// Position of the kernel.
    pub kernel: u32,
    /// Time, ns.
    pub ns: f64,
}

/// Windows by kernels.
#[derive(Debug)]
pub struct Design<'a> {
    /// Overlaps in the order of the windows.
    overlaps: &'a [Overlap],
    kernels: usize,
    windows: usize,
    /// Products of each two kernels, by rows.
    products: Vec<f64>,
}

/// A rate with its interval of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rate {
    /// Rate per ns.
    pub value: f64,
    /// Half of the width of its interval; infinite for a kernel whose time is a sum of that of others.
    pub half: f64,
}

/// Rates of all kernels for one counter.
#[derive(Debug, Clone, Default)]
pub struct Fit {
    /// Rates in the order of the kernels.
    pub rates: Vec<Rate>,
    /// Sum of the squares that the rates leave.
    pub residual: f64,
    /// Inverse of the products of the kernels with a rate above zero, and the positions of those.
    inverse: Square,
    active: Vec<usize>,
}

impl Fit {
    /// Returns the other kernel from which the samples tell a kernel apart least, with the correlation of their rates.
    pub fn closest(&self, kernel: usize) -> Option<(usize, f64)> {
        let row = self.active.iter().position(|at| *at == kernel)?;
        let correlation = |other: usize| {
            let scale = (self.inverse.at(row, row) * self.inverse.at(other, other)).sqrt();
            (self.active[other], self.inverse.at(row, other) / scale)
        };
        let others = (0..self.active.len()).filter(|other| *other != row).map(correlation);
        others.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Kernels with a rate above zero.
#[derive(Default)]
struct Solution {
    active: Vec<usize>,
    /// Kernels whose rate would be below zero.
    at_zero: Vec<usize>,
    /// Rates of the active ones.
    rates: Vec<f64>,
    inverse: Square,
}

impl<'a> Design<'a> {
    /// Collects the products of the kernels. Overlaps are in the order of the windows.
    pub fn new(overlaps: &'a [Overlap], kernels: usize, windows: usize) -> Self {
        let mut products = vec![0.0; kernels * kernels];
        for window in overlaps.chunk_by(|a, b| a.window == b.window) {
            for one in window {
                for other in window {
                    products[one.kernel as usize * kernels + other.kernel as usize] += one.ns * other.ns;
                }
            }
        }
        Self { overlaps, kernels, windows, products }
    }

    /// Fits the values of a counter, one a window; a window without a value does not count.
    pub fn fit(&self, values: &[f64]) -> Fit {
        let mut sums = vec![0.0; self.kernels];
        for overlap in self.overlaps {
            sums[overlap.kernel as usize] += overlap.ns * values[overlap.window as usize];
        }
        let Solution { active, at_zero, rates: solution, inverse } = self.solve(&sums);
        let mut rates = vec![Rate { value: 0.0, half: f64::INFINITY }; self.kernels];
        for (kernel, value) in active.iter().zip(&solution) {
            rates[*kernel].value = *value;
        }
        let mut fit = Fit { rates, residual: 0.0, inverse, active };
        let (error, quantile) = self.add_intervals(values, &mut fit);
        for kernel in at_zero {
            // What is left of its time beside that of the others.
            let near: Vec<f64> = fit.active.iter().map(|at| self.product(kernel, *at)).collect();
            let same: f64 = (0..near.len())
                .map(|row| {
                    near[row] * fit.inverse.row(row).iter().zip(&near).map(|(a, b)| a * b).sum::<f64>()
                })
                .sum();
            let square = self.product(kernel, kernel);
            fit.rates[kernel].half = quantile * (error / (square - same).max(square * LEAST_PIVOT)).sqrt();
        }
        fit
    }

    /// Replaces each rate by the values that its kernel is left with when every window is divided between its kernels by their rates. Kernels
    /// read less while they start, so that the rates of least squares, which fit the middle of long kernels best, add up to too much.
    pub fn conserve(&self, values: &[f64], fit: &mut Fit) {
        let (mut sums, mut time) = (vec![0.0; self.kernels], vec![0.0; self.kernels]);
        for window in self.overlaps.chunk_by(|a, b| a.window == b.window) {
            let part = |overlap: &Overlap| overlap.ns * fit.rates[overlap.kernel as usize].value;
            let all: f64 = window.iter().map(part).sum();
            for overlap in window {
                time[overlap.kernel as usize] += overlap.ns;
                if all > 0.0 {
                    sums[overlap.kernel as usize] += values[overlap.window as usize] * part(overlap) / all;
                }
            }
        }
        for (rate, (sum, time)) in fit.rates.iter_mut().zip(sums.iter().zip(time)) {
            if time > 0.0 {
                rate.value = (sum / time).max(0.0);
            }
        }
    }

    /// Returns the other kernel that runs in the same windows most.
    pub fn nearest(&self, kernel: usize) -> Option<usize> {
        let cosine = |other: &usize| {
            let square = self.product(*other, *other);
            if square > 0.0 { self.product(kernel, *other) / square.sqrt() } else { 0.0 }
        };
        let others = (0..self.kernels).filter(|other| *other != kernel);
        others.max_by(|a, b| cosine(a).total_cmp(&cosine(b))).filter(|other| cosine(other) > 0.0)
    }

    /// Finds the kernels with a rate above zero, their rates, and the inverse of their products.
    fn solve(&self, sums: &[f64]) -> Solution {
        let usable = |kernel: &usize| self.product(*kernel, *kernel) > 0.0;
        let mut active: Vec<usize> = (0..self.kernels).filter(usable).collect();
        let mut banned: Vec<usize> = Vec::new();
        for round in 0.. {
            let Some(inverse) = self.inverse(&mut active) else { break };
            let of = |row: usize| -> f64 {
                active.iter().zip(inverse.row(row)).map(|(kernel, value)| value * sums[*kernel]).sum()
            };
            let solution: Vec<f64> = (0..active.len()).map(of).collect();
            if solution.iter().any(|rate| *rate < 0.0) && round < MOST_ROUNDS {
                let signed: Vec<(usize, f64)> = active.drain(..).zip(solution).collect();
                for (kernel, rate) in signed {
                    if rate < 0.0 { banned.push(kernel) } else { active.push(kernel) }
                }
                continue;
            }
            // A kernel that was left out too early is taken in again.
            let slope = |kernel: &usize| -> f64 {
                let explained: f64 =
                    active.iter().zip(&solution).map(|(at, rate)| self.product(*kernel, *at) * rate).sum();
                (sums[*kernel] - explained) / self.product(*kernel, *kernel).sqrt()
            };
            let scale = sums.iter().fold(0.0, |most: f64, sum| most.max(sum.abs())) * 1e-9;
            let most = banned.iter().max_by(|a, b| slope(a).total_cmp(&slope(b))).copied();
            match most.filter(|kernel| slope(kernel) > scale && round < MOST_ROUNDS) {
                Some(kernel) => {
                    banned.retain(|other| *other != kernel);
                    active.push(kernel);
                    active.sort_unstable();
                }
                None => {
                    let rates = solution.into_iter().map(|rate| rate.max(0.0)).collect();
                    return Solution { active, at_zero: banned, rates, inverse };
                }
            }
        }
        Solution::default()
    }

    fn product(&self, one: usize, other: usize) -> f64 {
        self.products[one * self.kernels + other]
    }

    /// Inverts the products of some kernels. Kernels whose time is a sum of that of others are taken out of them.
    fn inverse(&self, active: &mut Vec<usize>) -> Option<Square> {
        loop {
            let scale: Vec<f64> = active.iter().map(|&at| self.product(at, at).sqrt()).collect();
            let product = |row: usize, column: usize| {
                self.product(active[row], active[column]) / (scale[row] * scale[column])
            };
            match Square::new(active.len(), product).inverted() {
                Ok(mut inverse) => {
                    inverse.divide(&scale);
                    return (!active.is_empty()).then_some(inverse);
                }
                Err(row) => drop(active.remove(row)),
            }
        }
    }

    /// Computes intervals from the spread of what is left over parts of the time: neighbouring windows are not independent. Returns the
    /// variance of a window, and the quantile of the intervals.
    fn add_intervals(&self, values: &[f64], fit: &mut Fit) -> (f64, f64) {
        let blocks = (self.windows / LEAST_IN_BLOCK).clamp(1, MOST_BLOCKS);
        let in_block = self.windows.div_ceil(blocks).max(1);
        let mut place = vec![usize::MAX; self.kernels];
        fit.active.iter().enumerate().for_each(|(at, kernel)| place[*kernel] = at);
        let active = fit.active.len();
        let mut squares = vec![0.0; active];
        let mut scores = vec![0.0; active];
        let (mut block, mut used) = (0, 0usize);
        let close = |scores: &mut Vec<f64>, squares: &mut Vec<f64>, inverse: &Square| {
            for (row, square) in squares.iter_mut().enumerate() {
                let moved: f64 =
                    scores.iter().zip(inverse.row(row)).map(|(score, value)| value * score).sum();
                *square += moved * moved;
            }
            scores.fill(0.0);
        };
        let mut used_blocks = 0usize;
        for window in self.overlaps.chunk_by(|a, b| a.window == b.window) {
            let at = window[0].window as usize;
            if at / in_block != block {
                close(&mut scores, &mut squares, &fit.inverse);
                (block, used_blocks) = (at / in_block, used_blocks + 1);
            }
            let explained: f64 =
                window.iter().map(|overlap| overlap.ns * fit.rates[overlap.kernel as usize].value).sum();
            let left = values[at] - explained;
            fit.residual += left * left;
            used += 1;
            for overlap in window.iter().filter(|overlap| place[overlap.kernel as usize] != usize::MAX) {
                scores[place[overlap.kernel as usize]] += overlap.ns * left;
            }
        }
        close(&mut scores, &mut squares, &fit.inverse);
        used_blocks += 1;
        let degrees = used.saturating_sub(active).max(1) as f64;
        let correction = used as f64 / degrees * used_blocks as f64 / (used_blocks as f64 - 1.0).max(1.0);
        let quantile = student_t(used_blocks.saturating_sub(1).max(1), Confidence::Pct95);
        for (kernel, square) in fit.active.iter().zip(squares) {
            fit.rates[*kernel].half = quantile * (square * correction).sqrt();
        }
        (fit.residual / degrees, quantile)
    }
}

/// Limits of a rate beyond which it is not one of its own.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Half of its interval, as a share of the rate or of the mean rate, where it depends on another rate.
    pub wide: f64,
    /// Highest rate.
    pub most: f64,
}

/// Kernels in groups: those of a group are not told apart by the windows.
pub struct Groups {
    /// Kernels of each group.
    pub members: Vec<Vec<usize>>,
    /// Time of each group in the windows.
    pub overlaps: Vec<Overlap>,
    /// Rates of the groups, which add up to the values.
    pub fit: Fit,
}

impl Groups {
    /// Merges kernels until the windows tell all groups apart.
    pub fn told_apart(
        overlaps: &[Overlap],
        kernels: usize,
        windows: usize,
        values: &[f64],
        limits: Limits,
    ) -> Self {
        let mut members: Vec<Vec<usize>> = (0..kernels).map(|kernel| vec![kernel]).collect();
        let busy: f64 = overlaps.iter().map(|overlap| overlap.ns).sum();
        let mean =
            overlaps.chunk_by(|a, b| a.window == b.window).map(|window| values[window[0].window as usize]);
        let mean = mean.sum::<f64>() / busy.max(1.0);
        let mut rounds = 0;
        loop {
            let joined = merged(overlaps, &members, kernels);
            let design = Design::new(&joined, members.len(), windows);
            let mut fit = design.fit(values);
            let is_wide: Vec<bool> =
                fit.rates.iter().map(|rate| rate.half > limits.wide * rate.value.max(mean)).collect();
            design.conserve(values, &mut fit);
            let mut taken = vec![false; members.len()];
            let mut pairs: Vec<(usize, usize)> = Vec::new();
            for (group, rate) in fit.rates.iter().enumerate() {
                let other = match rate.half.is_finite() && rate.value <= limits.most {
                    true if !is_wide[group] => None,
                    true => fit.closest(group).filter(|other| other.1 < APART).map(|other| other.0),
                    false => design.nearest(group),
                };
                if let Some(other) = other.filter(|other| !taken[group] && !taken[*other]) {
                    (taken[group], taken[other]) = (true, true);
                    pairs.push((group.min(other), group.max(other)));
                }
            }
            if pairs.is_empty() || rounds == MOST_MERGES {
                return Self { members, overlaps: joined, fit };
            }
            rounds += 1;
            pairs.sort_unstable_by_key(|(_, later)| std::cmp::Reverse(*later));
            for (first, second) in pairs {
                let moved = members.remove(second);
                members[first].extend(moved);
            }
        }
    }
}

/// Returns the overlaps of groups of kernels.
fn merged(overlaps: &[Overlap], members: &[Vec<usize>], kernels: usize) -> Vec<Overlap> {
    let mut group = vec![0; kernels];
    members.iter().zip(0..).for_each(|(member, at)| member.iter().for_each(|kernel| group[*kernel] = at));
    let mut merged: Vec<Overlap> = Vec::with_capacity(overlaps.len());
    for overlap in overlaps {
        let kernel = group[overlap.kernel as usize];
        let from = merged.iter().rposition(|earlier| earlier.window != overlap.window).map_or(0, |at| at + 1);
        match merged[from..].iter_mut().find(|same| same.kernel == kernel) {
            Some(same) => same.ns += overlap.ns,
            None => merged.push(Overlap { kernel, ..*overlap }),
        }
    }
    merged
}

/// A symmetric matrix.
#[derive(Debug, Clone, Default)]
struct Square {
    size: usize,
    values: Vec<f64>,
}

/// Share of its own square that must be left of a kernel beside the others before it, for it to count.
const LEAST_PIVOT: f64 = 1e-6;

impl Square {
    fn new(size: usize, value: impl Fn(usize, usize) -> f64) -> Self {
        let values = (0..size * size).map(|at| value(at / size, at % size)).collect();
        Self { size, values }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.size + column]
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.size..(row + 1) * self.size]
    }

    /// Divides rows and columns by the scale of each.
    fn divide(&mut self, scale: &[f64]) {
        for (at, value) in self.values.iter_mut().enumerate() {
            *value /= scale[at / self.size] * scale[at % self.size];
        }
    }

    /// Inverts a matrix with ones on its diagonal, by Cholesky's factors; returns the row that the rows before it make up.
    fn inverted(self) -> Result<Self, usize> {
        let (size, mut lower) = (self.size, self.values);
        for row in 0..size {
            for column in 0..=row {
                let (above, row_values) = lower.split_at(row * size);
                let done: f64 = match column == row {
                    true => row_values[..column].iter().map(|value| value * value).sum(),
                    false => {
                        let other = &above[column * size..column * size + column];
                        row_values[..column].iter().zip(other).map(|(a, b)| a * b).sum()
                    }
                };
                let left = lower[row * size + column] - done;
                lower[row * size + column] = match column == row {
                    true if left < LEAST_PIVOT => return Err(row),
                    true => left.sqrt(),
                    false => left / lower[column * size + column],
                };
            }
        }
        // The inverse of the lower factor, then the product with its transpose.
        let mut inverse = vec![0.0; size * size];
        for column in 0..size {
            inverse[column * size + column] = 1.0 / lower[column * size + column];
            for row in column + 1..size {
                let done: f64 =
                    (column..row).map(|at| lower[row * size + at] * inverse[at * size + column]).sum();
                inverse[row * size + column] = -done / lower[row * size + row];
            }
        }
        let product = |row: usize, column: usize| -> f64 {
            (row.max(column)..size).map(|at| inverse[at * size + row] * inverse[at * size + column]).sum()
        };
        Ok(Self::new(size, product))
    }
}
