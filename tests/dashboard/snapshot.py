"""What the page shows against what it was told: every number of it, said again by other code."""

import re

# Everything that shows a number of the snapshot, and the snapshot, at one moment.
READ = """
const page = document.getElementById('page');
const told = (path, named) => window.kvernTold.findLast(
  (entry) => entry.path === path && entry.body && named(entry.body))?.body;
return {
  status: told('status', (body) => String(body.time) === page.dataset.snapshot),
  requests: told('requests', (body) => String(body.now) === page.dataset.requests),
  fields: [...document.querySelectorAll('[data-field]')].map((element) => ({
    path: element.dataset.field, format: element.dataset.format,
    value: element.dataset.value, text: element.textContent})),
  pool: [...document.querySelectorAll('#pool span')].map(
    (part) => [part.className, parseFloat(part.style.width)]),
  rows: [...document.querySelectorAll('#live-rows tr[data-id]')].map((row) => ({
    id: row.dataset.id, text: row.innerText})),
  verdict: [document.getElementById('verdict-text').textContent,
            document.getElementById('lever').textContent],
};
"""
OVER = ("finished", "cancelled", "failed")
DASH = "–"


def say_bytes(value):
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.{0 if unit == 'B' or value >= 99.95 else 1}f} {unit}"
        value /= 1024
    return None


def say_ms(value):
    if value < 9.95:
        return f"{value:.1f} ms"
    if value < 999.5:
        return f"{round_half_up(value)} ms"
    return f"{value / 1000:.1f} s"


def round_half_up(value):
    return int(value + 0.5)


def say_count(value):
    return f"{round_half_up(value):,}"


def say_rate(value):
    return f"{value:.1f}" if 0 < value < 9.95 else say_count(value)


def say_duration(value):
    seconds = round_half_up(value)
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60} s"


FORMATS = {"bytes": say_bytes, "ms": say_ms, "count": say_count, "rate": say_rate,
           "duration": say_duration, "text": str}


def look_up(snapshot, path):
    for name in path.split("."):
        snapshot = snapshot.get(name) if isinstance(snapshot, dict) else None
    return snapshot


def check(test, browser):
    """Fails where the page shows another number than it was told. Returns what was read."""
    read = browser.wait("a snapshot", lambda: with_snapshot(browser))
    status, requests = read["status"], read["requests"]["data"]
    live = [request for request in requests if request["state"] not in OVER]
    running = sum(request["state"] == "running" for request in live)
    snapshot = {**status, "pool": status["kv"]["bytes"],
                "requests": {"running": running, "waiting": len(live) - running}}
    for field in read["fields"]:
        with test.subTest(field["path"]):
            check_field(test, field, snapshot)
    total = sum(snapshot["pool"].values())
    for name, width in read["pool"]:
        test.assertAlmostEqual(width, 100 * snapshot["pool"][name] / total, places=2)
    test.assertEqual([row["id"] for row in read["rows"]], [request["id"] for request in live])
    for row, request in zip(read["rows"], live):
        for number in ("found_tokens", "computed_tokens", "prompt_tokens", "completion_tokens"):
            test.assertIn(say_count(request[number]), row["text"])
        if request["why"]:
            test.assertIn(request["why"].lower(), re.sub(r"\s+", " ", row["text"]).lower())
    test.assertEqual(read["verdict"], [status["verdict"]["text"], status["verdict"]["lever"] or ""])
    return read


def with_snapshot(browser):
    read = browser.run(READ)
    return read if read["status"] and read["requests"] else None


def check_field(test, field, snapshot):
    value = look_up(snapshot, field["path"])
    if value is None:
        return test.assertEqual((field["value"], field["text"]), ("", DASH))
    if field["format"] == "text":
        return test.assertEqual(field["text"], str(value or DASH))
    test.assertAlmostEqual(float(field["value"]), value)
    if field["format"] == "bytes_as_tokens":
        return test.assertEqual(field["text"], say_count(value / snapshot["kv"]["bytes_per_token"]))
    return test.assertEqual(field["text"], FORMATS[field["format"]](value))
