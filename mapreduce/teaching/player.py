"""Plays a run on a terminal: scene by scene, with questions if they are wanted."""

import sys

from rich.console import Console
from rich.text import Text

from mapreduce.teaching import terminal
from mapreduce.teaching.scenes import Question, Scene

_KEYS = "Enter: next   b: back   q: end"


def play(console: Console, scenes: list[Scene], quiz: bool) -> None:
    """Show scenes, each when it is asked for; all at once where there is no terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        for number, scene in enumerate(scenes, 1):
            _show(console, scene, number, len(scenes))
        return
    right = asked = 0
    seen: set[int] = set()
    at = 0
    while at < len(scenes):
        scene = scenes[at]
        if quiz and scene.question and at not in seen:
            asked += 1
            right += _ask(console, scene.question)
        seen.add(at)
        _show(console, scene, at + 1, len(scenes))
        answer = _read(f"\n[{at + 1}/{len(scenes)}]  {_KEYS}  ").strip().lower()
        if answer == "q":
            break
        at = max(0, at - 1) if answer == "b" else at + 1
    if asked:
        console.print(Text(f"\n{right} of {asked} right.", "bold"))


def _show(console: Console, scene: Scene, number: int, total: int) -> None:
    console.print(Text(f"\nScene {number} of {total}", "dim"))
    terminal.show_section(console, scene.section)


def _ask(console: Console, question: Question) -> bool:
    console.print(Text(f"\n? {question.text}", "bold cyan"))
    choices = f" ({' or '.join(question.choices)})" if question.choices else ""
    is_right = question.is_right(_read(f"  your guess{choices}: "))
    mark = (
        Text("  right. ", "green") if is_right else Text(f"  it is {question.answer}. ", "yellow")
    )
    console.print(mark + Text(question.because, "dim"))
    return is_right


def _read(prompt: str) -> str:
    try:
        return input(prompt)
    except EOFError:
        return "q"
