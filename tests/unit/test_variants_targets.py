"""What a stamp may say of a wheel's device code, which ROCm it states, and the labels that follow."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from binaries import HOST, bundle, elf, hip, kpack_reference
from hypothesis import given
from hypothesis import strategies as st

from rocm_wheels.core import errors
from rocm_wheels.device_code import code_objects
from rocm_wheels.models import gfx, package_indexes
from rocm_wheels.package import variant_stamp
from rocm_wheels.variants import document, order
from rocm_wheels.variants.targets import (
    COMPILER_GENERICS,
    WheelTargets,
    choose_targets,
    collect_wheel_targets,
    select_rocm_targets,
)


def code_of(*targets: str) -> list[code_objects.CodeObject]:
    """The code objects of a library for these targets."""
    library = elf({".hip_fatbin": bundle(HOST, *(hip(one) for one in targets))})
    return code_objects.read_code_objects(library, "a.so")


def held(*targets: str) -> WheelTargets:
    """What a wheel with a library for these targets holds."""
    return collect_wheel_targets({"a.so": code_of(*targets)}, {})


MI = held("gfx90a", "gfx942:sramecc+:xnack-", "gfx1100")


def test_values_are_the_processors_in_the_order_of_their_numbers() -> None:
    assert MI.targets == ("gfx90a", "gfx942", "gfx1100")
    assert choose_targets("x.whl", MI) == ("gfx90a", "gfx942", "gfx1100")
    both = held("gfx90a:xnack+", "gfx90a:xnack-")
    assert (both.targets, both.special) == (("gfx90a",), ())


def test_a_generic_target_is_a_value_where_the_provider_knows_it_and_what_it_covers_elsewhere() -> None:
    generic = held("gfx9-4-generic")
    assert choose_targets("x.whl", generic, generics=True) == ("gfx9_4_generic",)
    assert choose_targets("x.whl", generic, generics=False) == ("gfx942", "gfx950")
    assert choose_targets("x.whl", generic, "gfx942 gfx950") == ("gfx942", "gfx950")
    listed = choose_targets("x.whl", WheelTargets(), "gfx9-4-generic,gfx11_generic gfx1201")
    assert listed == ("gfx9_4_generic", "gfx11_generic", "gfx1201")


WRONG_TARGETS = [
    (MI, "gfx90a", "x.whl: --gfx leaves out gfx942, gfx1100, and the wheel holds gfx90a, gfx942, gfx1100"),
    (MI, "gfx90a gfx942 gfx1100 gfx1201", "x.whl: --gfx claims gfx1201, and the wheel holds gfx90a"),
    (MI, "none", "leaves out gfx90a, gfx942, gfx1100"),
    (MI, "gfx9999", "--gfx: gfx9999 is no GPU target"),
    (MI, ", ", "--gfx names no GPU target"),
    (held("gfx9-4-generic"), "gfx942", "--gfx leaves out gfx950, and the wheel holds gfx9-4-generic"),
    (held("gfx942"), "gfx9-4-generic", "--gfx claims gfx950, and the wheel holds gfx942"),
    (held("gfx90a:xnack+"), "from-wheel", "x.whl holds gfx90a:xnack+ and no plain code for it"),
    (held("gfx90a:sramecc-"), "gfx90a", "x.whl holds gfx90a:sramecc- and no plain code for it"),
    (WheelTargets(), "from-wheel", "x.whl holds no device code, so it does not tell its targets"),
    (WheelTargets(portable=True), "from-wheel", "x.whl holds only SPIR-V, so it does not tell its targets"),
    (WheelTargets(outside=("a.kpack",)), "from-wheel", "x.whl: its device code is in a.kpack, outside of it"),
]


@pytest.mark.parametrize(("wheel", "wanted", "message"), WRONG_TARGETS)
def test_a_stamp_that_claims_or_hides_is_refused(wheel: WheelTargets, wanted: str, message: str) -> None:
    with pytest.raises(errors.RocmWheelsError) as failure:
        choose_targets("x.whl", wheel, wanted)
    assert message in str(failure.value)
    assert "tip: " in errors.explain_error(failure.value)


def test_a_list_is_stamped_where_the_wheel_says_nothing() -> None:
    assert choose_targets("x.whl", WheelTargets(), "gfx94X-dcgpu") == ("gfx942",)
    assert choose_targets("x.whl", WheelTargets(outside=("a.kpack",)), "gfx942") == ("gfx942",)
    assert choose_targets("x.whl", WheelTargets(), "none") == ()
    assert choose_targets("x.whl", WheelTargets(portable=True), "gfx942") == ("gfx942",)


def test_code_that_was_moved_out_counts_where_its_archive_is() -> None:
    library = elf({".text": b"x", ".rocm_kpack_ref": kpack_reference("../.kpack/demo_@GFXARCH@.kpack")})
    away = {"lib/a.so": code_objects.list_named_archives(library, "a.so")}
    assert collect_wheel_targets({}, away).outside == ("../.kpack/demo_@GFXARCH@.kpack",)
    inside = collect_wheel_targets({".kpack/demo_gfx942.kpack": code_of("gfx942")}, away)
    assert (inside.targets, inside.outside) == (("gfx942",), ())


def test_of_a_library_for_each_rocm_a_stamp_says_what_the_one_for_its_rocm_has() -> None:
    members = {
        "demo/libdemo_rocm72.so": code_of("gfx942"),
        "demo/libdemo_rocm715.so": code_of("gfx942", "gfx906"),
        "demo/libshared.so": code_of("gfx1100"),
    }
    wheel = collect_wheel_targets(members, {})
    assert wheel.targets == ("gfx906", "gfx942", "gfx1100")
    assert select_rocm_targets("x.whl", wheel, "7.2").targets == ("gfx942", "gfx1100")
    assert select_rocm_targets("x.whl", wheel, "7.15").targets == ("gfx906", "gfx942", "gfx1100")
    with pytest.raises(errors.DataError, match=r"none for ROCm 7\.1: there are rocm715, rocm72"):
        select_rocm_targets("x.whl", wheel, "7.1")
    alone = held("gfx942")
    assert select_rocm_targets("x.whl", alone, "7.1") == alone


# --- the ROCm version ---


@pytest.mark.parametrize(
    ("local", "requirements", "asked", "version"),
    [
        ("rocm7.2.0", [], None, "7.2"),
        ("git1a2b3c4d.rocm7.10.0a20251101", ["rocm[libraries]==7.10.0a20251101"], None, "7.10"),
        ("devrocm7.2.0.dev0.abc", [], "7.2", "7.2"),
        (None, ["rocm[libraries]==7.2.0; platform_system == 'Linux'", "numpy==1.0"], None, "7.2"),
        ("cpu", [], "10.1.3", "10.1"),
    ],
)
def test_the_rocm_version_is_what_the_wheel_states(
    local: str | None, requirements: list[str], asked: str | None, version: str
) -> None:
    assert variant_stamp.read_rocm_version("x.whl", local, requirements, asked) == version


@pytest.mark.parametrize(
    ("local", "requirements", "asked", "message"),
    [
        (None, ["rocm>=7"], None, "x.whl does not say which ROCm it was made with"),
        ("rocm7", [], None, "x.whl does not say which ROCm"),
        ("rocm7.2", [], "7.1", "--rocm 7.1 says 7.1; its version +rocm7.2 says 7.2"),
        ("rocm7.2", ["rocm==7.1.0"], None,
         "its version +rocm7.2 says 7.2; its requirement rocm==7.1.0 says 7.1"),
        (None, [], "seven", "--rocm: 'seven' is not a version like 7.2"),
        (None, [], "7", "--rocm: '7' is not a version like 7.2"),
    ],
)  # fmt: skip
def test_a_rocm_version_that_is_not_known_or_not_one_is_refused(
    local: str | None, requirements: list[str], asked: str | None, message: str
) -> None:
    with pytest.raises((errors.DataError, errors.UsageError)) as failure:
        variant_stamp.read_rocm_version("x.whl", local, requirements, asked)
    assert message in str(failure.value)


def test_variants_of_a_release_have_one_version() -> None:
    locals_ = {None: "", "rocm7.2.0": "", "cpu": "", "git1a2b.rocm7.2": "git1a2b", "cxx11.abi": "cxx11.abi"}
    locals_ |= {"rocm7.2.0.asan": "asan", "git1a.cpu.asan": "git1a.asan", "rocm7.2.0.asan.5": "asan"}
    locals_ |= {"rocm7.2.0.asan.gfx942.dirty0a1b2c3d": "asan"}  # a developer's
    assert {one: variant_stamp.strip_rocm_local(one) for one in locals_} == locals_
    pins = ["torch==2.9.0+rocm7.2.0", "triton == 3.5.0+git1a2b.rocm7.2 ; python_version<'4'"]
    stripped = ["torch==2.9.0", "triton == 3.5.0+git1a2b ; python_version<'4'"]
    other = ["rocm==7.2.0+abc", "x>1"]
    assert variant_stamp.strip_local_pins([*pins, *other]) == [*stripped, *other]


# --- labels ---


def properties(targets: str, rocm: str = "7.2", host: str = "") -> document.Properties:
    given = {("amd", "gfx_arch"): targets, ("rocm", "version"): rocm, ("amd", "rocm_version"): host}
    return document.make_properties([(*key, text.split()) for key, text in given.items()])


@pytest.mark.parametrize(
    ("given", "label"),
    [
        (properties("gfx942"), "rocm7.2_gfx942"),
        (properties(""), "rocm7.2"),
        (properties("", rocm=""), "null"),
        (properties("gfx942", rocm="", host="7.2"), "hostrocm7.2_gfx942"),
        (properties("gfx1100 gfx1101 gfx1102 gfx1103"), "rocm7.2_gfx110x_all"),
        (properties("gfx1100 gfx1101 gfx1102"), "rocm7.2_gfx110x_dgpu"),
        (properties("gfx1100 gfx90a gfx942"), "rocm7.2_gfx90a_gfx942_gfx1100"),
        (properties("gfx942 gfx950"), "rocm7.2_gfx9_4"),
        (properties("gfx11_generic"), "rocm7.2_gfx11_generic"),
        (properties(" ".join(COMPILER_GENERICS["gfx11-generic"])), "rocm7.2_gfx11"),
        (properties(" ".join(gfx.get_gfx_targets())), f"rocm7.2_gfx_{len(gfx.get_gfx_targets())}_targets_"),
    ],
)
def test_labels_can_be_read(given: document.Properties, label: str) -> None:
    assert order.make_label(given).startswith(label)
    assert order.make_label(given) == label or label.endswith("_targets_")
    assert document.LABEL_PATTERN.fullmatch(order.make_label(given))


values = sorted(
    {*gfx.get_gfx_targets(), *(name.replace("-", "_") for name in COMPILER_GENERICS), "gfx1154", "gfx902"}
)


@given(st.lists(st.sets(st.sampled_from(values), max_size=9), min_size=2, max_size=8))
def test_two_sets_of_targets_never_have_one_label(sets: list[set[str]]) -> None:
    for one, other in itertools.combinations(sets, 2):
        same = order.make_label(properties(" ".join(one))) == order.make_label(properties(" ".join(other)))
        assert same == (one == other)


def test_no_family_shares_its_label_with_another_set() -> None:
    sets = {frozenset(members) for members in gfx.get_gfx_families().values()}
    sets |= {frozenset(chips) for chips in COMPILER_GENERICS.values()} | {frozenset([one]) for one in values}
    assert len({order.make_label(properties(" ".join(one))) for one in sets}) == len(sets)


@pytest.mark.parametrize(
    ("label", "given", "message"),
    [
        ("ROCm", properties("gfx942"), "--label ROCm: a-z, 0-9, _ and . are allowed"),
        ("null", properties("gfx942"),
         "--label null stands for no properties, not for amd :: gfx_arch :: gfx942"),
        ("cpu", properties("", rocm=""), "--label cpu has no properties: it must be null"),
        ("rocm71", properties("gfx942", rocm="7.0"), "--label rocm71 names ROCm 71, the properties 7.0"),
        ("rocm7.15", properties("gfx942", rocm="7.1"),
         "--label rocm7.15 names ROCm 7.15, the properties 7.1"),
        ("gfx90a_gfx942", properties("gfx942"), "--label gfx90a_gfx942 names gfx90a, the properties gfx942"),
    ],
)  # fmt: skip
def test_a_label_that_does_not_fit_is_refused(label: str, given: document.Properties, message: str) -> None:
    with pytest.raises(errors.UsageError) as failure:
        order.check_label(label, given)
    assert message in str(failure.value)


@pytest.mark.parametrize(
    "label", ["rocm7.2", "rocm72_gfx9", "gfx950_tuned", "gfx110x", "mi300.fast", "rocm7"]
)
def test_a_label_that_is_true_is_taken(label: str) -> None:
    given = properties("gfx9_4_generic gfx1100")
    assert order.check_label(label, given) == label


# --- providers ---


def test_each_provider_is_named_as_users_can_have_it() -> None:
    assert document.ProviderChoice().make_amd_provider([]) == document.make_bootstrap_provider()
    assert document.ProviderChoice("own", "host").make_amd_provider([]) == document.make_own_provider()
    static = document.ProviderChoice("static").make_amd_provider(["gfx942", "gfx90a"])
    assert static.static_properties == {"gfx_arch": ("gfx942", "gfx90a")}


def test_without_a_list_of_versions_those_are_ranked_that_have_been_released() -> None:
    def rank(*versions: str) -> tuple[str, ...]:
        return document.ProviderChoice().make_rocm_provider(versions).static_properties["version"]

    ranked = rank()
    released = {f"{row.version.major}.{row.version.minor}" for row in package_indexes.list_rocm_releases()}
    assert set(ranked) == released, "no version that never existed"
    assert ranked.index("10.1") < ranked.index("7.14") < ranked.index("7.2") < ranked.index("6.4")
    assert rank("7.2") == rank("6.4") == ranked, "wheels of two calls have one list, as joining demands"
    assert rank("99.0") == ("99.0", *ranked), "a ROCm that is newer than the table"


@pytest.mark.parametrize(("given", "who"), [({}, "rocm-bootstrap"), ({"provider": "static"}, "static")])
def test_a_provider_that_cannot_answer_is_refused(given: dict[str, Any], who: str) -> None:
    with pytest.raises(errors.UsageError, match=f"--rocm-property host: {who} does not report"):
        document.ProviderChoice(**given, rocm_property="host")
