//! The metrics that long-running commands serve at `/~/metrics`.

use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tokio::runtime::Runtime;

use crate::output::Failure;

/// The interval at which recorded durations are summed into their buckets. Until then they take memory.
const UPKEEP: Duration = Duration::from_secs(5);
/// Upper bounds of the buckets of duration histograms, in seconds.
const SECONDS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];

/// Installs the recorder of metrics. The client looks for it when it is built, so it must be installed before that.
pub(crate) fn record(runtime: &Runtime) -> Result<PrometheusHandle, Failure> {
    let recorder = recorder().map_err(|error| Failure::Input(format!("metrics: {error}")))?;
    let upkeep = recorder.clone();
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            upkeep.run_upkeep();
        }
    });
    Ok(recorder)
}

fn recorder() -> Result<PrometheusHandle, BuildError> {
    PrometheusBuilder::new().set_buckets(&SECONDS)?.install_recorder()
}
