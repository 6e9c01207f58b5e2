STEPS_PROMPT = """
Work in small steps. Set {braces} aside.
"""
