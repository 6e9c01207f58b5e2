"""Any value that JSON can hold, for tests by hypothesis."""

from hypothesis import strategies as st


def any_json(*more: st.SearchStrategy[object], leaves: int = 6) -> st.SearchStrategy[object]:
    """``more`` are further values without parts."""
    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.one_of(*more)

    def nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        return st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)

    return st.recursive(plain, nested, max_leaves=leaves)
