//! Power, clocks and energy of the GPUs.

results! {
    /// Power, clocks and energy of the GPUs, sampled while the program ran.
    #[derive(Default)]
    pub struct Vitals {
        /// GPUs of the program.
        pub gpus: Vec<VitalsGpu>,
        /// Energy of a run of the program, all GPUs together; null where the meter was not read.
        pub energy: Option<MeterEnergy>,
    }

    /// Vitals of one GPU.
    #[derive(Default)]
    pub struct VitalsGpu {
        /// Device number.
        pub device: u32,
        /// Name.
        pub name: Option<String>,
        /// Highest clock of the multiprocessors, MHz.
        pub max_sm_mhz: Option<f64>,
        /// Median clock of the multiprocessors between the first and the last GPU operation, MHz.
        pub sm_mhz: Option<f64>,
        /// Median power in that time, W.
        pub power_w: Option<f64>,
        /// Power limit in force, W.
        pub limit_w: Option<f64>,
        /// Default power limit, W.
        pub default_limit_w: Option<f64>,
        /// Highest temperature, degrees Celsius.
        pub celsius: Option<f64>,
        /// True if the GPU is divided into instances (MIG), whose vitals are not told apart.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub mig: bool,
        /// Processes that used the GPU and are not of the program.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub others: Vec<OtherTenant>,
    }

    /// A process that used a GPU beside the program.
    #[derive(Default)]
    pub struct OtherTenant {
        /// Process id.
        pub pid: u32,
        /// Name.
        pub name: Option<String>,
        /// Share of the time of the program in which it used the multiprocessors, %.
        pub sm_pct: f64,
    }

    /// The energy of a run. The parts of the stages and those outside add up to `meter_j`.
    #[derive(Default)]
    pub struct MeterEnergy {
        /// Run that was metered.
        pub run: EnergyRun,
        /// Energy by the counter of the driver, J, from the start of the program to its end.
        pub meter_j: f64,
        /// Time of that, ns.
        pub meter_ns: i64,
        /// Power of the idle GPUs, W: the lowest over half a second while the program had a context, where part of that time is without GPU
        /// work; else over any half second.
        pub idle_w: f64,
        /// True if `idle_w` is that of GPUs with a context, which is higher.
        #[serde(default)]
        pub idle_in_context: bool,
        /// Idle part outside of the stages, J: loading, warm-up, the time between stages.
        pub outside_idle_j: f64,
        /// Dynamic part outside of the stages, J.
        pub outside_dynamic_j: f64,
    }

    /// A run whose energy was metered.
    #[derive(Copy, Eq, Default)]
    #[serde(rename_all = "snake_case")]
    pub enum EnergyRun {
        /// The run without a profiler.
        Baseline,
        /// The run that was recorded.
        #[default]
        Profiled,
    }

    /// Clocks and energy of a stage.
    #[derive(Default)]
    pub struct StageVitals {
        /// Number of samples while the stage ran.
        pub samples: u64,
        /// Median clock of the multiprocessors, MHz.
        pub sm_mhz: Option<f64>,
        /// Clock that the peak of `mfu` belongs to, MHz; null where it is not known.
        pub peak_mhz: Option<f64>,
        /// Utilisation of the peak at `sm_mhz` over wall time, %: `mfu.by_wall_pct` times `peak_mhz` divided by `sm_mhz`.
        pub mfu_at_clock_pct: Option<f64>,
        /// Time at the roof that the GPU has at `sm_mhz`, % of the time of the launches whose work is known.
        pub roof_at_clock_pct: Option<f64>,
        /// Reasons of the driver for a clock below the highest, by time.
        pub throttle: Vec<ThrottleTime>,
        /// Beginning at a low clock; left out where there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ramp: Option<ClockRamp>,
        /// Energy; null where the meter was not read while the stage ran.
        pub energy: Option<StageEnergy>,
    }

    /// The beginning of a stage, at a clock below nine tenths of the median.
    pub struct ClockRamp {
        /// Share of the samples of the stage, %.
        pub pct: f64,
        /// Mean clock of the multiprocessors in it, MHz.
        pub sm_mhz: f64,
    }

    /// Time with a reason for a lower clock.
    pub struct ThrottleTime {
        /// Reason.
        pub reason: ThrottleReason,
        /// Share of the samples of the stage, %.
        pub pct: f64,
    }

    /// Energy of a stage in all of its instances, all GPUs together.
    #[derive(Default)]
    pub struct StageEnergy {
        /// Run that was metered.
        pub run: EnergyRun,
        /// Energy, J.
        pub joules: f64,
        /// Part of it that the idle GPUs would use in the same time, J.
        pub idle_j: f64,
        /// Part of it beyond that, J.
        pub dynamic_j: f64,
        /// Half of the interval of 95 % of `dynamic_j`, J; null where the meter does not tell the stage apart from the others.
        pub error_j: Option<f64>,
        /// Stages that the meter does not tell it apart from, or `outside`: they share their dynamic energy by their times; left out
        /// where it is told apart.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub together_with: Option<String>,
        /// Mean power, W.
        pub watts: f64,
        /// Energy of a token, J; null where tokens are not known.
        pub token_j: Option<f64>,
    }
}

words! {
    /// A reason of the driver for a lower clock.
    pub enum ThrottleReason {
        /// The clock was set by a user.
        ClockSetting = "clock setting",
        /// The power limit.
        PowerCap = "power cap",
        /// The hardware lowers the clock: power, temperature or an external signal.
        HwSlowdown = "hardware slowdown",
        /// GPUs of a group run at one clock.
        SyncBoost = "sync boost",
        /// Temperature, by the driver.
        Thermal = "thermal limit",
        /// Temperature, by the hardware.
        HwThermal = "hardware thermal limit",
        /// A power brake of the machine.
        PowerBrake = "power brake",
        /// The clock is below the highest without a reason of the driver, such as a clock lock.
        Unstated = "no stated reason",
    }
}

impl ThrottleReason {
    /// Bits of NVML. An idle GPU and the clock of a display are no reasons.
    pub(crate) const BITS: [(u64, Self); 7] = [
        (0x2, Self::ClockSetting),
        (0x4, Self::PowerCap),
        (0x8, Self::HwSlowdown),
        (0x10, Self::SyncBoost),
        (0x20, Self::Thermal),
        (0x40, Self::HwThermal),
        (0x80, Self::PowerBrake),
    ];
}
