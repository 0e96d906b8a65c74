"""Programs of PyTorch on a GPU: right by both ways, in place, within eager's memory, on whatever stream and address."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("pycuda.driver", exc_type=ImportError)
torch = pytest.importorskip("torch")

import relay_lite as relay  # noqa: E402
from relay_lite import pytorch as front  # noqa: E402
from relay_lite.ir.module import IRModule  # noqa: E402
from relay_lite.pytorch import partition  # noqa: E402
from relay_lite.pytorch.network import prepared  # noqa: E402
from relay_lite.pytorch.options import Options  # noqa: E402
from relay_lite.pytorch.program import TorchProgram  # noqa: E402
from tests.nonempty import nonempty  # noqa: E402
from tests.torch.nets import made as net  # noqa: E402

nn, F = torch.nn, torch.nn.functional
LIMITS = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 4e-2, "int32": 0.0}
MIB = 1 << 20
Make = Callable[[Any], tuple[Any, tuple[Any, ...]]]


class Function(nn.Module):  # type: ignore[misc, name-defined]
    """A function as a module."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *given: Any) -> Any:
        return self.run(*given)


def drawn(*shape: int, dtype: Any = torch.float32) -> Any:
    if dtype.is_floating_point:
        return torch.randn(*shape, device="cuda").to(dtype)
    return torch.randint(-4, 5, shape, device="cuda", dtype=dtype)


def operator(name: str, dtype: Any) -> tuple[Any, tuple[Any, ...]]:
    """A module of one operator, or of a chain of some, and its inputs."""
    a, b = drawn(67, 129, dtype=dtype), drawn(129, 33, dtype=dtype)
    match name:
        case "product":
            return Function(torch.matmul), (a, b)
        case "rectifier":
            return Function(torch.relu), (a,)
        case "sum":
            return Function(lambda x: x.sum(1)), (a,)
        case "product, bias, maximum":
            return Function(lambda x, y, z: torch.maximum(x @ y + z, z)), (a, b, drawn(33, dtype=dtype))
        case "scale, shift, mean":
            return Function(lambda x: (x * 3 + 1).amax(0) - x[0]), (a,)
        case "exchange, join":
            return Function(lambda x: torch.cat([x.t().contiguous(), x.t() * 2], 1)), (a,)
    raise KeyError(name)


OPERATORS = ["product", "rectifier", "sum", "product, bias, maximum", "scale, shift, mean", "exchange, join"]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    partition._told.clear()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    with torch.no_grad():
        yield
    gc.collect()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[TorchProgram]:
    found: list[TorchProgram] = []
    plain = TorchProgram.__init__

    def init(self: TorchProgram, *args: Any) -> None:
        plain(self, *args)
        found.append(self)

    monkeypatch.setattr(TorchProgram, "__init__", init)
    return found


def close(got: Any, want: Any, limit: float) -> None:
    if isinstance(want, list | tuple):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            close(one, other, limit)
        return
    assert (got.shape, got.dtype, got.device) == (want.shape, want.dtype, want.device)
    largest = want.abs().max().item() if want.numel() else 0
    assert (got.double() - want.double()).abs().max().item() <= limit * largest


def both(model: Any, inputs: tuple[Any, ...]) -> list[Any]:
    return [torch.compile(model, backend=front.ansor), front.optimize(model.eval(), inputs)]


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str, dtype: str, programs: list[TorchProgram]) -> None:
    model, inputs = operator(name, getattr(torch, dtype))
    if (name, dtype) in (("product", "int32"), ("product, bias, maximum", "int32")):
        pytest.skip("PyTorch multiplies no matrices of integers on a GPU")
    want = model(*inputs)
    for run in both(model, inputs):
        for _ in range(3):
            close(run(*inputs), want, LIMITS[dtype])
    assert programs and all(p.copied == 0 for p in programs)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["resnet-18", "vit_b_16"])
def test_networks(name: str, dtype: str, programs: list[TorchProgram]) -> None:
    model, inputs = net(name)
    kind = getattr(torch, dtype)
    model, inputs = model.to("cuda", kind), tuple([x.to("cuda", kind) for x in inputs])
    want = model(*inputs)
    for run in both(model, inputs):
        for _ in range(3):
            close(run(*inputs), want, LIMITS[dtype])
    assert programs and all(p.copied == 0 for p in programs)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x + 1,
        lambda x: (x + 1, x * 2, x.exp(), x - 3),
        lambda x: (x, x.view(-1), torch.arange(5, device="cuda")),
        lambda x: (x + 1, x, torch.ones(3, device="cuda")),
        lambda x: x.sum(),
        lambda x: torch.linalg.vector_norm(x),
    ],
)
def test_graphs_of_one_kernel_of_independent_ones_and_of_none(run: Callable[..., Any]) -> None:
    model, x = Function(run), drawn(33, 65)
    for compiled in both(model, (x,)):
        for _ in range(2):
            close(compiled(x), model(x), 1e-4)


def test_results_are_fresh_and_addresses_may_change(programs: list[TorchProgram]) -> None:
    """Inputs and results at more addresses than recordings are kept for, all results held."""
    model = nn.Sequential(nn.Linear(65, 33), nn.ReLU(), nn.Linear(33, 17)).to("cuda")
    compiled = torch.compile(model, backend=front.ansor)
    inputs = [drawn(19, 65) for _ in range(12)]
    got = [compiled(x) for x in [*inputs, *inputs]]
    for x, one in zip([*inputs, *inputs], got, strict=True):
        close(one, model(x), 1e-4)
    assert len({one.data_ptr() for one in got}) == len(got) and len(programs) == 1 and programs[0].copied == 0


def test_inputs_are_read_as_they_lie(programs: list[TorchProgram]) -> None:
    model = Function(lambda x, y: torch.relu(x) @ y)
    x, y = drawn(65, 31).t(), drawn(65, 17)
    for run in both(model, (x, y)):
        close(run(x, y), model(x, y), 1e-4)
    image = drawn(2, 8, 12, 10).to(memory_format=torch.channels_last)
    conv = nn.Conv2d(8, 4, 3).to("cuda")
    for run in both(conv, (image,)):
        got = run(image)
        close(got, conv(image), 1e-4)
    assert all(p.copied == 0 for p in programs)
    rows = drawn(9, 64)
    for part in (rows[1:, :], rows[:, 1:], rows[::2], rows[:1].expand(9, 64)):
        close(torch.compile(Function(torch.exp), backend=front.ansor)(part), part.exp(), 1e-4)


def test_streams(programs: list[TorchProgram]) -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).to("cuda")
    compiled = torch.compile(model, backend=front.ansor)
    x = drawn(64, 256)
    compiled(x)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    found = []
    for k in range(30):
        with torch.cuda.stream(streams[k % 3]):
            y = x + k
            found.append((y, compiled(y)))
    torch.cuda.synchronize()
    for y, got in nonempty(found):
        close(got, model(y), 1e-4)


def peak_of(run: Callable[..., Any], *inputs: Any) -> int:
    """The bytes that a call takes of PyTorch's memory, its result included."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run(*inputs)
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


@pytest.mark.parametrize("name", ["elu", "softmax", "product"])
def test_a_call_takes_no_more_memory_than_eager(name: str) -> None:
    """And between calls nothing is held that was not there before; weights are PyTorch's own."""
    runs: dict[str, Callable[..., Any]] = {"elu": F.elu, "softmax": lambda x: x.softmax(1), "product": lambda x: x @ x}
    model, x = Function(runs[name]), drawn(4096, 4096)
    compiled = torch.compile(model, backend=front.ansor)
    compiled(x)
    model(x)  # cuBLAS keeps what it works with
    gc.collect()
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    assert peak_of(compiled, x) <= 1.05 * peak_of(model, x)
    torch.cuda.empty_cache()
    assert abs(torch.cuda.mem_get_info()[0] - free) <= 4 * MIB


def test_a_weight_that_nothing_changed_is_held_once(programs: list[TorchProgram]) -> None:
    model = nn.Embedding(1 << 16, 256).to("cuda")
    index = torch.randint(0, 1 << 16, (64,), device="cuda")
    compiled = torch.compile(model, backend=front.ansor)
    close(compiled(index), model(index), 0)
    assert [t.data_ptr() for t in programs[0].lent.values()] == [model.weight.data_ptr()]
    model.weight.mul_(2)
    close(compiled(index), model(index), 0)


@pytest.mark.parametrize("two_ways", [False, True])
@pytest.mark.parametrize(
    ("kind", "hidden"), [("LSTM", 64), ("LSTM", 7), ("GRU", 33), ("RNN", 32), ("LSTM", 256), ("GRU", 142), ("RNN", 70)]
)
def test_recurrent_layers(kind: str, hidden: int, two_ways: bool, programs: list[TorchProgram]) -> None:
    """Loops of many steps, all ours, at the first call, where memory has moved, and with other states."""
    layer = getattr(nn, kind)(24, hidden, 2, bidirectional=two_ways).cuda()
    wide, x = copy.deepcopy(layer).double(), drawn(129, 5, 24)
    with torch._dynamo.config.patch(allow_rnn=True):
        run = torch.compile(layer, backend=front.ansor)
        held = []
        for _ in range(3):
            got = run(x)
            want, _ = wide(x.double())
            assert float((got[0].double() - want).abs().max()) < LIMITS["float32"]
            held.append((drawn(1 << 20), got))
            x = x.flip(0).contiguous()
    assert len(programs) == 1


@pytest.mark.parametrize("sizes", [(2048, 1024, 1536), (2053, 1031, 1543)])
def test_products_in_parts_are_about_as_exact_as_in_float32(sizes: tuple[int, int, int]) -> None:
    rows, terms, columns = sizes
    a, b = drawn(rows, terms), drawn(terms, columns)
    torch._dynamo.reset()
    run = torch.compile(torch.matmul, backend=front.ansor, options={"trials": 0, "precision": "fp32x3"})
    want = a.double() @ b.double()
    ours, theirs = [float((got.double() - want).abs().max()) for got in (run(a, b), a @ b)]
    assert ours <= 2 * theirs


def test_the_target_has_the_architecture_of_the_device() -> None:
    x = relay.var("x", shape=(4, 4))
    graph = IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    _, target = prepared(graph, "cuda", Options(), "NCHW")
    major, minor = torch.cuda.get_device_capability()
    assert target.attrs["arch"] == f"sm_{major}{minor}"
