"""Settings: one typed table, code before environment before default, and errors for typos."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Iterator

import pytest

from opgraft import errors, settings, using
from opgraft.settings import Setting, declare


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("OPGRAFT_") and name != "OPGRAFT_CACHE":
            monkeypatch.delenv(name)


# ---- where a value comes from


def test_code_comes_before_the_environment_and_that_before_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (settings.DEBUG, settings.source("DEBUG")) == (0, "default")
    monkeypatch.setenv("OPGRAFT_DEBUG", "2")
    assert (settings.DEBUG, settings.source("DEBUG")) == (2, "environment")
    with using(DEBUG=3):
        assert (settings.DEBUG, settings.source("DEBUG")) == (3, "code")
        with using(DEBUG=4, FLOAT="unsafe"):
            assert (settings.DEBUG, settings.FLOAT) == (4, "unsafe")
        assert (settings.DEBUG, settings.FLOAT) == (3, "strict")
    assert settings.DEBUG == 2
    monkeypatch.setenv("OPGRAFT_DEBUG", "1")
    assert settings.DEBUG == 1


def test_an_empty_variable_is_as_if_unset_but_for_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPGRAFT_DEBUG", "")
    assert settings.DEBUG == 0
    assert settings.PLUGINS is None
    monkeypatch.setenv("OPGRAFT_PLUGINS", "")
    assert settings.PLUGINS == ()


def test_changed_lists_what_differs_from_the_default_families_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPGRAFT_CPU_CC", "GCC")
    monkeypatch.setenv("OPGRAFT_FLOAT", "strict")
    monkeypatch.delenv("OPGRAFT_CACHE", raising=False)
    with using(SPEC=1):
        assert settings.changed() == {
            "CPU_CC": ("GCC", "environment"),
            "SPEC": (True, "code"),
        }


def test_variables_that_nothing_reads_are_found_with_the_name_that_was_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPGRAFT_DEBGU", "1")
    monkeypatch.setenv("OPGRAFT_DEBUG", "1")
    assert settings.stray() == {"OPGRAFT_DEBGU": ["OPGRAFT_DEBUG"]}


# ---- types


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("DEBUG", "3", 3),
        ("DEBUG", 3, 3),
        ("SPEC", "1", True),
        ("SPEC", "off", False),
        ("SPEC", True, True),
        ("EGRAPH", "0", False),
        ("EGRAPH", "yes", True),
        ("EGRAPH", None, None),
        ("OPTIMIZER", "Greedy", "greedy"),
        ("OPTIMIZER", "anything-registered", "anything-registered"),
        ("FLOAT", "REASSOC", "reassoc"),
        ("PLUGINS", "a, -B ,", ("a", "-b")),
        ("PLUGINS", ["a", "-b"], ("a", "-b")),
        ("PLUGINS", "", ()),
        ("PLUGINS", None, None),
        ("CACHE_SIZE", "512M", 512 << 20),
        ("CACHE_SIZE", "2 GiB", 2 << 30),
        ("CACHE_SIZE", "10kb", 10 << 10),
        ("CACHE_SIZE", 123, 123),
        ("CPU_CC", " gcc ", "gcc"),
        ("DEVICE", "cpu:0", "cpu:0"),
        ("CPU_THREADS", "0", 0),
    ],
)
def test_values_are_converted_to_the_type_of_their_setting(
    name: str, given: object, value: object
) -> None:
    with using(**{name: given}):
        found = settings.get(name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("DEBUG", "loud", "DEBUG takes a whole number, 0 or more"),
        ("DEBUG", -1, "DEBUG takes a whole number, 0 or more"),
        ("DEBUG", 1.5, "DEBUG takes a whole number, 0 or more"),
        ("SPEC", 2, "SPEC takes 0 or 1"),
        ("SPEC", "maybe", "SPEC takes 0 or 1"),
        ("SPEC", None, "SPEC takes 0 or 1"),
        ("FLOAT", "stict", "FLOAT takes one of strict, reassoc, unsafe (nearest: strict)"),
        ("CACHE_SIZE", "lots", "CACHE_SIZE takes a size in bytes"),
        ("PLUGINS", 3, "PLUGINS takes a list"),
        ("DEVICE", 0, "DEVICE takes a name"),
    ],
)
def test_a_bad_value_is_an_error_where_it_is_given(name: str, given: object, words: str) -> None:
    with pytest.raises(errors.SettingError) as caught:
        using(**{name: given})
    text = str(caught.value)
    assert words in text
    assert f"using {name}" in text
    assert repr(given) in text


def test_a_bad_value_in_the_environment_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPGRAFT_FLOAT", "fast")
    with pytest.raises(errors.SettingError, match=r"OPGRAFT_FLOAT = 'fast': FLOAT takes one of"):
        _ = settings.FLOAT


# ---- names


@pytest.mark.parametrize(
    ("name", "meant"), [("DEBGU", "DEBUG"), ("OPTIMISER", "OPTIMIZER"), ("CPU_CCC", "CPU_CC")]
)
def test_an_unknown_name_is_an_error_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(errors.SettingError, match=rf"no setting {name}\n.*Did you mean {meant}"):
        using(**{name: 1})
    with pytest.raises(errors.SettingError, match=meant):
        settings.get(name)
    with pytest.raises(errors.SettingError, match=meant):
        getattr(settings, name)


def test_hasattr_and_misspelt_functions_behave_as_on_any_module() -> None:
    assert hasattr(settings, "DEBUG")
    assert not hasattr(settings, "DEBGU")
    assert not hasattr(settings, "no_such_function")
    assert "DEBUG" in dir(settings)


@pytest.mark.parametrize("name", ["CPU_CC", "MY_DEVICE_CC", "X9_CC"])
def test_a_family_has_a_setting_for_every_device(name: str) -> None:
    assert settings.get(name) == ""
    with using(**{name: "THIS"}):
        assert settings.get(name) == "THIS"


@pytest.mark.parametrize("name", ["_CC", "CC", "cpu_CC", "9_CC"])
def test_what_names_no_device_is_no_member_of_the_family(name: str) -> None:
    with pytest.raises(errors.SettingError):
        settings.get(name)


def test_the_table_says_name_form_default_and_meaning_of_each() -> None:
    rows = {row.name: row for row in settings.table()}
    expected = [
        "DEBUG",
        "DEVICE",
        "OPTIMIZER",
        "EGRAPH",
        "PLUGINS",
        "CACHE",
        "CACHE_SIZE",
        "CALIBRATION",
        "FLOAT",
        "SEARCH",
        "SPEC",
        "TRACE",
        "CPU_THREADS",
        "CC",
    ]
    assert [name for name in rows if rows[name].owner == "opgraft"] == expected
    assert all(row.form and row.meaning.endswith(".") for row in rows.values())
    assert [row.name for row in rows.values() if row.family] == ["CC"]
    # every default is a value that the setting takes
    for row in rows.values():
        if row.default != "":
            assert row.convert(row.default) == row.default


# ---- using


def test_as_a_decorator_it_holds_for_every_call_and_keeps_the_signature() -> None:
    @using(DEBUG=7)
    def level(a: int, *, b: int = 2) -> tuple[int, int]:
        "Doc."
        return settings.DEBUG, a + b

    assert level(1) == (7, 3)
    assert level(1, b=5) == (7, 6)
    assert settings.DEBUG == 0
    assert (level.__name__, level.__doc__) == ("level", "Doc.")
    assert str(inspect.signature(level)) == "(a: 'int', *, b: 'int' = 2) -> 'tuple[int, int]'"


def test_as_a_decorator_it_serves_recursion_and_threads_at_once() -> None:
    seen: list[int] = []

    @using(DEBUG=5)
    def down(n: int) -> None:
        seen.append(settings.DEBUG)
        if n:
            down(n - 1)

    threads = [threading.Thread(target=down, args=(20,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [5] * 84
    assert settings.DEBUG == 0


def test_as_a_decorator_it_serves_coroutines() -> None:
    @using(DEBUG=6)
    async def level() -> int:
        await asyncio.sleep(0)
        return settings.DEBUG

    async def both() -> list[int]:
        return [*await asyncio.gather(level(), level()), settings.DEBUG]

    assert asyncio.run(both()) == [6, 6, 0]


def test_a_generator_cannot_be_decorated_and_the_error_says_what_to_do() -> None:
    def numbers() -> Iterator[int]:
        yield settings.DEBUG

    with pytest.raises(TypeError, match="write `with using"):
        using(DEBUG=1)(numbers)


def test_one_block_can_be_entered_again_and_ends_when_its_body_raises() -> None:
    block = using(DEBUG=2)
    with block, block:
        assert settings.DEBUG == 2
    with pytest.raises(ZeroDivisionError), block:
        _ = 1 / 0
    assert settings.DEBUG == 0


def test_tasks_do_not_disturb_each_other() -> None:
    async def work(value: int) -> list[int]:
        seen = []
        with using(DEBUG=value):
            for _ in range(5):
                await asyncio.sleep(0)
                seen.append(settings.DEBUG)
        return seen

    async def both() -> list[list[int]]:
        return await asyncio.gather(work(1), work(2))

    assert asyncio.run(both()) == [[1] * 5, [2] * 5]


def test_a_new_thread_starts_without_the_values_and_can_be_handed_them() -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(settings.DEBUG)

    with using(DEBUG=3):
        context = contextvars.copy_context()
        for target in (look, lambda: context.run(look)):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    assert seen == [0, 3]


# ---- settings of plugins


@pytest.fixture
def volume() -> Iterator[Setting[int]]:
    yield declare("DEMO_VOLUME", int, 3, "How loud.")
    settings._table.pop("DEMO_VOLUME", None)


def test_a_plugin_declares_its_own_setting(
    volume: Setting[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert volume.value == 3
    with using(DEMO_VOLUME="11"):
        assert volume.value == 11
    monkeypatch.setenv("OPGRAFT_DEMO_VOLUME", "5")
    assert volume.value == settings.get("DEMO_VOLUME") == 5
    assert volume in settings.table()
    assert volume.owner == "demo"


def test_a_setting_is_declared_once_but_may_be_imported_twice(volume: Setting[int]) -> None:
    assert declare("DEMO_VOLUME", int, 3, "How loud.").value == 3
    with pytest.raises(errors.SettingError, match="DEMO_VOLUME is declared already, by demo"):
        declare("DEMO_VOLUME", int, 4, "How loud.")
    with pytest.raises(errors.SettingError, match="declared already"):
        declare("CACHE_SIZE", int, 4, "Mine.")


@pytest.mark.parametrize("name", ["VOLUME", "demo_volume", "DEMO-VOLUME", "DEMO_"])
def test_a_declared_setting_is_named_for_its_plugin(name: str) -> None:
    with pytest.raises(errors.SettingError, match="PLUGIN_SOMETHING"):
        declare(name, int, 1, "Badly named.")


def test_other_types_bring_their_own_converter() -> None:
    with pytest.raises(errors.SettingError, match="values of float need convert"):
        declare("DEMO_RATIO", float, 0.5, "A ratio.")
    ratio = declare("DEMO_RATIO", float, 0.5, "A ratio.", convert=lambda v: float(str(v)))
    try:
        with using(DEMO_RATIO="0.25"):
            assert ratio.value == 0.25
        with pytest.raises(errors.SettingError, match="DEMO_RATIO takes"):
            using(DEMO_RATIO="half")
    finally:
        settings._table.pop("DEMO_RATIO")


def test_a_reading_sees_what_comes_into_the_environment_and_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FLOAT", "CPU_THREADS"):
        monkeypatch.delenv(f"OPGRAFT_{name}", raising=False)
    none = settings.Reading("FLOAT", "CPU_THREADS")
    assert none.holds()
    monkeypatch.setenv("OPGRAFT_CPU_THREADS", "3")
    assert not none.holds()
    one = settings.Reading("FLOAT", "CPU_THREADS")
    assert (one.values, one.holds()) == (("strict", 3), True)
    monkeypatch.setenv("OPGRAFT_CPU_THREADS", "2")
    assert not one.holds()
    monkeypatch.setenv("OPGRAFT_CPU_THREADS", "3")
    monkeypatch.setenv("OPGRAFT_FLOAT", "reassoc")
    assert not one.holds()
    monkeypatch.delenv("OPGRAFT_FLOAT")
    assert one.holds()
    monkeypatch.delenv("OPGRAFT_CPU_THREADS")
    assert not one.holds()
    assert none.holds()
    with settings.using(CPU_THREADS=1):
        assert not none.holds()
    assert none.holds()
