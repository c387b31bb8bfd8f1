use super::Bench;
use crate::figures::{Aim, Held, Results};
use crate::loss::Loss;
use crate::network::{BOX, HOST, Network};
use crate::process::number;
use crate::system::{Layout, System};
use anyhow::Result;

/// One frame in so many is lost, each way.
const ONE_IN: u32 = 10_000;
/// The throughput that is aimed for with that loss, of that without.
const TARGET: f64 = 0.95;
/// Loss by which a lone frame's recovery is seen: about one read in fifty loses a frame.
const ONE_IN_LONE: u32 = 100;

/// Loses frames in both directions of the first path, as long as it is kept.
fn lose(network: &Network, one_in: Option<u32>) -> Result<[Loss; 2]> {
    let near = Network::within(&network.host, || Loss::attach(HOST[0], one_in))?;
    Ok([near, Network::within(&network.boxes, || Loss::attach(BOX[0], one_in))?])
}

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    if let Err(error) = lose(&bench.network, None) {
        let why = format!("the kernel loses no frames for us ({error:#})");
        results.skipped.push(why);
        return Ok(());
    }
    let layout = Layout::of(&["1=accelerator,memory=1M,tags=256,read=512"]);
    let system = System::start(&bench.programs, &bench.network, &layout)?;
    let device = system.lend("accelerator", 1)?.remove(0).name;
    let bytes = bench.pick(1 << 30, 256 << 20_u64).to_string();
    for (way, key) in [("write", "device_to_host"), ("read", "host_to_device")] {
        let job = |one_in| -> Result<f64> {
            let _loss = lose(&bench.network, one_in)?;
            let words = ["bandwidth", &device, "--only", way, "--bytes", &bytes];
            number(&system.host(&words)?, &format!("/{key}/bytes_per_second"))
        };
        let (mut rates, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..bench.repeats {
            let whole = job(None)?;
            let lossy = job(Some(ONE_IN))?;
            rates.push(lossy / 1e6);
            ratios.push(lossy / whole);
        }
        results.figure(format!("DMA {way}, one frame in {ONE_IN} lost"), "MB/s", rates);
        let name = format!("DMA {way} with loss, of that without");
        results.aimed(name, "", ratios, Held::Median, Aim::AtLeast, TARGET);
    }
    let (mut whole, mut lost) = (Vec::new(), Vec::new());
    for _ in 0..bench.repeats {
        let latency = || system.host(&["latency", &device, "--reads", "2000"]);
        whole.push(number(&latency()?, "/median_ns")? / 1e6);
        let _loss = lose(&bench.network, Some(ONE_IN_LONE))?;
        lost.push(number(&latency()?, "/p99_ns")? / 1e6);
    }
    let recovery: Vec<f64> = lost.iter().zip(&whole).map(|(lost, whole)| lost - whole).collect();
    results.figure("delay of a lone read whose frame is lost", "ms", recovery);
    Ok(())
}
