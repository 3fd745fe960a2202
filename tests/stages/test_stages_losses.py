"""Losses against a dense float64 reference, and the laws they must obey (notes on distillation, parts 2 and 3)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kdwatch.stages.cache import extract
from kdwatch.stages.cache.layout import Layout, Positions, pack, unpack
from kdwatch.stages.cache.reader import sample_weights, teacher_log_p
from kdwatch.stages.nn import losses


def logits(seed: int, rows: int = 6, vocabulary: int = 40, scale: float = 3.0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, scale, (rows, vocabulary)).astype(np.float32))


def cached(teacher: torch.Tensor, k: int, temperature: float, quantised: bool = False) -> losses.TeacherTop:
    """The teacher as it comes back from the cache's bytes."""
    layout = Layout(k, teacher.shape[1], (temperature,), quantised=quantised)
    return top_of(unpack(layout, pack(layout, extract.top_positions(teacher, layout))), temperature)


def exact(teacher: torch.Tensor, k: int, temperature: float) -> losses.TeacherTop:
    """The teacher's top-k without rounding."""
    return top_of(extract.top_positions(teacher, Layout(k, teacher.shape[1], (temperature,))), temperature)


def top_of(rows: Positions, temperature: float) -> losses.TeacherTop:
    log_p, tail = teacher_log_p(rows, temperature, 0)
    assert tail is not None
    return losses.TeacherTop(torch.from_numpy(rows.ids), torch.from_numpy(log_p), torch.from_numpy(tail.copy()))


def ghost_reference(z: np.ndarray, zt: np.ndarray, ids: np.ndarray, temperature: float) -> float:
    """T^2 KL on K + 1 classes in float64, written out."""
    p, q = (softmax(x.astype(np.float64) / temperature) for x in (zt, z))
    total = 0.0
    for row in range(len(z)):
        kept = ids[row]
        rest = np.setdiff1d(np.arange(z.shape[1]), kept)
        classes = [(p[row, i], q[row, i]) for i in kept]
        if len(rest):
            classes.append((p[row, rest].sum(), q[row, rest].sum()))
        total += sum(a * np.log(a / b) for a, b in classes)
    return temperature**2 * total


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_ghost_loss_equals_the_float64_reference_on_its_classes(temperature: float, k: int) -> None:
    z, zt = logits(1), logits(2)
    teacher = exact(zt, k, temperature)
    got = float(losses.ghost_sum(z, teacher, temperature))
    assert got == pytest.approx(
        ghost_reference(z.numpy(), zt.numpy(), teacher.ids.numpy(), temperature), rel=2e-5, abs=1e-5
    )


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_ghost_gradient_equals_its_closed_form(temperature: float) -> None:
    """d/dz = T (q - p) on the top-k, T q (1 - p_tail / q_tail) outside it."""
    z, zt, k = logits(3).requires_grad_(), logits(4), 5
    teacher = exact(zt, k, temperature)
    losses.ghost_sum(z, teacher, temperature).backward()
    p, q = (
        softmax(zt.numpy().astype(np.float64) / temperature),
        softmax(z.detach().numpy().astype(np.float64) / temperature),
    )
    want = np.empty_like(q)
    for row, kept in enumerate(teacher.ids.numpy()):
        rest = np.setdiff1d(np.arange(q.shape[1]), kept)
        want[row, kept] = q[row, kept] - p[row, kept]
        want[row, rest] = q[row, rest] * (1 - p[row, rest].sum() / q[row, rest].sum())
    assert z.grad is not None
    np.testing.assert_allclose(z.grad.numpy(), temperature * want, atol=2e-5)


@pytest.mark.parametrize(("quantised", "bound"), [(False, 2**-11), (True, 0.01)])
def test_cached_teacher_is_within_its_stated_error(quantised: bool, bound: float) -> None:
    """Stored log p differs by at most 2^-11 (float16) of the distance to the highest logit; the quantised form by 1 %
    of the row's spread."""
    zt = logits(5, rows=200, vocabulary=500)
    stored, true = cached(zt, 100, 1.0, quantised), exact(zt, 100, 1.0)
    distance = (true.log_p[:, :1] - true.log_p).abs()
    allowed = bound * (distance.max(dim=1, keepdim=True).values if quantised else distance)
    lse_error = 6e-3 if quantised else 1e-6
    assert ((stored.log_p - true.log_p).abs() <= allowed + lse_error).all()
    assert torch.equal(stored.ids, true.ids)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 4.0])
def test_cached_loss_and_gradient_are_near_the_dense_ones_by_the_bound(temperature: float) -> None:
    """On the whole vocabulary the ghost loss is a lower bound of the dense KL (log-sum inequality), and what is lost is
    the tail's inner divergence: p_tail x KL(p | tail, q | tail)."""
    z, zt = logits(6), logits(7)
    ghost = float(losses.ghost_sum(z, cached(zt, 8, temperature), temperature))
    dense = float(losses.dense_sum(z.double().float(), zt, temperature, "forward"))
    p, q = (softmax(x.numpy().astype(np.float64) / temperature) for x in (zt, z))
    lost = 0.0
    for row, kept in enumerate(exact(zt, 8, temperature).ids.numpy()):
        rest = np.setdiff1d(np.arange(q.shape[1]), kept)
        a, b = p[row, rest], q[row, rest]
        lost += float((a * np.log((a / a.sum()) / (b / b.sum()))).sum())
    assert dense == pytest.approx(ghost + temperature**2 * lost, rel=3e-3)


@given(
    seed=st.integers(0, 10_000),
    k=st.integers(1, 39),
    scale=st.floats(0.01, 20),
    temperature=st.sampled_from([1.0, 2.0]),
)
@settings(max_examples=60, deadline=None)
def test_ghost_loss_is_never_negative_even_from_rounded_storage(
    seed: int, k: int, scale: float, temperature: float
) -> None:
    """Row 18 of the notes: a negative KD loss."""
    z, zt = logits(seed, scale=scale), logits(seed + 1, scale=scale)
    assert float(losses.ghost_sum(z, cached(zt, k, temperature), temperature)) >= -1e-6 * len(z) * max(1, scale)


def test_truncated_loss_can_be_negative_and_is_labelled_so() -> None:
    """The study's variant on its own fixed point (V = 50, K = 5, mass 0.757): minimum below 0."""
    zt = logits(8, rows=1, vocabulary=50, scale=1.0)
    teacher = exact(zt, 5, 1.0)
    z = torch.full((1, 50), -30.0)
    z[0, teacher.ids[0]] = teacher.log_p[0]
    assert float(losses.truncated_sum(z, teacher, 1.0)) < 0
    from kdwatch.stages.settings import TrainSettings

    with pytest.raises(ValueError, match="ghost"):
        TrainSettings(student="x", tail="truncated")  # type: ignore[arg-type]


def test_free_student_reaches_teachers_mass_with_ghost_and_full_mass_when_truncated() -> None:
    """Part 2's table: fixed points of a free student."""
    zt = logits(9, rows=1, vocabulary=50, scale=1.5)
    teacher = exact(zt, 5, 1.0)
    mass = float(teacher.log_p.exp().sum())

    def fixed_point(loss: object) -> float:
        z = torch.zeros(1, 50, requires_grad=True)
        optimizer = torch.optim.LBFGS([z], max_iter=300, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            value = loss(z, teacher, 1.0)  # type: ignore[operator]
            value.backward()
            return value

        optimizer.step(closure)  # type: ignore[arg-type]
        return float(torch.softmax(z, 1)[0, teacher.ids[0]].sum())

    assert fixed_point(losses.ghost_sum) == pytest.approx(mass, abs=0.01)
    assert fixed_point(losses.truncated_sum) > 0.97


@pytest.mark.parametrize("kind", ["forward", "reverse", "jsd"])
@pytest.mark.parametrize("beta", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_divergences_equal_brute_force_in_float64(kind: losses.Divergence, beta: float, temperature: float) -> None:
    """Row 14: beta swapped, mixture outside log space."""
    z, zt = logits(10), logits(11)
    p, q = (softmax(x.numpy().astype(np.float64) / temperature) for x in (zt, z))
    m = beta * p + (1 - beta) * q
    want = {
        "forward": (p * np.log(p / q)).sum(),
        "reverse": (q * np.log(q / p)).sum(),
        "jsd": beta * (p * np.log(p / m)).sum() + (1 - beta) * (q * np.log(q / m)).sum(),
    }[kind]
    got = float(losses.dense_sum(z, zt, temperature, kind, beta))
    assert got == pytest.approx(temperature**2 * want, rel=1e-4)


@pytest.mark.parametrize("kind", ["forward", "reverse", "jsd"])
def test_extreme_logits_give_finite_losses_and_gradients(kind: losses.Divergence) -> None:
    """Row 33: logits of +-200, both probabilities vanish."""
    z = (logits(12).sign() * 200).requires_grad_()
    zt = logits(13).sign() * 200
    for value in (losses.dense_sum(z, zt, 1.0, kind), losses.ghost_sum(z, cached(zt, 5, 1.0), 1.0, kind)):
        z.grad = None
        value.backward(retain_graph=True)
        assert torch.isfinite(value) and z.grad is not None and torch.isfinite(z.grad).all()


def test_same_student_as_teacher_gives_zero_and_a_random_one_the_size_of_cross_entropy() -> None:
    """Row 27: a KD term 100 to 1000 times too small."""
    zt = logits(14, rows=300)
    teacher = exact(zt, 10, 1.0)
    assert float(losses.ghost_sum(zt, teacher, 1.0)) == pytest.approx(0, abs=1e-3)
    z = logits(15, rows=300)
    labels = torch.distributions.Categorical(logits=zt).sample()
    ratio = float(losses.ghost_sum(z, teacher, 1.0) / losses.cross_entropy_sum(z, labels))
    assert 0.1 < ratio < 10


def test_t_squared_keeps_gradients_of_one_size_and_is_inside_the_gradient() -> None:
    """d(T^2 KL)/dz = T (q - p): checked at T = 4 against T = 4 without the factor."""
    z, zt = logits(16).requires_grad_(), logits(17)
    losses.dense_sum(z, zt, 4.0, "forward").backward()
    p, q = torch.softmax(zt / 4, 1), torch.softmax(z.detach() / 4, 1)
    assert z.grad is not None
    torch.testing.assert_close(z.grad, 4 * (q - p), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_sampled_gradient_is_unbiased(temperature: float) -> None:
    """arXiv 2503.16870: the mean gradient over many draws is that of the dense forward KL."""
    zt, z0 = logits(18, rows=1, vocabulary=12, scale=1.0), logits(19, rows=1, vocabulary=12, scale=1.0)
    many = zt.repeat(20_000, 1)
    layout = Layout(8, 12, (1.0, temperature) if temperature != 1 else (1.0,), method="sample")
    rows = extract.sampled_positions(many, layout, 8, torch.Generator().manual_seed(0))
    log_p, _ = teacher_log_p(rows, temperature, len(layout.temperatures) - 1)
    weights = torch.from_numpy(sample_weights(rows, log_p, 0))
    top = losses.TeacherTop(torch.from_numpy(rows.ids), torch.from_numpy(log_p), None, weights)
    z = z0.repeat(20_000, 1).requires_grad_()
    losses.sampled_sum(z, top, temperature).backward()
    p, q = torch.softmax(zt / temperature, 1), torch.softmax(z0 / temperature, 1)
    assert z.grad is not None
    mean, spread = z.grad.mean(0), z.grad.std(0) / 20_000**0.5
    assert ((mean - temperature * (q - p)[0]).abs() < 5 * spread + 1e-6).all()


def test_bfloat16_logits_are_compared_in_float32() -> None:
    """Trap 13: a loss summed in bf16 has steps of 16 near 3000."""
    z = logits(20, rows=900).bfloat16()
    labels = torch.zeros(900, dtype=torch.long)
    got = losses.cross_entropy_sum(z, labels)
    want = -torch.log_softmax(z.double(), 1)[:, 0].sum()
    assert got.dtype == torch.float32 and float(got) == pytest.approx(float(want), rel=1e-5)


def test_vocabulary_padding_has_no_part_in_the_softmax() -> None:
    """Rows 7, 8 and 23: 100278 real ids of 100352."""
    z = torch.randn(3, 100352, generator=torch.Generator().manual_seed(0))
    z[:, 100278:] = 50.0
    labels = torch.tensor([5, 100277, 7])
    got = losses.cross_entropy_sum(z[:, :100278], labels)
    want = -torch.log_softmax(z[:, :100278].double(), 1)[torch.arange(3), labels].sum()
    assert float(got) == pytest.approx(float(want), rel=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_fast_form_of_the_default_loss_equals_the_plain_one(temperature: float, alpha: float) -> None:
    """Value and gradient of alpha CE + (1 - alpha) T^2 KL, as autograd gives them."""
    from kdwatch.stages.nn.mixed import mixed_sum

    zt, labels = logits(31), torch.arange(6)
    teacher = cached(zt, 7, temperature)
    z, same = (logits(30).requires_grad_() for _ in range(2))
    fast = mixed_sum(z, labels, teacher, temperature, alpha)
    plain = alpha * losses.cross_entropy_sum(same, labels) + (1 - alpha) * losses.ghost_sum(same, teacher, temperature)
    assert float(fast) == pytest.approx(float(plain), rel=1e-5)
    (fast / 3).backward()
    (plain / 3).backward()
    assert z.grad is not None and same.grad is not None
    torch.testing.assert_close(z.grad, same.grad, rtol=1e-4, atol=1e-6)


def test_fast_form_is_finite_for_extreme_logits() -> None:
    from kdwatch.stages.nn.mixed import mixed_sum

    z = (logits(12).sign() * 200).requires_grad_()
    value = mixed_sum(z, torch.zeros(6, dtype=torch.long), cached(logits(13).sign() * 200, 5, 1.0), 1.0, 0.5)
    value.backward()
    assert torch.isfinite(value) and z.grad is not None and torch.isfinite(z.grad).all()
