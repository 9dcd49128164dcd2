//! The settings of a workload that findings can change.

use roofgap_analyze::Engine;
use roofgap_analyze::knobs::{HfFacts, ProgramFacts, WorkloadFacts};

use crate::config::Config;
use crate::config::settings::WorkloadKind;

/// Returns the facts about the workload of a configuration; `None` for a Hydra module, whose settings are its own.
pub fn facts(config: &Config) -> Option<WorkloadFacts> {
    let (workload, model) = (&config.workload, &config.model);
    match workload.kind {
        WorkloadKind::Embedded => Some(WorkloadFacts::Embedded {
            kv_cache: workload.kv_cache,
            context_limit: workload.context_limit.map(u64::from),
        }),
        WorkloadKind::Hf => Some(WorkloadFacts::Hf(HfFacts {
            compile: workload.compile,
            cuda_graphs: workload.cuda_graphs,
            batch: workload.batch.into(),
            dtype: workload.dtype.clone().unwrap_or_else(|| model.dtype.clone()),
            attention: model.attention.clone(),
            experts: model.experts.clone(),
        })),
        WorkloadKind::Command | WorkloadKind::Server => Some(WorkloadFacts::Program(ProgramFacts {
            words: workload.program.clone(),
            engine_command: Engine::of_command(&workload.words()),
        })),
        WorkloadKind::Hydra => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigProps, compose};

    fn facts_of(overrides: &[&str]) -> Option<WorkloadFacts> {
        let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
        let props = ConfigProps { overrides, ..ConfigProps::default() };
        facts(&compose(&props).unwrap().config)
    }

    #[test]
    fn the_settings_of_each_kind_of_workload() {
        assert_eq!(
            facts_of(&["workload.kv_cache=false"]),
            Some(WorkloadFacts::Embedded { kv_cache: false, context_limit: None })
        );
        assert_eq!(
            facts_of(&["model=qwen3_0_6b", "workload.batch=4", "model.experts=grouped_mm"]),
            Some(WorkloadFacts::Hf(HfFacts {
                batch: 4,
                dtype: "bf16".to_owned(),
                experts: Some("grouped_mm".to_owned()),
                ..HfFacts::default()
            }))
        );
        let server = facts_of(&["workload=server", "workload.program=[vllm, serve, m, --enforce-eager]"]);
        let Some(WorkloadFacts::Program(program)) = server else {
            panic!("{server:?}");
        };
        assert_eq!(program.engine_command.map(|engine| engine.name), Some("vLLM"));
        assert_eq!(program.words.len(), 4);
        assert_eq!(facts_of(&["workload=hydra", "workload.module=m"]), None);
    }
}
