"""/openapi.json is true: the server answers every example in it, refuses by name what its schemas
forbid, and offers no other method."""

import unittest

import harness
from serving import Server

JSON = "application/json"
VALUES = ("text", 1.5, True, [], {})  # none of another's JSON type
OTHER_METHODS = ("PUT", "PATCH", "TRACE", "BREW")


class OpenApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(
            Server("-c", "256", model=harness.tiny_models / "tiny-llama-gqa-q4_1.gguf"))
        _, _, cls.document = cls.server.get("/openapi.json")

    def resolve(self, schema):
        while "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        return schema

    def forms(self, schema):
        """What a body may look like: the properties of each."""
        schema = self.resolve(schema)
        forms = [dict(schema.get("properties", {}))]
        for part in schema.get("allOf", []):
            forms = [mine | other for mine in forms for other in self.forms(part)]
        if "anyOf" in schema:
            forms = [mine | other for mine in forms for part in schema["anyOf"]
                     for other in self.forms(part)]
        return forms

    def allows(self, schema, value):
        """Whether the JSON type of a value is one that a schema allows."""
        schema = self.resolve(schema)
        if "anyOf" in schema:
            return any(self.allows(part, value) for part in schema["anyOf"])
        if "enum" in schema or "const" in schema:
            return value in schema.get("enum", [schema.get("const")])
        names = {str: "string", float: "number", bool: "boolean", list: "array", dict: "object"}
        types = schema.get("type", list(names.values()))
        return names[type(value)] in types

    def bodies(self):
        """(path, operation, schema, example) of each, but of what needs an id that exists."""
        for path, operations in self.document["paths"].items():
            for operation in operations.values():
                if "requestBody" not in operation or "{" in path:
                    continue
                schema = operation["requestBody"]["content"][JSON]["schema"]
                for example in self.resolve(schema)["examples"]:
                    yield path, operation, schema, example

    def test_each_example_is_answered(self):
        for path, operation, _, example in self.bodies():
            with self.subTest(path=path, body=example):
                status, headers, reply = self.server.post(path, example)
                self.assertEqual(status, 200, reply)
                self.assertIn(headers["Content-Type"], operation["responses"]["200"]["content"])
                is_stream = example.get("stream", False) and not path.endswith("_tokens")
                self.assertEqual(headers["Content-Type"] == "text/event-stream", is_stream)

    def test_what_a_schema_forbids_is_refused_by_name(self):
        num_refused = 0
        for path, _, schema, example in self.bodies():
            for properties in (form for form in self.forms(schema) if set(example) <= set(form)):
                for name, wanted in properties.items():
                    for value in (x for x in VALUES if not self.allows(wanted, x)):
                        with self.subTest(path=path, field=name, value=value):
                            status, _, reply = self.server.post(path, example | {name: value})
                            self.assertEqual(status, 400, reply)
                            told = reply["error"].get("param") or reply["error"]["message"]
                            self.assertIn(name, told)
                            num_refused += 1
        self.assertGreater(num_refused, 500)

    def test_other_methods_are_not_allowed(self):
        for path, operations in self.document["paths"].items():
            for method in OTHER_METHODS:
                with self.subTest(path=path, method=method):
                    status, headers, _ = self.server.ask(method, path.replace("{id}", "1"))
                    self.assertEqual(status, 405)
                    allowed = set(headers["Allow"].lower().split(", "))
                    self.assertEqual(allowed - {"head"}, set(operations))

    def test_a_server_with_keys_says_so(self):
        with Server("--api-key", "secret",
                    model=harness.tiny_models / "tiny-llama-gqa-q4_1.gguf") as server:
            status, _, document = server.get("/openapi.json")
            self.assertEqual(status, 200)
            chat = document["paths"]["/v1/chat/completions"]["post"]
            self.assertEqual([set(way) for way in chat["security"]], [{"bearer"}, {"key"}])
            self.assertIn("401", chat["responses"])
        self.assertNotIn("security", self.document["paths"]["/v1/chat/completions"]["post"])


if __name__ == "__main__":
    harness.main()
