"""LSTM, GRU and RNN: by `torch.compile` and `optimize`, in all layouts and directions; and what stays PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from relay_lite import pytorch as front
from relay_lite.pytorch import partition
from relay_lite.pytorch.module import traced

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
nn = torch.nn
KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_layers": 2, "batch_first": True},
    {"bidirectional": True, "num_layers": 2},
    {"bias": False, "bidirectional": True},
]


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch._dynamo.reset()
    partition._told.clear()
    torch.manual_seed(0)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        yield


def flat(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else [x for part in value for x in flat(part)]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "runs in PyTorch" in r.getMessage()]


@pytest.mark.parametrize("way", ["compile", "optimize"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_layers(kind: str, options: dict[str, Any], way: str, caplog: pytest.LogCaptureFixture) -> None:
    """All hidden states and the last ones, in float64 by PyTorch."""
    net, x = KINDS[kind](3, 5, **options).eval(), torch.randn(2, 4, 3)
    run = torch.compile(net, backend=front.ansor) if way == "compile" else front.optimize(net, (x,))
    got = flat(run(x))
    for a, b in zip(got, flat(net.double()(x.double())), strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-5, rtol=0)
    assert told(caplog) == []


def test_states_that_are_given_and_many_steps(caplog: pytest.LogCaptureFixture) -> None:
    """Of more steps than could be copies of one."""
    net, x = nn.LSTM(3, 4, 2, batch_first=True).eval(), torch.randn(2, 300, 3)
    states = torch.randn(2, 2, 4), torch.randn(2, 2, 4)
    got = flat(torch.compile(net, backend=front.ansor)(x, states))
    want = flat(net.double()(x.double(), tuple([s.double() for s in states])))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-5, rtol=0)
    assert told(caplog) == []


def test_dropout_stays_in_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    """With the numbers that it draws there."""
    net, x = nn.GRU(3, 4, 2, dropout=0.5), torch.randn(5, 2, 3)
    run = torch.compile(net, backend=front.ansor)
    run(x)
    torch.manual_seed(7)
    got = flat(run(x))
    torch.manual_seed(7)
    for a, b in zip(got, flat(net(x)), strict=True):
        torch.testing.assert_close(a, b)
    (line,) = told(caplog)
    assert "dropout draws random numbers" in line


@pytest.mark.parametrize(
    "net",
    [nn.LSTM(3, 4, 2, proj_size=2, batch_first=True).eval(), nn.GRU(3, 4, 2, dropout=0.5, batch_first=True)],
    ids=["projection", "dropout"],
)
def test_what_stays_in_pytorch_lies_as_the_graph_has_seen(net: Any) -> None:
    x = torch.randn(5, 6, 3)
    run = torch.compile(lambda x: net(x)[0].reshape(5, -1), backend=front.ansor)
    torch.manual_seed(7)
    got = run(x)
    torch.manual_seed(7)
    torch.testing.assert_close(got, net(x)[0].reshape(5, -1))


def test_autocast_stays_in_pytorch() -> None:
    layer, front_layer, x = nn.LSTM(3, 4).eval(), nn.Linear(3, 3), torch.randn(5, 6, 3)
    with torch.autocast("cpu", torch.bfloat16):
        for net in (layer, nn.Sequential(front_layer, layer)):
            torch._dynamo.reset()
            got, want = flat(torch.compile(net, backend=front.ansor)(x)), flat(net(x))
            assert [a.dtype for a in got] == [b.dtype for b in want]
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(a, b, atol=2e-2, rtol=0)


def test_tracing_takes_no_copies_of_steps() -> None:
    """By `torch.export`, which would run a decomposition for each of them to find the shapes."""
    net, x = nn.GRU(3, 4, 2).eval(), torch.randn(400, 2, 3)
    program = traced(net, (x,))
    assert [str(n.target) for n in program.graph.nodes if "gru" in str(n.target)] == ["ansor.gru.default"]


def test_dropout_of_one_layer_or_in_evaluation_draws_nothing(caplog: pytest.LogCaptureFixture) -> None:
    for net in (nn.GRU(3, 4, 2, dropout=0.5).eval(), nn.GRU(3, 4, 1, dropout=0.5)):
        torch._dynamo.reset()
        x = torch.randn(5, 2, 3)
        run = torch.compile(lambda x, net=net: net(nn.functional.dropout(x))[0] + 1, backend=front.ansor)
        torch.manual_seed(7)
        got = run(x)
        torch.manual_seed(7)
        torch.testing.assert_close(got, net(nn.functional.dropout(x))[0] + 1)
    assert not any("gru" in line for line in told(caplog))


def test_packed_sequences_and_projections_stay_in_pytorch() -> None:
    net, x = nn.LSTM(3, 4, proj_size=2).eval(), torch.randn(5, 2, 3)
    torch.testing.assert_close(flat(torch.compile(net, backend=front.ansor)(x)), flat(net(x)))
    lengths = torch.tensor([5, 3])
    plain = nn.GRU(3, 4).eval()

    def packed(x: Any) -> Any:
        return plain(nn.utils.rnn.pack_padded_sequence(x, lengths))[0].data

    torch.testing.assert_close(torch.compile(packed, backend=front.ansor)(x), packed(x))


def test_without_the_option_of_dynamo_layers_stay_in_pytorch() -> None:
    net, x = nn.Sequential(nn.Linear(3, 3), nn.GRU(3, 4)).eval(), torch.randn(5, 2, 3)
    with torch._dynamo.config.patch(allow_rnn=False):
        torch.testing.assert_close(flat(torch.compile(net, backend=front.ansor)(x)), flat(net(x)))
