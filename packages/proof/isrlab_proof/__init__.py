"""isrlab for who changes the protocol: which promises hold, by search and by Kafka's classes.

try_all   every schedule within some budgets: try_all(version="4.3", crashes=2, produces=1)
"""

from isrlab import exports

__all__ = ["try_all"]
__getattr__ = exports(__name__, {"try_all": "search.everything:try_all"})
