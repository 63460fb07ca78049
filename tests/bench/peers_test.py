"""The parts of bench/ that need no program to measure: parsing, statistics, choices, reports."""

import json
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench import against, chart, llama_format, machine, measure, process  # noqa: E402
from bench import plan, report, rows  # noqa: E402
from bench.openvino_peer import Driver, OpenVino  # noqa: E402
from bench.peers import Comparison  # noqa: E402
from bench.process import BenchError  # noqa: E402
from bench.programs import Kvern, LlamaCpp, context_size  # noqa: E402
from bench.running_server import RunningServer  # noqa: E402
from bench.samples import Samples, Summary, number  # noqa: E402

PP512 = rows.Row("pp512", "prefill", prompt=512, threads=2)
SHARED = rows.Row("shared", "shared", prompt=2048, new=16, sequences=32, is_shared=True, threads=2)
PRIVATE = rows.Row("private", "private", prompt=512, new=32, sequences=8, threads=2)


def record(**changes):
    fields = {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "n_threads": 2, "avg_ts": 100.5}
    return {**fields, **changes}


class FakeProgram:
    """Gives speeds in turn for each setting; an exception in their place is raised."""

    def __init__(self, name, speeds):
        self.name = name
        self.speeds = {setting: list(values) for setting, values in speeds.items()}

    def settings(self, row):
        return list(self.speeds)

    def measure(self, row, setting):
        value = self.speeds[setting].pop(0)
        if isinstance(value, Exception):
            raise value
        return value


class LlamaFormat(unittest.TestCase):
    def rate(self, text, row):
        records = llama_format.parse_records(text, "program")
        found = llama_format.find_record(records, row, "program")
        return llama_format.rate_of(found, row, "program")

    def test_an_array_has_the_record_of_the_row(self):
        text = json.dumps([record(n_prompt=64, avg_ts=7), record()])
        self.assertEqual(self.rate(text, PP512), 100.5)

    def test_a_record_is_found_among_lines_of_other_text(self):
        line = json.dumps({"pp": 512, "tg": 32, "pl": 8, "n_threads": 2, "speed_tg": 166.0})
        self.assertEqual(self.rate(f"\nloading\n{line}\n\ndone\n", PRIVATE), 166.0)

    def test_other_work_than_asked_for_is_an_error(self):
        for change in ({"n_prompt": 256}, {"n_depth": 1}, {"n_threads": 1}):
            with self.assertRaisesRegex(BenchError, "program: no record has"):
                self.rate(json.dumps([record(**change)]), PP512)

    def test_broken_output_is_one_line(self):
        for text in ("[{", '{"n_prompt": ', "[1, 2]"):
            with self.assertRaisesRegex(BenchError, r"\Aprogram: its output is no [^\n]+\Z"):
                llama_format.parse_records(text, "program")

    def test_a_speed_must_be_a_positive_number(self):
        for value in (0, None, "fast"):
            with self.assertRaisesRegex(BenchError, "not a speed"):
                self.rate(json.dumps([record(avg_ts=value)]), PP512)


class Commands(unittest.TestCase):
    models = {"": "m.gguf", "Q8_0": "q8.gguf"}

    def test_kvern_and_llama_bench_do_the_same_work(self):
        row = rows.Row("x", "x", new=64, depth=4096, threads=2)
        same = "-m m.gguf -p 0 -n 64 -d 4096 -t 2 -r 1 -o json"
        kvern, llama = Kvern("kvern", self.models), LlamaCpp(Path("bin"), self.models)
        self.assertEqual(kvern.describe(row, ""), f"kvern bench {same}")
        self.assertEqual(llama.describe(row, "-fa 1"), f"bin/llama-bench {same} -fa 1")

    def test_batches_do_too(self):
        kvern, llama = Kvern("kvern", self.models), LlamaCpp(Path("bin"), self.models)
        self.assertEqual(
            kvern.describe(SHARED, ""),
            "kvern bench batched -m m.gguf -npp 2048 -ntg 16 -npl 32 --shared-prefix -t 2 -o jsonl",
        )
        self.assertEqual(
            llama.describe(SHARED, "-fa 0"),
            "bin/llama-batched-bench -m m.gguf -c 2560 -npp 2048 -ntg 16 -npl 32 -t 2"
            " --output-format jsonl -fa off -pps -kvu",
        )

    def test_the_context_of_each_private_sequence_is_rounded_up(self):
        self.assertEqual(context_size(PRIVATE), 8 * 768)

    def test_a_weight_type_has_its_model(self):
        row = replace(PP512, weights="Q8_0")
        self.assertIn("-m q8.gguf", Kvern("kvern", self.models, "avx2").describe(row, ""))


class Rows(unittest.TestCase):
    def test_names_are_unique(self):
        names = [row.name for row in rows.comparison_rows(2, with_weights=True)]
        self.assertEqual(len(names), len(set(names)))

    def test_one_thread_is_not_measured_twice(self):
        self.assertEqual(len(rows.comparison_rows(1)), len(rows.ALL_THREADS))

    def test_select_keeps_the_order_of_the_table(self):
        chosen = rows.select(rows.comparison_rows(2), ["pp512", "tg128"])
        self.assertEqual([row.name for row in chosen], ["tg128", "pp512"])

    def test_an_unknown_row_is_named_with_those_there_are(self):
        with self.assertRaisesRegex(BenchError, "no row is called pp9; rows: tg128 "):
            rows.select(rows.comparison_rows(2), ["pp9"])

    def test_a_commit_is_held_to_four_rows(self):
        self.assertEqual({row.name for row in rows.against_rows(2)}, set(rows.AGAINST))


class Measuring(unittest.TestCase):
    def run_rounds(self, programs, num_rounds):
        return measure.measure_rounds([PP512], programs, num_rounds, log=lambda text: None)

    def test_programs_take_turns_at_being_first(self):
        self.assertEqual(measure.in_turn(["a", "b", "c"], 0), ["a", "b", "c"])
        self.assertEqual(measure.in_turn(["a", "b", "c"], 4), ["b", "c", "a"])

    def test_a_setting_far_behind_is_measured_no_more(self):
        program = FakeProgram("p", {"slow": [70, 70, 70], "near": [90, 101, 90], "best": [100] * 3})
        samples = self.run_rounds([program], 3)
        taken = samples.values["pp512"]["p"]
        self.assertEqual([len(taken[setting]) for setting in ("slow", "near", "best")], [1, 3, 3])
        self.assertEqual(samples.best("pp512", "p").setting, "best")

    def test_a_failure_ends_one_program_in_one_row(self):
        broken = FakeProgram("broken", {"": [BenchError("out of memory")]})
        good = FakeProgram("good", {"": [1, 2]})
        samples = self.run_rounds([broken, good], 2)
        self.assertEqual(samples.errors, {("pp512", "broken"): "out of memory"})
        self.assertEqual(samples.best("pp512", "good").values, (1, 2))
        self.assertIsNone(samples.ratio("pp512", "good", "broken"))


class Statistics(unittest.TestCase):
    def test_a_ratio_is_of_medians_at_the_best_settings(self):
        samples = Samples()
        for value in (300, 200, 100):
            samples.add("r", "ours", "", value)
            samples.add("r", "theirs", "a", value / 4)
            samples.add("r", "theirs", "b", value / 2)
        self.assertEqual(samples.ratio("r", "ours", "theirs"), 2.0)

    def test_text_has_the_range_when_there_is_one(self):
        self.assertEqual(Summary("", (2.0,)).text(), "2.0")
        self.assertEqual(Summary("", (3.0, 1.0, 1234.5)).text(), "3.0 (1.0–1,234)")

    def test_numbers_from_a_thousand_have_no_decimals(self):
        self.assertEqual([number(999.94), number(1000)], ["999.9", "1,000"])


class Against(unittest.TestCase):
    def check(self, *measured):
        """Whether a row is a loss at 5 %, when its ratios are `measured`, time after time."""
        results = iter(against.Pairs((ratio * 100,), (100.0,)) for ratio in measured)
        self.rounds = []

        def take(row, num_rounds):
            self.rounds.append(num_rounds)
            return next(results)

        return against.check_row(PP512, take, 5, 5.0, log=lambda text: None)

    def test_a_small_loss_passes_at_once(self):
        self.assertFalse(self.check(0.96))
        self.assertEqual(self.rounds, [5])

    def test_a_loss_counts_when_more_rounds_see_it_too(self):
        self.assertTrue(self.check(0.9, 0.94))
        self.assertFalse(self.check(0.9, 0.96))
        self.assertEqual(self.rounds, [5, 15])

    def test_pairs_are_compared_before_the_median_is_taken(self):
        drifting = against.Pairs(ours=(100.0, 50.0, 10.0), theirs=(100.0, 50.0, 10.0))
        self.assertEqual(drifting.ratio, 1.0)

    def test_both_orders_are_measured(self):
        ours, theirs = FakeProgram("ours", {"": [1, 2]}), FakeProgram("theirs", {"": [3, 4]})
        pairs = against.measure_pairs(PP512, ours, theirs, 2)
        self.assertEqual((pairs.ours, pairs.theirs), ((1, 2), (3, 4)))

    def test_rows_that_the_commit_cannot_measure_are_left_out(self):
        error = BenchError("no command")
        lacking = FakeProgram("kvern", {"": [1, error, error]})
        said = []
        able = against.measurable_rows([PP512, SHARED], lacking, "REF", said.append)
        self.assertEqual(able, [PP512])
        self.assertEqual(said, ["shared       left out, REF cannot measure it: no command"])
        with self.assertRaisesRegex(BenchError, r"REF .* has it `kvern bench`\? no command"):
            against.measurable_rows([PP512], lacking, "REF", said.append)

    def test_an_unknown_commit_is_one_line(self):
        with self.assertRaisesRegex(BenchError, "no-such-ref: no such commit"):
            against.resolve("no-such-ref")


class Reports(unittest.TestCase):
    def setUp(self):
        self.row = replace(PP512, target_llama=6.0)
        samples = Samples()
        samples.add("pp512", "Kvern", "", 500.0)
        samples.add("pp512", "llama.cpp", "-fa 1", 100.0)
        samples.fail("pp512", "OpenVINO", "no such program")
        self.comparison = Comparison([self.row], samples, "Summary.", [("CPU", "C")], ["command"])

    def test_the_table_has_speeds_settings_and_ratios(self):
        last = report.table([self.row], self.comparison.samples).splitlines()[-1]
        self.assertEqual(
            last, "| prefill (`pp512`) | 500.0 | 100.0, `-fa 1` | – | 5.00× | – | ≥ 6× / – |"
        )

    def test_misses_and_failures_are_said(self):
        text = report.document(self.comparison)
        self.assertIn("- prefill: 5.00× llama.cpp, target 6×", text)
        self.assertIn("- pp512, OpenVINO: no such program", text)

    def test_json_has_every_sample(self):
        value = json.loads(report.as_json(self.comparison))
        llama = value["rows"][0]["programs"]["llama.cpp"]
        self.assertEqual(llama["samples"], {"-fa 1": [100.0]})
        self.assertEqual(value["rows"][0]["ratio_llama"], 5.0)

    def test_the_readme_is_rewritten_between_its_markers(self):
        text = f"a\n{report.BEGIN}\nold\n{report.END}\nb\n"
        self.assertEqual(
            report.replace_section(text, "new"), f"a\n{report.BEGIN}\nnew\n{report.END}\nb\n"
        )
        with self.assertRaisesRegex(BenchError, "README.md needs"):
            report.replace_section("no markers", "new")

    def test_the_projects_readme_has_the_markers(self):
        readme = Path(__file__).resolve().parents[2] / "README.md"
        report.replace_section(readme.read_text(), "new")

    def test_the_chart_is_xml_with_a_bar_for_each_ratio(self):
        peers = ("llama.cpp", "OpenVINO")
        rated = chart.bar_rows([self.row], self.comparison.samples, "Kvern", peers)
        self.assertEqual(rated, [("prefill", [("llama.cpp", 5.0)])])
        for drawn in (rated, []):
            xml.etree.ElementTree.fromstring(chart.draw("a < b", drawn))
        self.assertEqual(chart.draw("t", rated).count(f'height="{chart.BAR_HEIGHT}"'), 1)

    def test_the_axis_has_at_most_ten_steps(self):
        for highest in (1, 4, 7.5, 31, 900):
            self.assertLessEqual(highest / chart.axis_step(highest), 10)


class Processes(unittest.TestCase):
    def test_output(self):
        self.assertEqual(process.output_of(["echo", 1], timeout_s=10), "1\n")

    def test_failures_are_one_line_with_the_reason(self):
        python = sys.executable
        for command, message in (
            (["/no/such/program"], "/no/such/program: no such program"),
            ([python, "-c", "import sys; sys.exit('a\\nwhy')"], f"{python}: exit code 1: why"),
            ([python, "-c", "import time; time.sleep(9)"], f"{python}: not done after 0.2 s"),
        ):
            with self.assertRaises(BenchError) as caught:
                process.output_of(command, timeout_s=0.2 if "sleep" in command[-1] else 10)
            self.assertEqual(str(caught.exception), message)

    def test_cpuinfo(self):
        text = "processor : 0\nmodel name : A CPU\nflags : fma avx2\n\nprocessor : 1\nflags : x\n"
        self.assertEqual(machine.parse_cpuinfo(text), ("A CPU", {"fma", "avx2"}))


class Plans(unittest.TestCase):
    def read(self, *lines):
        path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "plan.jsonl"
        common = {"warm_up": False, "after": [], "delay_us": 0, "new_tokens": 2}
        path.write_text("".join(json.dumps({**common, **line}) + "\n" for line in lines))
        return plan.read_plan(path)

    def test_a_prompt_quotes_replies_as_they_were(self):
        shared, requests = self.read(
            {"warm_up": True, "prompt": [[1]]}, {"prompt": [[1], [2]]},
            {"prompt": [[1], [2], {"reply_of": 0}, [5]], "after": [{"request": 0, "tokens": 2}]},
        )
        self.assertEqual(shared[0].tokens({}), [1])
        self.assertEqual(requests[0].tokens({}), [1, 2])
        self.assertEqual(requests[1].tokens({0: [3, 4]}), [1, 2, 3, 4, 5])

    def test_a_request_is_due_so_long_after_the_last_that_it_waits_for(self):
        _, requests = self.read(
            {"prompt": [[1]]}, {"prompt": [[1]], "delay_us": 500_000},
            {"prompt": [[1]], "delay_us": 250_000,
             "after": [{"request": 0, "tokens": 2}, {"request": 1, "tokens": 2}]},
        )
        schedule = plan.Schedule(requests)
        self.assertEqual(schedule.take_due(0), [(0, 0)])
        self.assertEqual(schedule.until_next(0.25, longest=1), 0.25)
        self.assertEqual(schedule.take_due(1), [(0.5, 1)])
        schedule.end(1, 2)
        self.assertEqual((schedule.take_due(9), schedule.until_next(9, longest=1)), ([], 1))
        schedule.end(0, 3)
        self.assertEqual((schedule.take_due(3), schedule.take_due(4)), ([], [(3.25, 2)]))
        schedule.end(2, 5)
        self.assertEqual(schedule.num_left, 0)


FAKE_DRIVER = """
import json, sys
print(json.dumps({"version": "1"}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["prompt"] == 13:
        print(json.dumps({"error": "unlucky"}), flush=True)
    elif request["prompt"] == 14:
        sys.exit("died")
    else:
        print(json.dumps({"prefill": request["prompt"] * 2, "decode": 7}), flush=True)
"""


class OpenVinoDriver(unittest.TestCase):
    def setUp(self):
        self.log = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.peer = self.enterContext(OpenVino(sys.executable, "m.gguf", self.log))
        self.peer._command = lambda threads: [sys.executable, "-c", FAKE_DRIVER]

    def test_one_driver_answers_all_requests(self):
        self.assertEqual(self.peer.measure(PP512, ""), 1024)
        driver = self.peer.drivers[2]
        self.assertEqual(self.peer.measure(rows.Row("x", "x", new=1, threads=2), ""), 7)
        self.assertIs(self.peer.drivers[2], driver)
        self.assertEqual(self.peer.facts, {"version": "1"})

    def test_errors_are_reported_and_the_next_request_has_a_new_driver(self):
        for prompt, message in ((13, "OpenVINO: unlucky"), (14, "OpenVINO: died")):
            with self.assertRaisesRegex(BenchError, message):
                self.peer.measure(replace(PP512, prompt=prompt), "")
            self.assertEqual(self.peer.measure(PP512, ""), 1024)

    def test_an_answer_that_does_not_come_in_time_is_an_error(self):
        sleeper = "import time; print('{}', flush=True); time.sleep(9)"
        driver = Driver([sys.executable, "-c", sleeper], self.log / "log")
        self.addCleanup(driver.close)
        with self.assertRaisesRegex(BenchError, "no answer after 0.1 s"):
            driver.ask({}, timeout_s=0.1)


# A server that is ready at once.
FAKE_SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path in ("/health", "/metrics") else 404)
        self.end_headers()
        self.wfile.write(b'# TYPE a gauge\\na{model_name="m"} 5\\nb 2.5e3\\n')
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""


class Servers(unittest.TestCase):
    def setUp(self):
        self.log = Path(self.enterContext(tempfile.TemporaryDirectory())) / "log"

    def test_what_a_server_says_and_uses(self):
        with RunningServer("fake", [sys.executable, "-c", FAKE_SERVER], self.log) as server:
            self.assertEqual((server.metric("a"), server.metric("b")), (5, 2500))
            self.assertEqual(server.get("/x")[0], 404)
            with self.assertRaisesRegex(BenchError, "fake: /metrics has no c"):
                server.metric("c")
            self.assertGreater(server.resident_bytes(), 1 << 20)
            self.assertGreater(sum(server.cpu_ticks().values()), 0)

    def test_one_that_ends_says_why(self):
        command = [sys.executable, "-c", "import sys; sys.exit('no model')"]
        with self.assertRaisesRegex(BenchError, "fake: no model"):
            with RunningServer("fake", command, self.log):
                pass


if __name__ == "__main__":
    unittest.main()
