"""Expressions of llama.cpp's server tests that are about their model, and what is here instead.

The tests were written for a model with 512 tokens in its vocabulary. What a prompt has in tokens or
begins with is recorded from llama-server (`recorded`: the value with that name, of that test, the
first, second … time that it is asked for). Texts of so many batches, or too long, are so here too;
llama-server's own template of --no-jinja has no default system message, the model's has.
"""

# {test function: {expression as ast.unparse() writes it: another}}
REPLACEMENTS = {
    "test_tokenize_with_bos": {
        "res_tok.body['tokens'][0] == bosId":
            "res_tok.body['tokens'][0] == recorded('first token')",
    },
    "test_completion_response_fields": {"'<s> ' + prompt": "recorded('prompt')"},
    "test_chat_template": {
        "'<s> <|start_header_id|>system<|end_header_id|>\\n\\nBook<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\\n\\nWhat is the best book<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\\n\\n'": "recorded('prompt')",
    },
    "test_chat_completion_cached_tokens": {
        "res.body['usage']['prompt_tokens'] == n_prompt":
            "res.body['usage']['prompt_tokens'] == recorded('prompt')",
        "res.body['usage']['prompt_tokens_details']['cached_tokens'] == n_cache":
            "res.body['usage']['prompt_tokens_details']['cached_tokens'] == recorded('cached')",
    },
    "test_completion_prompt_cache": {"(40 + r) * 5 + 2": "recorded('prompt')"},
    "test_return_progress": {"'This is a test' * 10": "'This is a test' * 36"},
    "test_nocache_long_input_prompt": {
        "'I believe the meaning of life is' * 32": "'I believe the meaning of life is' * 64",
    },
    "test_ctx_shift_disabled_long_prompt": {"LONG_TEXT": "LONG_TEXT * 3"},
}

# Parameters of tests that are such values.
RECORDED_PARAMETERS = {"n_prompt", "n_token_output"}
