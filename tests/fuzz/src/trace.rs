//! What `dxpu-perf predict` is given: traces of GPU programs as text. What is read is in order and
//! in bounds, takes without a fabric what it took, and loses with one what adds up.

use perf_core::{Fabric, KindSet, Nanos, Settings};
use perf_model::replay::{Graph, Proxies, Scenario};
use perf_model::trace::{Options, Trace, read_text};

/// Takes one byte that says how, and the text.
pub fn run(data: &[u8]) {
    let Some((how, text)) = data.split_first() else { return };
    let options = Options { format: None, salvage: how & 1 != 0 };
    match read_text(text, &options) {
        Ok(trace) => {
            in_bounds(&trace);
            plays(&trace, if how & 2 == 0 { Proxies::One } else { Proxies::Each });
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn in_bounds(trace: &Trace) {
    let length = trace.length_ns();
    assert!(trace.operations.is_sorted_by_key(|operation| operation.start));
    assert!(trace.calls.is_sorted_by_key(|call| call.start));
    for operation in &trace.operations {
        assert!(operation.end() <= length);
        assert!(operation.stream.index() < trace.streams.len());
        assert!(operation.name.index() < trace.names.len());
        assert!(operation.call.is_none_or(|call| call.index() < trace.calls.len()));
    }
    let mut ends = vec![0; trace.threads.len()];
    for call in &trace.calls {
        let end = &mut ends[call.thread.index()];
        assert!(call.start >= *end, "calls of a thread overlap");
        *end = call.end();
    }
}

fn plays(trace: &Trace, proxies: Proxies) {
    let graph = Graph::of(trace);
    let with = |fabric| Settings { off: KindSet::EMPTY, ..Settings::of(fabric) };
    let played = graph.play(&Scenario::of(with(Fabric::NATIVE), proxies));
    assert_eq!(played.length_ns(), trace.length_ns());
    let fabric = Scenario::of(with(Fabric::DXPU_68), proxies);
    let played = graph.play(&fabric);
    assert_eq!(played.lost().lost_ns(), played.length_ns() - trace.length_ns());

    let under = Scenario { putting: Nanos(3_000), ..fabric };
    let played = graph.play(&under);
    assert_eq!(played.lost().lost_ns(), played.length_ns() - trace.length_ns());

    // Without a profiler it is no longer, and is played as it is then.
    let Some(untraced) = graph.untraced(Nanos(trace.measure() / 2)) else { return };
    let (shorter, graph) = (&untraced.trace, graph.of_untraced(&untraced));
    assert!(shorter.length_ns() <= trace.length_ns());
    assert_eq!(
        graph.play(&Scenario::of(with(Fabric::NATIVE), proxies)).length_ns(),
        shorter.length_ns()
    );
    let played = graph.play(&fabric);
    assert_eq!(played.lost().lost_ns(), played.length_ns() - shorter.length_ns());
}
