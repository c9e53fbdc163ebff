"""A headless Chromium, spoken to through its DevTools pipe; standard library only."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    """Starts with the object and ends with close(). One page, one thread."""

    def __init__(self):
        program = shutil.which("chromium")
        if program is None:
            raise RuntimeError("chromium is not installed; 'make deps' installs what packages.txt names")
        self.profile = tempfile.mkdtemp(prefix="millrace-browser-")
        to_read, self.to = os.pipe()
        self.source, from_write = os.pipe()

        def pipes():
            # The browser reads from descriptor 3 and writes to 4.
            a, b = os.dup(to_read), os.dup(from_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--disable-background-networking", "--disable-extensions",
             "--remote-debugging-pipe", "--user-data-dir=" + self.profile, "about:blank"],
            preexec_fn=pipes, close_fds=False, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.rest = b""
        self.next = 0
        self.events = []
        self.session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def _message(self, deadline):
        while b"\0" not in self.rest:
            if not select.select([self.source], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.source, 1 << 20)
            if not part:
                raise RuntimeError("the browser ended")
            self.rest += part
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **parameters):
        self.next += 1
        request = {"id": self.next, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        deadline = time.monotonic() + 60
        while True:
            message = self._message(deadline)
            if message.get("id") == self.next:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression, seconds=30):
        deadline = time.monotonic() + seconds
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise TimeoutError("never true: " + expression)
            time.sleep(0.05)

    def open(self, path, width, height, dark=False):
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait_for("document.documentElement?.dataset.ready === 'yes'")
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => 1)")

    def complaints(self):
        """Errors of the console and of scripts, and every request that left the page."""
        found = []
        for event in self.events:
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(parameters["exceptionDetails"]["text"])
            if event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
                found.append(str(parameters["args"]))
            if event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
            if event["method"] == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                if not url.startswith(("file://", "data:")):
                    found.append("requested " + url)
        return found

    def wheel(self, x, y, delta):
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta)

    def drag(self, x, y, to_x):
        for kind, at in (("mousePressed", x), ("mouseMoved", (x + to_x) / 2), ("mouseMoved", to_x), ("mouseReleased", to_x)):
            self.call("Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", buttons=1, clickCount=1)

    def touch(self, begin, end):
        """Fingers go down at `begin`, move in ten parts to `end` and leave; lists of (x, y)."""
        points = lambda part: [{"x": a[0] + (b[0] - a[0]) * part, "y": a[1] + (b[1] - a[1]) * part, "id": i}
                               for i, (a, b) in enumerate(zip(begin, end))]
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=points(0))
        for i in range(1, 11):
            self.call("Input.dispatchTouchEvent", type="touchMove", touchPoints=points(i / 10))
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def key(self, key):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self):
        """A PNG of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 9000), "scale": 1})
        return base64.b64decode(shot["data"])

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (RuntimeError, OSError, TimeoutError):
            pass
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.source)
        shutil.rmtree(self.profile, ignore_errors=True)
