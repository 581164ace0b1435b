"""A page in a real browser: Chromium without a window, controlled over two pipes by its own protocol (DevTools); and
its pictures as a person sees them: places, the tip at a point, colours and words. Places are page.js's own.

Not here: what is expected of a page (page_test.py). Standard library only. The browser is $SPILLWAY_BROWSER, or the
first Chromium on the path.
"""
import fcntl
import hashlib
import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import tempfile
import time

from harness import PATIENCE

NAMES = ("chromium", "chromium-browser", "google-chrome")
SHIFT, CTRL = 8, 2  # modifiers as the protocol counts them


def find():
    return os.environ.get("SPILLWAY_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. Its faults are in `faults`: errors, warnings, requests beyond its own file."""

    def __init__(self, program, width=1280, height=2400):
        self.home = tempfile.mkdtemp(prefix="spillway_browser_")
        self.answers, self.events, self.faults, self.unread, self.sent, self.own = {}, [], [], b"", 0, None
        to_browser, self.to = os.pipe()
        self.from_, from_browser = os.pipe()

        def as_it_wants_them():  # it reads descriptor 3 and writes 4, which either pipe may have now
            here, there = (fcntl.fcntl(pipe, fcntl.F_DUPFD, 10) for pipe in (to_browser, from_browser))
            os.dup2(here, 3)
            os.dup2(there, 4)

        self.log = open(pathlib.Path(self.home) / "log", "w+b")
        self.process = subprocess.Popen(
            [program, "--headless", "--remote-debugging-pipe", f"--user-data-dir={self.home}/profile", "--no-first-run",
             "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--no-default-browser-check",
             *(["--no-sandbox"] if os.geteuid() == 0 else [])],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=as_it_wants_them, close_fds=False,
            env={**os.environ, "HOME": self.home})
        os.close(to_browser)
        os.close(from_browser)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.resize(width, height)

    def close(self):
        for pipe in (self.to, self.from_):
            os.close(pipe)
        try:
            self.process.wait(10)  # it ends when nobody is left to control it
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.home, ignore_errors=True)

    # --- The protocol -------------------------------------------------------------------------------------------------

    def call(self, method, **parameters):
        """Sends a message and waits for the answer; keeps events that come meanwhile."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while self.sent not in self.answers:
            self._read()
        answer = self.answers.pop(self.sent)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def _read(self):
        if not select.select([self.from_], [], [], 120 * PATIENCE)[0]:
            raise AssertionError("the browser is silent")
        part = os.read(self.from_, 1 << 20)
        if not part:
            self.log.seek(0)
            raise AssertionError("the browser has ended: " + self.log.read().decode(errors="replace")[-2000:])
        *messages, self.unread = (self.unread + part).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message["method"])
                self._judge(message["method"], message["params"])

    def _judge(self, method, event):
        if method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.faults.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled":
            self.faults.append("console: " + " ".join(str(word.get("value")) for word in event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("warning", "error"):
            self.faults.append(event["entry"]["text"])
        elif method == "Network.requestWillBeSent" and event["request"]["url"] != self.own:
            self.faults.append("request: " + event["request"]["url"])

    # --- Actions of a person ------------------------------------------------------------------------------------------

    def open(self, path):
        self.own = pathlib.Path(path).resolve().as_uri()
        self.events.clear()
        self.call("Page.navigate", url=self.own)
        while "Page.loadEventFired" not in self.events:
            self._read()
        self.settle()

    def settle(self):
        """Returns once everything due is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")

    def run(self, expression):
        """The value of an expression in the page; for a promise, its result."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_until(self, condition, otherwise):
        """Waits for a condition, for pages that are animated."""
        deadline = time.monotonic() + 30 * PATIENCE
        while not self.run(condition):
            if time.monotonic() > deadline:
                raise AssertionError(otherwise)
            self.settle()

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.settle()

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.settle()

    def point(self, x, y):
        self.mouse("mouseMoved", x, y)

    def press(self, x, y):
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)

    def release(self, x, y):
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def click(self, x, y):
        self.press(x, y)
        self.release(x, y)

    def drag(self, x, y, to):
        self.press(x, y)
        for part in range(1, 5):
            self.mouse("mouseMoved", x + (to - x) * part / 4, y, button="left", buttons=1)
        self.release(to, y)

    def wheel(self, x, y, turned, modifiers=0):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=turned, modifiers=modifiers)


# --- pictures --------------------------------------------------------------------------------------------------------

# Texts on a canvas are pixels, so each canvas keeps the texts drawn on it, with their left and right ends.
KEEP_TEXTS = """
    const drawn = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
      const width = this.measureText(text).width;
      const begin = x - {left: 0, center: width / 2, right: width}[this.textAlign];
      (this.canvas.texts ||= []).push([String(text), begin, begin + width]);
      return drawn.call(this, text, x, y);
    };
"""
LANE_TOP, LANE_HEIGHT, LANE_GAP, LANE_RIGHT = 18, 30, 6, 8


class Canvas:
    """A picture of the page, by its index among all; points are relative to it."""

    def __init__(self, page, index):
        self.page, self.index = page, index
        self.of = f"document.querySelectorAll('canvas')[{index}]"
        page.run(f"{self.of}.scrollIntoView({{block: 'center'}})")
        page.settle()
        self.left, self.top, self.width, self.height = page.run(
            f"(r => [r.left, r.top, r.width, r.height])({self.of}.getBoundingClientRect())")

    def at(self, x, y):
        return self.left + x, self.top + y

    def tip(self, x, y):
        """The tip at a point; None if there is none."""
        self.page.point(*self.at(x, y))
        return self.page.run("tip.checkVisibility() ? tip.textContent : null")

    def tip_is_in_the_window(self):
        return self.page.run("(r => r.left >= 0 && r.top >= 0 && r.right <= innerWidth && r.bottom <= innerHeight)"
                             "(tip.getBoundingClientRect())")

    def image(self):
        """A digest that is equal for two images if all their pixels are."""
        return hashlib.sha256(self.page.run(f"{self.of}.toDataURL()").encode()).hexdigest()

    def placed_texts(self):
        """[text, left, right]"""
        return self.page.run(f"({self.of}.texts = [], pictures[{self.index}].paint(), {self.of}.texts)")

    def texts(self):
        return [text for text, _, _ in self.placed_texts()]

    def pixel(self, x, y):
        return self.page.run(
            "(to => (to.drawImage(%s, %d, %d, 1, 1, 0, 0, 1, 1), [...to.getImageData(0, 0, 1, 1).data]))"
            "(document.createElement('canvas').getContext('2d', {willReadFrequently: true}))"
            % (self.of, round(x), round(y)))

    def hue(self, name):
        """A colour of the page's style, as pixels have it."""
        return [int(digits, 16) for digits in re.findall("[0-9a-fA-F]{2}", self.page.run(f"colour('{name}')"))] + [255]


class Lanes:
    """The picture of operations over time, with the part of the step that it shows now."""

    def __init__(self, canvas, timeline):
        self.canvas, self.timeline, self.ops = canvas, timeline, timeline["ops"]
        self.whats = ["planned", "recorded"] if timeline["recorded"] else ["planned"]
        self.left = 132 if timeline["recorded"] else 82
        self.rows = [(lane, what) for lane in range(len(timeline["lanes"])) for what in self.whats]
        self.last = max(max(self.ops[what + "_end"]) for what in self.whats)
        self.begin, self.end = 0, self.last

    def span(self, id_, what):
        return self.ops[what + "_begin"][id_], self.ops[what + "_end"][id_]

    def ids(self, row):
        """The row's operations that ran, the longest first."""
        lane, what = self.rows[row]
        length = {id_: self.ops[what + "_end"][id_] - self.ops[what + "_begin"][id_]
                  for id_, at in enumerate(self.ops["lane"]) if at == lane}
        return sorted((id_ for id_ in length if length[id_] > 0), key=length.get, reverse=True)

    def x(self, time):
        return self.left + (time - self.begin) / (self.end - self.begin) * (self.canvas.width - LANE_RIGHT - self.left)

    def middle(self, id_, row):
        return self.x(sum(self.span(id_, self.rows[row][1])) / 2)

    def heights(self, row):
        """Four heights of a row, so that each of its tracks (at most four) contains at least one of them."""
        return [LANE_TOP + row * (LANE_HEIGHT + LANE_GAP) + LANE_HEIGHT * (2 * quarter + 1) / 8 for quarter in range(4)]

    def beside(self, id_, row):
        """Number of the row's operations that run while this one does, including itself. A row shows four at a time."""
        begin, end = self.span(id_, self.rows[row][1])
        spans = [self.span(other, self.rows[row][1]) for other in self.ids(row)]
        return sum(of[0] < end and begin < of[1] for of in spans)

    def width_of(self, id_, row):
        begin, end = self.span(id_, self.rows[row][1])
        return self.x(end) - self.x(begin)

    def place(self, id_, row):
        """The height at which the picture tells about the operation, at its middle, and the text."""
        for y in self.heights(row):
            text = self.canvas.tip(self.middle(id_, row), y)
            if text and text.startswith(f"operation {id_}:"):
                return y, text
        return None, None
