"""What an explanation of a distance says, and how it is written: text, JSON, HTML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..certificates import Certificate
from ..kinds import Facts
from ..showing import escaped, name_html, number, percent, short


@dataclass(frozen=True)
class Cause:
    """A pair of states as a cause of the distance that is explained.

    All shares are in the unit of that distance, and add up: `share` is that of rewards, of a reason, of entropy, those
    of `causes` and `cut_share` where the pair was looked into, and all of it remains to be explained where it was not.

    Attributes:
        states, names: the pair. mass: what the plan of the pair above puts on it (1 for the first).
        distance: d of the pair. share: how much of the whole distance it is responsible for.
        looked_into: whether the pair is split up here.
        rewards: of the two states (or choices). reward_share: of their difference.
        actions: the choices that decide, where there are any: of the first state, of the second.
        rivals: the other choices (or pairings), and how far apart they are, farthest first.
        reason: why the two are at the largest distance, or at none, whatever comes next; else empty.
        reason_share: the share of such a reason. entropy_share: of the entropy term of Sinkhorn's value.
        causes: pairs of next states, largest shares first. cut: how many more there are. cut_share: theirs together.
    """

    states: tuple[int, int]
    names: tuple[str, str]
    mass: float
    distance: float
    share: float
    looked_into: bool = False
    rewards: tuple[float, float] | None = None
    reward_share: float = 0.0
    actions: tuple[str, str] | None = None
    rivals: tuple[tuple[str, float], ...] = ()
    reason: str = ""
    reason_share: float = 0.0
    entropy_share: float = 0.0
    causes: tuple[Cause, ...] = ()
    cut: int = 0
    cut_share: float = 0.0

    def walk(self, level: int = 0) -> Iterator[tuple[int, Cause]]:
        """The cause and all below, each with its level."""
        yield level, self
        for cause in self.causes:
            yield from cause.walk(level + 1)

    @property
    def remainder(self) -> float:
        """What is not explained below: pairs not looked into, and pairs not listed."""
        if not self.looked_into:
            return self.share
        return self.cut_share + sum(cause.remainder for cause in self.causes)


@dataclass(frozen=True)
class Origin:
    """What a pair adds to the distance by itself, over all ways in which the two walks come there."""

    names: tuple[str, str]
    states: tuple[int, int]
    share: float
    visits: float
    what: str


@dataclass(frozen=True)
class Explanation:
    """Why two states are as far apart as they are.

    Attributes:
        cause: the pair, with the causes of its distance, recursively.
        origins: where rewards, labels or actions differ in the end, and how much of the distance each such pair makes,
            largest first: d(s, t) = Σ visits·(difference there), where visits are discounted and expected, of two walks
            side by side that the plans couple.
        origins_remainder: what origins leave unexplained.
        distance: d(s, t) as it was computed. total: F(d)(s, t), which the shares add up to.
        allowed: how far these two may be apart by the certificate, (1 + c_T) · error and rounding.
        certificate: of the metric. order: p; for p > 1 shares are in proportion to mass times distance to the power p.
        notes: what one should know.
    """

    cause: Cause
    origins: tuple[Origin, ...]
    origins_remainder: float
    distance: float
    total: float
    allowed: float
    certificate: Certificate
    order: float
    notes: tuple[str, ...] = ()

    @property
    def remainder(self) -> float:
        """What the recursion left unexplained (depth, or many small shares)."""
        return self.cause.remainder

    def __repr__(self) -> str:
        s, t = (short(name, 20) for name in self.cause.names)
        return f"Explanation({s}, {t}: distance {self.distance:.4g}, remainder {self.remainder:.3g})"

    # ---- JSON ----

    def to_dict(self) -> Facts:
        """All of it in plain types, for JSON."""
        return {
            "distance": self.distance,
            "total": self.total,
            "allowed": self.allowed,
            "remainder": self.remainder,
            "error": self.certificate.error,
            "rigorous": self.certificate.rigorous,
            "source": self.certificate.source,
            "order": self.order,
            "notes": list(self.notes),
            "cause": _plain(self.cause),
            "origins": [
                {"states": list(o.states), "names": list(o.names), "share": o.share, "visits": o.visits, "what": o.what}
                for o in self.origins
            ],
            "origins_remainder": self.origins_remainder,
        }

    # ---- text ----

    def text(self) -> str:
        """The explanation in lines of plain text."""
        s, t = (short(name) for name in self.cause.names)
        word = "rigorous" if self.certificate.rigorous else "heuristic"
        lines = [f"d({s}, {t}) = {self.distance:.6g}, {word} error {self.certificate.error:.2g}"]
        lines += self._branch(self.cause, 0)
        if self.remainder > 0.0:
            lines.append(f"not looked into: {self._share(self.remainder)}")
        if self.origins:
            lines += ["", "where it comes from, over all paths:"]
            for origin in self.origins:
                x, y = (short(name, 30) for name in origin.names)
                lines.append(f"  {self._share(origin.share)}  {origin.what} at ({x}, {y}), visited {origin.visits:.3g}")
            if self.origins_remainder > 0.0:
                lines.append(f"  {self._share(self.origins_remainder)}  elsewhere")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    __str__ = text

    def _share(self, share: float) -> str:
        part = share / self.total if self.total > 0.0 else 0.0
        return f"{number(share)} ({percent(part)})"

    def _branch(self, cause: Cause, level: int) -> list[str]:
        pad = "  " * (level + 1)
        lines = [f"{pad}{self._share(share)}  {what}" for what, share in own_parts(cause)]
        if cause.actions is not None:
            lines.insert(0, f"{pad}{deciding(cause)}")
        for child in cause.causes:
            x, y = (short(name, 30) for name in child.names)
            mass, distance = number(child.mass), number(child.distance)
            lines.append(f"{pad}{self._share(child.share)}  mass {mass} on ({x}, {y}) at {distance}")
            lines += self._branch(child, level + 1)
        if cause.cut:
            lines.append(f"{pad}{self._share(cause.cut_share)}  {cause.cut} more pairs")
        return lines

    # ---- HTML ----

    def html(self) -> str:
        """The explanation as a piece of HTML that needs nothing else."""
        s, t = self.cause.names
        word = "rigorous" if self.certificate.rigorous else "heuristic"
        head = (
            f"<p><b>d({name_html(s)}, {name_html(t)}) = {self.distance:.6g}</b>, {word} error "
            f"{self.certificate.error:.2g}</p>"
        )
        rest = f"<p>Not looked into: {self._share(self.remainder)}.</p>" if self.remainder > 0.0 else ""
        rows = "".join(
            f"<tr><td>{self._bar(o.share)}</td><td>{escaped(o.what)} at {name_html(o.names[0], 30)}, "
            f"{name_html(o.names[1], 30)}</td></tr>"
            for o in self.origins
        )
        origins = f"<p>Where it comes from, over all paths:</p><table>{rows}</table>" if rows else ""
        notes = "".join(f"<p><i>{escaped(note)}</i></p>" for note in self.notes)
        return f"<div class='bisimetric'>{head}{self._branch_html(self.cause, 0)}{rest}{origins}{notes}</div>"

    _repr_html_ = html

    def _bar(self, share: float) -> str:
        part = share / self.total if self.total > 0.0 else 0.0
        return (
            "<span style='display:inline-block;width:5em;border:1px solid #8888'>"
            "<span style='display:block;height:.6em;"
            f"background:#0072B2;width:{100.0 * min(part, 1.0):.1f}%'></span></span> {self._share(share)}"
        )

    def _branch_html(self, cause: Cause, level: int) -> str:
        items = [f"<li>{self._bar(share)} {escaped(what)}</li>" for what, share in own_parts(cause)]
        if cause.actions is not None:
            items.insert(0, f"<li>{escaped(deciding(cause))}</li>")
        for child in cause.causes:
            line = (
                f"{self._bar(child.share)} mass {number(child.mass)} on {name_html(child.names[0], 30)}, "
                f"{name_html(child.names[1], 30)} at {number(child.distance)}"
            )
            inside = self._branch_html(child, level + 1) if child.looked_into else ""
            folded = f"<details{' open' if level == 0 else ''}><summary>{line}</summary>{inside}</details>"
            items.append(f"<li>{folded if inside else line}</li>")
        if cause.cut:
            items.append(f"<li>{self._bar(cause.cut_share)} {cause.cut} more pairs</li>")
        return f"<ul style='list-style:none;padding-left:1em'>{''.join(items)}</ul>"


def own_parts(cause: Cause) -> list[tuple[str, float]]:
    """What a pair adds by itself, in words, with its share."""
    parts = []
    if cause.reason:
        parts.append((cause.reason, cause.reason_share))
    if cause.rewards is not None and (cause.reward_share > 0.0 or cause.rewards[0] != cause.rewards[1]):
        parts.append((f"rewards {number(cause.rewards[0])} and {number(cause.rewards[1])}", cause.reward_share))
    if cause.entropy_share > 0.0:
        parts.append(("entropy of the plan", cause.entropy_share))
    return parts


def deciding(cause: Cause) -> str:
    """Which actions decide, and how far apart the others are, in words."""
    assert cause.actions is not None
    one, two = (short(name, 20) for name in cause.actions)
    under = f"under {one}" if one == two else f"under {one} and {two}"
    if not cause.rivals:
        return under
    listed = ", ".join(f"{short(name, 20)} {number(x)}" for name, x in cause.rivals[:4])
    return f"{under} (others: {listed}{', …' if len(cause.rivals) > 4 else ''})"


def _plain(cause: Cause) -> Facts:
    return {
        "states": list(cause.states),
        "names": list(cause.names),
        "mass": cause.mass,
        "distance": cause.distance,
        "share": cause.share,
        "looked_into": cause.looked_into,
        "rewards": None if cause.rewards is None else list(cause.rewards),
        "reward_share": cause.reward_share,
        "actions": None if cause.actions is None else list(cause.actions),
        "rivals": [[name, x] for name, x in cause.rivals],
        "reason": cause.reason,
        "reason_share": cause.reason_share,
        "entropy_share": cause.entropy_share,
        "causes": [_plain(child) for child in cause.causes],
        "cut": cause.cut,
        "cut_share": cause.cut_share,
    }
