//! The bandwidth test, beside what Equation 1 of the DxPU paper predicts.

use crate::Cli;
use crate::programs::{Programs, number};
use crate::report::Report;
use anyhow::Result;
use serde_json::{Value, json};

/// Requests of a device that a card keeps outstanding (proxy-core's `DEVICE_OUTSTANDING` with a card's
/// limits): Equation 1 has no more tags than that.
const CARD_TAGS: &str = "16";

/// Runs the test with so many MiB each way, or with what takes about a second.
pub(crate) fn bandwidth(
    cli: &Cli,
    report: &mut Report,
    programs: &Programs,
    accelerator: &str,
) -> Result<()> {
    let mib = cli.bandwidth_mib;
    let size = mib.map_or("about a second".into(), |mib| format!("{mib} MiB"));
    report.step(&format!("bandwidth test, {size} each way, every byte checked"));
    let bytes = mib.map(|mib| (mib << 20).to_string());
    let mut arguments = vec!["bandwidth", accelerator];
    if let Some(bytes) = &bytes {
        arguments.extend(["--bytes", bytes]);
    }
    if cli.card {
        arguments.extend(["--tags", CARD_TAGS]);
    }
    let result = programs.host_watched(report, &arguments)?;
    let (table, rows) = table(&result)?;
    report.text(&table);
    report.text(&format!(
        "Equation 1: {} tags x {} bytes / round trip; {:.1} us unloaded, {:.1} us loaded\n\
         Writes wait for no answer: it does not bound them.",
        number(&result, "/host_to_device/tags")?,
        number(&result, "/host_to_device/request_bytes")?,
        number(&result, "/unloaded_rtt_ns")? / 1e3,
        number(&result, "/host_to_device/rtt_mean_ns")? / 1e3,
    ));
    report.record("bandwidth", json!({ "table": rows, "tests": result }));
    Ok(())
}

/// What was measured beside both predictions, for people and for programs.
fn table(result: &Value) -> Result<(String, Vec<Value>)> {
    let line = |cells: [String; 5]| {
        let [what, moved, measured, unloaded, loaded] = cells;
        format!("{what:<14}  {moved:>9}  {measured:>12}  {unloaded:>24}  {loaded:>22}")
    };
    let mut lines = vec![line(
        ["", "MOVED", "MEASURED", "EQUATION 1, RTT UNLOADED", "EQUATION 1, RTT LOADED"]
            .map(String::from),
    )];
    let mut rows = Vec::new();
    for (name, key, predicted) in
        [("host to device", "host_to_device", true), ("device to host", "device_to_host", false)]
    {
        let bytes = number(result, &format!("/{key}/bytes"))?;
        let measured = number(result, &format!("/{key}/bytes_per_second"))?;
        let prediction = |rtt: &str| -> Result<Option<f64>> {
            let path = format!("/equation1_{rtt}_bytes_per_second");
            if predicted { number(result, &path).map(Some) } else { Ok(None) }
        };
        let (unloaded, loaded) = (prediction("unloaded")?, prediction("loaded")?);
        let rate = |rate: Option<f64>| rate.map_or("-".into(), |r| format!("{:.1} MB/s", r / 1e6));
        let moved = format!("{} MiB", bytes / f64::from(1 << 20));
        lines.push(line([name.into(), moved, rate(Some(measured)), rate(unloaded), rate(loaded)]));
        rows.push(json!({
            "direction": key,
            "bytes": bytes as u64,
            "measured_bytes_per_second": measured,
            "equation1_rtt_unloaded_bytes_per_second": unloaded,
            "equation1_rtt_loaded_bytes_per_second": loaded,
        }));
    }
    Ok((lines.join("\n"), rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_and_predicted_stand_side_by_side() {
        let result = json!({
            "host_to_device": { "bytes": 1 << 27, "bytes_per_second": 100e6 },
            "device_to_host": { "bytes": 1 << 28, "bytes_per_second": 200e6 },
            "equation1_unloaded_bytes_per_second": 900e6,
            "equation1_loaded_bytes_per_second": 101e6,
        });
        let (text, rows) = table(&result).unwrap();
        let reads: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = "host to device 128 MiB 100.0 MB/s 900.0 MB/s 101.0 MB/s";
        assert_eq!(reads.join(" "), expected);
        assert_eq!(rows[0]["equation1_rtt_loaded_bytes_per_second"], 101e6);
        assert_eq!(rows[1]["measured_bytes_per_second"], 200e6);
        assert!(rows[1]["equation1_rtt_loaded_bytes_per_second"].is_null());
    }

    #[test]
    fn a_figure_that_is_missing_is_named() {
        let error = table(&json!({})).unwrap_err().to_string();
        assert!(error.contains("/host_to_device/bytes"), "{error}");
    }
}
