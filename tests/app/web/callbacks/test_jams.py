"""Jams of the page, without a browser."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import aclosing
from types import SimpleNamespace

import anyio
import pytest

from app.compose import jam as engine
from app.compose.follow import varied
from app.compose.models import Models
from app.server.studio import Studio
from app.web.callbacks import jams
from app.web.callbacks.jams import JamCallbacks, packed
from app.web.view import View
from tests.support.bands import model_of
from tests.support.guarded import client_of, guarded_page
from tokenization.remi.multitrack import MultitrackRemi

ASKED = {
    "tempo": 120,
    "metre": "4/4",
    "band": "drums, electric bass (finger), acoustic grand piano",
}


@pytest.fixture
def room(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "MOST_TOKENS", 60)
    monkeypatch.setattr(jams, "BEAT_SECONDS", 0.01)
    return JamCallbacks(View(Studio(Models.only(model_of(MultitrackRemi())), tmp_path)))


class Browser:
    """The end of a jam at the browser."""

    def __init__(self, room, stream):
        self.room, self.stream, self.name = room, stream, ""

    async def event(self):
        return await anext(self.stream)

    async def ready(self):
        assert "said" in await self.event()
        hello = await self.event()
        self.name = hello.get("jam")
        return hello

    async def say(self, **asked):
        body = json.dumps(asked).encode()
        answer = await self.room.post(self.name, a_request(body=body))
        return answer.status_code, json.loads(answer.body)

    async def bar(self, number, **asked):
        assert (await self.say(next=number, **asked))[0] == 200
        return await self.event()


def a_request(address="127.0.0.1", body=b""):
    async def read():
        return body

    return SimpleNamespace(body=read, client=SimpleNamespace(host=address))


def played(room, script, asked=ASKED, **how):
    """What `script` returns, a coroutine of a browser, after its stream was closed."""

    async def run():
        async with aclosing(room.play(asked, a_request(**how))) as stream:
            return await script(Browser(room, stream))

    return asyncio.run(run())


def test_the_same_seed_and_chords_give_the_same_notes(room):
    async def script(browser):
        await browser.ready()
        await browser.say(keys=[57, 60, 64])
        return [await browser.bar(0), await browser.bar(1), await browser.bar(2, last=True)]

    one, again, other = (played(room, script, ASKED | {"seed": seed}) for seed in (3, 3, 4))
    assert one == again != other
    assert [bar["asked"] for bar in one] == ["Am"] * 3
    assert [bar["last"] for bar in one] == [False, False, True]


def test_jams_are_bounded_and_a_closed_stream_makes_room(room, monkeypatch):
    async def another(browser):
        await browser.ready()
        refused = []
        for address in ("127.0.0.1", "9.9.9.9"):
            async with aclosing(room.play(ASKED, a_request(address))) as stream:
                refused.append((await Browser(room, stream).event()).get("error"))
        return refused

    assert played(room, another) == [None, None]
    assert "1 jam being played" in played(room, another, address="9.9.9.9")[1]
    monkeypatch.setattr(jams, "MOST_JAMS", 1)
    assert all("try again in a few minutes" in text for text in played(room, another))
    assert (room._users, room._live) == ([], {})


def test_a_jam_ends_when_its_browser_leaves_or_asks_for_nothing(room, monkeypatch):
    async def last_events(browser):
        await browser.ready()
        return [event async for event in browser.stream if event]

    async def leave():
        answer = await room.post("begin", a_request(body=json.dumps(ASKED).encode()))

        async def receive():
            while not room._live:
                await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

        await answer({"type": "http"}, receive, send)
        return room._users, room._live

    async def send(_):
        await asyncio.sleep(0)

    assert asyncio.run(leave()) == ([], {})
    monkeypatch.setattr(jams, "IDLE_SECONDS", 0.05)
    (event,) = played(room, last_events)
    assert "no bar was requested" in event["error"]


def test_late_bars_and_moved_ones_are_kept_as_they_sounded(room):
    async def script(browser):
        await browser.ready()
        await browser.bar(0)
        await browser.bar(1)
        _, answer = await browser.say(chords="F#", bar=1, step=24)
        await browser.bar(3, late=[[2, "F#"]])
        live = room._live[browser.name]
        return live.played, live.late, answer

    bars, late, answer = played(room, script)
    assert (len(bars), late) == (4, 1)
    assert packed(bars[2]) == packed(varied(bars[1], "F#"))
    assert answer["bars"]["1"]["tracks"] == packed(bars[1])
    piano = bars[1].score.tracks[2].notes
    assert {*(piano[piano[:, 0] >= 24][:, 2] % 12).tolist()} <= {6, 10, 1}


def test_what_is_asked_in_vain_is_told_in_one_sentence(room):
    async def first(browser):
        await browser.event()
        return (await browser.event())["error"]

    for more, text in (
        ({"tempo": "fast"}, "tempo is 'fast', expected 20 to 400"),
        ({"metre": "four"}, "Metre is 'four'"),
        ({"metre": "5/16"}, "expected bars of whole eighths"),
        ({"metre": f"{'9' * 2000}/4"}, "expected one such as 3/4"),
        ({"band": "kazoo"}, "kazoo"),
        ({"chart": "C F G"}, "3 chords, expected one or two"),
        ({"style": "polka"}, "polka"),
    ):
        assert text.casefold() in played(room, first, ASKED | more).casefold()

    async def later(browser):
        await browser.ready()
        refused = [await browser.say(chords="X"), await browser.say(chords="C | F")]
        odd = (["a"], [None], [float("inf")], [128], 60)
        refused += [await browser.say(keys=keys) for keys in odd]
        return [*refused, await browser.say(next=-1)]

    assert [status for status, _ in played(room, later)] == [400] * 7 + [200]
    assert asyncio.run(room.post("gone", a_request(body=b"{}"))).status_code == 404
    for body in (b"[]", b"[" * 4000, b"\xff"):
        assert asyncio.run(room.post("begin", a_request(body=body))).status_code == 400


def test_one_small_request_moves_and_adds_few_bars(room, monkeypatch):
    """Hundreds would keep the server from all other requests, or fill its memory."""
    monkeypatch.setattr(jams, "MOST_BARS", 20)

    async def script(browser):
        await browser.ready()
        await browser.bar(0)
        await browser.bar(1, late=[[n, None] for n in range(1, 300)])
        _, answer = await browser.say(keys=[57, 60, 64], bar=0)
        return len(room._live[browser.name].played), [*answer["bars"]]

    count, changed = played(room, script)
    assert count <= 2 * jams.MOST_BARS
    assert len(changed) <= jams.MOST_AHEAD


def test_a_jam_counts_until_its_band_is_ready_also_if_its_browser_leaves(room, monkeypatch):
    """Otherwise, a client that keeps starting and leaving jams would use up the threads."""
    begun, ready = threading.Event(), threading.Event()

    def of(*_):
        begun.set()
        ready.wait(10)
        raise ValueError("no band")

    monkeypatch.setattr(jams.LiveJam, "of", of)

    async def run():
        async def begin():
            return [event async for event in room.play(ASKED, a_request())]

        async with anyio.create_task_group() as group:
            group.start_soon(begin)
            await anyio.to_thread.run_sync(begun.wait)
            group.cancel_scope.cancel()
            asyncio.get_running_loop().call_later(
                0.1, lambda: (counts.append(len(room._users)), ready.set())
            )
        counts.append(len(room._users))

    counts = []
    asyncio.run(run())
    assert counts == [1, 0]


def test_what_is_said_to_a_jam_passes_the_guard(tmp_path):
    with guarded_page(tmp_path, accounts=(("me", "secret"),)) as page:
        assert client_of(page.guard).post("/jam/gone", json={}).status_code == 401
    (tmp_path / "open").mkdir()
    with guarded_page(tmp_path / "open") as page:
        client = client_of(page.guard)
        assert client.post("/jam/gone", json={}).json()["error"] == "The jam has ended."
        foreign = {"origin": "http://other.example"}
        assert client.post("/jam/gone", json={}, headers=foreign).status_code == 403
        assert client.post("/jam/gone", json="x" * 5000).status_code == 413


def test_a_jam_becomes_a_result_with_its_settings(room):
    async def script(browser):
        await browser.ready()
        await browser.bar(0)
        await browser.bar(1, last=True)
        return browser.name

    name = played(room, script)
    event = SimpleNamespace(_data={"jam": name, "bars": 2})
    request = SimpleNamespace(session_hash="s", client=None, username=None)
    player, results, *_ = room.keep(event, request)
    assert (player["phase"], player["title"]) == ("done", "Jam")
    assert [card["name"] for card in results["cards"]] == ["Jam"]
    settings = room._view.studio.file(player["job"], 0, "replay").read_text()
    assert [row["is_last"] for row in json.loads(settings)["bars"]] == [False, True]
    assert not room._ended
