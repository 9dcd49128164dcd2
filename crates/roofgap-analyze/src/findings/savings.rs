//! Predicted savings: the stage of each finding, replayed with the change that its action makes.

use super::rule::Change;
use super::{Inputs, explain};
use crate::execution::Edit;
use crate::result::{Confidence, Finding, Saving, Stage};

/// Adds the predicted saving to each finding, or the reason why there is none.
pub fn add(inputs: Inputs<'_>, findings: &mut [Finding]) {
    let Some(engine) = inputs.engine else { return };
    let stages = &inputs.analysis.stages;
    for finding in findings {
        let at = stages.iter().position(|stage| Some(&stage.name) == finding.stage.as_ref());
        let Some((at, stage)) = at.and_then(|at| Some((at, stages.get(at)?))) else { continue };
        let predicted = edit(finding, stage.warm()).and_then(|edit| {
            let after = engine.predict((at, stage), &[edit]).map_err(|why| why.to_string())?;
            Ok(Saving::from(&after))
        });
        match predicted {
            Ok(saving) => finding.saves = Some(saving),
            Err(why) => finding.unpredicted = Some(why),
        }
    }
}

/// Returns the edit that carries out the action of a finding.
pub fn edit(finding: &Finding, stage: &Stage) -> Result<Edit, String> {
    let change = explain(&finding.id).and_then(|rule| rule.change.as_ref());
    let remedy = finding.evidence.get("remedy").and_then(|remedy| remedy.as_str());
    match change {
        Some(Change::Edit(Edit::Graph)) if remedy.is_some_and(|remedy| remedy != "CUDA graphs") => {
            Err("the time that is left of its CPU work is not known".to_owned())
        }
        Some(Change::Edit(Edit::Graph))
            if remedy.is_none() && finding.evidence.contains_key("graph_launches") =>
        {
            Err("its work is in CUDA graphs already".to_owned())
        }
        Some(Change::Edit(Edit::NoWait)) if stage.devices_per_instance > 1.0 => {
            Err("its waits may order the work of several GPUs".to_owned())
        }
        Some(Change::Edit(edit)) => Ok(edit.clone()),
        Some(Change::Kernel) => {
            let name = finding.evidence.get("kernel").and_then(|name| name.as_str());
            let kernel = name.and_then(|name| stage.kernels.iter().find(|kernel| kernel.name == name));
            let kernel = kernel.ok_or("it is about several kernels")?;
            let left = 1.0 - finding.bound_ns as f64 / stage.each_device(kernel.total_ns).max(1) as f64;
            Ok(Edit::Kernels(kernel.name.clone(), left.clamp(0.0, 1.0)))
        }
        Some(Change::Products) => {
            let products = finding.evidence.get("cuda_core_gemm_ns").and_then(|ns| ns.as_i64());
            let products = products.filter(|_| finding.confidence != Confidence::Guessed);
            let products = products.ok_or("the ratio of the peaks is not known")?;
            let left = 1.0 - finding.bound_ns as f64 / stage.each_device(products).max(1) as f64;
            Ok(Edit::Products(left.clamp(0.0, 1.0)))
        }
        None => Err("a replay cannot make its change".to_owned()),
    }
}
