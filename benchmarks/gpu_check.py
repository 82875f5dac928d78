"""Checks and times the Triton kernels on the GPU at hand, in under eight minutes, and writes what it found as JSON.

Usage: python benchmarks/gpu_check.py [--out FILE] [--minutes 8] [--only PART ...] [--quick]

Parts, in this order: compile (all kernels below, in parallel processes, into Triton's cache), sweep (tiles of dK and dV
at head dim 256), correct (every kernel against float64), attention (against SDPA's flash and cuDNN kernels and
FlexAttention), tails (the heavy-tail step), gpt2 (the 124M step against Hugging Face's sdpa), distance (energy
distance). Each result is on disk as soon as it is known: a run cut short, by its own time limit or by a signal, leaves
what it has, and still prints its table. Without a GPU it says so and exits with 2; a wrong result makes it exit with 1.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import itertools
import json
import math
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import polyhead
from polyhead.environment import describe
from polyhead.files import write_json
from polyhead.measures import energy_distance, pairwise

FUNCTIONS = ("softmax", "linear_elu", "squared_elu", "log_elu", "sigmoid")
MIX = "softmax + linear_elu + squared_elu + log_elu + sigmoid(t=visible)"
PEAK = 989e12  # dense bfloat16 operations a second of an H100 or H200, for model FLOPs utilisation
Result = dict[str, Any]


class OutOfTimeError(Exception):
    """The time allowed is spent."""


class Report:
    """The results so far, on disk after every one."""

    def __init__(self, path: Path, deadline: float, machine: Result) -> None:
        self.path, self.deadline = path, deadline
        self.content: Result = {"format": 1, "machine": machine, "finished": [], "failures": [], "results": []}
        self.save()

    def add(self, part: str, **values: Any) -> None:
        """Keep one result and save; stop the run once its time is over."""
        self.content["results"].append({"part": part, **values})
        self.save()
        print(" ".join([part, *(f"{key}={show(value)}" for key, value in values.items())]), flush=True)
        if time.monotonic() > self.deadline:
            raise OutOfTimeError(f"the time was over in part {part}")

    def save(self) -> None:
        write_json(self.path, self.content)


def show(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def table(content: Result) -> str:
    """The short table: the worst error, then a line for every timing with its ratio."""
    lines = []
    errors = [row for row in content["results"] if row["part"] == "correct"]
    failed = [row for row in errors if not row["passed"]]
    if errors:
        worst = max(row["error"] / row["tolerance"] for row in errors)
        lines.append(f"correct: {len(errors) - len(failed)} of {len(errors)}, worst error {worst:.2f} of its tolerance")
        lines += [f"  FAILED {row['case']}: {row['error']:.1e}" for row in failed]
    for row in content["results"]:
        if row["part"] == "correct":
            continue
        numbers = [f"{key} {show(value)}" for key, value in row.items() if isinstance(value, int | float)]
        lines.append(f"{row['part']:<10}{row['case']:<46}{'  '.join(numbers)}")
    lines += [f"not finished: {failure}" for failure in content["failures"]]
    lines.append("finished: " + (", ".join(content["finished"]) or "nothing"))
    return "\n".join(lines)


# --- timing ----------------------------------------------------------------------------------------------------------


def milliseconds(work: Callable[[], Any], seconds: float = 0.15) -> float:
    """Median milliseconds of `work` on the device, warm, over about `seconds` of runs between CUDA events."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    found: list[float] = []
    end = time.monotonic() + seconds
    while (time.monotonic() < end and len(found) < 50) or len(found) < 5:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        work()
        events[1].record()
        torch.cuda.synchronize()
        found.append(events[0].elapsed_time(events[1]))
    return statistics.median(found)


def attempt(work: Callable[[], float]) -> float | str:
    """The result, or why there is none: one candidate's refusal must not end the run."""
    try:
        return work()
    except OutOfTimeError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"


# --- the parts -------------------------------------------------------------------------------------------------------


def tiles_to_try() -> list[Any]:
    from polyhead.kernels.triton_tiles import Tile

    return [Tile(64, 64, 8, 2), Tile(32, 64, 8, 2), Tile(32, 64, 8, 3)]


def backward_with_tile(length: int, tile: Any, causal: bool, measure: Callable[[Any], Any]) -> Any:
    """`measure` the backward of softmax at head dim 256 while the table holds `tile` for dK and dV."""
    from polyhead.kernels import triton_tiles

    name = triton_tiles.profile(torch.device("cuda", torch.cuda.current_device())).name
    entries, key = triton_tiles.TABLE[name], ("keys", 256)
    original, entries[key] = entries[key], tile
    try:
        return measure(backward_of((1, 8, length, 256), "softmax", causal))
    finally:
        entries[key] = original


def sweep(report: Report, quick: bool) -> None:
    """Tiles of dK and dV at head dim 256, softmax: which one the table should hold."""
    for causal, tile in itertools.product((False, True), tiles_to_try()):
        length = 2048 if quick else 8192
        run = attempt(functools.partial(backward_with_tile, length, tile, causal, milliseconds))
        values = {"ms": run} if isinstance(run, float) else {"error": run}
        report.add("sweep", case=f"{'causal' if causal else 'full'} {tile}", **values)


def backward_of(shape: tuple[int, ...], heads: str, causal: bool) -> Callable[[], Any]:
    q, k, v, d_out = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    out = polyhead.attention(*inputs, heads, impl="triton", is_causal=causal)
    return functools.partial(torch.autograd.grad, out, inputs, d_out, retain_graph=True)


TOLERANCES = {"float32": 5e-6, "bfloat16": 1e-2, "float16": 3e-3}


def correctness_cases(quick: bool) -> list[tuple[str, str, str, int]]:
    """(rule, heads, dtype, head dim): every function at every width and dtype, every rule once."""
    widths = [("causal", MIX, "bfloat16", dim) for dim in ((64,) if quick else (64, 128, 256))]
    dtypes = [("causal", MIX, dtype, 64) for dtype in ("float32", "float16")]
    short = "linear_elu + sigmoid(t=visible)"
    rules = [(rule, short, "bfloat16", dim) for rule, dim in (("full", 80), ("lengths", 64), ("documents", 64))]
    return [*widths, *([] if quick else dtypes), *rules]


def error_of_case(rule: str, heads: str, dtype: str, dim: int) -> float:
    options: dict[str, Result] = {
        "full": {},
        "causal": {"is_causal": True},
        "lengths": {"key_lengths": torch.tensor([300, 17], device="cuda")},
        "documents": {"document_ids": (torch.arange(300, device="cuda") // 70).expand(2, -1), "is_causal": True},
    }
    shape = (2, heads.count("+") + 1, 300, dim)
    return error_of(heads, shape, getattr(torch, dtype), options[rule])


def correct(report: Report, quick: bool) -> None:
    """Output, entropy and gradients of every kernel against dense in float64 on the device."""
    for rule, heads, dtype, dim in correctness_cases(quick):
        error = attempt(functools.partial(error_of_case, rule, heads, dtype, dim))
        number = error if isinstance(error, float) and math.isfinite(error) else 1e9
        note = {} if isinstance(error, float) else {"note": error}
        passed = number < TOLERANCES[dtype]
        report.add(
            "correct", case=f"{rule} {dtype} d{dim} {heads}", error=number, tolerance=TOLERANCES[dtype], passed=passed,
            **note,
        )  # fmt: skip


def error_of(heads: str, shape: tuple[int, ...], dtype: torch.dtype, options: Result) -> float:
    torch.manual_seed(0)
    tensors = [torch.randn(shape, device="cuda").to(dtype) for _ in range(4)]
    found = []
    for impl, precision in (("triton", dtype), ("dense", torch.float64)):
        *inputs, d_out = (x.to(precision) for x in tensors)
        inputs = [x.requires_grad_() for x in inputs]
        out, rows = polyhead.attention(*inputs, heads, impl=impl, return_rows=True, **options)
        gradients = torch.autograd.grad((out * d_out).sum() + rows.entropy.sum(), inputs)
        found.append([out, rows.entropy, *gradients])
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(*found, strict=True))


def attention(report: Report, quick: bool) -> None:
    """Forward, and forward + backward, of every function against SDPA and FlexAttention; speeds are theirs by ours."""
    lengths = (1024,) if quick else (1024, 4096, 16384)
    for length, dim, causal in itertools.product(lengths, (64, 128, 256), (False, True)):
        heads = max(1, 2048 // dim)
        batch = max(1, 16384 // length)
        shape = (batch, heads, length, dim)
        q, k, v, d_out = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
        inputs = [x.requires_grad_() for x in (q, k, v)]
        flops = 4 * batch * heads * length**2 * dim * (0.5 if causal else 1)
        times: dict[str, tuple[float | str, float | str]] = {}
        for name, run in candidates(causal, with_flex=length == lengths[len(lengths) // 2]):
            times[name] = tuple(attempt(functools.partial(timed, run, inputs, d_out, both)) for both in (False, True))
            forward, both = times[name]
            values: Result = {}
            for phase, took, work in (("forward", forward, flops), ("both", both, 3.5 * flops)):
                if isinstance(took, str):
                    values[f"{phase}_error"] = took
                    continue
                values |= {f"{phase}_ms": took, f"{phase}_tflops": work / took / 1e9}
                for other in ("sdpa flash", "polyhead softmax"):
                    base = times.get(other, (None, None))[phase == "both"]
                    if isinstance(base, float):
                        values[f"{phase}_speed_of_{other.replace(' ', '_')}"] = base / took
            report.add("attention", case=f"{shape} {'causal' if causal else 'full'} {name}", **values)


def candidates(causal: bool, with_flex: bool) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def sdpa(backend: SDPBackend, *inputs: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(*inputs, is_causal=causal)

    yield "sdpa flash", functools.partial(sdpa, SDPBackend.FLASH_ATTENTION)
    yield "sdpa cudnn", functools.partial(sdpa, SDPBackend.CUDNN_ATTENTION)
    for name in FUNCTIONS:
        yield f"polyhead {name}", functools.partial(polyhead.attention, heads=name, impl="triton", is_causal=causal)
    if with_flex:  # it compiles for every shape
        yield "flex linear_elu", functools.partial(flex, causal)


def flex(causal: bool, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """linear_elu as a score_mod: softmax of log g(s)."""
    from torch.nn.attention.flex_attention import create_block_mask

    mask = create_block_mask(_causal, None, None, q.shape[2], k.shape[2], device="cuda") if causal else None
    return _compiled_flex()(q, k, v, score_mod=_log_linear_elu, block_mask=mask)


@functools.cache
def _compiled_flex() -> Callable[..., torch.Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


def _causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def _log_linear_elu(score: torch.Tensor, *place: Any) -> torch.Tensor:
    return torch.where(score > 0, torch.log1p(torch.relu(score)), score)


def timed(run: Callable[..., torch.Tensor], inputs: list[torch.Tensor], d_out: torch.Tensor, both: bool) -> float:
    def once() -> None:
        with nullcontext() if both else torch.no_grad():
            out = run(*inputs)
        if both:
            torch.autograd.grad(out, inputs, d_out)

    return milliseconds(once)


def distance(report: Report, quick: bool) -> None:
    """The energy distance of two planar clouds with its gradient, against the same in blocks of PyTorch operations."""
    for points in (4096,) if quick else (4096, 32768):
        x, y = (torch.randn(points, 2, device="cuda", requires_grad=True) for _ in range(2))

        def once(x: torch.Tensor = x, y: torch.Tensor = y) -> None:
            torch.autograd.grad(energy_distance(x, y), (x, y))

        fused = attempt(lambda once=once: milliseconds(once))
        original, pairwise._way = pairwise._way, lambda x: pairwise._in_blocks
        try:
            blocks = attempt(lambda once=once: milliseconds(once))
        finally:
            pairwise._way = original
        both = {"fused_ms": fused, "blocks_ms": blocks}
        ratio = {"speed": blocks / fused} if isinstance(fused, float) and isinstance(blocks, float) else {}
        report.add("distance", case=f"2 x {points} points, value and gradient", **both, **ratio)


def tails(report: Report, quick: bool) -> None:
    """The heavy-tail transformer's step, one head of width 256: time and peak memory of each function by softmax's."""
    from polyhead.measures.transformer import PointTransformer, PointTransformerConfig

    points = 2048 if quick else 16384
    # float32 is multiplied without tensor cores: whether the fused kernel still beats blocked is to be seen
    for precision, impl in (("bfloat16", "triton"), ("float32", "triton"), ("float32", "blocked")):
        softmax: tuple[float, int] | None = None
        for heads in FUNCTIONS if precision == "bfloat16" else FUNCTIONS[:2]:
            config = PointTransformerConfig(heads=heads, attention_precision=precision, impl=impl)
            model = PointTransformer(config, seed=0).cuda()
            step = training_step(model, lambda model=model: tail_loss(model, points))
            torch.cuda.reset_peak_memory_stats()
            took = attempt(lambda step=step: milliseconds(step, 0.3))
            memory = torch.cuda.max_memory_allocated()
            values: Result = {"step_ms": took, "peak_gib": memory / 2**30}
            if isinstance(took, float):
                softmax = (took, memory) if heads == "softmax" else softmax
                if softmax is not None:
                    values |= {"time_by_softmax": took / softmax[0], "memory_by_softmax": memory / softmax[1]}
            report.add("tails", case=f"{points} points {precision} {impl} {heads}", **values)


def tail_loss(model: torch.nn.Module, points: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(0)
    clouds = torch.rand(2, points, 2, device="cuda", generator=generator).pow(-1 / 2.5)
    return energy_distance(model(clouds[0]), clouds[1])


def training_step(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def gpt2(report: Report, quick: bool) -> None:
    """Tokens a second and MFU of the 124M GPT-2 step in bfloat16 autocast, against Hugging Face's own sdpa."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from polyhead.huggingface import gpt2 as mixed

    batch, context = (2, 256) if quick else (16, 1024)
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    tokens = torch.randint(0, 50257, (batch, context), device="cuda")
    base: float | None = None
    choices = (None, "softmax*12", "softmax*6 + sigmoid*6", "sigmoid*12")
    for heads in choices:
        plain = GPT2Config(**dropout, attn_implementation="sdpa")
        model = (GPT2LMHeadModel(plain) if heads is None else mixed(heads=heads, **dropout)).cuda().train()

        def loss(model: Any = model) -> torch.Tensor:
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(input_ids=tokens, use_cache=False).logits[:, :-1]
                return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

        took = attempt(lambda model=model, loss=loss: milliseconds(training_step(model, loss), 1.0))
        values: Result = {"step_ms": took}
        if isinstance(took, float):
            base = took if heads is None else base
            parameters = sum(p.numel() for p in model.parameters())
            flops = 6 * parameters + 12 * 12 * 768 * context / 2  # a token, of a causal model
            per_second = 1e3 * batch * context / took
            values |= {"tokens_per_second": per_second, "mfu": per_second * flops / PEAK}
            if base is not None:
                values["speed_of_sdpa"] = base / took
        report.add("gpt2", case=heads or "huggingface sdpa", **values)


# --- compiling everything first --------------------------------------------------------------------------------------


def jobs(quick: bool) -> list[tuple[Any, ...]]:
    """What the other parts will compile, cut into pieces that take some seconds each."""
    widths, sides = (64,) if quick else (256, 128, 64), (False, True)
    found: list[tuple[Any, ...]] = [("correct", *case) for case in correctness_cases(quick)]
    found += [("attention", *job) for job in itertools.product(FUNCTIONS, widths, sides)]
    found += [("sweep", tile, causal) for tile, causal in itertools.product(tiles_to_try(), sides)]
    return found + [("tails", heads) for heads in FUNCTIONS[:2]]


def compile_job(kind: str, *job: Any) -> None:
    """Run one job small, so that its kernels are in the cache."""
    if kind == "correct":
        error_of_case(*job)
    elif kind == "sweep":
        backward_with_tile(1024, job[0], job[1], lambda backward: backward())
    else:
        heads, dim, causal = job if kind == "attention" else (job[0], 256, False)
        dtype = torch.bfloat16 if kind == "attention" else torch.float32
        tensors = [torch.randn(1, 2048 // dim, 1024, dim, device="cuda", dtype=dtype) for _ in range(4)]
        inputs = [x.requires_grad_() for x in tensors[:3]]
        out = polyhead.attention(*inputs, heads, impl="triton", is_causal=causal)
        torch.autograd.grad(out, inputs, tensors[3])


def compile_all(report: Report, quick: bool) -> None:
    """Compile in as many processes as there are cores, 14 at most; what fails here fails again where it is used."""
    begin, work = time.monotonic(), jobs(quick)
    workers = min(14, os.cpu_count() or 1, len(work))
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(workers, mp_context=context)
    try:
        futures = [pool.submit(compile_job, *job) for job in work]
        errors = [error for future in concurrent.futures.as_completed(futures) if (error := future.exception())]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    note = {"error": f"{type(errors[0]).__name__}: {errors[0]}"[:200]} if errors else {}
    case = f"{len(work)} jobs in {workers} processes"
    report.add("compile", case=case, seconds=time.monotonic() - begin, failed=len(errors), **note)


PARTS: dict[str, Callable[[Report, bool], None]] = {
    "compile": compile_all,
    "sweep": sweep,
    "correct": correct,
    "attention": attention,
    "tails": tails,
    "gpt2": gpt2,
    "distance": distance,
}


def run(report: Report, parts: list[str], quick: bool) -> None:
    """Run the parts in order; a failing one is recorded and the next begins; a spent time ends the run."""
    for name in parts:
        try:
            PARTS[name](report, quick)
        except OutOfTimeError as error:
            report.content["failures"].append(f"{name} and what follows it: {error}")
            report.save()
            return
        except Exception as error:
            report.content["failures"].append(f"{name}: {type(error).__name__}: {error}")
        else:
            report.content["finished"].append(name)
        report.save()


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Check and time the GPU kernels.")
    parser.add_argument("--out", type=Path, default=Path("gpu-check.json"), help="where the results go (JSON)")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after so many minutes")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it runs, not how fast")
    return parser.parse_args(words)


def stop_at_signals(seconds: float) -> None:
    """SIGTERM, as `timeout` sends it, ends the run as its own time limit does; so does the clock, whatever runs."""

    def stop(number: int, frame: Any) -> None:
        raise OutOfTimeError(f"signal {signal.Signals(number).name}")

    for name in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(name, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def main(words: list[str]) -> int:
    options = arguments(words)
    if not torch.cuda.is_available():
        print("gpu_check: no GPU here, nothing to check", file=sys.stderr)
        return 2
    stop_at_signals(60 * options.minutes)
    report = Report(options.out, time.monotonic() + 60 * options.minutes, {**describe(), "cuda": torch.version.cuda})
    run(report, [name for name in PARTS if name in options.only], options.quick)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(table(json.loads(report.path.read_text())))
    failed = [row for row in report.content["results"] if row["part"] == "correct" and not row["passed"]]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
