"""Writes: to values, to views of them, to inputs, and to buffers that stay between runs."""

from __future__ import annotations

from collections.abc import Callable

from judges.fuzz.writer import Retry, Writer

IN_PLACE = """
{x}.add_({y})
{x}.mul_({k})
{x}.sub_({Y})
{x}.relu_()
{x}.clamp_(-{p}, {p})
{x}.sigmoid_()
{x}.masked_fill_({m}, {k})
{x}.copy_({Y})
{x}.zero_()
{x}.fill_({k})
{x}.neg_()
{x}.div_({p})
{x}.square_()
F.relu({x}, inplace=True)
F.hardtanh({x}, inplace=True)
{x:1+}[..., 0] = {k}
{x:1+}[..., 0] = {x}[..., -1]
{x:1+}[0] = {k}
{x:1+}[..., ::2] *= {k}
{x:1+}[1:] += {k}
{x:2+}[:, 0] = {x}[:, -1] * {k}
{x:1+}[{m}] = {k}
{x:1+}[{slices}] = {k}
{x:1+}.select({d}, {j}).mul_({k})
{x:1+}.narrow({d}, 0, {t}).add_({k})
{x:2+}.transpose({d}, {e}).mul_({k})
{x:1+}.index_fill_({d}, {I}, {k})
{x:1+}.index_add_({d}, {I}, {x}.index_select({d}, {I}))
{x:1+}.index_copy_({d}, {I}, {x}.index_select({d}, {I}) * {k})
{x:1+}.scatter_({d}, {G}, {k})
{x:2}.fill_diagonal_({k})
{x}.unsqueeze_({u})
{x:2+}.transpose_({d}, {e})
{x:1+}.index_put_(({I0},), torch.tensor({k}))
{x} += {y}
{x} *= {k}
""".strip().splitlines()


WHOLE = """
{q}.add_(1)
{q}.mul_(2)
{q}.clamp_(0, 3)
{q:1+}[0] = 2
{q:1+}[..., -1] += 1
{q}.zero_()
{q:1+}[{q} > 1] = 0
{h}.logical_not_()
{h:1+}[0] = True
""".strip().splitlines()


def in_place(w: Writer) -> None:
    """A write to a clone, to a value itself, or to a view whose base is read later."""
    line = w.fill(w.one(IN_PLACE if w.chance(0.85) else WHOLE))
    target = next(w.bound[name] for name in "xqh" if name in w.bound)
    value = w.values[target]
    if target.startswith("x") and w.chance(0.8):
        raise Retry("writes to inputs are rare")
    if value.is_leaf and value._is_view() and 0 in value.stride():
        raise Retry("one place for many elements")
    if w.chance(0.5) and value.is_floating_point():
        made = w.bind(w.one(["{}.clone()", "{} * 1.5", "{} + 0.25"]).format(target))[0]
        line = line.replace(target, made)
    w.write(line)


def state(w: Writer) -> None:
    """A buffer that is read and changed: a running mean, a window, a counter, a cache."""
    w.one(STATES)(w)


def _running(w: Writer) -> None:
    name = w.pick("f")
    shape = tuple(w.values[name].shape)
    kept = w.member(f"torch.zeros({shape})", "s")
    w.write(w.one([
        f"{kept}.mul_(0.9).add_({name}, alpha=0.1)",
        f"{kept}.copy_({kept} * 0.5 + {name})",
        f"{kept}.lerp_({name}, 0.3)",
        f"{kept}.copy_({name}.mean())",
        f"{kept}.fill_(0.5).add_({name})",
        f"self.{kept[5:]} = {kept} * 0.8 + {name} * 0.2",
    ]))  # fmt: skip
    w.bind(w.one([f"{name} - {kept}", f"{kept} * 2", f"{kept} + {name}"]))


def _window(w: Writer) -> None:
    name = w.pick("f", range(1, 5))
    shape = list(w.values[name].shape)
    taken = shape[-1]
    kept = w.member(f"torch.zeros({(*shape[:-1], taken + 2)})", "s")
    w.write(w.one([
        f"{kept}.copy_(torch.cat([{kept}[..., {taken}:], {name}], -1))",
        f"{kept}.copy_(torch.roll({kept}, 1, -1))",
        f"{kept}[..., :{taken}] = {name}",
    ]))  # fmt: skip
    w.bind(w.one([f"{kept} * 1.5", f"{kept}.mean(-1)", f"{kept}[..., 1:] - {kept}[..., :-1]"]))


def _counter(w: Writer) -> None:
    kept = w.member("torch.zeros((), dtype=torch.int64)", "s")
    w.write(w.one([f"{kept}.add_(1)", f"{kept}.copy_({w.pick('f')}.abs().max() * 2)"]))
    name = w.pick("f")
    w.bind(w.one([f"{name} * {kept}", f"{name} + {kept}.float()", f"{kept} * 2"]))


def _cache(w: Writer) -> None:
    """A key-value cache that is written at a position which is an input."""
    name = w.pick("f", range(1, 4))
    shape = list(w.values[name].shape)
    places = 4
    kept = w.member(f"torch.zeros({(places, *shape)})", "s")
    position = w.input("i", (1,))
    w.inputs[-1] = type(w.inputs[-1])(position, f"torch.randint(0, {places}, (1,), generator=g)")
    w.values[position] = w.space[position] = w.values[position].clamp(0, places - 1)
    w.write(w.one([
        f"{kept}.index_copy_(0, {position}, {name}.unsqueeze(0))",
        f"{kept}[{position}] = {name}.unsqueeze(0)",
    ]))  # fmt: skip
    w.bind(w.one([f"{kept} * {name}", f"{kept}.sum(0)", f"{kept}.mean(0) + {name}"]))


def _ring(w: Writer) -> None:
    """A ring of values with the place that is written next."""
    name = w.pick("f", range(1, 4))
    shape = tuple(w.values[name].shape)
    kept = w.member(f"torch.zeros({(3, *shape)})", "s")
    place = w.member("torch.zeros((1,), dtype=torch.int64)", "s")
    w.write(f"{kept}.index_copy_(0, {place}, {name}.unsqueeze(0))")
    w.write(f"{place}.copy_(({place} + 1) % 3)")
    w.bind(w.one([f"{kept}.mean(0)", f"{kept}.amax(0) - {name}", f"{kept}[1:] * 2"]))


STATES: list[Callable[[Writer], None]] = [_running, _running, _window, _counter, _cache, _ring]
