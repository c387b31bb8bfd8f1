//! The model beside what DxPU's paper measured: what is fitted, and what is judged by the fit.
//!
//! Source of every measured number: He et al., *DxPU: Large Scale Disaggregated GPU Pools in the
//! Datacenter*, 2023; figure or table stands with each row. A fit and its judgement are kept apart:
//! [`fit`] sees Figure 4 and Table 4 only.

use perf_core::{Fabric, Nanos, Thousandths};

/// Average kernel of ResNet-50 in training, synthetic data, batch 64 (Table 9), ns. Figure 4 and
/// Table 4 do not say their batch; 64 is the one of Table 12.
const RESNET_64: Nanos = Nanos(102_300);

/// A performance that the fit may see: RTT in ns, performance in percent, source.
const FITTED_ON: [(u64, f64, &str); 4] = [
    (4_900, 91.50, "Table 4, measured"),
    (6_800, 89.56, "Table 4, measured"),
    (8_000, 90.0, "Figure 4"),
    (19_000, 80.0, "Figure 4"),
];

/// What is left of the performance, 0 to 1, of a program whose kernels last `kernel` on average and
/// are issued no faster than one in `launch`, when each exposes `round_trips`.
///
/// Time that the GPU would have waited for the next launch anyway hides what is added.
pub fn performance(fabric: &Fabric, kernel: Nanos, launch: Nanos, round_trips: Thousandths) -> f64 {
    let native = kernel.max(launch).0.max(1);
    let slower = kernel.saturating_add(round_trips.of(fabric.delta())).max(launch).0.max(1);
    native as f64 / slower as f64
}

/// The number of round trips for each kernel in training that comes nearest to Figure 4 and
/// Table 4, by least squares of the performance.
///
/// The launch interval cannot be told from them: kernels are 99 % of the GPU's time there, so any
/// interval below the average kernel gives the same. It is taken as 0.
pub fn fit() -> Thousandths {
    let error = |round_trips: Thousandths| -> f64 {
        let square = |&(rtt, measured, _): &(u64, f64, &str)| {
            let fabric = Fabric { rtt: Nanos(rtt), ..Fabric::DXPU_68 };
            let model = 100.0 * performance(&fabric, RESNET_64, Nanos::ZERO, round_trips);
            (model - measured).powi(2)
        };
        FITTED_ON.iter().map(square).sum()
    };
    (0..=4_000)
        .map(Thousandths)
        .min_by(|a, b| error(*a).total_cmp(&error(*b)))
        .expect("there are numbers to choose from")
}

/// Whether a row was seen by the fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Use {
    /// The fit saw it.
    Fitted,
    /// It judges: it should come out within so many points.
    Judged(f64),
    /// It is reported; the reason says why it is not expected to come out.
    Reported(&'static str),
}

/// One number of the paper, and the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Figure or table.
    pub source: &'static str,
    /// What ran.
    pub workload: String,
    /// What the model was told of it.
    pub told: String,
    /// Percent of native performance by the model; none where the paper does not say what the
    /// model has to be told.
    pub model: Option<f64>,
    /// Percent of native performance as measured.
    pub measured: f64,
    /// What it is for.
    pub used: Use,
}

impl Row {
    /// Model minus measured, in points.
    pub fn error(&self) -> Option<f64> {
        self.model.map(|model| model - self.measured)
    }

    /// Whether a row that judges is within its bound.
    pub fn holds(&self) -> Option<bool> {
        match (self.used, self.error()) {
            (Use::Judged(bound), Some(error)) => Some(error.abs() <= bound),
            _ => None,
        }
    }
}

/// Every number of the paper, the fitted ones first.
pub fn rows() -> Vec<Row> {
    let training = fit();
    let mut rows = fitted(training);
    rows.extend(table_9(training));
    rows.extend(table_9_untold());
    rows.extend(table_12(training));
    rows.extend(table_11(training));
    rows.extend(bert(training));
    rows
}

fn fitted(training: Thousandths) -> Vec<Row> {
    let row = |&(rtt, measured, source)| {
        let fabric = Fabric { rtt: Nanos(rtt), ..Fabric::DXPU_68 };
        Row {
            source,
            workload: format!("ResNet-50 training, RTT {} us", Nanos(rtt).micros()),
            told: "batch 64: kernels of 102.3 us".to_owned(),
            model: Some(100.0 * performance(&fabric, RESNET_64, Nanos::ZERO, training)),
            measured,
            used: Use::Fitted,
        }
    };
    FITTED_ON.iter().map(row).collect()
}

/// Table 9 where the paper says how long kernels are. In inference a kernel exposes one round
/// trip, as section 3.4 has it: the rest of training's are the memsets and small copies around its
/// kernels (gradients to clear, the optimizer's scalars), which a forward pass does not have.
fn table_9(training: Thousandths) -> Vec<Row> {
    let inference = Thousandths::ONE;
    let longer = |kernel: f64, percent: f64| kernel * (1.0 + percent / 100.0);
    let table = [
        ("training", 32, 56.0, training, 85.2, 6.0),
        ("training", 64, 102.3, training, 92.7, 6.0),
        ("training", 128, 193.0, training, 95.5, 6.0),
        ("training with XLA", 64, 131.0, training, 97.5, 6.0),
        ("inference", 32, longer(56.0, 48.2), inference, 95.4, 3.0),
        ("inference", 64, longer(102.3, 55.5), inference, 98.6, 3.0),
        ("inference", 128, longer(193.0, 55.1), inference, 99.5, 3.0),
    ];
    let row = |(what, batch, micros, trips, measured, bound): (_, i32, f64, _, _, _)| {
        let kernel = Nanos((micros * 1e3).round() as u64);
        Row {
            source: "Table 9",
            workload: format!("ResNet-50 {what}, batch {batch}"),
            told: format!("kernels of {micros:.1} us"),
            model: Some(100.0 * performance(&Fabric::DXPU_68, kernel, Nanos::ZERO, trips)),
            measured,
            used: Use::Judged(bound),
        }
    };
    table.into_iter().map(row).collect()
}

/// Table 9 where it does not.
fn table_9_untold() -> Vec<Row> {
    const XLA: &str = "the paper gives no kernel duration for this row";
    const IMAGENET: &str = "40 MB a step are read by the GPU, and the paper says neither how long a \
                            step takes nor how much of the copy its input pipeline hides";
    [
        ("training with XLA", 32, 93.3, XLA),
        ("training with XLA", 128, 97.9, XLA),
        ("inference with XLA", 32, 94.6, XLA),
        ("inference with XLA", 64, 98.1, XLA),
        ("inference with XLA", 128, 99.6, XLA),
        ("training, ImageNet", 32, 83.8, IMAGENET),
        ("training, ImageNet", 64, 89.4, IMAGENET),
        ("training, ImageNet", 128, 94.3, IMAGENET),
    ]
    .into_iter()
    .map(|(what, batch, measured, reason)| Row {
        source: "Table 9",
        workload: format!("ResNet-50 {what}, batch {batch}"),
        told: "-".to_owned(),
        model: None,
        measured,
        used: Use::Reported(reason),
    })
    .collect()
}

/// Several GPUs behind one proxy: its rate is shared, and waiting grows with its use.
fn table_12(training: Thousandths) -> Vec<Row> {
    [(1, 1.5, 92.7), (2, 2.6, 90.3), (4, 4.9, 87.5), (8, 8.4, 82.4)]
        .into_iter()
        .map(|(gpus, gigabytes, measured)| {
            let fabric = Fabric::DXPU_68;
            let loaded = fabric.under_load(gigabytes / fabric.fabric_rate.giga());
            Row {
                source: "Table 12",
                workload: format!(
                    "ResNet-50 training, {gpus} GPU{}, batch 64",
                    if gpus == 1 { "" } else { "s" }
                ),
                told: format!("kernels of 102.3 us, {gigabytes} GB/s to the GPUs"),
                model: Some(100.0 * performance(&loaded, RESNET_64, Nanos::ZERO, training)),
                measured,
                used: Use::Judged(4.0),
            }
        })
        .collect()
}

fn table_11(training: Thousandths) -> Vec<Row> {
    const REASON: &str = "over 90 % of its kernels are shorter than the added round trip, so the \
                          GPU waits for the CPU's launches most of the time; the paper gives no \
                          launch interval, and without one nothing is hidden";
    [(8, 10.7, 81.53), (16, 8.2, 84.62), (32, 7.9, 84.47), (64, 8.1, 83.64)]
        .into_iter()
        .map(|(batch, micros, measured)| Row {
            source: "Table 11",
            workload: format!("SSD320 training, batch {batch}"),
            told: format!("kernels of {micros:.1} us"),
            model: Some(
                100.0
                    * performance(
                        &Fabric::DXPU_68,
                        Nanos((micros * 1e3_f64).round() as u64),
                        Nanos::ZERO,
                        training,
                    ),
            ),
            measured,
            used: Use::Reported(REASON),
        })
        .collect()
}

/// BERT on one GPU says how long its kernels must be; several GPUs are then without their load.
fn bert(training: Thousandths) -> Vec<Row> {
    const REASON: &str = "the paper gives neither kernel durations nor traffic: the duration is \
                          the one that 1 GPU's row implies, and the proxy counts as idle";
    let one = 0.946;
    let added = training.of(Fabric::DXPU_68.delta()).0 as f64;
    let kernel = Nanos((added * one / (1.0 - one)).round() as u64);
    [(1, 94.6), (4, 93.8), (8, 93.4)]
        .into_iter()
        .map(|(gpus, measured)| Row {
            source: "Section 4 (BERT)",
            workload: format!("BERT, {gpus} GPU{}", if gpus == 1 { "" } else { "s" }),
            told: format!("kernels of {:.1} us, implied", kernel.micros()),
            model: Some(100.0 * performance(&Fabric::DXPU_68, kernel, Nanos::ZERO, training)),
            measured,
            used: Use::Reported(REASON),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_that_judges_is_within_its_bound() {
        let judged: Vec<Row> = rows().into_iter().filter(|row| row.holds().is_some()).collect();
        assert_eq!(judged.len(), 11);
        for row in judged {
            assert_eq!(row.holds(), Some(true), "{row:?}: {:?}", row.error());
        }
    }

    #[test]
    fn the_fit_is_the_least_of_its_neighbours_and_no_row_that_judges_is_in_it() {
        let fit = fit();
        assert!((1_000..2_500).contains(&fit.0), "{fit:?}");
        let fitted = rows().into_iter().filter(|row| row.used == Use::Fitted);
        assert!(fitted.clone().all(|row| row.source != "Table 9" && row.source != "Table 12"));
        assert_eq!(fitted.count(), FITTED_ON.len());
    }

    #[test]
    fn a_launch_interval_hides_what_is_added_up_to_itself() {
        let kernel = Nanos(8_000);
        let at = |launch| performance(&Fabric::DXPU_68, kernel, Nanos(launch), Thousandths::ONE);
        assert!((at(14_000) - 1.0).abs() < 1e-12);
        assert!(at(10_000) > at(0));
        assert!((at(0) - 8.0 / 13.6).abs() < 1e-12);
    }
}
