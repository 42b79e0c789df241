"""A gateway with the page, a scripted model behind it, and a browser before it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from nanobot_core.testing import OpenAIServer, RecordedRequest, ScriptedModel

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, StorageState

LIMIT_S = 60.0
"""On a busy machine, what takes a second may take ten."""
_WATCH = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`blocked: ${event.violatedDirective} ${event.blockedURI}`));
window.hacked = () => console.error("hacked");
"""

GUESTS = ("anna", "bert", "gone")
_EXPECTED = ("ERR_CONNECTION", "status of 409", "status of 422")
"""Of tests that cut the connection, and of forms that are refused."""


_LEAN = [
    "--disable-gpu",
    "--in-process-gpu",
    "--renderer-process-limit=1",
    "--disable-features=SpareRendererForSitePerProcess,BackForwardCache",
]
"""Fewer processes: starting those of Chromium costs more than the tests that use them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a browser."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


def until(holds: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Wait for what happens in another process."""
    ends_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < ends_s, "it did not happen in time"
        time.sleep(0.05)


class Model:
    """A model service in a thread of its own.

    Attributes:
        script: what it answers.
    """

    def __init__(self) -> None:
        self.script = ScriptedModel()
        self._server = OpenAIServer(default=self.script)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def requests(self) -> list[RecordedRequest]:
        return self._server.requests

    def gate(self) -> tuple[asyncio.Event, Callable[[], None]]:
        """Return a gate for a `Reply`, and what opens it."""
        event = asyncio.Event()

        def release() -> None:
            self._loop.call_soon_threadsafe(event.set)

        return event, release

    def __enter__(self) -> Model:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.__aenter__(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        left = self._server.__aexit__(None, None, None)
        asyncio.run_coroutine_threadsafe(left, self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass
class Site:
    """A running gateway.

    Attributes:
        home: nanobot's folder.
        model: what its model answers.
        python: interpreter of its commands.
        variables: further environment variables of its commands.
    """

    home: Path
    model: Model = field(default_factory=Model)
    python: str = sys.executable
    variables: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    _login: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def until(holds: Callable[[], object]) -> None:
        """Wait for what happens in another process."""
        until(holds)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its commands."""
        home = str(self.home)
        return {
            "HOME": str(self.home.parent),
            "NANOBOT_HOME": home,
            "PATH": os.environ["PATH"],
            **self.variables,
        }

    @property
    def url(self) -> str:
        return (self.home / "plugins/http/address").read_text("utf-8").strip()

    def command(self, *words: str) -> str:
        """Run ``nanobot`` and return what it prints."""
        done = subprocess.run(
            [self.python, "-m", "nanobot_core", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    def link(self) -> str:
        """Return a link that signs in."""
        found = re.search(r"http://\S+#code=\S+", self.command("web", "--no-open"))
        assert found
        return found[0]

    def cookie(self) -> dict[str, str]:
        """Return a cookie of the owner, the same for all who do not end this login."""
        if not self._login:
            self._login = self.new_cookie()
        return self._login

    def new_cookie(self) -> dict[str, str]:
        """Sign in without a browser and return the cookie."""
        code = self.link().partition("#code=")[2]
        answer = httpx.post(f"{self.url}/login", json={"code": code}, trust_env=False)
        assert answer.status_code == 200, answer.text
        return dict(answer.cookies)

    def start(self) -> None:
        """Start the gateway and wait until it answers."""
        self.process = subprocess.Popen(
            [self.python, "-m", "nanobot_core", "gateway"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        address = self.home / "plugins/http/address"
        until(address.exists)
        until(self._is_ready)

    def log(self) -> str:
        """Return what it has logged."""
        return (self.home / "logs/nanobot.log").read_text("utf-8")

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health/ready", trust_env=False).is_success
        except (httpx.TransportError, OSError, httpx.UnsupportedProtocol):
            return False

    def kill(self) -> None:
        """End the gateway as a power failure does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            (self.home / "plugins/http/address").unlink(missing_ok=True)


@contextmanager
def running(home: Path, **sections: dict[str, Any]) -> Iterator[Site]:
    """Run a gateway with these sections besides those that all tests need."""
    pytest.importorskip("nanobot_openai")
    pytest.importorskip("nanobot_files")
    home.mkdir(mode=0o700)
    with Model() as model:
        config: dict[str, Any] = {
            "gateway": {"port": 0, "http": {"requests_per_minute": 100_000}},
            "agents": {"defaults": {"model": "custom/m", "steering": True}},
            "models": {"other": "custom/m2"},
            "providers": {"custom": {"api_base": model.url}},
            "channels": {
                "web": {
                    "password": "correct horse battery",
                    "guests": {name: f"the password of {name}" for name in GUESTS},
                    "rate_limit": 10_000,
                }
            },
            "tools": {"approval": [{"tool": "write_file", "action": "ask"}]},
        }
        for name, section in sections.items():
            config[name] = config[name] | section
        (home / "config.json").write_text(json.dumps(config), "utf-8")
        (home / "config.json").chmod(0o600)
        site = Site(home, model)
        try:
            site.start()
            yield site
        finally:
            site.kill()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A gateway for the tests of all modules, because starting one takes seconds."""
    with running(tmp_path_factory.mktemp("page") / "home") as site:
        yield site


def check(page: Page, *, is_thorough: bool = False) -> None:
    """Check with axe, and that nothing is too wide: light on a phone, and dark at a desktop.

    The second time only with the rules whose result can differ. If `is_thorough`, with all rules,
    and in both other ways too.
    """
    api = pytest.importorskip("axe_playwright_python.sync_playwright")
    faults = {"resultTypes": ["violations"]}
    other = {"type": "rule", "values": ["color-contrast", "scrollable-region-focusable"]}
    ways = [("light", 320, faults), ("dark", 1280, {**faults, "runOnly": other})]
    if is_thorough:
        ways = [(scheme, width, faults) for width in (320, 1280) for scheme in ("light", "dark")]
    for scheme, width, options in ways:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 850})
        found = api.Axe().run(page, options=options)
        assert found.violations_count == 0, f"{page.url}: {found.generate_report()}"
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), page.url


@pytest.fixture(scope="session")
def check_access() -> Callable[..., None]:
    """Checks what a page shows now; skips the test without axe."""
    return check


@pytest.fixture(scope="session")
def desk_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A gateway with something on each page of the desk, in an environment of its own.

    Tests may install packages there, from the folder ``wheels`` beside its home.
    """
    for name in ("openai", "files", "cron", "usage", "memory"):
        pytest.importorskip(f"nanobot_{name}")
    folder = tmp_path_factory.mktemp("desk")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    place = sysconfig.get_path("purelib", vars={"base": str(folder / "env")})
    here = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in here)
    Path(place, "base.pth").write_text(lines)
    (folder / "wheels").mkdir()
    variables = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder / "wheels"),
        "PIP_CONFIG_FILE": os.devnull,
    }
    python = str(folder / "env/bin/python")
    site = Site(folder / "home", python=python, variables=variables)
    workspace = site.home / "workspace"
    workspace.mkdir(parents=True, mode=0o700)
    shutil.copy(Path(__file__).with_name("house.py"), site.home)
    with site.model as model:
        config = json.loads(Path(__file__).with_name("house.json").read_text("utf-8"))
        config["providers"]["custom"]["api_base"] = model.url
        (site.home / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
        (site.home / "config.json").chmod(0o600)
        for text in ("- Name: Anna\n", "- Name: Anna\n- Likes <b>tea</b>\n"):
            (workspace / "USER.md").write_text(text)
            site.command("memory", "restore")  # keeps the edit as a version; nothing else to do
        try:
            site.start()
            yield site
        finally:
            site.kill()


@pytest.fixture(scope="session")
def run_site() -> Callable[..., AbstractContextManager[Site]]:
    """Runs a gateway of its own; this file cannot be imported."""
    return running


@pytest.fixture(scope="session")
def site_of() -> type[Site]:
    """Makes a `Site` of a home."""
    return Site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The Chromium of the system."""
    api = pytest.importorskip("playwright.sync_api")
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("there is no chromium; on Debian: apt-get install chromium")
    api.expect.set_options(timeout=LIMIT_S * 1_000)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=_LEAN)
        yield browser
        browser.close()


def storage(cookie: dict[str, str]) -> StorageState:
    """Return the state of a browser with a cookie, without the time that opening a link takes."""
    [(name, value)] = cookie.items()
    return {
        "cookies": [
            {
                "name": name,
                "value": value,
                "domain": "127.0.0.1",
                "path": "/",
                "expires": -1,
                "httpOnly": True,
                "secure": False,
                "sameSite": "Strict",
            }
        ],
        "origins": [],
    }


@pytest.fixture(scope="module")
def signed_in(site: Site) -> StorageState:
    """The state of a browser that is signed in."""
    return storage(site.cookie())


@pytest.fixture(scope="module")
def open_page(browser: Browser) -> Callable[..., AbstractContextManager[Page]]:
    """Opens a page; errors, violations and foreign requests fail the test."""
    return partial(opened, browser)


@pytest.fixture
def page(site: Site, browser: Browser, signed_in: StorageState) -> Iterator[Page]:
    """A page that is signed in. Errors, violations and foreign requests fail the test."""
    with opened(browser, site, signed_in) as page:
        yield page


@contextmanager
def opened(
    browser: Browser,
    site: Site,
    state: StorageState | None = None,
    *,
    expected: tuple[str, ...] = _EXPECTED,
    **options: Any,
) -> Iterator[Page]:
    """Open a page in a context of its own; what the console says must be `expected`."""
    state, url = state or storage(site.cookie()), site.url
    context = browser.new_context(storage_state=state, base_url=url, **options)
    context.add_init_script(_WATCH)
    faults: list[str] = []

    def watch(page: Page) -> None:
        page.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((url, "blob:"))
                else faults.append(f"foreign: {request.url}")
            ),
        )

    context.on("page", watch)
    page = context.new_page()
    page.set_default_timeout(LIMIT_S * 1_000)
    yield page
    context.close()
    assert [one for one in faults if not any(part in one for part in expected)] == []
