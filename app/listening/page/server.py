"""The server of the rating page: what listeners get, and the answers that they send."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from operator import methodcaller
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from app.listening.answers import PREFERENCE, Answer
from app.listening.page.clips import MEDIA_TYPES, Material, with_tones
from app.listening.page.login import COOKIE, Accounts
from app.listening.page.store import Listener, NoListenerError, PastTrialError, Store
from app.listening.page.trials import Side, Trial, trials_of
from app.player.assets import COLOURS, Modules
from app.web.guard import Guard, Hosts
from app.web.guard.answers import Send, policy
from app.web.guard.bodies import Receive
from app.web.guard.limits import Recent, address_of
from app.web.guard.middleware import Scope
from app.web.guard.refused import RefusedError
from app.web.guard.routes import MAX_SMALL_BYTES, no_route
from app.web.guard.routes import Route as GuardedRoute

_STATIC = Path(__file__).parent / "static"
MODULES = Modules.of_folder("listen", _STATIC / "js")
JOINS, JOIN_SECONDS = 300, 600.0
"""Listeners that may begin from one address within this time; a class may share an address."""
WRONG_CODES = 20
"""Unknown codes that an address may try within `JOIN_SECONDS`."""
CLIPS_IN_MEMORY = 16
"""Clips with tones that are kept."""
_SLACK_SECONDS = 0.5
"""By which the lengths that browsers measure may be too short."""
_CLIPS = "/clips/"
_FONTS = {"/font.woff2": "Regular", "/font-bold.woff2": "Bold"}


def guarded(
    material: Material,
    store: Store,
    *,
    hosts: Hosts | None = None,
    accounts: Sequence[tuple[str, str]] = (),
    root_path: str = "",
) -> Guard:
    """Return the rating page of a study, behind its guard.

    `accounts` are users and passwords; without any, the page needs no login. `root_path` is the
    path or address of the page behind a proxy.
    """
    login = Accounts(accounts)
    root = urlsplit(root_path).path
    server = ListeningServer(material, store, login, root)
    return Guard(
        server.app,
        route_of=server.route_of,
        is_known=login.knows,
        health=server.health,
        hosts=hosts or Hosts(),
        policy=policy,
        modules=(MODULES,),
        root_path=root,
    )


class ListeningServer:
    """Answers the requests of listeners; a request names its listener in the header `Listener`."""

    def __init__(self, material: Material, store: Store, accounts: Accounts, root: str) -> None:
        self.material, self.store, self.accounts = material, store, accounts
        self._root = root
        self._joins = Recent(JOINS, JOIN_SECONDS)
        self._wrong_codes = Recent(WRONG_CODES, JOIN_SECONDS)
        self._with_tones = lru_cache(CLIPS_IN_MEMORY)(with_tones)
        self._pages = {"/": self._page, "/listen.css": self._style, "/favicon.ico": self._no_icon}
        self._pages |= {path: partial(self._font, name) for path, name in _FONTS.items()}
        self._read = {"/study": self._study, "/listener": self._listener}
        self._calls = {"/login": self._login, "/listeners": self._join}
        self._calls |= {"/answers": self._answer, "/next": self._next}
        read = self._pages | self._read | {f"{_CLIPS}{{trial:int}}/{{side}}": self._clip}
        routes = [Route(path, call) for path, call in read.items()]
        routes += [Route(path, call, methods=["POST"]) for path, call in self._calls.items()]
        self._starlette = Starlette(routes=routes)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the app; a proxy may leave the path of the page in requests."""
        await self._starlette({**scope, "root_path": self._root}, receive, send)

    def route_of(self, method: str, path: str) -> GuardedRoute:
        """Return the route of a request. Raises RefusedError if there is none."""
        if method in ("GET", "HEAD") and (
            path in self._pages or path in self._read or path.startswith(_CLIPS)
        ):
            return GuardedRoute(is_public=path in self._pages)
        if method == "POST" and path in self._calls:
            is_login = path == "/login"
            return GuardedRoute("login" if is_login else "call", MAX_SMALL_BYTES, is_login)
        raise no_route(method, "page")

    def health(self) -> dict[str, object]:
        """Return the state of the page."""
        listeners, completed = self.store.counts()
        return {"status": "ok", "listeners": listeners, "completed": completed}

    async def _page(self, request: Request) -> Response:
        name = "listen.html" if self.accounts.knows(request.cookies) else "login.html"
        text = (_STATIC / name).read_text(encoding="utf-8")
        text = text.replace("{root}", self._root).replace("{modules}", self._root + MODULES.route)
        return HTMLResponse(text, headers={"Cache-Control": "no-store"})

    async def _style(self, _: Request) -> Response:
        parts = [COLOURS.read_bytes(), (_STATIC / "listen.css").read_bytes()]
        headers = {"Cache-Control": "no-cache"}
        return Response(b"".join(parts), media_type="text/css", headers=headers)

    async def _font(self, name: str, _: Request) -> Response:
        spec = find_spec("gradio")
        folder = Path(spec.origin).parent if spec and spec.origin else Path()
        path = folder / f"templates/frontend/static/fonts/IBMPlexSans/IBMPlexSans-{name}.woff2"
        if not path.is_file():
            raise RefusedError(404, "this font is not installed")
        headers = {"Cache-Control": "public, max-age=86400"}
        return FileResponse(path, media_type="font/woff2", headers=headers)

    async def _no_icon(self, _: Request) -> Response:
        return Response(status_code=204)

    async def _login(self, request: Request) -> Response:
        body = await _object(request)
        token = self.accounts.login(body.get("user"), body.get("password"))
        if token is None:
            raise RefusedError(401, "The name or the password is wrong.")
        answer = JSONResponse({})
        secure = request.headers.get("x-forwarded-proto") == "https"
        path = self._root or "/"
        answer.set_cookie(COOKIE, token, path=path, httponly=True, secure=secure)
        return answer

    async def _study(self, _: Request) -> Response:
        config = self.material.listening
        return _json(
            {
                "title": self.material.title,
                "welcome": config.welcome,
                "consent": config.consent,
                "attention": config.attention > 0,
                "heard": config.heard,
                "minutes": math.ceil(self._seconds() / 60),
            }
        )

    def _seconds(self) -> float:
        """Return an estimate of the duration of the test: each clip once, and time to answer."""
        clips = list(self.material.rows.values())
        mean = sum(float(row.clip_seconds) for row in clips) / len(clips)
        trials = trials_of(self.material, 0)
        played = sum(len(trial.sides) for trial in trials) * (mean + 2)
        questions = self.material.listening.questions
        return 90 + played + 4 * sum(len(trial.questions(questions)) + 1 for trial in trials)

    async def _join(self, request: Request) -> Response:
        address = _address(request)
        self._joins.check(address, "Too many listeners begin from here now")
        self._joins.add(address)
        plan = partial(trials_of, self.material)
        code = self.material.listening.completion_code
        joined = await asyncio.to_thread(self.store.join, plan, code)
        return _json({"listener": joined})

    async def _listener(self, request: Request) -> Response:
        return _json(self._state(await self._listener_of(request)))

    async def _listener_of(self, request: Request) -> Listener:
        """Return the listener of a request. Raises RefusedError for an unknown code."""
        address = _address(request)
        self._wrong_codes.check(address, "Too many wrong codes came from here")
        try:
            return await asyncio.to_thread(self.store.listener, _code(request))
        except NoListenerError:
            self._wrong_codes.add(address)
            raise _unknown() from None

    def _state(self, listener: Listener) -> dict[str, object]:
        trial, config = listener.trial, self.material.listening
        state: dict[str, object] = {"listener": listener.code, "position": listener.position}
        state |= {"trials": len(listener.trials)}
        if trial is None:
            link = config.completion_link
            return state | {"completion_code": listener.completion_code, "completion_link": link}
        before = listener.trials[: listener.position - 1]
        after = listener.trials[listener.position :][:1]
        return state | {
            "sort": "pairs" if trial.second else "ratings",
            "begins": all(bool(one.second) != bool(trial.second) for one in before),
            "ends_practice": bool(before) and before[-1].kind == "training" != trial.kind,
            "practice": trial.kind == "training",
            "questions": trial.questions(config.questions),
            "next_sides": [side for one in after for side in one.sides],
            "clips": [self._facts(trial.file(side)) for side in trial.sides],
            "answers": {
                question: {"answer": answer.answer, "confidence": answer.confidence}
                for question, answer in listener.answers.items()
            },
        }

    def _facts(self, file: str) -> dict[str, float]:
        """Return what listeners may know of a clip; it is the same for all conditions."""
        row = self._row(file)
        return {"seconds": float(row.clip_seconds), "new_seconds": float(row.new_seconds or 0)}

    def _row(self, file: str) -> Any:  # noqa: ANN401
        try:
            return self.material.rows[file]
        except KeyError:
            raise RefusedError(410, "This clip is no longer part of the study.") from None

    async def _clip(self, request: Request) -> Response:
        """Return the audio of a clip; browsers load that of the next trial in advance."""
        listener = await self._listener_of(request)
        number, side = request.path_params["trial"], request.path_params["side"]
        if not 1 <= number <= min(listener.position + 1, len(listener.trials)):
            raise RefusedError(404, "there is no such clip now")
        trial = listener.trials[number - 1]
        if side not in trial.sides:
            raise RefusedError(404, "there is no such clip")
        audio = self._row(trial.file(side)).audio
        headers = {"Cache-Control": "no-store"}
        if trial.side_with_tones == side:
            content = await asyncio.to_thread(self._with_tones, self.material.folder / audio)
            return Response(content, media_type="audio/wav", headers=headers)
        path = self.material.folder / audio
        return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers=headers)

    async def _answer(self, request: Request) -> Response:
        body = await _object(request)
        number, code = _whole(body, "trial"), _code(request)
        make = partial(self._checked, body, code, number)
        await self._changed(self.store.answer, code, number, make)
        return _json({"saved": True})

    def _checked(
        self, body: dict[str, object], code: str, number: int, trial: Trial, now: str
    ) -> Answer:
        """Return an answer as it is written.

        Raise RefusedError if it is malformed or comes too early.
        """
        config = self.material.listening
        question = body.get("question")
        if question not in trial.questions(config.questions):
            expected = ", ".join(trial.questions(config.questions))
            raise RefusedError(422, f"found an unknown question, expected one of {expected}")
        heard: dict[Side, float] = {}
        for side in trial.sides:
            heard[side] = _seconds(body, f"heard_{side}")
            needed = config.heard * self._facts(trial.file(side))["seconds"]
            if heard[side] < needed - _SLACK_SECONDS:
                raise RefusedError(409, f"Listen to {needed:.0f} s of each clip before you answer.")
        try:
            return Answer(
                listener=code,
                trial=number,
                kind=trial.kind,
                question=str(question),
                first=trial.first,
                second=trial.second,
                answer=str(body.get("answer")),
                confidence=_whole(body, "confidence") if question == PREFERENCE else None,
                heard_first=heard["first"],
                heard_second=heard.get("second"),
                seconds=_seconds(body, "seconds"),
                expected=trial.expected,
                repeats=trial.repeats,
                answered_at=now,
            )
        except ValueError as error:
            raise RefusedError(422, str(error)) from None

    async def _next(self, request: Request) -> Response:
        body = await _object(request)
        code, questions = _code(request), self.material.listening.questions
        asked = methodcaller("questions", questions)
        await self._changed(self.store.advance, code, _whole(body, "trial"), asked)
        return _json(self._state(await asyncio.to_thread(self.store.listener, code)))

    async def _changed(self, change: Callable[..., None], *arguments: object) -> None:
        try:
            await asyncio.to_thread(change, *arguments)
        except NoListenerError:
            raise _unknown() from None
        except PastTrialError:
            raise RefusedError(
                409, "This is not the current trial, or an answer is missing; load the page again."
            ) from None


def _json(content: object) -> JSONResponse:
    return JSONResponse(content, headers={"Cache-Control": "no-store"})


def _code(request: Request) -> str:
    """Return the code of a listener, which people may type with spaces and hyphens."""
    typed = request.headers.get("listener", "")[:64]
    return typed.replace(" ", "").replace("-", "").lower()


def _unknown() -> RefusedError:
    return RefusedError(404, "There is no listener with this code; check the code.")


def _address(request: Request) -> str:
    client = request.client
    return address_of((client.host, client.port) if client else None)


async def _object(request: Request) -> dict[str, object]:
    try:
        content = json.loads(await request.body())
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise RefusedError(422, "found no JSON, expected an object")
    return content


def _whole(body: dict[str, object], name: str) -> int:
    value = body.get(name)
    if type(value) is not int or not 0 <= value <= 1_000_000:
        raise RefusedError(422, f"found no {name}, expected a whole number")
    return value


def _seconds(body: dict[str, object], name: str) -> float:
    value = body.get(name)
    if type(value) not in (int, float) or not 0 <= (number := float(str(value))) < 1_000_000:
        raise RefusedError(422, f"found no {name}, expected seconds")
    return round(number, 2)
