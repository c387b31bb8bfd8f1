"""PyTorch programs, each timed by step: one JSON object a line for each.

    python workloads.py [--traces DIR] [--round SECONDS] [NAME ...]

Every other round is between cudaProfilerStart and cudaProfilerStop, so that under
`dxpu-perf run --range profiler` one process shows a step with a fabric beside a step without, on the
same machine at nearly the same time. With --traces they are traced by PyTorch's profiler, and not
timed: once it has run, every call of the process costs more. `--list` names them. The data are
synthetic and the weights random: times are what is looked for.
"""

import argparse
import json
import pathlib
import statistics
import time

import torch

ROUNDS = 7
GPU = "cuda"


def resnet(batch, train=False, loaded=False):
    """ResNet-50 on images of 224 x 224. `loaded`: a batch comes from the host at each step."""
    import torchvision

    model = torchvision.models.resnet50(weights=None).to(GPU).train(train)
    images = torch.randn(batch, 3, 224, 224, device=GPU)
    labels = torch.randint(1000, (batch,), device=GPU)
    on_host = torch.randn(batch, 3, 224, 224).pin_memory() if loaded else None
    loss = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def forward():
        with torch.no_grad():
            model(images)

    def backward():
        if on_host is not None:
            images.copy_(on_host, non_blocking=True)
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()

    return backward if train else forward


def resnet_graph(batch):
    """ResNet-50, captured as a graph: a step is a launch of it."""
    step = resnet(batch)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def bert(batch, length=128):
    """BERT, base size, trained as a masked language model."""
    import transformers

    config = transformers.BertConfig()
    model = transformers.BertForMaskedLM(config).to(GPU).train()
    words = torch.randint(config.vocab_size, (batch, length), device=GPU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step():
        optimizer.zero_grad()
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()

    return step


def decoder(prompt=64, most=256):
    """GPT-2, small: a step is a word, which the host waits for, as generation does."""
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).to(GPU).eval()
    begun = torch.randint(50257, (1, prompt), device=GPU)
    state = {"words": most}

    def step():
        with torch.no_grad():
            if state["words"] >= most:
                answer = model(begun, use_cache=True)
                state["words"] = 0
            else:
                answer = model(state["next"], past_key_values=state["past"], use_cache=True)
            state["next"] = answer.logits[:, -1:].argmax(-1)
            state["past"] = answer.past_key_values
            state["words"] += 1
            state["next"].item()

    return step


def kernels(number=1000):
    """So many kernels of next to no length, one behind the other."""
    values = torch.zeros(256, device=GPU)

    def step():
        for _ in range(number):
            values.add_(1.0)

    return step


def copy(size, to_gpu=True, pinned=True, waited=False):
    """A copy; `waited`: the host waits for each."""
    host = torch.zeros(size, dtype=torch.uint8)
    host = host.pin_memory() if pinned else host
    device = torch.zeros(size, dtype=torch.uint8, device=GPU)
    to, of = (device, host) if to_gpu else (host, device)

    def step():
        to.copy_(of, non_blocking=pinned)
        if waited:
            torch.cuda.current_stream().synchronize()

    return step


WORKLOADS = {
    "resnet50-train-32": lambda: resnet(32, train=True),
    "resnet50-train-64": lambda: resnet(64, train=True),
    "resnet50-train-128": lambda: resnet(128, train=True),
    "resnet50-loaded-64": lambda: resnet(64, train=True, loaded=True),
    "resnet50-infer-1": lambda: resnet(1),
    "resnet50-infer-32": lambda: resnet(32),
    "resnet50-infer-64": lambda: resnet(64),
    "resnet50-infer-128": lambda: resnet(128),
    "resnet50-graph-1": lambda: resnet_graph(1),
    "bert-train-16": lambda: bert(16),
    "gpt2-decode-1": decoder,
    "kernels-1000": kernels,
    "htod-64M": lambda: copy(64 << 20),
    "htod-4K-waited": lambda: copy(4 << 10, waited=True),
    "htod-1M-pageable": lambda: copy(1 << 20, pinned=False),
    "dtoh-64M": lambda: copy(64 << 20, to_gpu=False),
    "dtoh-4K-waited": lambda: copy(4 << 10, to_gpu=False, waited=True),
}


def timed(step, steps, in_range=False):
    """Seconds that so many steps take, by the host's clock."""
    torch.cuda.synchronize()
    if in_range:
        torch.cuda.profiler.start()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    took = time.perf_counter() - begun
    if in_range:
        torch.cuda.profiler.stop()
    return took


def alternated(step, steps):
    """A step outside and inside the range, round by round, and the part of its speed that is left."""
    rounds = [[timed(step, steps, inside) / steps for inside in (False, True)] for _ in range(ROUNDS)]
    left = [outside / inside * 100 for outside, inside in rounds]
    return {
        "outside_us": statistics.median(outside for outside, _ in rounds) * 1e6,
        "inside_us": statistics.median(inside for _, inside in rounds) * 1e6,
        "left_percent": statistics.median(left),
        "least_percent": min(left),
        "most_percent": max(left),
    }


def trace(step, steps, file):
    """Traces so many steps."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        timed(step, steps)
    profiler.export_chrome_trace(str(file))


def main():
    """Times the workloads that are named, or traces them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--traces", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--round", type=float, default=0.1, metavar="SECONDS")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(WORKLOADS))
        return
    for name in options.names or WORKLOADS:
        if name not in WORKLOADS:
            parser.error(f"there is no workload {name}: --list names them")
    torch.manual_seed(1)
    for name in options.names or WORKLOADS:
        step = WORKLOADS[name]()
        timed(step, 5)
        one = timed(step, 5) / 5
        if options.traces:
            steps = max(3, min(100, int(0.1 / one)))
            trace(step, steps, options.traces / f"{name}.json.gz")
            line = {"workload": name, "traced_steps": steps}
        else:
            steps = max(3, min(2000, int(options.round / one)))
            timed(step, steps, in_range=True)
            line = {"workload": name, "steps": steps, **alternated(step, steps)}
        print(json.dumps(line), flush=True)
        del step
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
