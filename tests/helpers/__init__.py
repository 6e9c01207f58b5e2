"""What several folders of tests share; imported as ``helpers.<module>``."""
