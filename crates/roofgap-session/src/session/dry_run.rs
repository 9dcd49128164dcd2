//! A session that runs nothing: what it would check, and every command it would run.

use std::path::Path;

use roofgap_collect::command::CommandLine;
use roofgap_collect::ncu::{self, Page};
use roofgap_collect::nsys;
use roofgap_collect::program::Phase;

use super::environment::GpuFacts;
use super::layout::Layout;
use super::profile::Asked;
use super::program::{Beside, Program};
use super::props::{ProfileProps, SessionError};
use super::timeline::{LIBRARY, Recorder, native_line, order, profile_of};
use super::tools::Tools;
use super::{bundle, preflight, request};
use crate::config::settings::WorkloadKind;
use crate::record::PhaseName;

/// What a session would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRun {
    /// Commands in order, with the phase they belong to. Paths are those of a run directory called `RUN`.
    pub commands: Vec<(PhaseName, CommandLine)>,
    /// What is missing or worth knowing, with the phase.
    pub remarks: Vec<(PhaseName, String)>,
}

/// Check a session and list its commands, without making a run directory or running the program.
pub fn dry_run(props: &ProfileProps) -> Result<DryRun, SessionError> {
    let config = &props.composed.config;
    bundle::stages(config).map_err(SessionError::Usage)?;
    preflight::possible(props).map_err(SessionError::Usage)?;
    let root = config.artifacts.stage2_dir.join("RUN");
    let layout = Layout::of(&std::path::absolute(&root).unwrap_or(root));
    let beside = Beside::planned(config, &layout).map_err(SessionError::Usage)?;
    let program = Program::of(config, &props.executable, &layout, &beside).map_err(SessionError::Usage)?;
    let asked = Asked::of(config);
    let gpus = GpuFacts::here(config, &props.search_path);
    let mut plan = DryRun {
        commands: Vec::new(),
        remarks: Vec::new(),
    };
    plan.remarks.extend(
        gpus.usable
            .as_ref()
            .err()
            .map(|why| (PhaseName::Preflight, why.clone())),
    );
    let command = |phase, account: &Path| program.command(phase, account).map_err(SessionError::Usage);
    if asked.baseline {
        plan.commands.push((
            PhaseName::Baseline,
            command(Phase::Baseline, &layout.baseline_account())?,
        ));
    }
    if asked.timeline || asked.counters {
        let tools = Tools::find(props, gpus.usable);
        if asked.timeline {
            plan.timeline(props, &tools, &layout, &program)?;
        }
        if asked.counters {
            plan.counters(props, &tools, &layout, &program)?;
        }
    }
    if asked.operators && config.workload.kind == WorkloadKind::Hf {
        let line = command(Phase::Operators, &layout.torch_other_account())?;
        plan.commands.push((PhaseName::Operators, line));
    }
    plan.commands.sort_by_key(|(phase, _)| *phase);
    Ok(plan)
}

impl DryRun {
    fn timeline(
        &mut self,
        props: &ProfileProps,
        tools: &Tools,
        layout: &Layout,
        program: &Program,
    ) -> Result<(), SessionError> {
        const PHASE: PhaseName = PhaseName::Timeline;
        let config = &props.composed.config;
        for recorder in order(config.profiling.timeline, config.run.mode) {
            match recorder {
                Recorder::Nsys => match &tools.nsys {
                    Ok(tool) => {
                        let line = program
                            .command(Phase::Timeline, &layout.nsys_account())
                            .map_err(SessionError::Usage)?;
                        let profile = profile_of(config, layout).map_err(SessionError::Usage)?;
                        let planned = profile.command(tool, &line);
                        self.remarks
                            .extend(planned.left_out.into_iter().map(|left| (PHASE, left)));
                        self.commands.push((PHASE, planned.command));
                        self.commands.push((
                            PHASE,
                            nsys::export(tool, &profile.report(), &layout.nsys_export()),
                        ));
                        let base = layout.nsys_summary();
                        if let Some(summary) =
                            nsys::kernel_summary(tool, &base).filter(|_| config.profiling.nsys.stats)
                        {
                            let stats = nsys::stats(tool, &layout.nsys_sqlite(), &[summary.report], &base);
                            self.commands.push((PHASE, stats));
                        }
                        return Ok(());
                    }
                    Err(why) => self.remarks.push((PHASE, why.clone())),
                },
                Recorder::Native => match &tools.native {
                    Ok(_) => {
                        let line = program
                            .command(Phase::Timeline, &layout.native_account())
                            .map_err(SessionError::Usage)?;
                        let library = layout.root().join(LIBRARY);
                        self.commands
                            .push((PHASE, native_line(line, config, &library, &layout.native())));
                        return Ok(());
                    }
                    Err(why) => self
                        .remarks
                        .push((PHASE, format!("the native collector cannot be used: {why}"))),
                },
            }
        }
        Ok(())
    }

    fn counters(
        &mut self,
        props: &ProfileProps,
        tools: &Tools,
        layout: &Layout,
        program: &Program,
    ) -> Result<(), SessionError> {
        const PHASE: PhaseName = PhaseName::Counters;
        let tool = match &tools.ncu {
            Ok(tool) => tool,
            Err(why) => {
                self.remarks.push((PHASE, why.clone()));
                return Ok(());
            }
        };
        let line = program
            .command(Phase::Counters, &layout.ncu_account())
            .map_err(SessionError::Usage)?;
        let plan = request::blank(&props.composed.config, layout);
        let planned = plan.command(tool, &line);
        self.remarks
            .extend(planned.left_out.into_iter().map(|left| (PHASE, left)));
        self.remarks.push((
            PHASE,
            "kernel names, NVTX ranges and metrics are added from the timeline".to_owned(),
        ));
        self.commands.push((PHASE, planned.command));
        for page in [Page::Raw, Page::Details] {
            self.commands
                .push((PHASE, ncu::import(tool, &plan.report(), page)));
        }
        Ok(())
    }
}
