CODE_PROMPT = "Write {name} plainly, in a block:\n```python\n```\n"
