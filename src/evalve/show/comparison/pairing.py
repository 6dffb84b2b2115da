"""Which evaluations belong together: of two experiments, or the variants inside one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from evalve.contracts import EvaluationInfo
from evalve.errors import NotFound
from evalve.options import suggestion
from evalve.show.finding import Labelled

Parameters = Callable[[EvaluationInfo], Mapping[str, str]]
"""What tells a variant from the others of its function, as it was recorded."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two evaluations whose rows are compared."""

    label: str
    a: Labelled
    b: Labelled


@dataclass(frozen=True, slots=True)
class Across:
    """The variants with one value of a parameter beside those with another."""

    value_a: str
    value_b: str
    pairs: Sequence[Pair]
    unpaired_a: Sequence[str]
    unpaired_b: Sequence[str]


def pair_up(of_a: Sequence[Labelled], of_b: Sequence[Labelled], parameters: Parameters) -> list[Pair]:
    """By file, function and variant; where a file was moved, by name if only one has it.

    A function whose variants are all others, as under another `--model`, is paired by function: by the
    parameters that both sides have in common, or because there is just one variant on each side.
    """
    by_key = {one.info.spec.key: one for one in of_b}
    same_key = {one.info.spec.key for one in of_a} & by_key.keys()
    pairs = {}
    for one in of_a:
        if one.info.spec.key in same_key:
            pairs[one.info.id] = Pair(one.label, one, by_key[one.info.spec.key])
            continue
        moved, rivals = (
            [two for two in side if two.info.spec.name == one.info.spec.name]
            for side in (_without(of_b, same_key), _without(of_a, same_key))
        )
        if len(moved) == len(rivals) == 1:
            pairs[one.info.id] = Pair(one.label, one, moved[0])
    settled = {_function(one.info) for pair in pairs.values() for one in (pair.a, pair.b)}
    for function in dict.fromkeys(_function(one.info) for one in of_a):
        if function not in settled:
            variants_a, variants_b = (
                [one for one in side if _function(one.info) == function] for side in (of_a, of_b)
            )
            for one, two in _paired_variants(variants_a, variants_b, parameters):
                pairs[one.info.id] = Pair(_label(one, two), one, two)
    return [pairs[one.info.id] for one in of_a if one.info.id in pairs]


def pair_across(of: Sequence[Labelled], name: str, parameters: Parameters) -> list[Across]:
    """The variants inside one experiment that differ in one parameter: its first value beside each other."""
    of_variant = {one.info.id: dict(parameters(one.info)) for one in of}
    values = dict.fromkeys(each[name] for each in of_variant.values() if name in each)
    if len(values) < 2:
        raise NotFound(_not_across(name, values, of_variant.values()))
    by_rest = {
        (_function(one.info), _rest(of_variant[one.info.id], {name}), of_variant[one.info.id][name]): one
        for one in of
        if name in of_variant[one.info.id]
    }
    first, *others = values
    return [_across(by_rest, first, other) for other in others]


_ByRest = Mapping[tuple[str, frozenset[tuple[str, str]], str], Labelled]


def _across(by_rest: _ByRest, first: str, other: str) -> Across:
    pairs, unpaired_a, unpaired_b = [], [], []
    for (function, rest, value), one in by_rest.items():
        if value == first:
            two = by_rest.get((function, rest, other))
            if two is None:
                unpaired_a.append(one.label)
            else:
                pairs.append(Pair(_label(one, two), one, two))
        elif value == other and (function, rest, first) not in by_rest:
            unpaired_b.append(one.label)
    return Across(first, other, pairs, unpaired_a, unpaired_b)


def _paired_variants(
    of_a: Sequence[Labelled], of_b: Sequence[Labelled], parameters: Parameters
) -> list[tuple[Labelled, Labelled]]:
    if len(of_a) == len(of_b) == 1:
        return [(of_a[0], of_b[0])]
    variants_a, variants_b = ([parameters(one.info) for one in side] for side in (of_a, of_b))
    differing = {
        name
        for name in {name for each in (*variants_a, *variants_b) for name in each}
        if {each.get(name) for each in variants_a} != {each.get(name) for each in variants_b}
    }
    pairs = []
    for one, variant in zip(of_a, variants_a, strict=True):
        rest = _rest(variant, differing)
        alike = [two for two, other in zip(of_b, variants_b, strict=True) if _rest(other, differing) == rest]
        rivals = [each for each in variants_a if _rest(each, differing) == rest]
        if len(alike) == len(rivals) == 1:
            pairs.append((one, alike[0]))
    return pairs


def _rest(variant: Mapping[str, str], without: Iterable[str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in variant.items() if name not in without)


def _without(side: Sequence[Labelled], keys: set[str]) -> list[Labelled]:
    return [one for one in side if one.info.spec.key not in keys]


def _function(info: EvaluationInfo) -> str:
    """The key without the variant."""
    return info.spec.key.removesuffix(_variant(info))


def _variant(info: EvaluationInfo) -> str:
    """`[gpt-low]` of `eval_x[gpt-low]`."""
    _, bracket, rest = info.spec.name.partition("[")
    return bracket + rest


def _label(a: Labelled, b: Labelled) -> str:
    """`eval_math: A [gpt], B [claude]`."""
    if a.info.spec.key == b.info.spec.key:
        return a.label
    function = a.label.removesuffix(_variant(a.info))
    return f"{function}: A {_variant(a.info) or '[]'}, B {_variant(b.info) or '[]'}"


def _not_across(name: str, values: Iterable[str], variants: Iterable[Mapping[str, str]]) -> str:
    found = list(values)
    if found:
        return f"nothing to compare: all variants have {name}={found[0]}"
    known = sorted({each for variant in variants for each in variant})
    hint = suggestion(name, known) or (f"; there is: {', '.join(known)}" if known else "")
    return f"nothing to compare: no evaluation has variants by a parameter {name!r}{hint}"
