"""Derivatives of any order in torch, by losses and parameters, plain, transformed and compiled."""

from __future__ import annotations

import numpy as np
import pytest

from tests.uncertainty_sets.test_derivatives import smooth_sets
from uncertainty_sets import (
    KL,
    Box,
    CDNorm,
    ChiSquare,
    CVaR,
    Mapped,
    Nested,
    Product,
    Spectral,
    TotalVariation,
    Wasserstein1,
    WeightedL1,
)
from uncertainty_sets.errors import BackendUnsuitable, InvalidInput

torch = pytest.importorskip("torch")

from uncertainty_sets.torch import robust_loss, worst_case_weights  # noqa: E402

N = 6
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script.*:DeprecationWarning"  # torch's own, in forward mode
)


def vertex_sets(rng):
    q = rng.dirichlet(np.ones(N))
    return {
        "box": Box(0.5 * q, 1.6 * q),
        "cvar": CVaR(q, 0.37),
        "total variation": TotalVariation(q, 0.2),
        "weighted l1": WeightedL1(q, rng.uniform(0.5, 2.0, N), 0.2),
        "cd-norm": CDNorm(q, q * rng.uniform(0.3, 1.0, N), 1.7),
    }


def sets_of_sets(rng):
    inners = [KL(rng.dirichlet(np.ones(3)), 0.1), ChiSquare(rng.dirichlet(np.ones(3)), 0.2)]
    return {
        "mapped": Mapped(KL(np.full(3, 1 / 3), 0.2), rng.dirichlet(np.ones(N), size=3)),
        "product": Product(inners, [0.3, 0.7]),
        "nested": Nested(KL([0.4, 0.6], 0.1), inners),
    }


def all_sets(seed=0):
    rng = np.random.default_rng(seed)
    return smooth_sets(N, rng) | vertex_sets(rng) | sets_of_sets(rng)


def tensors_of(made):
    return {
        name: torch.tensor(np.asarray(each, float), requires_grad=True)
        for name, each in made._given_by_name().items()
    }


def value_of(made, names, losses, *parameters):
    given = dict(zip(names, parameters, strict=True))
    if "shape" in given and given["shape"].ndim == 2:  # a matrix must stay symmetric
        given["shape"] = 0.5 * (given["shape"] + given["shape"].T)
    return robust_loss(losses, made, **given)


def losses_for(seed=0, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, N, dtype=torch.float64, generator=generator)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", sorted(all_sets()))
def test_first_and_second_derivatives_by_differences(name):
    made = all_sets()[name]
    given, f = tensors_of(made), losses_for().requires_grad_()
    names = tuple(given)
    tensors = (f, *given.values())
    assert torch.autograd.gradcheck(lambda *each: value_of(made, names, *each), tensors, atol=1e-6)
    assert torch.autograd.gradgradcheck(lambda *each: value_of(made, names, *each), tensors, atol=1e-5)
    assert torch.autograd.gradcheck(lambda f: worst_case_weights(f, made), (f,), atol=1e-6)
    assert torch.autograd.gradgradcheck(lambda f: robust_loss(f, made), (f,), atol=1e-5)


def test_a_wrong_second_derivative_would_be_seen(monkeypatch):
    from uncertainty_sets.torch import solve

    real = solve.pulls

    def wrong(*given):
        found, *rest = real(*given)
        return (found if given[-1][1] is None else 2.0 * found, *rest)

    monkeypatch.setattr(solve, "pulls", wrong)
    f = losses_for().requires_grad_()
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradgradcheck(lambda f: robust_loss(f, KL(np.full(N, 1 / N), 0.1)), (f,), atol=1e-5)


def test_all_ways_to_a_hessian_agree():
    f = losses_for()
    for name, made in all_sets().items():

        def value(f, made=made):
            return robust_loss(f, made)

        def weights(f, made=made):
            return worst_case_weights(f, made)

        one = torch.func.hessian(value)(f)
        for other in (
            torch.func.jacrev(torch.func.grad(value))(f),
            torch.func.jacfwd(weights)(f),
            torch.autograd.functional.hessian(value, f),
        ):
            torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-10, msg=name)
        moved = torch.func.jvp(value, (f,), (torch.ones(N, dtype=f.dtype),))
        assert abs(float(moved[1]) - 1.0) < 1e-12, name  # the value moves with a constant


def test_third_derivatives():
    f = losses_for().requires_grad_()
    ball = KL(np.full(N, 1 / N), 0.1)

    def curvature(f):
        (gradient,) = torch.autograd.grad(robust_loss(f, ball), f, create_graph=True)
        return (gradient**2).sum()

    assert torch.autograd.gradgradcheck(curvature, (f,), atol=1e-5)


def test_vmap_over_losses_and_parameters():
    F, radius = losses_for(1, 4), torch.tensor([0.05, 0.1, 0.2, 0.3], dtype=torch.float64)
    q = torch.full((N,), 1.0 / N, dtype=torch.float64)
    ball = KL(q.numpy(), 0.1)

    def slope(f, r):
        return torch.func.grad(lambda r: robust_loss(f, ball, radius=r))(r)

    together = torch.func.vmap(slope)(F, radius)
    each = torch.stack([slope(f, r) for f, r in zip(F, radius, strict=True)])
    torch.testing.assert_close(together, each)
    shared = torch.func.vmap(lambda f: robust_loss(f, ball, center=q))(F)
    torch.testing.assert_close(shared, robust_loss(F, ball))
    both = torch.func.vmap(torch.func.hessian(lambda f: robust_loss(f, ball)))(F)
    assert both.shape == (4, N, N)


def test_a_batch_shares_its_parameters():
    F = losses_for(2, 2, 3)
    for name, made in all_sets().items():
        given = tensors_of(made)
        robust_loss(F, made, **given).sum().backward()
        pulls = made.worst_case(F.reshape(-1, N).numpy()).vjp(value=np.ones(6))
        for parameter, tensor in given.items():
            np.testing.assert_allclose(
                tensor.grad, pulls[parameter], atol=1e-9, err_msg=f"{name}, {parameter}"
            )


def test_plans_and_ranks_have_first_derivatives_by_parameters():
    rng = np.random.default_rng(3)
    q, f = rng.dirichlet(np.ones(N)), losses_for(3).requires_grad_()
    for made in (Wasserstein1(q, 0.4), Spectral(q, np.sqrt)):
        given = tensors_of(made)
        names = tuple(given)
        assert torch.autograd.gradcheck(
            lambda *each, made=made, names=names: value_of(made, names, *each),
            (f, *given.values()),
            atol=1e-6,
        )
        assert torch.autograd.gradgradcheck(lambda f, made=made: robust_loss(f, made), (f,), atol=1e-6)
        center = given["center"]
        (pull,) = torch.autograd.grad(robust_loss(f, made, center=center), center, create_graph=True)
        with pytest.raises(BackendUnsuitable, match="second derivative by its parameters"):
            (pull**2).sum().backward()


def test_float32_and_names():
    f = losses_for().float().requires_grad_()
    radius = torch.tensor(0.1, requires_grad=True)
    ball = KL(np.full(N, 1 / N), 0.1)
    value = robust_loss(f, ball, radius=radius)
    (gradient,) = torch.autograd.grad(value, f, create_graph=True)
    (gradient**2).sum().backward()
    assert value.dtype == f.grad.dtype == radius.grad.dtype == torch.float32
    with pytest.raises(InvalidInput, match=r"no derivative by 'radios'.*did you mean 'radius'"):
        robust_loss(f, ball, radios=radius)


NESTED = Nested(KL([0.4, 0.6], 0.1), [KL([0.5, 0.5], 0.1), ChiSquare(np.full(4, 0.25), 0.2)])
COMPILED = {
    "losses": lambda f, r, ball: robust_loss(2.0 * f, ball),
    "radius": lambda f, r, ball: robust_loss(f, ball, radius=r),
    "weights": lambda f, r, ball: (worst_case_weights(f, ball, radius=r) * f**2).sum(),
    "nested": lambda f, r, ball: robust_loss(f, NESTED),
}


def compiled_as_plain(backend, form):
    ball = KL(np.full(N, 1 / N), 0.1)

    def compute(f, r):
        return COMPILED[form](f, r, ball)

    found = []
    for function in (compute, torch.compile(compute, backend=backend, fullgraph=True)):
        f = losses_for().requires_grad_()
        r = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
        value = function(f, r)
        value.backward()
        found.append((value.detach(), f.grad, torch.zeros(()) if r.grad is None else r.grad))
    for plain, traced in zip(*found, strict=True):
        torch.testing.assert_close(plain, traced, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("form", COMPILED)
def test_compiled_without_a_graph_break(form):
    compiled_as_plain("aot_eager", form)


@pytest.mark.thorough
@pytest.mark.parametrize("form", COMPILED)
def test_compiled_by_inductor(form):
    compiled_as_plain("inductor", form)
