"""The agent: model calls and tool calls until there is an answer or a limit.

To read it: `run` has the input and the result of a run, `loop` the loop. `model_call` makes a model
call with its retries and fallbacks, each of them an `attempt`. `tool_runner` runs the tool calls of
one response, and `approval` decides which of them may run. `request` builds the first request of a
run, `shortening` keeps later ones within the context window.
"""
