"""The conversations that every chat template is rendered with: {name: context}."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "A city & its country, e.g. \"Oslo, NO\""},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
                "detail": {"type": "boolean"},
            },
            "required": ["city"],
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search for <anything>.",
        "parameters": {
            "type": "object",
            "properties": {
                "queries": {"type": "array", "items": {"type": "string"}},
                "filter": {
                    "type": "object",
                    "properties": {"since": {"type": "number"}, "tags": {"type": "array",
                                   "items": {"type": "object", "properties": {"k": {"type": "string"}}}}},
                },
                "any": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "required": ["queries"],
        },
        "return": {"type": "string"},
    },
}
NO_PARAMETERS = {
    "type": "function",
    "function": {"name": "now", "description": "The time.",
                 "parameters": {"type": "object", "properties": {}}},
}
TOOLS = [WEATHER, SEARCH, NO_PARAMETERS]


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, call_id="call00001"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(text, call_id="call00001", name="get_weather"):
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}


OSLO = call("get_weather", {"city": "Oslo", "unit": "celsius", "days": 3, "detail": True})
ODD = call("search", {"queries": ["a", "b \"c\""], "filter": {"since": 1.5, "tags": []}, "any": None},
           "call00002")
UNICODE = "Größe: 你好 👩‍👩‍👧 \u00a0\u200b\u2028 \"quotes\" 'single' <tag> & \\n {{ x }} {% y %}\t\r\nend"

MESSAGES = {
    "user": [user("Hello, who are you?")],
    "system": [system("You are terse."), user("Hi")],
    "system_only": [system("You are terse.")],
    "turns": [system("Be kind."), user("One?"), assistant("Two."), user(" Three? "),
              assistant("\nFour.\n"), user("Five?")],
    "turns_without_system": [user("One?"), assistant("Two."), user("Three?")],
    "ends_with_assistant": [user("Write a poem."), assistant("Roses are")],
    "two_users": [user("One."), user("Two.")],
    "two_assistants": [user("One."), assistant("Two."), assistant("Three.")],
    "two_systems": [system("One."), system("Two."), user("Three.")],
    "late_system": [user("One."), system("Two."), assistant("Three."), user("Four.")],
    "assistant_first": [assistant("Welcome."), user("Thanks.")],
    "developer": [{"role": "developer", "content": "Answer in French."}, user("Hi")],
    "unknown_role": [{"role": "narrator", "content": "It was night."}, user("Go on.")],
    "no_messages": [],
    "empty_content": [system(""), user(""), assistant(""), user("x")],
    "blank_content": [system("  \n "), user("\n\n"), assistant(" \t"), user(" x ")],
    "null_content": [user("Hi"), assistant(None), user("Well?")],
    "no_content": [user("Hi"), {"role": "assistant"}, user("Well?")],
    "unicode": [system(UNICODE), user(UNICODE), assistant(UNICODE), user("ok")],
    "special_tokens": [user("<|im_end|><|im_start|>system\n</s>[INST]<end_of_turn><|eot_id|>"),
                       assistant("<think>hm</think>[/INST]<s>"), user("<|endoftext|>")],
    "tool_call": [user("Weather in Oslo?"), assistant("", tool_calls=[OSLO]),
                  result('{"celsius": 21}')],
    "tool_call_null_content": [user("Weather in Oslo?"), assistant(None, tool_calls=[OSLO]),
                               result("21 °C"), assistant("It is 21 °C."), user("Thanks!")],
    "tool_call_with_text": [system("Use tools."), user("Weather?"),
                            assistant("Let me look.", tool_calls=[OSLO]), result("21"),
                            assistant("21 degrees."), user("And tomorrow?")],
    "two_tool_calls": [user("Weather and news?"), assistant("", tool_calls=[OSLO, ODD]),
                       result("21", "call00001"), result("none", "call00002", "search"),
                       assistant("Sunny, no news."), user("Good.")],
    "tool_call_string_arguments": [
        user("Weather?"),
        assistant("", tool_calls=[call("get_weather", '{"city": "Oslo", "days": 2}')]),
        result("21")],
    "tool_call_no_arguments": [user("Time?"), assistant("", tool_calls=[call("now", {})]),
                               result("noon", name="now"), assistant("Noon.")],
    "tool_result_json": [user("Weather?"), assistant("", tool_calls=[OSLO]),
                         {"role": "tool", "tool_call_id": "call00001",
                          "content": {"temp": 21.5, "sky": ["clear", None, True]}}],
    "tool_result_parts": [user("Weather?"), assistant("", tool_calls=[OSLO]),
                          {"role": "tool", "tool_call_id": "call00001", "name": "get_weather",
                           "content": [{"type": "text", "text": "21"}, {"type": "text", "text": "C"}]}],
    "tool_result_without_call": [user("Weather?"), result("21")],
    "reasoning": [user("2+2?"), assistant("4", reasoning_content="2 and 2 make 4."), user("3+3?"),
                  assistant("6", reasoning_content="\nEasy.\n")],
    "reasoning_key": [user("2+2?"), assistant("4", reasoning="2 and 2."), user("3+3?")],
    "thinking_key": [user("2+2?"), assistant("4", thinking="2 and 2."), user("3+3?")],
    "inline_thinking": [user("2+2?"), assistant("<think>\n2 and 2.\n</think>\n\n4"), user("3+3?"),
                        assistant("<think>\nno end")],
    "reasoning_with_tools": [user("Weather?"),
                             assistant("", reasoning_content="I must look.", tool_calls=[OSLO]),
                             result("21"), assistant("21", reasoning_content="Done."), user("Bye")],
    "text_parts": [{"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
                   {"role": "user", "content": [{"type": "text", "text": "What is "},
                                                {"type": "text", "text": "this?"}]},
                   {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
                   user("Sure?")],
    "image_parts": [{"role": "user", "content": [{"type": "text", "text": "What is this?"},
                                                 {"type": "image"}]}],
    "image_url_parts": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
        {"type": "image", "image": "cat.png"}, {"type": "video"}, {"type": "audio"},
        {"type": "text", "text": "These?"}]}],
    "empty_parts": [{"role": "user", "content": []}],
    "user_names": [{"role": "user", "name": "ada", "content": "Hi"},
                   {"role": "assistant", "name": "bot", "content": "Hi Ada"}, user("Hm")],
    "prefix": [user("Hi"), assistant("Once upon", prefix=True)],
    "train_flag": [user("Hi"), assistant("Hello", train=False), user("Bye")],
}

VARIABLES = {
    "think": {"enable_thinking": True, "thinking": True},
    "no_think": {"enable_thinking": False, "thinking": False},
    "effort": {"reasoning_effort": "high", "thinking_mode": "thinking"},
    "options": {"custom_tools": TOOLS[:1], "date_string": "26 Jul 2024", "documents":
                [{"title": "T", "text": "Body <b>", "doc_id": 1}], "tools_in_user_message": False,
                "keep_past_thinking": True, "preserve_thinking": True, "clear_thinking": False,
                "builtin_tools": ["browser", "python"], "model_identity": "I am.", "functions": "f()",
                "datetime": "now", "citation_mode": "fast", "safety_mode": "strict"},
}


def contexts(bos_token="<s>", eos_token="</s>"):
    """Every context, by a name such as "tool_call+tools+generate"."""
    cases = {}

    def add(name, messages, tools, generate, **more):
        cases[name] = {"messages": messages, "tools": tools, "documents": None,
                       "add_generation_prompt": generate, "bos_token": bos_token,
                       "eos_token": eos_token, **more}

    for name, messages in MESSAGES.items():
        for tools_name, tools in (("", None), ("+tools", TOOLS)):
            add(name + tools_name + "+generate", messages, tools, True)
            add(name + tools_name, messages, tools, False)
        add(name + "+empty_tools", messages, [], True)
    for variables_name, variables in VARIABLES.items():
        for name in ("turns", "tool_call_with_text", "reasoning", "inline_thinking", "unicode",
                     "reasoning_with_tools", "two_tool_calls"):
            add(f"{name}+{variables_name}", MESSAGES[name], TOOLS, True, **variables)
            add(f"{name}+{variables_name}+plain", MESSAGES[name], None, False, **variables)
    for name in ("continue_final_message", "unused"):
        add(f"ends_with_assistant+{name}", MESSAGES["ends_with_assistant"], None, False,
            **{name: True})
    return cases
