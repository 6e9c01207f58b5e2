"""An operator of your own: workflows call ``operator.Twice``; prompt, lint and sandbox follow from the class."""


class Twice:
    NAME = "Twice"
    RESULT = {"answer": str, "agreed": bool}
    SUMMARY = "answers the input twice and says whether both answers agree"

    def __init__(self, tools):
        self.tools = tools

    async def __call__(self, input: str):
        first = await self.tools.ask(self.NAME, input)
        second = await self.tools.ask(self.NAME, input)
        return {"answer": first.strip(), "agreed": first.strip() == second.strip()}
