"""The errors that cross Tosaic's API: each is one sentence with a place and a way out."""

from __future__ import annotations


def first_line(problem: BaseException) -> str:
    """The first line of what somebody else's error says; its name if it says nothing."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]


def kind_of(value: object) -> str:
    """What somebody gave, in words: None, a class by its name, or "a" with that of its type."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__} (give an instance of it)"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


def one_or(count: int, noun: str) -> str:
    """A number with its noun, as "1 input" or "2 inputs"."""
    return f"{count} {noun}{'s' * (count != 1)}"


class TosaicError(Exception):
    """Base of every error that Tosaic raises on purpose."""

    def __init__(self, reason: str, where: object = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.where = where

    def __str__(self) -> str:
        return f"{self.reason} (at {self.where})" if self.where else self.reason


class Unsupported(TosaicError):
    """A specification or a target cannot express what was asked for."""


class InvalidInput(TosaicError):
    """What the caller passed in does not fit: a value, a shape, a name, an option."""


class UnknownOption(InvalidInput):
    """A target has no option of that name."""


class InvalidGraph(TosaicError):
    """A graph or a file breaks a rule of TOSA or of the file format."""


class Unpredictable(InvalidInput):
    """A run reached what TOSA leaves undefined, such as an overflowing accumulator."""


class ToolFailed(TosaicError):
    """An external tool failed; the reason carries its command and last lines."""


class ToolMissing(ToolFailed):
    """An external tool is not there, or gives no answer: no smaller graph would fare better."""
