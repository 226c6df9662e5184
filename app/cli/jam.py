"""The command `relpe jam`: a band on MIDI ports."""

from __future__ import annotations

import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from app.cli.arguments import (
    add_model,
    add_music_options,
    chosen_models,
    music_options,
    whole,
)
from app.cli.outputs import Targets
from app.cli.signals import on_signal
from app.compose.options import OPTIONS
from app.errors import CommandError
from app.text import plural
from relpe.command_line import install
from relpe.files import atomic_write

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from app.compose.follow import Follower, Message
    from app.compose.jam import Jam
    from app.compose.options import MusicOptions

VIRTUAL = "virtual"
MOST_BARS = 100_000
POLL_SECONDS = 0.001


def add_jam(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `relpe jam`."""
    port = f"port, by its number, its name or a part of it; {VIRTUAL}: a new one for other programs"
    parser.add_argument("--list", action="store_true", help="print the MIDI ports, and end")
    parser.add_argument("--out", metavar="PORT", help=f"where the band sounds: {port}")
    chords = parser.add_mutually_exclusive_group()
    chords.add_argument(
        "--in",
        dest="keyboard",
        metavar="PORT",
        help=f"where you play chords, with the first of which the band begins: {port}",
    )
    chords.add_argument(
        "--chords",
        metavar="CHART",
        help="chords that are repeated instead, such as 'Am7 | D7 | Gmaj7 | %%' (default: without "
        "--in, chosen by the model)",
    )
    add_music_options(parser, without=OPTIONS.keys() - {"style", "seed"})
    parser.add_argument(
        "--tempo",
        type=float,
        default=100.0,
        metavar="X",
        help="quarter notes per minute (default: %(default)g)",
    )
    parser.add_argument(
        "--metre", default="4/4", help="metre, such as 3/4 or 6/8 (default: %(default)s)"
    )
    parser.add_argument(
        "--band",
        metavar="NAMES",
        help="instruments, separated by commas, such as 'drums, acoustic bass' (default: six)",
    )
    parser.add_argument(
        "--bars",
        dest="num_bars",
        type=whole(0, MOST_BARS),
        default=0,
        metavar="N",
        help="bars, the last of which is a cadence; 0: until Ctrl+C (default: %(default)s)",
    )
    parser.add_argument(
        "--fill-every",
        type=int,
        choices=(0, 4, 8),
        default=8,
        help="bars from one fill to the next; 0: no fills (default: %(default)s)",
    )
    parser.add_argument(
        "--trade",
        action="store_true",
        help="trade fours: you play four bars with bass and drums, the band answers with your "
        "chords in the next four",
    )
    parser.add_argument(
        "--clock", action="store_true", help="send MIDI clock, start and stop as well"
    )
    parser.add_argument(
        "--output", type=Path, metavar="OUT.mid", help="also write what the band played"
    )
    add_model(parser, "groove")
    parser.set_defaults(run=jam_command)


def jam_command(options: argparse.Namespace) -> None:
    """Play on MIDI ports until the end, or until Ctrl+C."""
    if options.list:
        for option, names in Ports.names().items():
            print(f"{option}:", *(f"  {at} {name}" for at, name in enumerate(names, 1)), sep="\n")
        return
    if options.out is None:
        raise CommandError("--out is missing, expected a MIDI port; relpe jam --list prints them")
    if options.trade and options.keyboard is None:
        raise CommandError("--trade needs a player; add --in PORT, or leave out --trade")
    music = music_options(options)
    if options.output is not None:
        Targets.of(options.output, None, None, 1, None)
    ports = Ports.open(options.out, options.keyboard)
    try:
        _jam(options, music, ports)
    finally:
        ports.close()


def _jam(options: argparse.Namespace, music: MusicOptions, ports: Ports) -> None:
    """Load the model, play, and say what was played."""
    from app.compose.follow import Follower
    from app.compose.jam import Jam, joined
    from app.compose.models import PREPARING_NOTICE
    from tokenization.midi import write_midi

    seed, has_player = music.seed or 0, ports.keyboard is not None
    model = chosen_models(options, options.model or "groove").to_generate()
    for number, _ in enumerate(model.preparing()):
        if not number:
            print(PREPARING_NOTICE, file=sys.stderr)
    band = options.band and [name.strip() for name in options.band.split(",") if name.strip()]
    numerator, denominator = map(int, options.metre.split("/"))
    try:
        jam = Jam(model, options.style, options.tempo, (numerator, denominator), band, seed)
        follower = Follower(
            options.chords,
            bars=options.num_bars,
            fill_every=options.fill_every,
            clock=options.clock,
            trade=options.trade,
            waits=has_player,
            keeps=options.output is not None,
        )
        begins = "play a chord to begin; " if has_player else ""
        print(f"{begins}Ctrl+C ends with a cadence, twice at once", file=sys.stderr)
        problem, interrupts = _play(follower, jam, ports)
    except ValueError as error:
        raise CommandError(str(error)) from error
    said = [f"{plural(follower.begun, 'bar')}, seed {seed}, model {model.name}"]
    if follower.late:
        said.append(f"{plural(follower.late, 'bar')} late, in place of which others were varied")
    if follower.kept:
        try:
            with atomic_write(options.output) as part:
                part.write_bytes(write_midi(joined(follower.kept)))
        except OSError as error:
            raise CommandError(
                f"--output {options.output}: {error.strerror or error}; choose another name"
            ) from error
        said[0] = f"{options.output}: {said[0]}"
    if problem is not None:
        raise CommandError(f"{'; '.join(said)}; the MIDI port failed: {problem}")
    if interrupts:
        raise KeyboardInterrupt("; ".join(said))
    print("; ".join(said), file=sys.stderr)


def _play(follower: Follower, jam: Jam, ports: Ports) -> tuple[Exception | None, int]:
    """Play until the end; return what went wrong with the ports, and the number of interrupts."""
    interrupts, problem, writing = 0, None, None

    def interrupt(*_: object) -> None:
        nonlocal interrupts
        interrupts += 1

    # an exception at any place would leave notes without an end
    with ThreadPoolExecutor(1) as pool, on_signal(interrupt, signal.SIGINT, signal.SIGTERM):
        try:
            while not follower.ended and interrupts < 2:
                now = time.monotonic()
                for message in ports.heard():
                    follower.hear(now, message)
                if writing is not None and writing.done():
                    follower.deliver(now, writing.result())
                    writing = None
                if (request := follower.request(now)) is not None:
                    writing = pool.submit(request.write, jam)
                ports.send(follower.due(now))
                if interrupts:
                    follower.finish()
                time.sleep(POLL_SECONDS)
        except ports.error as error:
            problem = error
        finally:
            with suppress(ports.error):
                ports.send(follower.silence())
    return problem, interrupts


class Ports(NamedTuple):
    """An output and perhaps an input of python-rtmidi, which has no types."""

    out: Any
    keyboard: Any
    error: type[Exception]

    @classmethod
    def open(cls, out: str, keyboard: str | None) -> Ports:
        """Open ports by what users call them. Raises CommandError."""
        rtmidi = _rtmidi()
        of_keyboard = None if keyboard is None else _port(rtmidi, "--in", keyboard)
        return cls(_port(rtmidi, "--out", out), of_keyboard, rtmidi.RtMidiError)

    @staticmethod
    def names() -> dict[str, list[str]]:
        """Return the names of all ports by option. Raises CommandError."""
        rtmidi = _rtmidi()
        return {option: _unopened(rtmidi, option).get_ports() for option in ("--in", "--out")}

    def heard(self) -> Iterator[list[int]]:
        """Yield the messages that have come in."""
        while self.keyboard is not None and (event := self.keyboard.get_message()) is not None:
            yield event[0]

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages."""
        for message in messages:
            self.out.send_message(message)

    def close(self) -> None:
        """Close the ports."""
        for port in filter(None, (self.out, self.keyboard)):
            port.close_port()


def _rtmidi() -> Any:  # noqa: ANN401
    try:
        return import_module("rtmidi")  # of the extra live, which nothing else needs
    except ModuleNotFoundError as error:
        raise CommandError(
            f"python-rtmidi, which opens MIDI ports, is not installed; {install('live')}"
        ) from error


def _unopened(rtmidi: Any, option: str) -> Any:  # noqa: ANN401
    """Return an input or output without a port."""
    try:
        return (rtmidi.MidiIn if option == "--in" else rtmidi.MidiOut)(name="relpe")
    except rtmidi.RtMidiError as error:
        raise CommandError(
            f"this system offers no MIDI ports ({str(error).rstrip('.')}); write a file with relpe "
            "generate instead"
        ) from error


def _port(rtmidi: Any, option: str, asked: str) -> Any:  # noqa: ANN401
    """Return an open port."""
    port = _unopened(rtmidi, option)
    try:
        if asked == VIRTUAL:
            port.open_virtual_port("jam")
        else:
            port.open_port(find_port(port.get_ports(), asked))
    except rtmidi.RtMidiError as error:
        raise CommandError(f"{option} {asked}: {error}; choose another port") from error
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from error
    return port


def find_port(names: Sequence[str], asked: str) -> int:
    """Return the place of a port, by its number from 1, its name, or a part of it.

    Raises ValueError if none fits, or several.
    """
    folded = [name.casefold() for name in names]
    if asked.isdecimal() and 1 <= int(asked) <= len(names):
        return int(asked) - 1
    exact = [at for at, name in enumerate(folded) if name == asked.casefold()]
    fitting = exact or [at for at, name in enumerate(folded) if asked.casefold() in name]
    if len(fitting) != 1:
        listed = ", ".join(f"{at} {name}" for at, name in enumerate(names, 1)) or "none"
        count = "several ports fit" if fitting else "no port fits"
        raise ValueError(f"{count} {asked[:40]!r}; the ports are {listed}")
    return fitting[0]
