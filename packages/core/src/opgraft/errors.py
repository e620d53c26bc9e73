"""The hierarchy of opgraft's errors. Each says what was asked, what was found and what to do."""

from __future__ import annotations


class OpgraftError(Exception):
    """The base of every error that opgraft raises on purpose.

    `tried` lists what was attempted, with the reason each attempt failed; `remedy` is what the
    reader can do. Both are part of the message.
    """

    def __init__(
        self, message: str, *, tried: tuple[tuple[str, str], ...] = (), remedy: str = ""
    ) -> None:
        self.message = message
        self.tried = tried
        self.remedy = remedy
        lines = [message, *(f"  {what}: {why}" for what, why in tried)]
        if remedy:
            lines.append(remedy)
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _restore, (type(self), self.message, self.tried, self.remedy)


def _restore(
    kind: type[OpgraftError], message: str, tried: tuple[tuple[str, str], ...], remedy: str
) -> OpgraftError:
    return kind(message, tried=tried, remedy=remedy)


class SettingError(OpgraftError):
    """A setting that does not exist, or a value that it does not take."""


class SpecError(OpgraftError):
    """A graph that is not legal at the stage where it was found."""


class RewriteError(OpgraftError):
    """A rule that failed, or rules that run in a circle."""


class ParseError(OpgraftError):
    """A text that is not IR."""


class LoweringError(OpgraftError):
    """A kernel that cannot be lowered to its target."""


class CompileError(OpgraftError):
    """A compiler that refused its source; the message carries the compiler's own words."""


class DeviceError(OpgraftError):
    """A device that is unknown, absent, or failed at work."""


class DeviceMemoryError(DeviceError):
    """A device without enough memory left; the device stays usable."""


class PluginError(OpgraftError):
    """A plugin that is broken, clashes with another, or is built for another interface."""


class CacheError(OpgraftError):
    """A cache folder that cannot be used at all."""
